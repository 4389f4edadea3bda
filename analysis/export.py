"""The level table as CSV, and everything as JSON, for programs."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from typing import Any

from analysis.arrivals import LevelArrivals
from analysis.cache_share import LevelCache
from analysis.captions import LevelCaptions
from analysis.columns import FURTHER, NAMES, PUBLISHED, Column, scaled
from analysis.engine_export import server_object
from analysis.figures import Figure, Mark
from analysis.import_block import foreign_columns
from analysis.jobs import LevelJobs
from analysis.levels import LevelRow
from analysis.notes import BASIS_TEXT
from analysis.objectives import ClassVerdict, Verdict
from analysis.outcome import NameRow, Outcome
from analysis.request_figures import LATENCIES, LENGTHS
from analysis.scaling import scaling_rows
from analysis.steps import ContextRow, StepRow

FORMAT = 1
_COUNTED = (*LATENCIES, "job", "scheduled_ttft", "scheduled_e2e")  # whose samples are counted
_SAMPLED = tuple(
    f"{scope}{name}_{label}_s"
    for name in (*LATENCIES, "job")
    for label in ("p50", "p90", "p95", "p99", "mean")
    for scope in ("", "scheduled_", "with_failures_", "with_unfinished_", "steady_")
)
_BOUNDED = (
    *("output_tok_s", "steady_tok_s", "requests_per_s", "goodput_per_s", "good_share", "failed_share", "cache_share"),
    *("per_request_tok_s", "request_bytes_mean"),
    *(f"{length}_{label}" for length in LENGTHS for label in ("mean", "p5", "p50", "p95")),
    *("encode_mean_s", "picture_wait_mean_s", "steps_mean", "send_delay_p50_s", "send_delay_p95_s"),
    *(f"ttft_{question}_{label}_s" for question in ("first", "second") for label in ("p50", "p95")),
)
_ARRIVALS = ("rate_per_s", "scheduled", "not_admitted", "unfinished", "lost")  # sessions of a level by the clock


def level_csv(outcome: Outcome, *, by_class: bool = False) -> str:
    """One line a level in the published column order, then further columns; blank for unknown, ``inf`` for ∞.

    ``…_low`` and ``…_high`` are the ends of the 95 % interval; ``no_bound``, ``coarse`` and ``estimated`` name the
    columns with that mark.
    """
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    if outcome.names:
        _write_names(outcome.names, write)
        return out.getvalue()
    rows = outcome.classes if by_class else outcome.levels
    columns = (*PUBLISHED, *FURTHER, *foreign_columns(rows))
    bounded = [column for column in columns if _has_bound(column)]
    efficiency = {} if by_class else {s.label: s for s in scaling_rows(outcome.levels)}
    write(
        ["concurrency", "requests", "failed", *(c.key for c in columns), "ok", "cancelled", "early_stopped", "errors"]
        + ["level", "label", "arms", "traffic", "state", "reason", "basis", "throughput_ratio", "efficiency"]
        + [f"{cache}_{part}" for cache in ("cache", "image_cache") for part in ("source", "verdict", "reason")]
        + ["simulated", *_ARRIVALS, "epoch", "generator_verdict", "generator_reason", "next_step"]
        + [f"{name}_n" for name in _COUNTED]
        + [name for c in bounded for name in (f"{c.key}_low", f"{c.key}_high")]
        + [mark.replace(" ", "_") for mark in Mark]
    )
    for row in rows:
        scaling = efficiency.get(row.name)
        figures = [scaled(row.figure(c.figure), c) for c in columns]
        bounds = [scaled(row.figure(c.figure), c) for c in bounded]
        write(
            [*(cell_of(n) for n in (row.concurrency, row.count("requests"), row.count("failed")))]
            + [*(cell_of(f.value) for f in figures)]
            + [cell_of(row.count("ok")), row.cancelled, cell_of(row.early_stopped), _pairs(row.errors)]
            + [cell_of(row.level), row.label, row.arms, safe_text(row.traffic or ""), row.state, safe_text(row.reason)]
            + [row.basis or ""]
            + [cell_of(scaling.throughput_ratio if scaling else None), cell_of(scaling.efficiency if scaling else None)]
            + [*_cache_cells(row.cache), *_cache_cells(row.image_cache), str(outcome.simulated).lower()]
            + [*(cell_of(getattr(row.arrivals, name, None)) for name in _ARRIVALS), cell_of(row.epoch)]
            + _generator_cells(row)
            + [cell_of(row.figure(f"{name}_p50_s").n) for name in _COUNTED]
            + [cell_of(end) for f in bounds for end in (f.low, f.high)]
            + [" ".join(c.key for c, f in zip(columns, figures, strict=True) if mark in f.marks) for mark in Mark]
        )
    return out.getvalue()


def as_json(outcome: Outcome, verdict: Verdict) -> str:
    """Everything, times in seconds, unknown as null and infinitely late as null with ``"infinite": true``."""
    document = {
        "format": FORMAT,
        "source": {"kind": outcome.source, "path": outcome.path, "name": outcome.name, **outcome.facts},
        "simulated": outcome.simulated,
        "definitions": {basis.value: text for basis, text in BASIS_TEXT.items()},
        "levels": [level_object(row) for row in outcome.levels],
        "classes": [level_object(row) for row in outcome.classes],
        "names": [_name(row) for row in outcome.names],
        "scaling": [asdict(row) for row in scaling_rows(outcome.levels)],
        "cold_start": None
        if outcome.cold_start is None
        else asdict(outcome.cold_start) | {"later_ttft_s": _figure(outcome.cold_start.later_ttft_s)},
        "steps": [_step(row) for row in outcome.steps],
        "contexts": [_context(row) for row in outcome.contexts],
        "warmup": [
            asdict(row) | {"ttft_mean_s": _figure(row.ttft_mean_s), "e2e_mean_s": _figure(row.e2e_mean_s)}
            for row in outcome.warmup
        ],
        "server": [server_object(view) for view in outcome.server],
        "failures": [asdict(group) for group in outcome.failures],
        "notes": [{"key": note.key, "text": note.text} for note in outcome.notes],
        "objectives": [_class_verdict(one) for one in verdict.classes],
        "verdicts": [asdict(one) for one in verdict.levels],
        "search": None if verdict.search is None else asdict(verdict.search),
        "credible": {"ok": verdict.credible, "reasons": list(verdict.doubts)},
        "exit_code": verdict.exit_code,
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def level_object(row: LevelRow) -> dict[str, Any]:
    """One level or class of it: counts, verdicts, and every figure with its sample and interval."""
    return {
        "level": row.level,
        "concurrency": row.concurrency,
        "by_clock": row.by_clock,
        "epoch": row.epoch,
        "label": row.label,
        "arms": row.arms,
        "configuration": row.configuration,
        "table": row.table,
        "traffic": row.traffic,
        "state": row.state,
        "reason": row.reason,
        "basis": row.basis,
        "requests": row.count("requests"),
        "ok": row.count("ok"),
        "failed": row.count("failed"),
        "failed_share": row.failed_share,
        "cancelled": row.cancelled,
        "early_stopped": row.early_stopped,
        "errors": row.errors,
        "estimated_tokens": row.estimated_tokens,
        "unknown_tokens": row.unknown_tokens,
        "cache": _cache(row.cache, "prompt_tokens"),
        "image_cache": _cache(row.image_cache, "images"),
        "captions": None if row.captions is None else _captions(row.captions),
        "jobs": None if row.jobs is None else _jobs(row.jobs),
        "generator": _generator(row),
        "arrivals": None if row.arrivals is None else _arrivals(row.arrivals),
        "figures": {name: _figure(figure) for name, figure in row.figures.items()},
    }


def _cache(cache: LevelCache | None, looked_up: str) -> dict[str, Any] | None:
    """``looked_up``: the name of what the shares are of."""
    if cache is None:
        return None
    known = asdict(cache)
    return known | {looked_up: known.pop("looked_up")}


def _generator(row: LevelRow) -> dict[str, Any] | None:
    """Each load process and the verdict on them together; lags and delays are among the level's figures too."""
    if row.health is None or row.generator is None:
        return None
    verdict = row.generator
    return {
        "verdict": verdict.state,
        "reasons": list(verdict.reasons),
        "next_step": verdict.next_step,
        "further_workers": verdict.further_workers,
        "processes": [asdict(process) for process in row.health.processes],
        "sends": asdict(row.health.sends),
    }


