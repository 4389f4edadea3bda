"""An outcome as tables of text: levels, counts that are not success, scaling, cold start, warm-up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from analysis.columns import BY_CLOCK, NAMES, SHOWN, Column, cells, number_text, texts_of
from analysis.figures import Figure, ratio
from analysis.foreign_figures import foreign_of
from analysis.levels import LevelRow
from analysis.outcome import NameRow, Outcome, WarmupRow
from analysis.scaling import ScalingRow, scaling_levels, scaling_rows
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Phase

# Columns that stay even where every cell is blank: a blank there is news.
_ALWAYS = ("output_tok_s", "ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms", "e2e_p50_s", "e2e_p95_s")
OTHER_EPOCH = "‡"  # beside a comparison with a level from before the server was started again
LIMITED = "¶"  # beside a level that the load generator limited
CONTAMINATED = "†"  # beside a level whose prompts were in the cache already
_PHASE_NAMES = {Phase.WARMUP.value: "warm-up"}
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


def level_tables(outcome: Outcome, *, by_class: bool = False, intervals: bool = False) -> list[TextTable]:
    """The levels (or the names of another locustfile), by class and then pooled where there are several classes, and
    what did not succeed in them. ``by_class``: without the pooled ones."""
    if outcome.names:
        return [_names_table(outcome.names)]
    several = outcome.several_classes
    tables = []
    if several and not by_class:
        tables.append(replace(_level_table(outcome.classes, True, intervals), key="classes", title="By class"))
    rows = outcome.classes if by_class else outcome.levels
    tables.append(_level_table(rows, by_class, intervals))
    if several and not by_class:
        tables[-1] = replace(tables[-1], key="all classes", title="All classes together")
    if any(row.errors or row.early_stopped for row in rows):
        tables.append(_trouble_table(outcome.classes if several else rows, by_class or several))
    return tables


def further_tables(outcome: Outcome, *, by_class: bool = False) -> list[TextTable]:
    """Scaling and warm-up, always of all classes together; each only where it has figures."""
    scope = "all classes together, " if by_class else ""
    tables = []
    scaled = scaling_levels(outcome.levels)
    if scaled:
        tables.append(_scaling_table(scaled, scaling_rows(outcome.levels), scope))
    if any(row.ttft_mean_s.value is not None or row.failed for row in outcome.warmup):
        tables.append(_warmup_table(outcome, f"Warm-up ({scope}not in the levels)"))
    return tables


def cold_start_line(outcome: Outcome) -> str | None:
    """One sentence about the first request of the run."""
    first = outcome.cold_start
    if first is None:
        return None
    phase = _PHASE_NAMES.get(first.phase, first.phase)
    level = first.label or ("" if first.concurrency is None else f"c={first.concurrency}")
    place = f"{phase}, {first.traffic}" + (f", {level}" if level else "")
    if first.error_kind is not None:
        return f"First request of the run ({place}): failed, {first.error_kind}"
    if first.ttft_s is None:
        return f"First request of the run ({place}): TTFT unknown"
    later = first.later_ttft_s.value
    beside = f"; median of its level's measured requests {number_text(later * 1000, 0)} ms" if later is not None else ""
    return f"First request of the run ({place}): TTFT {number_text(first.ttft_s * 1000, 0)} ms{beside}"


def load_title(rows: Iterable[LevelRow]) -> str:
    """Head of the column that names the levels: their users, or how they arrive."""
    return "load" if any(row.by_clock for row in rows) else "c"


def _level_table(rows: list[LevelRow], by_class: bool, intervals: bool) -> TextTable:
    columns = _with_content(rows)
    header = [
        load_title(rows),
        *(["class"] if by_class else []),
        "requests",
        "failed",
        *(c.title for c in columns),
        "ok",
    ]
    texts = [cells(rows, column, intervals=intervals) for column in columns]
    body = [
        [
            *_identity(row, by_class),
            *_counts(row, "requests", "failed"),
            *(column[i] for column in texts),
            *_counts(row, "ok"),
        ]
        for i, row in enumerate(rows)
    ]
    left = frozenset({1}) if by_class else frozenset[int]()
    return TextTable("levels", "Levels", header, body, fixed=2 if by_class else 1, left=left)


def _trouble_table(rows: list[LevelRow], by_class: bool) -> TextTable:
    """What did not succeed, each kind by itself; only kinds that occur."""
    kinds = sorted({kind for row in rows for kind in row.errors if kind not in _OWN_COLUMN})
    stops = any(row.early_stopped is not None for row in rows)
    names = [load_title(rows), *(["class"] if by_class else [])]
    header = [*names, *(["early stops"] if stops else []), *_OWN_COLUMN, *kinds]
    body = [
        [
            *_identity(row, by_class),
            *(["" if row.early_stopped is None else str(row.early_stopped)] if stops else []),
            *(str(row.errors.get(kind, 0)) for kind in (*_OWN_COLUMN, *kinds)),
        ]
        for row in rows
    ]
    left = frozenset({1}) if by_class else frozenset[int]()
    return TextTable("trouble", "Not a full success", header, body, fixed=2 if by_class else 1, left=left)


def _scaling_table(levels: list[LevelRow], scaled: list[ScalingRow], scope: str) -> TextTable:
    """Where there are several bases, each row names its own."""
    by_name = {row.label: row for row in scaled}
    rows = [by_name[level.name] for level in levels]
    bases = list(dict.fromkeys(row.base for row in rows if row.base))
    several = len(bases) > 1
    header = ["c", *(["relative to"] if several else []), "output tok/s", "ratio", "efficiency"]
    body = [
        [
            level.short_name + (CONTAMINATED if level.contaminated else "") + LIMITED * level.limited,
            *([row.base] if several else []),
            rate,
            "" if row.throughput_ratio is None else f"{row.throughput_ratio:.2f}x{OTHER_EPOCH * row.across_epochs}",
            "" if row.efficiency is None else f"{row.efficiency:.0%}",
        ]
        for level, row, rate in zip(levels, rows, texts_of([Figure(row.output_tok_s) for row in rows], 1), strict=True)
    ]
    relative = "levels of the same kind" if several else f"relative to {bases[0]}"
    left = frozenset({1}) if several else frozenset[int]()
    return TextTable("scaling", f"Scaling ({scope}{relative})", header, body, left=left)


def _warmup_table(outcome: Outcome, title: str) -> TextTable:
    """Columns without any figure are left out."""
    rows = outcome.warmup
    columns = [(load_title(outcome.levels), [_warmed(row) for row in rows])]
    columns += [("requests", [str(row.requests) for row in rows]), ("failed", [str(row.failed) for row in rows])]
    columns += [
        ("TTFT mean ms", texts_of([_in_ms(row.ttft_mean_s.value) for row in rows], 0)),
        ("TTFT max ms", texts_of([_in_ms(row.ttft_max_s) for row in rows], 0)),
        ("E2E mean s", texts_of([row.e2e_mean_s for row in rows], 1)),
    ]
    columns = [column for column in columns if any(column[1])]
    body = [list(row) for row in zip(*(texts for _, texts in columns), strict=True)]
    return TextTable("warmup", title, [name for name, _ in columns], body)


def _in_ms(seconds: float | None) -> Figure:
    return Figure(None if seconds is None else seconds * 1000.0)


def _names_table(rows: list[NameRow]) -> TextTable:
    header = ["type", "name", "requests", "failed", "failed %", *(column.title for column in NAMES)]
    body = []
    texts = [cells(rows, column) for column in NAMES]
    for i, row in enumerate(rows):
        share = ratio(row.failed, row.requests)
        body.append(
            [
                row.kind,
                row.name,
                str(row.requests),
                str(row.failed),
                "" if share is None else number_text(share * 100, 1),
                *(column[i] for column in texts),
            ]
        )
    return TextTable("names", "Requests by name", header, body, fixed=2, left=frozenset({0, 1}))


def _with_content(rows: list[LevelRow]) -> list[Column]:
    columns = BY_CLOCK if any(row.by_clock for row in rows) else SHOWN
    known = {c.key for c in columns if any(row.figure(c.figure).value is not None for row in rows)}
    if not known and any(foreign_of(name) for row in rows for name in row.figures):
        return []  # everything that is known stands in the table of foreign figures
    return [c for c in columns if c.key in _ALWAYS or c.key in known]


def _identity(row: LevelRow, by_class: bool) -> list[str]:
    return [level_cell(row), row.traffic or ""] if by_class else [level_cell(row)]


def _counts(row: LevelRow, *names: str) -> list[str]:
    return ["" if (count := row.count(name)) is None else str(count) for name in names]


def level_cell(row: LevelRow) -> str:
    """The level with the marks that concern all of it."""
    return row.short_name + level_marks(row)


def level_marks(row: LevelRow) -> str:
    """What a reader must know about the level wherever its figures stand."""
    return ("" if row.complete else "!") + (CONTAMINATED if row.contaminated else "") + LIMITED * row.limited


def _warmed(row: WarmupRow) -> str:
    return row.label.removeprefix("c=") or ("" if row.concurrency is None else str(row.concurrency))
