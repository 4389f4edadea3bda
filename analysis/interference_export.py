"""Interference for programs: one JSON object, or one CSV line a class and figure. Times in seconds."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import asdict
from typing import Any

from analysis.blocks import Block, Side
from analysis.figures import Figure
from analysis.interference_block import LIMIT
from analysis.interference_test import LEAST_S, LEAST_SHARE, NONE_SHARE, Cell, ClassResult, Interference

_CSV = (
    *("concurrency", "class", "users", "figure", "alone", "alone_low", "alone_high"),
    *("together", "together_low", "together_high", "ratio", "ratio_low", "ratio_high", "verdict"),
)


def interference_object(groups: list[Interference]) -> dict[str, Any]:
    """Unknown is null, an end of an interval that does not exist likewise; so is a value later than all others."""
    return {
        "least_effect": {"share": LEAST_SHARE, "s": LEAST_S},
        "no_effect_within": NONE_SHARE,
        "limit": LIMIT,
        "groups": [
            {
                "concurrency": group.users,
                "classes": [_class(result) for result in group.classes],
                "blocks": [_block(block) for block in group.blocks],
            }
            for group in groups
        ],
    }


def interference_csv(groups: list[Interference]) -> str:
    """Latencies in seconds, tok/s as they are; blank for unknown."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(_CSV)
    for group in groups:
        for result in group.classes:
            for cell in result.cells:
                figures = [end for figure in (cell.alone, cell.together, cell.ratio) for end in _ends(figure)]
                write([group.users, result.name, result.users, cell.measure.key, *figures, cell.answer])
    return out.getvalue()


def _class(result: ClassResult) -> dict[str, Any]:
    return {
        "class": result.name,
        "users": result.users,
        "beside": result.others,
        "alone": _side(result.alone),
        "together": _side(result.together),
        "figures": {cell.measure.key: _cell(cell) for cell in result.cells},
        "findings": [asdict(finding) for finding in result.findings],
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "blocks": len(side.blocks),
        "requests": side.requests,
        "failed": side.failed,
        "cut": side.cut,
        "prompt_tokens_mean": side.mean("prompt_tokens"),
        "output_tokens_mean": side.mean("output_tokens"),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "alone": _figure(cell.alone),
        "together": _figure(cell.together),
        "ratio": _figure(cell.ratio),
        "verdict": cell.answer,
    }


def _block(block: Block) -> dict[str, Any]:
    return {
        "level": block.level,
        "label": block.name,
        "round": block.round,
        "users": block.users,
        "state": block.state,
        "complete": block.complete,
    }


def _figure(figure: Figure) -> dict[str, Any]:
    value, low, high = _ends(figure)
    return {"value": value, "n": figure.n, "low": low, "high": high}


def _ends(figure: Figure) -> tuple[float | None, float | None, float | None]:
    value, low, high = (
        None if end is None or math.isinf(end) else end for end in (figure.value, figure.low, figure.high)
    )
    return value, low, high
