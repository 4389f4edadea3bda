"""A table somebody published (CSV, tabs, semicolons or Markdown pipes), read by what its columns mean.

One row is one figure set as printed: the same configuration at the same concurrency may stand in several tables with
different figures, and every one of them is kept. The figures are those of the source, by its own definitions.
"""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analysis.csv_file import LARGEST
from analysis.figures import QUANTILES, Figure, Mark
from analysis.levels import LevelRow
from analysis.outcome import Note, Outcome
from analysis.table_header import FACTS, Heading, heading_of
from analysis.table_texts import configuration_and_table
from tokenswarm.errors import RunFolderError
from tokenswarm.quantiles import order_statistic_interval

SOURCE = "published table"
_WANTED = "a table of results with a column of concurrency and at least one of tok/s, TTFT, TPOT or E2E"
_BLANK = ("", "-", "–", "—", "n/a", "na", "none", "null", "nan", "?", "unknown")
_NUMBER = re.compile(r"[~≈<>]?\s*([+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(.*)", re.IGNORECASE)
_UNIT_OF_CELL = {"ms": 0.001, "s": 1.0, "sec": 1.0, "us": 1e-6, "µs": 1e-6}
# Where neither the title nor the cells name a unit: medians above the first bound are milliseconds, below the second
# seconds, and between the two it cannot be told.
_SIZES = {"ttft": (100.0, 20.0), "tpot": (2.0, 1.0), "itl": (2.0, 1.0), "e2e": (1000.0, 600.0)}


@dataclass
class _Column:
    title: str
    heading: Heading
    cells: list[str]
    numbers: list[float | None] = field(default_factory=list)


def is_published(titles: list[str]) -> bool:
    """Whether a header names a concurrency and at least one figure."""
    names = {heading_of(title).name for title in titles} - {""}
    return "concurrency" in names and bool(names - set(FACTS))


def holds_published(path: Path) -> bool:
    """Whether the file is such a table, its columns parted by commas, semicolons, tabs or the pipes of Markdown."""
    try:
        return is_published(_lines(path)[0])
    except (RunFolderError, csv.Error):
        return False


def read_published(path: Path | str) -> list[Outcome]:
    """One outcome for each configuration in each table of the file, in the order in which they first appear.

    ``facts`` has ``configuration`` and ``table`` (empty where the file names none), and so has each level. Counts that
    the source does not give are in ``LevelRow.unknown_counts``.
    Raises ``RunFolderError`` with one line for a file that is no such table.
    """
    path = Path(path)
    columns, notes = _columns_of(path)
    rows = list(_rows(path, columns))
    if not rows:
        raise RunFolderError(f"{path}: wanted {_WANTED}, but it holds no row, only the header")
    sets: dict[tuple[str, str], list[LevelRow]] = {}
    for row in rows:
        sets.setdefault((row.table, row.configuration), []).append(row)
    return [
        Outcome(
            path=str(path),
            source=SOURCE,
            name=" · ".join(part for part in (configuration, table) if part) or path.stem,
            facts={"configuration": configuration, "table": table},
            levels=levels,
            notes=list(notes),
        )
        for (table, configuration), levels in sets.items()
    ]


def published_outcome(path: Path | str) -> Outcome:
    """The whole file as one outcome, every figure set a level of its own, named by configuration and table."""
    parts = read_published(path)
    levels = [row for part in parts for row in part.levels]
    for i, row in enumerate(levels):
        row.level = i
        where = " · ".join(part for part in (row.configuration, row.table) if part)
        row.label = f"{row.label} {where}".rstrip()
    return Outcome(path=str(path), source=SOURCE, name=Path(path).stem, levels=levels, notes=parts[0].notes)


def _columns_of(path: Path) -> tuple[list[_Column], list[Note]]:
    titles, *body = _lines(path)
    columns = [
        _Column(title, heading_of(title), [cells[i].strip() if i < len(cells) else "" for cells in body])
        for i, title in enumerate(titles)
    ]
    if not is_published(titles):
        raise RunFolderError(f"{path}: wanted {_WANTED}; its columns are {', '.join(titles)[:200]}")
    notes = [Note("source", "figures as published, by the definitions of their source; blank where it gives none")]
    kept: dict[str, _Column] = {}
    for column in columns:
        told = _read(column)
        name = column.heading.name
        if name in kept and name == "configuration":
            first = kept[name]
            first.cells = [
                " ".join(part for part in both if part) for both in zip(first.cells, column.cells, strict=True)
            ]
        elif name in kept:
            told.append(f"means the same as {kept[name].title!r} and was left out")
        elif name:
            kept[name] = column
        notes += [Note("columns", f"column {column.title!r} {text}") for text in told]
    notes += _name_texts(columns, kept)
    if unread := [column.title for column in columns if not column.heading.name and not column.heading.problem]:
        notes.append(Note("columns", f"columns that were not read: {', '.join(unread)}"))
    return list(kept.values()), notes


def _name_texts(columns: list[_Column], kept: dict[str, _Column]) -> list[Note]:
    """Columns of words whose titles say nothing: configuration and table are told by which rows agree."""
    unread = [column for column in columns if not column.heading.name and not column.heading.problem]
    texts = {column.title: column.cells for column in unread if _is_text(column.cells)}
    if "configuration" in kept or "concurrency" not in kept:
        return []
    figures = [column.cells for name, column in kept.items() if name not in FACTS]
    found = configuration_and_table(texts, kept["concurrency"].cells, figures)
    notes = []
    for name, title in zip(("configuration", "table"), found, strict=True):
        if title is None or name in kept:
            continue
        kept[name] = next(column for column in unread if column.title == title)
        kept[name].heading = Heading(name)
        notes.append(Note("columns", f"column {title!r} is taken for the {name}, by which rows hold the same figures"))
    return notes