def _captions(captions: LevelCaptions) -> dict[str, Any]:
    """Counts; rates and times are among the level's figures."""
    known = asdict(captions)
    del known["figures"]
    return known


def _arrivals(arrivals: LevelArrivals) -> dict[str, Any]:
    """Counts; rates and delays are among the level's figures."""
    known = asdict(arrivals) | {"missing": arrivals.missing}
    del known["figures"]
    return known


def _jobs(jobs: LevelJobs) -> dict[str, Any]:
    """Counts; the durations are among the level's figures."""
    return {
        "count": jobs.count,
        "completed": jobs.completed,
        "states": jobs.states,
        "tool_calls": jobs.tool_calls,
        "malformed_calls": jobs.malformed_calls,
        "divergences": jobs.divergences,
    }


def _step(row: StepRow) -> dict[str, Any]:
    return {
        "traffic": row.traffic,
        "level": row.level,
        "label": row.label,
        "step": row.first,
        "requests": row.requests,
        "prompt_tokens_mean": row.prompt_tokens.value,
        "eligible_tokens_mean": row.eligible_tokens.value,
        "cached_tokens_mean": row.cached_tokens.value,
        "cached_share_of_eligible": row.share,
    }


def _context(row: ContextRow) -> dict[str, Any]:
    return {
        "traffic": row.traffic,
        "level": row.level,
        "label": row.label,
        "prompt_tokens_low": row.low,
        "prompt_tokens_high": row.high,
        "ttft_p50_s": _figure(row.ttft_p50_s),
        "ttft_p95_s": _figure(row.ttft_p95_s),
        "cached_share": row.cached_share,
    }


