"""Lives of the server: levels that were measured after it was started again are not those of one and the same run."""

from __future__ import annotations

from itertools import groupby, pairwise

from analysis.level_names import listed
from analysis.levels import LevelRow
from analysis.outcome import Note

_KEY = "epoch"


def epoch_notes(rows: list[LevelRow]) -> list[Note]:
    """One for each life of the server after the first that the levels of a run saw."""
    known = [row for row in rows if row.epoch is not None]
    lives = [list(part) for _, part in groupby(known, key=lambda row: row.epoch)]
    return [Note(_KEY, f"{_levels(life, life is lives[-1])} {_TEXT}") for life in lives[1:]]


_TEXT = (
    "measured after the server was started again: another epoch; its caches were cold, and other conditions may differ "
    "from those of the levels before"
)


def _levels(life: list[LevelRow], last: bool) -> str:
    """``c=16 and up were``, in the order of the run."""
    if len(life) == 1:
        return f"{life[0].name} was"
    users = [row.concurrency or 0 for row in life]
    up = last and not life[0].by_clock and all(a < b for a, b in pairwise(users))
    return f"{life[0].name} and up were" if up else f"{listed(row.name for row in life)} were"
