"""Reports of inference-perf: ``summary_lifecycle_metrics.json`` of a whole run, ``stage_N_…`` of each stage.

TTFT is the first chunk with text and TPOT ends at the last such chunk, as ours; TPOT divides by the tokens that the
tool's own tokenizer counts unless told otherwise. A request ends with its stream, so its latency is not our E2E. Gaps
are between tokens: those of one chunk are 0 apart. How late requests were sent is our send delay. The files name a
rate and no number of users, since users are but a limit there.
"""

from __future__ import annotations

from pathlib import Path

from analysis.figures import Figure, Mark, number, ratio
from analysis.imported import (
    Document,
    Imported,
    as_count,
    as_number,
    count,
    count_failures,
    from_summary,
    level_of,
    mapping_of,
    throughput,
)
from analysis.levels import LevelRow
from analysis.outcome import Note

TOOL = "inference-perf"
_KEYS = {"load_summary", "successes", "failures"}
_TIMES = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "request_latency": "stream_end",
    "normalized_time_per_output_token": "stream_end_per_token",
    "inter_token_latency": "token_gap",
}
_STATISTICS = {"p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "mean": "mean"}


def is_inference_perf(document: Document) -> bool:
    return document.keys() >= _KEYS


def read_inference_perf(documents: list[tuple[Path, Document]]) -> Imported:
    """Each stage is a level; the summary of all is one only where it stands alone."""
    stages = [(path, one) for path, one in documents if path.name.startswith("stage_")]
    imported = Imported(TOOL)
    for path, document in stages or documents:
        imported.levels.append(_level(path, document))
        imported.failures += _failures(document)
    imported.notes.append(Note("load", "how many requests may be in flight is in the tool's configuration, not here"))
    if any(_fallbacks(document) for _, document in documents):
        imported.notes.append(Note("tokens", "the server did not count all output tokens: those are the tokenizer's"))
    return imported


def _level(path: Path, document: Document) -> LevelRow:
    load, successes = mapping_of(document.get("load_summary")), mapping_of(document.get("successes"))
    rate, users = as_number(load.get("requested_rate")), as_count(load.get("concurrency"))
    row = level_of(users=users, rate_per_s=rate, label=_label(path) if users is None and rate is None else "")
    ok = as_count(successes.get("count")) or 0
    count(row, ok=ok, failed=as_count(mapping_of(document.get("failures")).get("count")))
    count_failures(row, _failures(document))
    output, prompts = mapping_of(successes.get("output_tokens")), mapping_of(successes.get("prompt_tokens"))
    tokens = as_number(output.get("total"))
    if tokens is None and (mean := as_number(mapping_of(successes.get("output_len")).get("mean"))) is not None:
        tokens = mean * ok
    row.figures |= throughput(
        ok=ok, tokens=tokens, prompt_tokens=as_number(prompts.get("total")), wall_s=_wall_s(document, ok)
    )
    row.figures["total_tok_s"] = number(as_number(_rates(document).get("total_tokens_per_sec")))
    row.figures["cache_share"] = number(_cache_share(prompts))
    if ok:
        row.figures |= _times(successes, ok)
    row.figures |= _delays(mapping_of(load.get("schedule_delay")))
    return row


def _label(path: Path) -> str:
    return path.name.split("_lifecycle")[0].replace("_", " ")


def _wall_s(document: Document, ok: int) -> float | None:
    """Old versions give rates only."""
    told = as_number(document.get("benchmark_time_seconds"))
    return told if told else ratio(ok, as_number(_rates(document).get("requests_per_sec")))


def _rates(document: Document) -> Document:
    return mapping_of(mapping_of(document.get("successes")).get("throughput"))


def _cache_share(prompts: Document) -> float | None:
    """0 there stands for unknown too."""
    cached = as_number(prompts.get("cached"))
    return ratio(cached, as_number(prompts.get("total"))) if cached else None


def _times(successes: Document, ok: int) -> dict[str, Figure]:
    """Old versions have the latencies one level up."""
    latencies = mapping_of(successes.get("latency")) or successes
    figures: dict[str, Figure] = {}
    for theirs, name in _TIMES.items():
        n = None if name == "token_gap" else ok
        figures |= from_summary(name, mapping_of(latencies.get(theirs)), _STATISTICS, scale=1.0, n=n)
    return {
        name: figure.marked(Mark.ESTIMATED) if name.startswith("tpot") else figure for name, figure in figures.items()
    }


def _delays(delay: Document) -> dict[str, Figure]:
    known = {"p50": "median", "p95": "p95", "max": "max"}
    return {f"send_delay_{label}_s": number(as_number(delay.get(key))) for label, key in known.items()}


def _fallbacks(document: Document) -> int:
    told = mapping_of(mapping_of(document.get("successes")).get("client_fallback_requests"))
    return as_count(told.get("output")) or 0


def _failures(document: Document) -> list[tuple[str, int]]:
    labels = mapping_of(mapping_of(document.get("failures")).get("by_label"))
    return [(str(label), as_count(mapping_of(one).get("count")) or 0) for label, one in labels.items()]