def _name(row: NameRow) -> dict[str, Any]:
    return {
        "type": row.kind,
        "name": row.name,
        "requests": row.requests,
        "failed": row.failed,
        "total": row.is_total,
        "figures": {name: _figure(figure) for name, figure in row.figures.items()},
    }


def _class_verdict(one: ClassVerdict) -> dict[str, Any]:
    checks = [
        {
            "metric": check.metric,
            "limit": check.limit,
            "value": _finite(check.value),
            "met": check.met,
            "no_bound": check.no_bound,
        }
        for check in one.checks
    ]
    return asdict(one) | {"met": one.met, "checks": checks}


def _figure(figure: Figure) -> dict[str, Any]:
    known: dict[str, Any] = {"value": _finite(figure.value)}
    if figure.value is not None and math.isinf(figure.value):
        known["infinite"] = True
    if figure.n is not None:
        known |= {"n": figure.n, "low": _finite(figure.low), "high": _finite(figure.high)}
    if figure.effective_n is not None:
        known["effective_n"] = round(figure.effective_n, 1)
    if figure.marks:
        known["marks"] = list(figure.marks)
    return known


def _write_names(rows: list[NameRow], write: Any) -> None:
    write(["type", "name", "requests", "failed", *(c.key for c in NAMES), "coarse"])
    for row in rows:
        figures = [scaled(row.figure(c.figure), c) for c in NAMES]
        coarse = " ".join(c.key for c, f in zip(NAMES, figures, strict=True) if Mark.COARSE in f.marks)
        write([row.kind, safe_text(row.name), row.requests, row.failed, *(cell_of(f.value) for f in figures), coarse])


def _has_bound(column: Column) -> bool:
    """Whether the column has an interval in some run."""
    return column.figure in _BOUNDED or column.figure in _SAMPLED


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def cell_of(value: float | None) -> str:
    """A number in CSV: blank for unknown, at most six decimals."""
    if value is None:
        return ""
    if math.isinf(value):
        return "inf"
    return str(int(value)) if float(value).is_integer() else f"{value:.6f}".rstrip("0").rstrip(".")


def _cache_cells(cache: LevelCache | None) -> list[str]:
    """Source, verdict and reason."""
    return ["", "", ""] if cache is None else [cache.source or "", cache.state, cache.reason]


def _generator_cells(row: LevelRow) -> list[str]:
    """Verdict, reasons and next step."""
    verdict = row.generator
    return ["", "", ""] if verdict is None else [verdict.state, "; ".join(verdict.reasons), verdict.next_step]


def _pairs(counts: dict[str, int]) -> str:
    return " ".join(f"{kind}={count}" for kind, count in sorted(counts.items()))


def safe_text(text: str) -> str:
    """A spreadsheet takes a text that begins like a formula for one and runs it."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
