"""A report on a run before it is a page: sections of prose, tables, plots and facts, and links between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from analysis.tables import TextTable


@dataclass(frozen=True)
class Link:
    """To a place in the same report; ``anchor`` without its ``#``."""

    text: str
    anchor: str


@dataclass(frozen=True)
class Sentence:
    """``links`` lead to the rows that it rests on."""

    text: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Prose:
    """Paragraphs."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Bullets:
    """``warn``: what a reader must know before the figures are believed."""

    sentences: tuple[Sentence, ...]
    warn: bool = False


@dataclass(frozen=True)
class Facts:
    """Names and values of what was not measured."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Definitions:
    """Terms, each with its anchor and what it means."""

    rows: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Tabled:
    """A table whose rows can be linked to, see :func:`row_anchor`; ``key`` is unique in the report."""

    key: str
    table: TextTable
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plot:
    """``svg`` is a whole element whose colours are the variables of ``report_theme``."""

    key: str
    title: str
    caption: str
    svg: str
    wide: bool = False


@dataclass(frozen=True)
class Plots:
    """Plots beside each other; ``missing`` says which there are not, and why."""

    plots: tuple[Plot, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Code:
    """To be copied as it stands."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks that only some readers want."""

    summary: str
    blocks: tuple[Block, ...]


Block = Prose | Bullets | Facts | Definitions | Tabled | Plots | Code | Fold


@dataclass(frozen=True)
class Section:
    """``anchor`` is unique in the report."""

    anchor: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """``badges``: what must be seen at first sight (SIMULATED, INTERRUPTED)."""

    title: str
    subtitle: str
    badges: tuple[str, ...] = ()
    sections: list[Section] = field(default_factory=list)


def slug(text: str) -> str:
    """Letters, digits and hyphens, whatever the text."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def row_anchor(key: str, index: int) -> str:
    """Of the row of a table, counted from 0."""
    return f"{key}-{index + 1}"
