"""Sessions that arrived by the clock, as people read them: asked for, sent, done, and what became of the rest."""

from __future__ import annotations

from analysis.arrivals import LevelArrivals
from analysis.columns import ARRIVALS, cells, number_text
from analysis.levels import LevelRow
from analysis.notes import where
from analysis.outcome import Note, Outcome
from analysis.part import Part
from analysis.tables import TextTable, level_cell, load_title

TITLE = "Arrivals"
_ALWAYS = ("scheduled", "ok", "failed", "not_admitted")
_TITLES = {
    "scheduled": "scheduled",
    "ok": "ok",
    "failed": "failed",
    "not_admitted": "not admitted",
    "unfinished": "unfinished",
    "lost": "lost",
}


def arrival_blocks(outcome: Outcome) -> list[Part]:
    """One table of all levels by the clock, each class by itself where there are several; nothing in closed loops."""
    rows = arrival_rows(outcome)
    return [Part(TITLE, _table(rows, several=outcome.several_classes), [])] if rows else []


def arrival_rows(outcome: Outcome) -> list[LevelRow]:
    """Levels, and before each of them its classes where there are several."""
    classes = outcome.classes if outcome.several_classes else []
    rows = []
    for level in outcome.levels:
        rows += [row for row in classes if row.level == level.level]
        rows.append(level)
    return [row for row in rows if row.arrivals is not None]


def arrival_notes(rows: list[LevelRow]) -> list[Note]:
    """``rows``: of whole levels. Counts that do not close, and sessions of which the time is not known."""
    notes = []
    for row in rows:
        one = row.arrivals
        if one is None:
            continue
        if one.missing:
            notes.append(Note("arrivals", f"{where(row)}: the arrivals do not add up: {_sum(one)}"))
        if one.unfinished:
            text = (
                f"{where(row)}: {one.unfinished} sessions were unfinished at the end of the level; requests that were "
                "cut count as taking at least until then, and quantiles that rest on them are lower bounds (+)"
            )
            notes.append(Note("unfinished", text))
    return notes


def _sum(one: LevelArrivals) -> str:
    counts = {"ok": one.ok, "failed": one.failed, "not admitted": one.not_admitted, "unfinished": one.unfinished}
    parts = [f"{count} {name}" for name, count in (counts | {"lost": one.lost or 0}).items() if count]
    many = f"{abs(one.missing)} {'are missing' if one.missing > 0 else 'too many'}"
    return f"{one.scheduled} were scheduled, known are {' + '.join(parts) or 'none'}; {many}"


def _table(rows: list[LevelRow], *, several: bool) -> TextTable:
    header, columns = [load_title(rows)], [[level_cell(row) for row in rows]]
    if several:
        header.append("class")
        columns.append([row.traffic or "all" for row in rows])
    fixed = len(header)
    asked = [None if row.arrivals is None else row.arrivals.rate_per_s for row in rows]
    if any(rate is not None for rate in asked):
        header.append("asked per s")
        columns.append(["" if rate is None else number_text(rate, 2) for rate in asked])
    for name, title in _TITLES.items():
        counts: list[int | None] = [getattr(row.arrivals, name) for row in rows]
        if name in _ALWAYS or any(counts):
            header.append(title)
            columns.append(["" if count is None else str(count) for count in counts])
    for column in ARRIVALS:
        texts = cells(rows, column)
        if any(texts):
            header.append(column.title)
            columns.append(texts)
    body = [list(texts) for texts in zip(*columns, strict=True)]
    return TextTable("arrivals", TITLE, header, body, fixed, frozenset(range(1, fixed)))
