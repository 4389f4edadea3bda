"""The load generator beside the figures that it took: one row a level, and what to do where it was too slow."""

from __future__ import annotations

from analysis.columns import texts_of
from analysis.figures import BLANK, Figure
from analysis.levels import LevelRow
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.tables import TextTable, level_cell, load_title

TITLE = "Load generator"
# Title, figure of the level, factor, decimals.
_COLUMNS = (
    ("processes", "load_processes", 1.0, 0),
    ("CPU %", "cpu_share", 100.0, 0),
    ("loop lag p95 ms", "loop_lag_p95_s", 1000.0, 1),
    ("send delay p95 ms", "send_delay_p95_s", 1000.0, 1),
    ("read lag p95 ms", "read_lag_p95_s", 1000.0, 1),
    ("events/s per process", "process_events_per_s", 1.0, 0),
)


def health_blocks(outcome: Outcome) -> list[Part]:
    """Nothing where the run kept no health of its processes."""
    rows = [row for row in outcome.levels if row.health is not None]
    if not any(row.health is not None and row.health.known for row in rows):
        return []
    columns = [texts_of([_scaled(row, name, by) for row in rows], places) for _, name, by, places in _COLUMNS]
    body = [[level_cell(row), *cells, _verdict(row)] for row, *cells in zip(rows, *columns, strict=True)]
    header = [load_title(rows), *(title for title, *_ in _COLUMNS), "verdict"]
    return [Part(TITLE, TextTable("generator", TITLE, header, body, left=frozenset({len(header) - 1})), _lines(rows))]


def _scaled(row: LevelRow, name: str, by: float) -> Figure:
    value = row.figure(name).value
    return BLANK if value is None else Figure(value * by)


def _verdict(row: LevelRow) -> str:
    return "" if row.generator is None else row.generator.state


def _lines(rows: list[LevelRow]) -> list[str]:
    """Why, and what to do."""
    return [
        f"{'the whole run' if row.level is None else row.name}: limited by the load generator: {row.generator.line}"
        for row in rows
        if row.generator is not None and row.limited
    ]
