"""Tables of a report: those of the table command, and the intervals of latencies, which have no room there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.levels import LevelRow
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.report_sections import Block, Fold, Prose, Tabled, slug
from analysis.tables import level_tables


def result_blocks(outcome: Outcome, parts: Sequence[Part]) -> list[Block]:
    """``parts`` in their order, then the intervals."""
    blocks = part_blocks(parts)
    if outcome.levels and any(_bounded(row) for row in (*outcome.classes, *outcome.levels)):
        table = level_tables(outcome, by_class=outcome.several_classes, intervals=True)[0]
        said = "In brackets: the 95 % interval; where there is none, too few requests bound the value."
        table = replace(table, title="")
        blocks.append(Fold("The same figures with their 95 % intervals", (Tabled("intervals", table, (said,)),)))
    return blocks


def part_blocks(parts: Sequence[Part]) -> list[Block]:
    """Each table with its lines below it; lines alone as paragraphs."""
    blocks: list[Block] = []
    for part, key in zip(parts, table_keys(parts), strict=True):
        lines = tuple(part.lines)
        if part.table is not None:
            table = replace(part.table, title=part.title or part.table.title)
            blocks.append(Tabled(key, table, lines))
        elif lines:
            blocks.append(Prose(tuple([f"{part.title}: {lines[0]}", *lines[1:]] if part.title else lines)))
    return blocks


def _bounded(row: LevelRow) -> bool:
    return any(figure.low is not None for figure in row.figures.values())


def table_keys(parts: Sequence[Part]) -> list[str]:
    """A key for every part, the same in all of a report: that of its table, numbered where it comes again."""
    keys: list[str] = []
    for part in parts:
        key = slug(part.table.key if part.table is not None else "text")
        again = sum(one == key or one.rsplit("-no-", 1)[0] == key for one in keys)
        keys.append(f"{key}-no-{again + 1}" if again else key)  # not the name of a row
    return keys
