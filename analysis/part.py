"""A stretch of a report: a title, a table, sentences below it. Each may be missing."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.tables import TextTable


@dataclass(frozen=True)
class Part:
    """``lines`` of a part with a title become bullets in Markdown."""

    title: str
    table: TextTable | None
    lines: list[str]