def _is_text(cells: list[str]) -> bool:
    """Words rather than numbers."""
    filled = [cell for cell in cells if cell.lower() not in _BLANK]
    return sum(_number(cell) is None for cell in filled) > len(filled) / 2


def _read(column: _Column) -> list[str]:
    """Numbers of the column in seconds and tok/s, and what to say of it."""
    heading = column.heading
    if heading.problem:
        return [f"{heading.problem} and was left out"]
    if not heading.name or heading.name in ("table", "configuration"):
        return []
    raw = [_number(cell) for cell in column.cells]
    told = [
        f"has {cell!r} in row {i}, which is no number: left blank"
        for i, (cell, value) in enumerate(zip(column.cells, raw, strict=True), start=1)
        if value is None and cell.lower() not in _BLANK
    ]
    scale, said = _scale(heading, [value for value, _ in filter(None, raw)])
    if scale is None and not all(unit for _, unit in filter(None, raw)):
        column.heading = Heading("", problem=said)
        return [*told, said]
    column.numbers = [None if found is None else found[0] * (found[1] or scale or 1.0) for found in raw]
    return [*told, *([said] if said and not all(unit for _, unit in filter(None, raw)) else [])]


def _scale(heading: Heading, values: list[float]) -> tuple[float | None, str]:
    """The unit of the title, else what the sizes say."""
    if heading.scale is not None or not values:
        return heading.scale or 1.0, ""
    above, below = _SIZES[heading.name.split("_")[0]]
    middle = statistics.median(values)
    if middle >= above:
        return 0.001, f"names no unit: read as ms, since its median is {middle:g}"
    if middle < below:
        return 1.0, f"names no unit: read as s, since its median is {middle:g}"
    return None, "names no unit and its values could be ms or s: left out"


def _number(cell: str) -> tuple[float, float | None] | None:
    """The number in a cell and the scale of the unit beside it; ``None`` where there is no number."""
    found = _NUMBER.fullmatch(cell)
    if not found or cell.lower() in _BLANK:
        return None
    rest = found[2].strip().lower().rstrip("*†‡~^§")
    if rest and rest not in _UNIT_OF_CELL and not re.fullmatch(r"x|(?:tok|tokens|t|req)/s|tps|tok|tokens", rest):
        return None
    value = float(found[1].replace(",", ""))
    return (value, _UNIT_OF_CELL.get(rest)) if abs(value) < LARGEST else None


def _rows(path: Path, columns: list[_Column]) -> Iterator[LevelRow]:
    by_name = {column.heading.name: column for column in columns if column.heading.name}
    for i in range(len(columns[0].cells)):
        values = {name: column.numbers[i] for name, column in by_name.items() if column.numbers}
        texts: dict[str, str] = {name: by_name[name].cells[i] for name in ("table", "configuration") if name in by_name}
        users = values.pop("concurrency", None)
        if users is None:
            if any(value is not None for value in values.values()):
                raise RunFolderError(f"{path}: row {i + 1} names no concurrency, wanted a number of users")
            continue
        yield _row(i, int(users), texts, values)


def _row(place: int, users: int, texts: dict[str, str], values: dict[str, float | None]) -> LevelRow:
    counts = {name: values.pop(name, None) for name in ("requests", "ok", "failed")}
    requests, ok, failed = counts["requests"], counts["ok"], counts["failed"]
    ok = requests - failed if ok is None and requests is not None and failed is not None else ok
    failed = requests - ok if failed is None and requests is not None and ok is not None else failed
    requests = ok + failed if requests is None and ok is not None and failed is not None else requests
    known = {"requests": requests, "ok": ok, "failed": failed}
    row = LevelRow(
        place,
        users,
        label=f"c={users}",
        configuration=texts.get("configuration", ""),
        table=texts.get("table", ""),
        requests=int(requests or 0),
        ok=int(ok or 0),
        failed=int(failed or 0),
        unknown_counts=frozenset(name for name, count in known.items() if count is None),
    )
    n = None if ok is None else int(ok)
    row.figures = {name: _figure(name, value, n) for name, value in values.items() if value is not None}
    return row


def _figure(name: str, value: float, n: int | None) -> Figure:
    """A quantile of too few requests to bound it carries that mark; an interval cannot be had from a table."""
    q = next((q for label, q in QUANTILES.items() if f"_{label}_" in name), None)
    if n is None or (q is None and "_mean_" not in name):
        return Figure(value)
    unbounded = q is not None and order_statistic_interval(n, q) is None
    return Figure(value, n=n, marks=(Mark.NO_BOUND,) if unbounded else ())


def _lines(path: Path) -> list[list[str]]:
    """Cells of each line, the header first; lines without any cell are left out."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = "it is no text" if isinstance(problem, UnicodeDecodeError) else problem.strerror
        raise RunFolderError(f"{path}: wanted {_WANTED}: {reason}") from problem
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise RunFolderError(f"{path}: wanted {_WANTED}, but it is empty")
    if any(line.lstrip().startswith("|") for line in lines):
        return _piped(lines)
    delimiter = max(",;\t", key=lines[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return [cells for cells in reader if any(cell.strip() for cell in cells)]


def _piped(lines: list[str]) -> list[list[str]]:
    """The first pipe table, without the line of dashes."""
    table = [line.strip().strip("|") for line in lines if line.lstrip().startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in table]
    return [row for row in cells if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
