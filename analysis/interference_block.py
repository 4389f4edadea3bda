"""Interference as people read it: one sentence a class, the matrix behind it, and its limits."""

from __future__ import annotations

import math

from analysis.blocks import Side
from analysis.columns import decimals_for
from analysis.figures import Figure
from analysis.interference_test import (
    LEAST_SHARE,
    NONE_SHARE,
    Answer,
    Cell,
    ClassResult,
    Interference,
)
from analysis.part import Part
from analysis.tables import TextTable

TITLE = "Interference"
_SECONDS = 2.0  # below, times are in milliseconds
# The figure that the sentence of a class is about: the first of these that got worse, else the first.
_HEADLINES = ("ttft_p95", "ttft_p50", "tpot_p95", "tpot_p50", "e2e_p50", "tok_s")
LIMIT = (
    "limit: alone and together a class has the same number of users in a closed loop, so that together the server has "
    "more to do: the effect is that of the others' load beside it, not of a better or worse mix at equal load"
)


def interference_parts(groups: list[Interference]) -> list[Part]:
    """Parts of a report in reading order."""
    several = len(groups) > 1
    results = [(group, result) for group in groups for result in group.classes]
    sentences = [_sentence(result, group.users if several else None) for group, result in results]
    return [
        Part(TITLE, _matrix(groups), sentences),
        Part("Requests", _requests(groups), [*_left_out(groups), *_findings(groups, several=several), *_rules()]),
    ]


def _sentence(result: ClassResult, users: int | None) -> str:
    """The answer for a class in words."""
    where = f"{result.name} ({'' if users is None else f'c={users}, '}{_users(result.users)})"
    cell = _headline(result)
    alone, together = _value(cell, cell.alone), _value(cell, cell.together)
    if not alone or not together:
        return f"{where}: cannot tell: nothing is known of it {'together' if alone else 'alone'}"
    beside = " and ".join(f"{name} ({_users(count)})" for name, count in result.others.items())
    unit = f" {_unit(cell)}" if _unit(cell) else ""
    facts = f"{cell.measure.title} {alone}{unit} alone, {together}{unit} beside {beside}"
    return f"{where}: {cell.answer}: {facts}{_factor(cell)}"


def _headline(result: ClassResult) -> Cell:
    """The first figure that got worse, else better, else one that has an interval."""
    cells = [result.cell(key) for key in _HEADLINES]
    changed = [cell for answer in (Answer.WORSE, Answer.BETTER) for cell in cells if cell.answer == answer]
    bounded = [cell for cell in cells if cell.ratio.low is not None and cell.ratio.high is not None]
    return next(iter([*changed, *bounded, *cells]))


def _factor(cell: Cell) -> str:
    ratio = _with_bounds(cell.ratio, _ratio_decimals(cell.ratio))
    return f", {ratio.replace(' (', f' times as {_much(cell)} (', 1)}" if "(" in ratio else ""


def _much(cell: Cell) -> str:
    return "much" if cell.measure.higher else "long"


def _users(count: int) -> str:
    return f"{count} user" if count == 1 else f"{count} users"


# -- the matrix ----------------------------------------------------------------------------------------------------


def _matrix(groups: list[Interference]) -> TextTable:
    header = ["c", "class", "figure", "alone", "together", "ratio", "verdict"]
    body = [
        [str(group.users), result.name, f"{cell.measure.title} {_unit(cell)}".strip(), *_cells(cell), cell.answer.value]
        for group in groups
        for result in group.classes
        for cell in result.cells
    ]
    return TextTable("interference", TITLE, header, body, fixed=3, left=frozenset({1, 2, 3, 4, 5, 6}))


def _cells(cell: Cell) -> list[str]:
    values = (_scaled(figure, _scale(cell)) for figure in (cell.alone, cell.together))
    texts = [_with_bounds(figure, _decimals(figure)) for figure in values]
    return [*texts, _with_bounds(cell.ratio, _ratio_decimals(cell.ratio))]


