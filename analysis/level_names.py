"""What each level of a run is called: ``c=8``, ``c=8 paired``, and ``c=8 cold #2`` where such a level comes again,
``2/s`` where sessions arrive by the clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from analysis.arrivals import clocked_levels
from analysis.run_folder import Run
from tokenswarm.schedule import Arms, level_labels


def level_names(run: Run) -> dict[int, str]:
    """Names by number of the level, of all levels that were planned or have requests: as the plan and ``levels.csv``
    have them, else from users and arms. A level by the clock has no users: otherwise it is called by its rate, else by
    its number."""
    arms = level_arms(run)
    users: dict[int, Any] = {level: rows["concurrency"].max() for level, rows in _levels(run)}
    users |= {level["level"]: level.get("concurrency") for level in run.planned_levels if "level" in level}
    known, clocked = sorted(users), clocked_levels(run)
    names = [
        _clocked_name(run, level) if level in clocked else f"c={_whole(users[level])} {arms.get(level, '')}".strip()
        for level in known
    ]
    planned = {
        level["level"]: str(level["label"]) for level in run.planned_levels if "level" in level and level.get("label")
    }
    told = run.levels.dropna(subset=["level", "label"])
    ended = {int(level): str(label) for level, label in zip(told["level"], told["label"], strict=True)}
    return dict(zip(known, level_labels(names), strict=True)) | planned | ended


def _clocked_name(run: Run, level: int) -> str:
    """As the plan calls a steady rate: only the first level of a search is in the plan."""
    rates = run.levels.loc[run.levels["level"] == level, "rate_per_s"].dropna()
    return f"{rates.iloc[-1]:g}/s" if len(rates) else f"level {level}"


def listed(names: Iterable[str]) -> str:
    """``c=8, 16`` for c=8 and c=16; names of other kinds each in full."""
    names = list(names)
    users = all(name.startswith("c=") for name in names)
    return f"c={', '.join(name.removeprefix('c=') for name in names)}" if users and names else ", ".join(names)


def level_classes(run: Run) -> dict[int, tuple[str, ...]]:
    """The classes that have users in each level, where the plan gives every class its own number of them."""
    users = {level["level"]: level.get("users_by_class") for level in run.planned_levels if "level" in level}
    return {
        level: tuple(sorted(str(name) for name, count in of_class.items() if count))
        for level, of_class in users.items()
        if isinstance(of_class, dict)
    }


def level_arms(run: Run) -> dict[int, str]:
    """The arms of the prefix-cache test that each level has: from the plan, ``levels.csv``, or the rows themselves."""
    arms = {level: _arms_of(rows) for level, rows in _levels(run)}
    written = run.levels.dropna(subset=["level", "arms"])
    arms |= {int(level): str(name) for level, name in zip(written["level"], written["arms"], strict=True)}
    return arms | {level["level"]: str(level["arms"] or "") for level in run.planned_levels if "arms" in level}


def _levels(run: Run) -> Iterator[tuple[int, pd.DataFrame]]:
    for level, rows in run.requests.groupby("level"):
        number: Any = level
        yield int(number), rows


def _arms_of(rows: pd.DataFrame) -> str:
    seen = sorted(rows["arm"].dropna().unique())
    return "" if not seen else str(seen[0]) if len(seen) == 1 else Arms.PAIRED.value


def _whole(users: Any) -> str:
    return "" if users is None or math.isnan(users) else str(int(users))
