"""Lives of the server: levels that were measured after it was started again are not those of one and the same run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from analysis.level_names import level_names, listed
from analysis.levels import LevelRow
from analysis.outcome import Note
from analysis.run_folder import Run

_AGAIN = (
    "measured after the server was started again: another epoch; its caches were cold, and other conditions may differ "
    "from those of the other levels"
)
_UNSURE = "whether the server was started again in between is not known: their caches and conditions may differ"


def epoch_notes(run: Run, rows: list[LevelRow]) -> list[Note]:
    """One for each life of the server after the first in which levels were measured, and one for a run that went on
    with an earlier one."""
    lives = sorted({row.epoch for row in rows if row.epoch is not None})
    notes = _resumed(run, unsure=any(row.epoch is None for row in rows))
    for life in lives[1:]:
        notes.append(Note("epoch", f"{_levels(rows, [row for row in rows if row.epoch == life])} {_AGAIN}"))
    return notes


def _levels(rows: list[LevelRow], life: list[LevelRow]) -> str:
    """``c=16 and up were`` where these are the last of ever more users."""
    if len(life) == 1:
        return f"{life[0].name} was"
    users = [row.concurrency or 0 for row in rows]
    rising = not life[0].by_clock and all(a < b for a, b in pairwise(users))
    if rising and rows[-len(life) :] == life:
        return f"{life[0].name} and up were"
    return f"{listed(row.name for row in life)} were"


def _resumed(run: Run, *, unsure: bool) -> list[Note]:
    resumed: Any = run.facts.get("resumed")
    if not isinstance(resumed, dict) or not isinstance(resumed.get("levels"), list):
        return []
    names = level_names(run)
    taken = listed(names.get(level, f"level {level}") for level in resumed["levels"])
    source = f"the run {resumed.get('run')}, which ended early"
    text = f"{taken}: taken over from {source}; the other levels were measured later"
    return [Note("resumed", f"{text}; {_UNSURE}" if unsure else text)]
