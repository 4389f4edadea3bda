"""Tables of a report: those of the table command, and the intervals of latencies, which have no room there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.columns import SHOWN, Column, decimals_for, scaled
from analysis.figures import Figure
from analysis.levels import LevelRow
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.report_sections import Block, Fold, Prose, Tabled, slug
from analysis.tables import TextTable, level_cell, load_title

_INTERVALS = tuple(column for column in SHOWN if column.key.endswith(("p50_ms", "p95_ms", "p50_s", "p95_s")))


def result_blocks(outcome: Outcome, parts: Sequence[Part]) -> list[Block]:
    """``parts`` in their order, then the intervals."""
    blocks: list[Block] = []
    for part, key in zip(parts, table_keys(parts), strict=True):
        lines = tuple(part.lines)
        if part.table is not None:
            title = part.title or part.table.title
            table = TextTable(
                part.table.key, title, part.table.header, part.table.rows, part.table.fixed, part.table.left
            )
            blocks.append(Tabled(key, table, lines))
        elif lines:
            blocks.append(Prose(tuple([f"{part.title}: {lines[0]}", *lines[1:]] if part.title else lines)))
    intervals = interval_table(outcome)
    if intervals.rows and len(intervals.header) > intervals.fixed:
        said = "Each cell: the value, and in brackets the 95 % interval; without one, too few requests bound the value."
        blocks.append(Fold("Latencies with their 95 % intervals", (Tabled("intervals", intervals, (said,)),)))
    return blocks


def table_keys(parts: Sequence[Part]) -> list[str]:
    """A key for every part, the same in all of a report: that of its table, numbered where it comes again."""
    keys: list[str] = []
    for part in parts:
        key = slug(part.table.key if part.table is not None else "text")
        again = sum(one == key or one.rsplit("-", 1)[0] == key for one in keys)
        keys.append(f"{key}-{again + 1}" if again else key)
    return keys


def interval_table(outcome: Outcome) -> TextTable:
    """One row a level, or a class of it where there are several."""
    several = outcome.several_classes
    rows = outcome.classes if several else outcome.levels
    columns = [column for column in _INTERVALS if any(row.figure(column.figure).value is not None for row in rows)]
    cells = [list(_texts(rows, column)) for column in columns]
    names = [[level_cell(row), *([row.traffic or ""] if several else [])] for row in rows]
    header = [load_title(rows), *(["class"] if several else []), *(column.title for column in columns)]
    body = [[*name, *(column[i] for column in cells)] for i, name in enumerate(names)]
    fixed = 2 if several else 1
    return TextTable("intervals", "95 % intervals", header, body, fixed, frozenset(range(1, fixed)))


def _texts(rows: Sequence[LevelRow], column: Column) -> Iterator[str]:
    figures = [scaled(row.figure(column.figure), column) for row in rows]
    ends = [end for one in figures for end in (one.value, one.low, one.high)]
    decimals = decimals_for(ends, column.decimals)
    return (_text(figure, decimals) for figure in figures)


def _text(figure: Figure, decimals: int) -> str:
    if figure.value is None:
        return ""
    value = f"{figure.value:.{decimals}f}".replace("inf", "∞")
    if figure.low is None or figure.high is None:
        return value
    return f"{value} ({figure.low:.{decimals}f}–{figure.high:.{decimals}f})".replace("inf", "∞")
