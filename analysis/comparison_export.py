"""A comparison for programs: everything as JSON, the cells as CSV."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from analysis import holm
from analysis.compared_level import Cell
from analysis.comparison import Comparison
from analysis.effect import POWER
from analysis.export import cell_of, safe_text
from analysis.failure_effect import FailureEffect

FORMAT = 1


def comparison_object(found: list[Comparison], exit_code: int) -> dict[str, Any]:
    """Times in seconds, shares as numbers from 0 on; unknown is null."""
    return {
        "format": FORMAT,
        "correction": holm.METHOD,
        "power": POWER,
        "comparisons": [_comparison(one) for one in found],
        "exit_code": exit_code,
    }


def _comparison(one: Comparison) -> dict[str, Any]:
    return {
        "base": [run.path for run in one.base],
        "candidate": [run.path for run in one.candidate],
        "refused": bool(one.refused),
        "differences": [
            {"name": d.name, "base": d.base, "candidate": d.candidate, "allowed": d.allowed} for d in one.differences
        ],
        "doubts": one.doubts,
        "left_out": one.dropped,
        "unmatched": one.unmatched,
        "cells": [_cell(cell) for cell in one.cells],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    effect, interval = cell.effect, cell.effect.interval() or (None, None)
    shares = isinstance(effect, FailureEffect)
    low, high = interval
    return {
        "level": cell.key[0],
        "traffic": cell.key[1],
        "figure": cell.figure,
        "better": cell.better,
        "base": effect.base,
        "candidate": effect.candidate,
        "ratio": _finite(effect.ratio),
        "ratio_low": None if shares else low,
        "ratio_high": None if shares else high,
        "difference": effect.candidate - effect.base,
        "difference_low": low if shares else _difference(effect.base, low),
        "difference_high": high if shares else _difference(effect.base, high),
        "p": effect.chance,
        "p_corrected": cell.corrected,
        "floor": cell.floor,
        "detectable": cell.detectable,
        "needed_for_5_percent": cell.needed,
        "verdict": cell.verdict.value,
        "reason": cell.reason,
    }


def _difference(base: float, ratio: float | None) -> float | None:
    return None if ratio is None else base * (ratio - 1.0)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def comparison_csv(found: list[Comparison]) -> str:
    """One line a cell; none of a comparison that was refused."""
    out = io.StringIO()
    rows = [
        {"base_run": ",".join(r.path for r in one.base), "candidate_run": ",".join(r.path for r in one.candidate)}
        | _cell(cell)
        for one in found
        for cell in one.cells
    ]
    names = [*rows[0]] if rows else ["base_run", "candidate_run", "level", "figure", "verdict", "reason"]
    write = csv.writer(out, lineterminator="\n").writerow
    write(names)
    for row in rows:
        write([safe_text(text) if isinstance(text := row[name], str) else cell_of(text) for name in names])
    return out.getvalue()
