"""``python -m analysis ingest [RUN] LOG …``: logs of inference engines, by themselves or beside the levels of a run."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.cache_block import TOO_GOOD
from analysis.columns import texts_of
from analysis.engine_block import log_part
from analysis.engine_export import aligned_object, log_object
from analysis.engine_log import EngineLog, read_log
from analysis.export import cell_of
from analysis.figures import BLANK, Figure
from analysis.legend import LIMITED_LINE
from analysis.levels import LevelRow, level_rows
from analysis.log_alignment import Alignment, align
from analysis.log_curve import LogCurve, curve_of
from analysis.log_entries import Boot, LogEngine, LogSample
from analysis.log_levels import LogLevel, log_levels
from analysis.part import Part
from analysis.report import FORMATS, Report
from analysis.run_folder import Run, read_run
from analysis.tables import CONTAMINATED, TextTable
from tokenswarm.errors import InputError

_PAGE = "docs/engine-view.md"
_NO_FIT = (
    "the log and the run do not fit together, and nothing was joined: it is of another time or engine, or no load "
    "changed enough to tell; --offset SECONDS lays the log's clock by hand"
)
# Title, field, factor, decimals.
_COLUMNS = (
    ("prompt tok/s", "prompt_tok_s", 1.0, 1),
    ("generation tok/s", "generation_tok_s", 1.0, 1),
    ("running", "running", 1.0, 0),
    ("waiting", "waiting", 1.0, 0),
    ("swapped", "swapped", 1.0, 0),
    ("preemptions", "preemptions", 1.0, 0),
    ("KV %", "kv_usage", 1e2, 1),
    ("prefix hits ~%", "prefix_hit_rate", 1e2, 1),
    ("external hits ~%", "external_hit_rate", 1e2, 1),
    ("MM hits ~%", "mm_hit_rate", 1e2, 1),
    ("new tokens", "new_tokens", 1.0, 0),
    ("cached tokens", "cached_tokens", 1.0, 0),
    ("output tokens", "output_tokens", 1.0, 0),
    ("tokens a step", "accept_len", 1.0, 2),
    ("drafts accepted %", "accept_rate", 1e2, 1),
)


def report(options: argparse.Namespace) -> str:
    """The whole text in the format asked for. Raises ``InputError`` with one line for what cannot be read."""
    paths = [Path(path) for path in options.paths]
    first = paths[0].parent if paths[0].name == "run.json" else paths[0]
    if not first.is_dir():
        return _alone([read_log(path) for path in paths]).text(options)
    if len(paths) < 2:
        raise InputError(f"{first}: wanted the log of a server after the run folder")
    return _joined(read_run(first), paths[1:], options.offset).text(options)


def _alone(logs: list[EngineLog]) -> Report:
    return Report(
        title=" · ".join(_title(log) for log in logs),
        parts=lambda: [part for log in logs for part in _tabulated(log)],
        footnotes=[*(note for log in logs for note in _footnotes(log)), f"definitions: {_PAGE}"],
        document=lambda: {"format": 1, "logs": [log_object(log) for log in logs]},
        csv=lambda: _csv([asdict(sample) for log in logs for sample in log.found.samples]),
    )


def _title(log: EngineLog) -> str:
    versions = [boot.version for boot in log.found.boots if boot.version]
    return " ".join([log.path.name, str(log.engine), *versions[-1:]])


def _footnotes(log: EngineLog) -> list[str]:
    notes = [f"{log.path.name}: {text}" for text in log.notes]
    match log.engine:
        case LogEngine.VLLM:
            notes.append(
                "stamps have neither year nor zone; a missing interval was idle; hit rates are of recent requests"
            )
        case LogEngine.SGLANG:
            notes.append("stamps have no zone")
        case LogEngine.LLAMACPP:
            notes.append("one row a request; stamps count from the start of the process")
    return notes


def _tabulated(log: EngineLog) -> list[Part]:
    parts = [Part("At the start", None, [_boot_text(boot) for boot in log.found.boots if boot.known])]
    samples = log.found.samples
    columns = [
        (title, texts_of([_of(one, name, by) for one in samples], places)) for title, name, by, places in _COLUMNS
    ]
    columns = [(title, texts) for title, texts in columns if any(texts)]
    several = [
        (title, [str(getattr(one, name)) for one in samples])
        for title, name in (("engine", "engine"), ("about", "kind"))
        if len({getattr(one, name) for one in samples}) > 1
    ]
    header = ["stamp", *(title for title, _ in several), *(title for title, _ in columns)]
    body = [[one.stamp, *(texts[i] for _, texts in (*several, *columns))] for i, one in enumerate(samples)]
    fixed = 1 + len(several)
    parts.append(Part(log.path.name, TextTable("log", log.path.name, header, body, fixed, frozenset(range(fixed))), []))
    if drafting := [one for one in log.found.drafting if one.accepted is not None and one.drafted]:
        accepted, drafted = (sum(getattr(one, name) for one in drafting) for name in ("accepted", "drafted"))
        parts.append(
            Part(
                "Speculative decoding",
                None,
                [f"{accepted} of {drafted} drafted tokens accepted: {accepted / drafted:.1%}"],
            )
        )
    return [part for part in parts if part.lines or (part.table and part.table.rows)]


def _boot_text(boot: Boot) -> str:
    told = [
        f"version {boot.version}" if boot.version else "",
        f"KV cache memory {boot.kv_memory_gib:g} GiB" if boot.kv_memory_gib is not None else "",
        f"KV cache {boot.kv_tokens:,} tokens" if boot.kv_tokens is not None else "",
        f"{boot.max_concurrency:g} requests of {boot.max_concurrency_tokens:,} tokens fit"
        if boot.max_concurrency
        else "",
        f"at most {boot.max_running} requests run" if boot.max_running is not None else "",
        f"ready after {boot.init_s:g} s" if boot.init_s is not None else "",
    ]
    return ", ".join(text for text in told if text)


def _of(sample: LogSample, name: str, by: float) -> Figure:
    value = getattr(sample, name)
    return BLANK if value is None else Figure(value * by)


def _joined(run: Run, paths: Sequence[Path], offset_s: float | None) -> Report:
    if run.unix_minus_master_s is None:
        raise InputError(f"{run.path}: wanted a run with its workers.csv, whose clocks a log is laid on")
    if offset_s is None and run.timeline.empty:
        raise InputError(f"{run.path}: wanted a run with its timeline.csv, or --offset for the log's clock")
    rows, _ = level_rows(run)
    found = [_beside(run, rows, path, offset_s) for path in paths]
    return Report(
        title=f"{run.name} · {' · '.join(_title(log) for log, _, _ in found)}",
        parts=lambda: [part for log, aligned, levels in found for part in _parts(log, aligned, levels)],
        footnotes=[
            *(note for log, _, _ in found for note in _footnotes(log)),
            *run.notes,
            *_marks(rows),
            f"definitions: {_PAGE}",
        ],
        document=lambda: {
            "format": 1,
            "source": {"path": str(run.path), "name": run.name, "run_id": run.facts.get("run_id")},
            "logs": [aligned_object(*one) for one in found],
        },
        csv=lambda: _csv([level for one in found for level in aligned_object(*one)["levels"]]),
    )


def _marks(rows: list[LevelRow]) -> list[str]:
    """What is beside the names of levels."""
    told = (
        ("!  the level is not complete", any(not row.complete for row in rows)),
        (f"{CONTAMINATED}  contaminated: {TOO_GOOD}", any(row.contaminated for row in rows)),
        (LIMITED_LINE, any(row.limited for row in rows)),
    )
    return [text for text, shown in told if shown]


def _beside(
    run: Run, rows: list[LevelRow], path: Path, offset_s: float | None
) -> tuple[EngineLog, Alignment | None, list[LogLevel]]:
    log = read_log(path, _near_s(run))
    curve = curve_of(log.found.samples)
    aligned = _aligned(run, log, curve, offset_s)
    return log, aligned, [] if aligned is None else log_levels(run, rows, log, curve, aligned)


def _aligned(run: Run, log: EngineLog, curve: LogCurve, offset_s: float | None) -> Alignment | None:
    if offset_s is not None:
        return Alignment(offset_s)
    return align(curve, run.timeline, uptime=log.engine == LogEngine.LLAMACPP)


def _near_s(run: Run) -> float | None:
    """When the run was, seconds since 1970."""
    sent = run.requests["sent_s"].dropna()
    return None if sent.empty or run.unix_minus_master_s is None else float(sent.min()) + run.unix_minus_master_s


def _parts(log: EngineLog, aligned: Alignment | None, levels: list[LogLevel]) -> list[Part]:
    boots = [_boot_text(boot) for boot in log.found.boots if boot.known]
    parts = [Part("At the start", None, boots)] if boots else []
    if aligned is None:
        return [*parts, Part("", None, [f"{log.path.name}: {_NO_FIT}"])]
    part = log_part(levels)
    return [*parts, Part(part.title, part.table, [aligned.text, *part.lines])]


def _csv(rows: list[dict[str, Any]]) -> str:
    """Blank for unknown; concerns as their names."""
    out = io.StringIO()
    if rows:
        write = csv.writer(out, lineterminator="\n").writerow
        write(rows[0])
        for row in rows:
            write([_cell(value) for value in row.values()])
    return out.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(one["what"]) for one in value)
    return str(value) if isinstance(value, str) else cell_of(value)


def add_options(options: argparse.ArgumentParser) -> None:
    add = options.add_argument
    add("paths", metavar="[RUN] LOG", nargs="+", help="a run folder, if levels are wanted, and logs of servers")
    add("--offset", type=float, metavar="SECONDS", help="add this to the log's time, as if UTC, to get that of the run")
    add("--format", choices=FORMATS, default="terminal")
    add("--json", dest="format", action="store_const", const="json", help="same as --format json")
    add("--width", type=int, help="columns of the terminal table (default: the terminal's)")
