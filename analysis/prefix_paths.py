"""Which part of a replayed prompt earlier requests had sent, from the paths that stand as ``prefix`` in their rows.

``0@512/3@2048`` shares 512 tokens with ``0@512/7@1024``: see ``tokenswarm.shared_prefixes``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

_PATH = r"\d+@\d+(?:/\d+@\d+)*"

Path = list[tuple[str, float]]  # place at which others part, tokens up to there


def has_path(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether the prefix of each row is such a path."""
    matches = rows["prefix"].astype("string").str.fullmatch(_PATH).fillna(False)
    return matches.to_numpy(dtype=bool)


def sent_by_others(rows: pd.DataFrame, known_s: pd.Series[float]) -> npt.NDArray[np.floating[Any]]:
    """Tokens at the head of each prompt that were in prompts ``known`` before it was sent; 0 without a path.

    ``known_s``: for each row the time from which its prompt counts as known; blank: never.
    """
    found = np.zeros(len(rows))
    chosen = np.flatnonzero(has_path(rows))
    if not len(chosen):
        return found
    names = rows["prefix"].astype("object").to_numpy()
    paths = {name: path_of(name) for name in set(names[chosen])}
    sent_s, seen_s = rows["sent_s"].to_numpy(), known_s.to_numpy()
    seen = [at for at in chosen[np.argsort(seen_s[chosen], kind="stable")] if not np.isnan(seen_s[at])]
    known: dict[str, float] = {}
    given = 0
    for at in chosen[np.argsort(sent_s[chosen], kind="stable")]:
        while given < len(seen) and seen_s[seen[given]] <= sent_s[at] and seen[given] != at:
            for place, tokens in paths[names[seen[given]]]:
                known[place] = max(known.get(place, 0.0), tokens)
            given += 1
        found[at] = max(min(tokens, known.get(place, 0.0)) for place, tokens in paths[names[at]])
    return found


def path_of(name: str) -> Path:
    """The places of a path, from the head of the prompt on."""
    pairs = (part.split("@") for part in name.split("/"))
    return [(place, float(tokens)) for place, tokens in pairs]
