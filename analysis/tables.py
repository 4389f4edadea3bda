"""An outcome as tables of text: levels, counts that are not success, scaling, cold start, warm-up."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.columns import NAMES, SHOWN, Column, cell, number_text, text_of
from analysis.figures import LEGEND, SYMBOL, Mark, ratio
from analysis.levels import LevelRow
from analysis.outcome import NameRow, Outcome
from tokenswarm.errors import ErrorKind

# Columns that stay even where every cell is blank: a blank there is news.
_ALWAYS = ("output_tok_s", "ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms", "e2e_p50_s", "e2e_p95_s")
_OWN_COLUMN = (ErrorKind.TRUNCATED.value, ErrorKind.EMPTY.value, ErrorKind.CANCELLED.value)


@dataclass(frozen=True)
class TextTable:
    """Cells as a person reads them. The first ``fixed`` columns identify a row; those in ``left`` hold text."""

    key: str
    title: str
    header: list[str]
    rows: list[list[str]]
    fixed: int = 1
    left: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ScalingRow:
    """Throughput of a level over that of the first, and that ratio over the ratio of their concurrencies."""

    concurrency: int | None
    output_tok_s: float | None
    throughput_ratio: float | None
    efficiency: float | None


def scaling_rows(rows: list[LevelRow]) -> list[ScalingRow]:
    """Efficiency relative to the first level; blank where a throughput is unknown."""
    if not rows:
        return []
    first = rows[0]
    base = first.figure("output_tok_s").value
    scaled = []
    for row in rows:
        rate = row.figure("output_tok_s").value
        throughput = ratio(rate, base)
        users = ratio(row.concurrency, first.concurrency)
        scaled.append(ScalingRow(row.concurrency, rate, throughput, ratio(throughput, users)))
    return scaled


def tables_of(outcome: Outcome, *, by_class: bool = False) -> list[TextTable]:
    """All tables that have something to say, in reading order."""
    if outcome.names:
        return [_names_table(outcome.names)]
    rows = outcome.classes if by_class else outcome.levels
    tables = [_level_table(rows, by_class)]
    if any(row.errors or row.early_stopped for row in rows):
        tables.append(_trouble_table(rows, by_class))
    if len(outcome.levels) > 1:
        tables.append(_scaling_table(scaling_rows(outcome.levels)))
    if outcome.warmup:
        tables.append(_warmup_table(outcome))
    return tables


def legend_of(outcome: Outcome, *, by_class: bool = False) -> list[str]:
    """What each mark that occurs in the shown tables means, one line a mark."""
    rows: list[LevelRow] | list[NameRow] = outcome.names or (outcome.classes if by_class else outcome.levels)
    columns = NAMES if outcome.names else SHOWN
    seen = {mark for row in rows for column in columns for mark in row.figure(column.figure).marks}
    lines = [f"{SYMBOL[mark]}  {LEGEND[mark]}" for mark in Mark if mark in seen]
    if any(isinstance(row, LevelRow) and _is_incomplete(row) for row in rows):
        lines.append("!  the level is not complete; see the notes")
    return lines


def cold_start_line(outcome: Outcome) -> str | None:
    """One sentence about the first request of the run."""
    first = outcome.cold_start
    if first is None:
        return None
    place = f"{first.phase}, {first.traffic}" + (f", c={first.concurrency}" if first.concurrency is not None else "")
    if first.error_kind is not None:
        return f"First request of the run ({place}): failed, {first.error_kind}"
    if first.ttft_s is None:
        return f"First request of the run ({place}): TTFT unknown"
    later = first.later_ttft_s.value
    beside = f"; median of its level's measured requests {number_text(later, 2)} s" if later is not None else ""
    return f"First request of the run ({place}): TTFT {number_text(first.ttft_s, 2)} s{beside}"


def _level_table(rows: list[LevelRow], by_class: bool) -> TextTable:
    columns = _with_content(rows)
    header = ["c", *(["class"] if by_class else []), "requests", "failed", *(c.title for c in columns), "ok"]
    body = [
        [*_identity(row, by_class), str(row.requests), str(row.failed), *(cell(row, c) for c in columns), str(row.ok)]
        for row in rows
    ]
    left = frozenset({1}) if by_class else frozenset[int]()
    return TextTable("levels", "Levels", header, body, fixed=2 if by_class else 1, left=left)


def _trouble_table(rows: list[LevelRow], by_class: bool) -> TextTable:
    """What did not succeed, each kind by itself; only kinds that occur."""
    kinds = sorted({kind for row in rows for kind in row.errors if kind not in _OWN_COLUMN})
    header = ["c", *(["class"] if by_class else []), "early stops", "truncated", "empty", "cancelled", *kinds]
    body = [
        [
            *_identity(row, by_class),
            "" if row.early_stopped is None else str(row.early_stopped),
            *(str(row.errors.get(kind, 0)) for kind in (*_OWN_COLUMN, *kinds)),
        ]
        for row in rows
    ]
    left = frozenset({1}) if by_class else frozenset[int]()
    return TextTable("trouble", "Not a full success", header, body, fixed=2 if by_class else 1, left=left)


def _scaling_table(rows: list[ScalingRow]) -> TextTable:
    body = [
        [
            _users(row.concurrency),
            "" if row.output_tok_s is None else number_text(row.output_tok_s, 1),
            "" if row.throughput_ratio is None else f"{row.throughput_ratio:.2f}x",
            "" if row.efficiency is None else f"{row.efficiency:.0%}",
        ]
        for row in rows
    ]
    return TextTable("scaling", "Scaling", ["c", "output tok/s", "ratio", "efficiency"], body)


def _warmup_table(outcome: Outcome) -> TextTable:
    body = [
        [
            _users(row.concurrency),
            str(row.requests),
            str(row.failed),
            text_of(row.ttft_mean_s, 2),
            "" if row.ttft_max_s is None else number_text(row.ttft_max_s, 2),
            text_of(row.e2e_mean_s, 1),
        ]
        for row in outcome.warmup
    ]
    header = ["c", "requests", "failed", "TTFT mean s", "TTFT max s", "E2E mean s"]
    return TextTable("warmup", "Warm-up (not in the levels)", header, body)


def _names_table(rows: list[NameRow]) -> TextTable:
    header = ["type", "name", "requests", "failed", "failed %", *(column.title for column in NAMES)]
    body = []
    for row in rows:
        share = ratio(row.failed, row.requests)
        body.append(
            [
                row.kind,
                row.name,
                str(row.requests),
                str(row.failed),
                "" if share is None else number_text(share * 100, 1),
                *(cell(row, column) for column in NAMES),
            ]
        )
    return TextTable("names", "Requests by name", header, body, fixed=2, left=frozenset({0, 1}))


def _with_content(rows: list[LevelRow]) -> list[Column]:
    return [c for c in SHOWN if c.key in _ALWAYS or any(row.figure(c.figure).value is not None for row in rows)]


def _identity(row: LevelRow, by_class: bool) -> list[str]:
    users = _users(row.concurrency) + ("!" if _is_incomplete(row) else "")
    return [users, row.traffic or ""] if by_class else [users]


def _is_incomplete(row: LevelRow) -> bool:
    return row.state not in ("complete", "free-running", "unknown")


def _users(concurrency: int | None) -> str:
    return "" if concurrency is None else str(concurrency)
