"""Text tables for the terminal (folded to its width) and as Markdown."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.arrival_block import arrival_blocks
from analysis.cache_block import cache_blocks
from analysis.caption_table import caption_blocks
from analysis.engine_block import server_blocks
from analysis.health_block import health_blocks
from analysis.import_block import import_blocks
from analysis.job_tables import job_blocks, step_blocks
from analysis.legend import legend_of
from analysis.objective_block import TITLE as OBJECTIVES
from analysis.objective_block import block_of
from analysis.objectives import Verdict
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.search_block import search_blocks
from analysis.tables import TextTable, cold_start_line, further_tables, level_tables

_GAP = 2  # columns between two cells
_NARROWEST = 40  # columns; below it words fall apart into letters


@dataclass(frozen=True)
class Choice:
    """What the reader asked for."""

    by_class: bool = False
    notes: bool = False  # all of them, not only those that are special to this run
    intervals: bool = False  # each figure of the levels with its 95 % interval


DEFAULT = Choice()


def terminal(outcome: Outcome, verdict: Verdict, *, width: int, choice: Choice = DEFAULT, colour: bool = False) -> str:
    """Everything worth reading, at most ``width`` columns wide where a single column fits."""
    parts, footnotes = parts_of(outcome, verdict, choice), footnotes_of(outcome, choice)
    return terminal_report(title_of(outcome), parts, footnotes, width=width, colour=colour)


def terminal_report(title: str, parts: list[Part], footnotes: list[str], *, width: int, colour: bool = False) -> str:
    """Tables folded to ``width`` columns, sentences wrapped to it."""
    out = io.StringIO()
    width = max(width, _NARROWEST)
    console = Console(file=out, width=width, force_terminal=colour, no_color=not colour, highlight=False, emoji=False)

    def line(text: str, style: str = "") -> None:
        console.print(Text(one_line(text), style=style), soft_wrap=False)

    line(title, "bold")
    line("")

    def paragraph(texts: list[str], style: str = "") -> None:
        for text in texts:
            line(text, style)
        line("")

    for part in parts:
        if part.title:
            line(part.title, "bold")
        for table in folded(part.table, width) if part.table else []:
            console.print(_rich(table))
            line("")
        if part.lines:
            paragraph(part.lines)
    paragraph(footnotes, "dim")
    return _without_trailing_spaces(out.getvalue())


def markdown(outcome: Outcome, verdict: Verdict, *, choice: Choice = DEFAULT) -> str:
    """The same as pipe tables."""
    return markdown_report(title_of(outcome), parts_of(outcome, verdict, choice), footnotes_of(outcome, choice))


def markdown_report(title: str, parts: list[Part], footnotes: list[str]) -> str:
    """Tables with pipes, footnotes as bullets."""
    lines = [f"## {escaped(title)}", ""]
    for part in parts:
        if part.title:
            lines += [f"### {part.title}", ""]
        if part.table:
            lines += [*pipe_table(part.table), ""]
        if part.lines:
            bullet = "- " if part.title else ""
            lines += [*(bullet + escaped(text) for text in part.lines), ""]
    lines += [f"- {escaped(text)}" for text in footnotes]
    return "\n".join(lines) + "\n"


def parts_of(outcome: Outcome, verdict: Verdict, choice: Choice) -> list[Part]:
    """Tables and sentences in reading order; the first table needs no title."""
    tables = level_tables(outcome, by_class=choice.by_class, intervals=choice.intervals)
    parts = [Part("" if table.key == "levels" else table.title, table, []) for table in tables]
    parts += import_blocks(outcome)
    parts += arrival_blocks(outcome)
    parts += health_blocks(outcome)
    parts += server_blocks(outcome)
    parts += job_blocks(outcome)
    parts += caption_blocks(outcome)
    parts += cache_blocks(outcome)
    parts += step_blocks(outcome)
    if (block := block_of(verdict)) is not None:
        parts.append(Part(OBJECTIVES, block.table, block.lines))
    parts += search_blocks(verdict.search)
    parts += [Part(table.title, table, []) for table in further_tables(outcome, by_class=choice.by_class)]
    if (sentence := cold_start_line(outcome)) is not None:
        parts.append(Part("", None, [sentence]))
    return parts


def title_of(outcome: Outcome) -> str:
    target = outcome.facts.get("target") or {}
    model = target.get("model") if isinstance(target, dict) else None
    parts = [outcome.name, *([str(model)] if model else []), *(["SIMULATED"] if outcome.simulated else [])]
    return " · ".join(parts)


def folded(table: TextTable, width: int) -> list[TextTable]:
    """The table in as many parts below each other as the width asks for, each with the columns that name a row."""
    widths = [
        max([*(cell_len(word) for word in title.split(" ", 1)), *(cell_len(row[i]) for row in table.rows)]) + _GAP
        for i, title in enumerate(table.header)
    ]
    fixed = list(range(table.fixed))
    room = width - sum(widths[i] for i in fixed)
    parts: list[list[int]] = [[]]
    used = 0
    for i in range(table.fixed, len(table.header)):
        if parts[-1] and used + widths[i] > room:
            parts.append([])
            used = 0
        parts[-1].append(i)
        used += widths[i]
    return [_columns_of(table, fixed + part) for part in parts]


def _columns_of(table: TextTable, columns: list[int]) -> TextTable:
    return TextTable(
        table.key,
        table.title,
        [table.header[i] for i in columns],
        [[row[i] for i in columns] for row in table.rows],
        table.fixed,
        frozenset(new for new, old in enumerate(columns) if old in table.left),
    )


def _rich(table: TextTable) -> Table:
    shown = Table(box=SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), pad_edge=False, show_edge=False)
    for i, title in enumerate(table.header):
        justify = "left" if i in table.left else "right"
        shown.add_column(Text(one_line(title).replace(" ", "\n", 1)), justify=justify, no_wrap=i not in table.left)  # type: ignore[arg-type]
    for row in table.rows:
        shown.add_row(*(Text(one_line(cell)) for cell in row))
    return shown


def footnotes_of(outcome: Outcome, choice: Choice) -> list[str]:
    """Failures, notes and the legend of what is shown."""
    failures = [
        f"{group.count} x {group.kind}" + (": " + " | ".join(group.samples) if group.samples else "")
        for group in outcome.failures
    ]
    notes = [note.text for note in outcome.notes if choice.notes or not note.detail]
    return [*(f"failures: {text}" for text in failures), *notes, *legend_of(outcome, by_class=choice.by_class)]


def pipe_table(table: TextTable) -> list[str]:
    """Lines of a Markdown table."""
    return [
        _pipes([escaped(cell) for cell in table.header]),
        _pipes(["---" if i in table.left else "---:" for i in range(len(table.header))]),
        *(_pipes([escaped(cell) for cell in row]) for row in table.rows),
    ]


def _pipes(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def escaped(text: str) -> str:
    """Text of strangers must neither break a table nor become markup."""
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\|*_`\[\]])", r"\\\1", text)


def one_line(text: str) -> str:
    """What would break a line, or a terminal, as spaces."""
    return "".join(c if c.isprintable() else " " for c in text)


def _without_trailing_spaces(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n") + "\n"
