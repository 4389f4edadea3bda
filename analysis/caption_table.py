"""Captioning as people read it: pictures and captions in time, first and second questions, the generator's own part."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.columns import CAPTIONS, Column, cells, plain
from analysis.figures import Figure
from analysis.levels import LevelRow
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.tables import TextTable, level_cell, load_title

TITLE = "Captions"
SHARE = "MM cache"
_AT = [column.key for column in CAPTIONS].index("prompt_tok_s") + 1
# Generated tokens stand beside the prompts'.
SHOWN: tuple[Column, ...] = (*CAPTIONS[:_AT], plain("output_tok_s", "generated tok/s", 1), *CAPTIONS[_AT:])


def caption_blocks(outcome: Outcome) -> list[Part]:
    """Nothing where no request had pictures."""
    rows = caption_rows(outcome)
    if not rows:
        return []
    several = len({row.traffic for row in rows}) > 1
    header, columns = [load_title(rows)], [[level_cell(row) for row in rows]]
    if several:
        header.append("class")
        columns.append([row.traffic or "" for row in rows])
    table = caption_table(header, columns, rows, shares_of(outcome.levels, rows))
    return [Part(TITLE, table, _lines(rows))]


def caption_rows(outcome: Outcome) -> list[LevelRow]:
    """Classes with pictures, at each level."""
    return [row for row in outcome.classes if row.captions is not None]


def shares_of(levels: Sequence[LevelRow], rows: Sequence[LevelRow]) -> list[float | None]:
    """Of each row, the measured share of its level's look-ups that the multimodal cache served."""
    shares = {row.level: row.image_cache.measured for row in levels if row.image_cache is not None}
    return [shares.get(row.level) for row in rows]


def caption_table(
    header: list[str], columns: list[list[str]], rows: Sequence[LevelRow], shares: list[float | None]
) -> TextTable:
    """Behind the columns that name a row, those figures that any row has."""
    fixed = len(header)
    header, columns = header.copy(), columns.copy()
    for column in SHOWN:
        texts = cells(rows, column)
        if any(texts):
            header.append(column.title)
            columns.append(texts)
        if column.key == "tokens_per_image" and any(share is not None for share in shares):
            header.append(SHARE)
            columns.append(["" if share is None else f"{share:.1%}" for share in shares])
    body = [list(texts) for texts in zip(*columns, strict=True)]
    return TextTable("captions", TITLE, header, body, fixed, frozenset(range(1, fixed)))


def figures_of_captions(outcome: Outcome) -> list[Figure]:
    """What this table shows."""
    return [row.figure(column.figure) for row in caption_rows(outcome) for column in SHOWN]


def _lines(rows: Sequence[LevelRow]) -> list[str]:
    """How many pictures and captions there were, and who waited."""
    pictures = sum(row.captions.pictures for row in rows if row.captions)
    captions = sum(row.captions.captions for row in rows if row.captions)
    lines = [f"{captions} questions about {pictures} pictures were answered"]
    for row in rows:
        one = row.captions
        if one is not None and one.waited:
            wait = row.figure("picture_wait_mean_s").value or 0.0
            lines.append(
                f"{row.name}: pictures were not ready as fast as they were used: {one.waits} of {one.sessions} "
                f"sessions waited {wait:.2g} s in the mean, {one.wait_share:.0%} of the streams' time; smaller "
                "pictures or more load processes (--processes) help"
            )
    return lines
