"""Text tables for the terminal (folded to its width) and as Markdown."""

from __future__ import annotations

import io
import re

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.outcome import Outcome
from analysis.tables import TextTable, cold_start_line, legend_of, tables_of

_GAP = 2  # columns between two cells


def terminal(outcome: Outcome, *, width: int, by_class: bool = False, colour: bool = False) -> str:
    """Everything worth reading, at most ``width`` columns wide where a single column fits."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, no_color=not colour, highlight=False, emoji=False)

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=False)

    line(title_of(outcome), "bold")
    line("")
    for table in tables_of(outcome, by_class=by_class):
        if table.key != "levels":
            line(table.title, "bold")
        for part in folded(table, width):
            console.print(_rich(part))
            line("")
    if (sentence := cold_start_line(outcome)) is not None:
        line(sentence)
        line("")
    for text in (*_footnotes(outcome), *legend_of(outcome, by_class=by_class)):
        line(text, "dim")
    return _without_trailing_spaces(out.getvalue())


def markdown(outcome: Outcome, *, by_class: bool = False) -> str:
    """The same as pipe tables."""
    lines = [f"## {_escaped(title_of(outcome))}", ""]
    for table in tables_of(outcome, by_class=by_class):
        if table.key != "levels":
            lines += [f"### {table.title}", ""]
        lines += [
            _pipes(table.header),
            _pipes(["---" if i in table.left else "---:" for i in range(len(table.header))]),
        ]
        lines += [_pipes([_escaped(cell) for cell in row]) for row in table.rows]
        lines.append("")
    if (sentence := cold_start_line(outcome)) is not None:
        lines += [_escaped(sentence), ""]
    lines += [f"- {_escaped(text)}" for text in (*_footnotes(outcome), *legend_of(outcome, by_class=by_class))]
    return "\n".join(lines) + "\n"


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
        shown.add_column(Text(title.replace(" ", "\n", 1)), justify=justify, no_wrap=i not in table.left)  # type: ignore[arg-type]
    for row in table.rows:
        shown.add_row(*(Text(_one_line(cell)) for cell in row))
    return shown


def _footnotes(outcome: Outcome) -> list[str]:
    failures = [
        f"{group.count} x {group.kind}" + (": " + " | ".join(group.samples) if group.samples else "")
        for group in outcome.failures
    ]
    return [f"failures: {text}" for text in failures] + [note.text for note in outcome.notes]


def _pipes(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    """Text of strangers must neither break a table nor become markup."""
    text = _one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\|*_`\[\]])", r"\\\1", text)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _without_trailing_spaces(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n") + "\n"
