"""A comparison as people read it: what changed, the cells behind it, and what stands in the way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis import fingerprint, holm
from analysis.columns import FURTHER, NAMES, PUBLISHED, Column, number_text
from analysis.compared_level import Cell, LevelPair, Verdict, where
from analysis.compared_run import ComparedRun
from analysis.comparison import SOUGHT_SHARE, Comparison
from analysis.effect import POWER, Effect
from analysis.failure_effect import FailureEffect
from analysis.part import Part
from analysis.tables import TextTable

_TWICE = 2.0  # changes from here on are told as a factor
_COLUMNS = {column.figure: column for column in reversed((*PUBLISHED, *FURTHER, *NAMES))}


def comparison_parts(found: list[Comparison]) -> list[Part]:
    """Of each candidate what changed, then all cells."""
    return [part for one in found for part in (_refusal(one) if one.refused else _answer(one))]


def _heading(one: Comparison) -> str:
    return f"{_side(one.candidate)} against {_side(one.base)}"


def _side(runs: Sequence[ComparedRun]) -> str:
    return runs[0].path + (f" and {len(runs) - 1} more" if len(runs) > 1 else "")


def _refusal(one: Comparison) -> list[Part]:
    names = " ".join(f"--allow {name}" for name in dict.fromkeys(difference.name for difference in one.refused))
    lines = [f"refused: {difference}" for difference in one.refused]
    advice = f"these runs did not measure the same; where a difference is what you want to compare, allow it: {names}"
    return [Part(_heading(one), None, [*lines, advice])]


def _answer(one: Comparison) -> list[Part]:
    told = [_sentence(cell) for cell in one.cells if cell.verdict != Verdict.UNKNOWN]
    nothing = [] if told else [f"cannot tell: no figure of {len(one.pairs)} levels changed for sure"]
    doubts = [f"left out of verdicts: {doubt}" for doubt in one.doubts]
    doubts += [f"left out: {text}" for text in one.dropped]
    differing = [f"differs, allowed: {difference}" for difference in one.differences]
    trust = [text for run in (*one.base, *one.candidate) if (text := fingerprint.unknown(run))]
    unmatched = [f"not compared: {text}" for text in one.unmatched]
    lines = [*told, *nothing, *doubts, *differing, *dict.fromkeys(trust), *unmatched]
    return [Part(_heading(one), _cells(one), lines), Part("Requests", _requests(one), [])]


def _sentence(cell: Cell) -> str:
    base, candidate = (_value(cell, value) for value in (cell.effect.base, cell.effect.candidate))
    return f"{where(cell.key)}: {cell.verdict}: {cell.title} {base} → {candidate}, {_change(cell)}"


def _cells(one: Comparison) -> TextTable:
    classes = any(cell.key[1] for cell in one.cells)
    several = len(one.base) + len(one.candidate) > 2
    header = [
        "level",
        *(["class"] if classes else []),
        "figure",
        "base",
        "candidate",
        "change (95 %)",
        "verdict",
        "floor",
        "detectable",
        f"{'runs' if several else 'requests'} for {SOUGHT_SHARE:.0%}",
    ]
    body = [
        [
            cell.key[0],
            *([cell.key[1] or "all"] if classes else []),
            cell.title,
            _value(cell, cell.effect.base),
            _value(cell, cell.effect.candidate),
            _change(cell),
            f"{cell.verdict}: {'left out' if pair.left_out else cell.reason}".removesuffix(": "),
            _percent(cell.floor),
            _percent(cell.detectable),
            "" if cell.needed is None else f"{cell.needed:,}",
        ]
        for pair in one.pairs
        for cell in pair.cells
    ]
    fixed = 3 if classes else 2
    kept = [i for i in range(len(header)) if i <= fixed + 3 or any(row[i] for row in body)]
    header, body = [header[i] for i in kept], [[row[i] for i in kept] for row in body]
    return TextTable("comparison", "Comparison", header, body, fixed, frozenset({*range(fixed), fixed + 3}))


def _requests(one: Comparison) -> TextTable:
    header = ["level", "base requests", "base failed", "candidate requests", "candidate failed"]
    body = [[where(pair.key), *_counts(pair)] for pair in one.pairs]
    return TextTable("requests", "Requests", header, body, left=frozenset({0}))


def _counts(pair: LevelPair) -> list[str]:
    """Of the first run of each side."""
    return [
        "" if name in row.unknown_counts else str(getattr(row, name))
        for row in pair.rows
        for name in ("requests", "failed")
    ]


# -- numbers -------------------------------------------------------------------------------------------------------


def _value(cell: Cell, value: float) -> str:
    if isinstance(cell.effect, FailureEffect):
        return f"{value:.1%}"
    column: Column = _COLUMNS[cell.figure]
    return number_text(value * column.scale, column.decimals)


def _change(cell: Cell) -> str:
    """``+4.6 % (+1.2 to +8.1)``; of failures in points of a hundred."""
    interval = cell.effect.interval()
    if isinstance(cell.effect, FailureEffect):
        points = f"{100 * (cell.effect.candidate - cell.effect.base):+.1f} points"
        return points if interval is None else f"{points} ({100 * interval[0]:+.1f} to {100 * interval[1]:+.1f})"
    text = f"{_signed(cell.effect)} %"
    if interval is None:
        return text
    return f"{text} ({' to '.join(_of_ratio(end) for end in interval)})"


def _signed(effect: Effect) -> str:
    return _of_ratio(effect.ratio)


def _of_ratio(ratio: float) -> str:
    share = 100.0 * (ratio - 1.0)
    return f"{share:+.0f}" if abs(share) >= 100 else f"{share:+.1f}"


def _percent(share: float | None) -> str:
    if share is None or math.isinf(share):
        return ""
    return f"{100 * share:.1f} %" if share < _TWICE else f"{1 + share:.0f}x"


def rules(found: list[Comparison]) -> list[str]:
    """How to read it; nothing where there is nothing to read."""
    if all(one.refused for one in found):
        return []
    tested = sum(cell.corrected is not None for one in found for cell in one.cells)
    if not tested:
        return ["cannot tell: of no figure is known how sure it is, on both sides; run folders have what that takes"]
    correction = (
        f"better, worse: an effect that chance explains in less than 5 of 100 comparisons in any of the {tested} cells "
        f"({holm.METHOD}'s correction: one false verdict is enough to mislead), that is larger than the floor, and not "
        "too small to matter; cannot tell: all else, which is not the same as no difference"
    )
    floor = "floor: the largest effect seen where nothing differs: between repeated runs, else between halves of a run"
    power = (
        f"detectable: the change that would be found in {POWER:.0%} of such comparisons; requests, runs for "
        f"{SOUGHT_SHARE:.0%}: how many each run, each side would need for a change as small as that"
    )
    alone = any(len(one.base) == len(one.candidate) == 1 and one.base[0].run is not None for one in found)
    order = "one run a side: a server that became slower between the two looks the same; make ab takes turns"
    return [correction, floor, power, *([order] if alone else [])]
