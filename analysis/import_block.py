"""Figures of another tool that are none of ours, in a table of their own with what each one means there."""

from __future__ import annotations

from analysis.columns import Column, cells
from analysis.foreign_figures import FOREIGN, STATISTICS, foreign_of
from analysis.levels import LevelRow
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.tables import TextTable, load_title


def import_blocks(outcome: Outcome) -> list[Part]:
    """One block, only where a level has such figures; without p90 and p99, which JSON and CSV have."""
    columns = [column for column in foreign_columns(outcome.levels) if not column.figure.endswith(("_p90_s", "_p99_s"))]
    if not columns:
        return []
    rows = outcome.levels
    texts = [cells(rows, column) for column in columns]
    body = [[row.short_name, *(column[i] for column in texts)] for i, row in enumerate(rows)]
    title = f"As {outcome.source.removesuffix(' CSV')} defines them"
    table = TextTable("foreign", title, [load_title(rows), *(column.title for column in columns)], body)
    names = dict.fromkeys(foreign_of(column.figure) for column in columns)
    return [Part(title, table, [f"{FOREIGN[name].title}: {FOREIGN[name].text}" for name in names])]


def foreign_columns(rows: list[LevelRow]) -> list[Column]:
    """Of the figures that no level of ours has, in the order of their list; times in milliseconds, ends in seconds."""
    present = {name for row in rows for name, figure in row.figures.items() if figure.value is not None}
    columns = []
    for name, foreign in FOREIGN.items():
        if foreign.times:
            wanted = [(f"{name}_{label}_s", label) for label in STATISTICS]
            columns += [_time(figure, foreign.title, label) for figure, label in wanted if figure in present]
        elif name in present:
            columns.append(Column(name, name, foreign.title, 1))
    return columns


def _time(figure: str, title: str, label: str) -> Column:
    if FOREIGN[foreign_of(figure)].near == "e2e":
        return Column(figure, figure, f"{title} {label} s", 2)
    return Column(f"{figure[:-2]}_ms", figure, f"{title} {label} ms", 1, 1000.0)