def _value(cell: Cell, figure: Figure) -> str:
    scaled = _scaled(figure, _scale(cell))
    return _with_bounds(Figure(scaled.value), _decimals(scaled))


def _scale(cell: Cell) -> float:
    """Latencies are in seconds where the larger one has some, else in milliseconds."""
    largest = max(cell.alone.value or 0.0, cell.together.value or 0.0)
    return 1.0 if cell.measure.higher or largest >= _SECONDS else 1000.0


def _unit(cell: Cell) -> str:
    return "" if cell.measure.higher else "s" if _scale(cell) == 1.0 else "ms"


def _scaled(figure: Figure, scale: float) -> Figure:
    value, low, high = (None if end is None else end * scale for end in (figure.value, figure.low, figure.high))
    return Figure(value, figure.n, low, high, figure.marks)


def _decimals(figure: Figure) -> int:
    """Three digits or more."""
    value = figure.value or 0.0
    return 0 if value >= 100 or math.isinf(value) else 1 if value >= 10 else min(3, decimals_for([value], 2))


def _ratio_decimals(ratio: Figure) -> int:
    return 2 if (ratio.value or 0.0) < 10 else 1


def _with_bounds(figure: Figure, decimals: int) -> str:
    """``353 (290–431)``, ``353 (≥ 290)`` where only one end is known; blank for unknown."""
    value, low, high = (
        None if end is None else _fixed(end, decimals) for end in (figure.value, figure.low, figure.high)
    )
    match value, low, high:
        case None, _, _:
            return ""
        case _, None, None:
            return f"{value}"
        case _, _, None:
            return f"{value} (≥ {low})"
        case _, None, _:
            return f"{value} (≤ {high})"
        case _:
            return f"{value} ({low}–{high})"


def _fixed(value: float, decimals: int) -> str:
    return "∞" if math.isinf(value) else f"{value:.{decimals}f}"


# -- what one must know to read it ---------------------------------------------------------------------------------


def _requests(groups: list[Interference]) -> TextTable:
    header = ["c", "class", "", "blocks", "requests", "failed", "cut", "prompt tokens", "output tokens"]
    body = [
        [str(group.users), result.name, side.name, *_counts(side)]
        for group in groups
        for result in group.classes
        for side in (result.alone, result.together)
    ]
    return TextTable("requests", "Requests", header, body, fixed=3, left=frozenset({1, 2}))


def _counts(side: Side) -> list[str]:
    means = [side.mean(column) for column in ("prompt_tokens", "output_tokens")]
    counts = (len(side.blocks), side.requests, side.failed, side.cut)
    return [*(str(count) for count in counts), *("" if mean is None else f"{mean:,.0f}" for mean in means)]


def _left_out(groups: list[Interference]) -> list[str]:
    return [
        f"left out: {block.name}: {block.state}{f': {block.reason}' if block.reason else ''}"
        for group in groups
        for block in group.left_out
    ]


def _findings(groups: list[Interference], *, several: bool) -> list[str]:
    return [
        f"{result.name}{f' (c={group.users})' if several else ''}, {finding.text}"
        for group in groups
        for result in group.classes
        for finding in result.findings
    ]


def _rules() -> list[str]:
    return [
        LIMIT,
        "requests are those sent in the measured time of a block; in brackets the 95 % interval, from how much the "
        "blocks and their halves differ, where there are enough requests for it, else the one end that is known; that "
        "of together / alone holds every ratio of two values inside both intervals",
        f"worse, better: the intervals do not overlap and the values differ by {100 * LEAST_SHARE:g} % or more; "
        f"no effect: together / alone is within {100 * NONE_SHARE:g} %, its whole interval; cannot tell: all else, "
        "more blocks (interference.blocks) or longer ones (load.closed.duration_s) narrow the intervals",
    ]
