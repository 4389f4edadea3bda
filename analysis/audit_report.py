"""``python -m analysis audit``: runs and published tables in, concerns out."""

from __future__ import annotations

import argparse
import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.audit import Audit, audit_of
from analysis.audit_concern import REASONS, Concern, Kind
from analysis.audit_quoted import Quote, is_quoted, read_quoted
from analysis.audit_set import name_of
from analysis.csv_file import header_of
from analysis.export import cell_of, safe_text
from analysis.levels import LevelRow
from analysis.other_tools import holds_results
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.published_table import is_published, published_outcome
from analysis.report import FORMATS, Report
from analysis.sample_size import WIDTH, needs_of, rounded
from analysis.tables import TextTable
from tokenswarm.errors import RunFolderError

EXIT_CONCERN = 1
_TABLES = (".csv", ".tsv", ".md", ".txt")
_OF_A_RUN = ("run.json", "requests.csv")
_FORMAT = 1


def add_options(options: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    add = options.add_argument
    add(
        "run",
        metavar="RUN|TABLE",
        nargs="*",
        help="run folders, requests.csv, Locust CSVs, tables somebody published (CSV, TSV, Markdown), or folders of "
        "such tables (default: the newest run in results/)",
    )
    add("--format", choices=FORMATS, default="terminal")
    add("--json", dest="format", action="store_const", const="json", help="same as --format json")
    add("--check", action="store_true", help="exit with 1 where something does not close")
    add("--width", type=int, help="columns of the terminal table (default: the terminal's)")


def report(named: Sequence[str], options: argparse.Namespace, read: Callable[[str], Outcome]) -> tuple[str, int]:
    """The text in ``options.format``, and the exit code. ``read`` reads what is no table."""
    outcomes, quotes, unread = read_inputs(named, read)
    audit = audit_of(outcomes, quotes)
    text = _report(audit, unread, outcomes).text(options)
    return text, EXIT_CONCERN if options.check and audit.concerns else 0


def read_inputs(named: Sequence[str], read: Callable[[str], Outcome]) -> tuple[list[Outcome], list[Quote], list[str]]:
    """Tables, runs and lists of single values, each recognised by its header; last, what was not read and why."""
    outcomes: list[Outcome] = []
    quotes: list[Quote] = []
    unread: list[str] = []
    for name in named:
        tables = _tables_in(Path(name))
        for path in tables:
            try:
                outcome = _table(path, quotes)
            except RunFolderError as problem:
                unread.append(str(problem))
            else:
                outcomes += [outcome] if outcome else []
        if not tables:
            path = Path(name)
            outcome = _table(path, quotes) if _is_table(path) else read(name)
            outcomes += [outcome] if outcome else []
    if not outcomes and not quotes:
        raise RunFolderError(unread[0] if unread else "wanted runs or tables to audit")
    return outcomes, quotes, unread


def _tables_in(path: Path) -> list[Path]:
    """Files of a folder that is no run."""
    of_locust = path.is_dir() and any(path.glob("*_stats*.csv"))
    if not path.is_dir() or any((path / name).exists() for name in _OF_A_RUN) or of_locust or holds_results(path):
        return []
    files = sorted(one for one in path.iterdir() if one.suffix.lower() in (".csv", ".tsv"))
    if not files:
        raise RunFolderError(f"{path}: wanted a run folder or a folder of tables, but there is neither")
    return files


def _is_table(path: Path) -> bool:
    if not path.is_file() or path.suffix.lower() not in _TABLES:
        return False
    if path.suffix.lower() != ".csv":
        return True
    titles = header_of(path)
    return "sent_s" not in titles and (is_published(titles) or is_quoted(path) or ";" in "".join(titles))


def _table(path: Path, quotes: list[Quote]) -> Outcome | None:
    """``None`` for a list of single values, which is added to ``quotes``."""
    if path.suffix.lower() == ".csv" and is_quoted(path):
        quotes += read_quoted(path)
        return None
    return published_outcome(path)


def _report(audit: Audit, unread: list[str], outcomes: list[Outcome]) -> Report:
    looked = f"{audit.rows} rows" + (f" and {audit.quotes} single values" if audit.quotes else "")
    title = f"Audit · {looked} · {len(audit.concerns) or 'no'} concern{'s' * (len(audit.concerns) != 1)}"
    footnotes = [f"read: {source}" for source in audit.sources] + [f"not read: {text}" for text in unread]
    footnotes.append("definitions and tolerances: docs/audit.md")
    levels = [row for outcome in outcomes for row in outcome.levels]
    return Report(
        title,
        lambda: _parts(audit) + _sizes(levels),
        footnotes,
        lambda: _document(audit, unread, levels),
        lambda: _csv(audit),
    )


def _parts(audit: Audit) -> list[Part]:
    """One part a rule that raised something, with the reason, the rows and what to do."""
    parts = []
    for kind in Kind:
        found = [concern for concern in audit.concerns if concern.kind is kind]
        if not found:
            continue
        body = [[", ".join(concern.rows), concern.text] for concern in found]
        table = TextTable(str(kind), str(kind), ["rows", "what does not close"], body, left=frozenset({0, 1}))
        lines = [f"rule: {REASONS[kind]}"]
        lines += [f"likely: {text}{_count(n)}" for text, n in Counter(one.cause for one in found).items()]
        lines += [f"next: {text}" for text in dict.fromkeys(one.next_step for one in found)]
        parts.append(Part(f"{kind[:1].upper()}{kind[1:]}", table, lines))
    if not parts:
        parts.append(Part("", None, ["Everything that could be checked closes."]))
    return parts


def _sizes(levels: list[LevelRow]) -> list[Part]:
    """Requests that the levels need, where their figures tell."""
    body = [
        [name_of(row), need.title, str(need.has), rounded(need.for_width)] for row in levels for need in needs_of(row)
    ]
    if not body:
        return []
    header = ["row", "figure", "requests", f"for ±{WIDTH:.0%}"]
    line = f"for ±{WIDTH:.0%}: with which the 95 % interval reaches so far in the mean; compare tells its own needs"
    return [Part("Requests that the levels need", TextTable("sizes", "", header, body, 2, frozenset({0, 1})), [line])]


def _count(n: int) -> str:
    return f" ({n} times)" if n > 1 else ""


def _document(audit: Audit, unread: list[str], levels: list[LevelRow]) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "sources": audit.sources,
        "not_read": unread,
        "rows": audit.rows,
        "quotes": audit.quotes,
        "concerns": [concern_object(concern) for concern in audit.concerns],
        "sample_sizes": [{"row": name_of(row), **asdict(need)} for row in levels for need in needs_of(row)],
    }


def concern_object(concern: Concern) -> dict[str, Any]:
    """One concern for programs."""
    return {
        "kind": concern.kind.value,
        "rows": list(concern.rows),
        "text": concern.text,
        "told": concern.told,
        "wanted": concern.wanted,
        "unit": concern.unit,
        "reason": concern.reason,
        "cause": concern.cause,
        "next_step": concern.next_step,
    }


def _csv(audit: Audit) -> str:
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(["kind", "rows", "text", "told", "wanted", "unit", "reason", "cause", "next_step"])
    for one in audit.concerns:
        rows = safe_text("; ".join(one.rows))
        told, wanted = cell_of(one.told), cell_of(one.wanted)
        write([one.kind, rows, safe_text(one.text), told, wanted, one.unit, one.reason, one.cause, one.next_step])
    return out.getvalue()
