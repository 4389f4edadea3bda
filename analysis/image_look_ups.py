"""How often each request looks an image up in the server's multimodal cache, and how often an ideal cache has it.

Every image in a prompt is one look-up, also where it stands there as part of the history. An ideal cache has an image
that an earlier request has shown: one of the same session, the other session of the same pair, or, where the scenario
lets pictures come again, one of any session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.limits import mapping
from analysis.run_folder import Run
from tokenswarm.records import Phase


@dataclass(frozen=True)
class LookUps:
    """Images of a level. ``again``: of them an ideal cache has, at least and at most as far as can be told;
    ``uncertain``: those of failed requests, which may have been looked up or not."""

    count: float
    again_least: float
    again: float
    again_most: float
    uncertain: float


def image_requests(run: Run) -> pd.DataFrame:
    """Requests with images that were sent, of all phases, with the columns ``again`` and ``surely``: images that an
    earlier request has shown, and of these those of one that had been answered when this one was sent."""
    rows = run.requests[(run.requests["images"] > 0) & run.requests["sent_s"].notna()]
    keys = _pictures_of(rows)
    first_sent = rows["sent_s"].groupby(keys).transform("min")
    first_answered = rows["first_token_s"].groupby(keys).transform("min")
    return rows.assign(
        again=rows["images"].where(rows["sent_s"] > first_sent, 0.0),
        surely=rows["images"].where(rows["sent_s"] >= first_answered, 0.0),
    )


def look_ups_of(requests: pd.DataFrame, before: pd.DataFrame, distinct: dict[str, int]) -> LookUps:
    """Of a level's ``image_requests``; ``before`` are those of the levels before it.

    ``distinct``: how many pictures the classes have whose pictures come again.
    """
    good = requests["error_kind"].isna()
    known = requests[good]
    count, again = float(known["images"].sum()), float(known["again"].sum())
    least, most = float(known["surely"].sum()), again
    for traffic, pictures in distinct.items():
        shown = _first_shown(requests, traffic)
        earlier = _first_shown(before, traffic)
        new = min(pictures, earlier + shown) - min(pictures, earlier)
        least += max(0.0, shown - pictures)
        again += shown - new
        most += shown
    return LookUps(count, least, again, most, float(requests.loc[~good, "images"].sum()))


def distinct_pictures(run: Run) -> dict[str, int]:
    """By class, how many drawings there are that come again in turn, where the scenario says so."""
    counts = {name: _source(item).get("distinct") for name, item in run.traffic_classes.items()}
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def pictures_come_again(traffic: dict[str, Any]) -> bool:
    """Whether sessions of a class may be about a picture that another one had: all but drawings without end."""
    images = mapping(traffic.get("images"))
    collected = any(images.get(source) for source in ("folder", "parquet", "hub"))
    return collected or _source(traffic).get("distinct") is not None


def _source(traffic: dict[str, Any]) -> dict[str, Any]:
    return mapping(mapping(traffic.get("images")).get("synthetic"))


def _first_shown(requests: pd.DataFrame, traffic: str) -> float:
    """Images of the successful requests of a class that their own session had not shown before."""
    mine = requests[(requests["traffic"] == traffic) & requests["error_kind"].isna()]
    return float((mine["images"] - mine["again"]).sum())


def _pictures_of(rows: pd.DataFrame) -> pd.Series[str]:
    """A name for the pictures of each request: equal for one session, and for the two sessions of a pair."""
    names = rows["session"].astype("object").fillna("")
    paired = rows[rows["pair"].notna()]
    pairs = zip(paired["traffic"], paired["level"], paired["phase"], paired["pair"], strict=True)
    names[paired.index] = [
        f"{traffic} {level} {phase == Phase.WARMUP} pair {pair:.0f}" for traffic, level, phase, pair in pairs
    ]
    return names
