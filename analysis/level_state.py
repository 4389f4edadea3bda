"""How a level ended, and over which time its throughput was taken."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pandas as pd

from analysis.run_folder import Run
from tokenswarm.records import Phase


class Basis(StrEnum):
    """How output tok/s was taken; a table never mixes the two between levels without saying so."""

    DRAIN = "drain"
    WINDOW = "window"


def state_of(run: Run, level: int | None) -> tuple[str, str]:
    """One word and the reason, from ``levels.csv``; a free-running load has ended where the run has."""
    if level is None:
        return ("free-running" if run.end is not None or not run.whole_folder else "interrupted"), ""
    entries = run.levels[run.levels["level"] == level]
    if len(entries):
        entry = entries.iloc[-1]
        return _text(entry["state"]) or "unknown", _text(entry["reason"])
    if not run.whole_folder:
        return "unknown", ""
    if run.end is None:
        return "interrupted", "the run ended inside this level"
    return "partial", "the level has no entry in levels.csv"


def _text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)


def basis_of(run: Run, level: int | None, rows: pd.DataFrame) -> Basis:
    """From the plan; without one, fill requests among the rows tell."""
    if level is None:
        return Basis.WINDOW
    tail: Any = None
    for planned in run.planned_levels:
        if planned.get("level") == level:
            tail = planned.get("tail")
    if tail is None:
        load = run.scenario.get("load")
        closed = load.get("closed") if isinstance(load, dict) else None
        tail = closed.get("tail") if isinstance(closed, dict) else None
    if tail is None:
        tail = "fill" if (rows["phase"] == Phase.FILL).any() else "drain"
    return Basis.WINDOW if tail == "fill" else Basis.DRAIN
