"""Results of GuideLLM (``--outputs json``): one benchmark a level, with the times of its requests.

The times of each request tell its send, its first and last chunk with a token, and its end, so latencies and rates are
ours, worked out from them. Where a file keeps no requests only the tool's own sums are left: its ITL weighs a request
by its tokens, its TPOT spreads the TTFT over them, its latency ends with the stream, and its quantiles are values that
occurred, without interpolation.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.figures import Figure, number, ratio
from analysis.imported import (
    Document,
    Imported,
    as_count,
    as_number,
    count,
    count_failures,
    decode_figures,
    from_sample,
    from_summary,
    level_of,
    list_of,
    mapping_of,
    throughput,
)
from analysis.levels import LevelRow
from analysis.outcome import Note

TOOL = "GuideLLM"
_BY_CLOCK = ("constant", "poisson", "async")
_SUMMARIES = {
    "time_to_first_token_ms": ("ttft", 0.001),
    "request_latency": ("stream_end", 1.0),
    "time_per_output_token_ms": ("e2e_per_token", 0.001),
    "inter_token_latency_ms": ("weighted_tpot", 0.001),
}
_STATISTICS = {"p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "mean": "mean"}


def is_guidellm(document: Document) -> bool:
    return any({"metrics", "requests"} <= mapping_of(one).keys() for one in list_of(document.get("benchmarks")))


def read_guidellm(document: Document) -> Imported:
    """Each benchmark is a level."""
    imported = Imported(TOOL, version=str(mapping_of(document.get("metadata")).get("guidellm_version") or ""))
    benchmarks = [mapping_of(one) for one in list_of(document.get("benchmarks"))]
    for one in benchmarks:
        failures = _failures(one)
        imported.levels.append(_level(one, failures))
        imported.failures += failures
        imported.notes += [
            Note("warning", f"GuideLLM warns: {mapping_of(told).get('message')}")
            for told in list_of(one.get("warnings"))
        ]
        imported.model = imported.model or _model(one)
    if any(not _has_requests(one) for one in benchmarks):
        text = "quantiles are GuideLLM's own: values that occurred, without interpolation; it kept no requests"
        imported.notes.append(Note("quantiles", text))
    if any(as_number(one.get("warmup_duration")) or as_number(one.get("cooldown_duration")) for one in benchmarks):
        text = "warm-up and cool-down were cut by GuideLLM: figures are of the requests that it kept"
        imported.notes.append(Note("left out", text))
    return imported


def _level(benchmark: Document, failures: list[tuple[str, int]]) -> LevelRow:
    row = _load(_strategy(benchmark))
    totals, ok = _totals(benchmark), _ok(benchmark)
    count(row, ok=ok, failed=as_count(totals.get("errored")), cancelled=as_count(totals.get("incomplete")) or 0)
    count_failures(row, failures)
    if _has_requests(benchmark):
        row.figures |= _of_requests(_requests(benchmark))
    else:
        row.figures |= _of_summary(mapping_of(benchmark.get("metrics")), ok, as_number(benchmark.get("duration")))
    total = mapping_of(mapping_of(mapping_of(benchmark.get("metrics")).get("tokens_per_second")).get("successful"))
    row.figures["total_tok_s"] = number(as_number(total.get("mean")))
    return row


def _strategy(benchmark: Document) -> Document:
    """Other versions call the settings of a benchmark ``args``."""
    return mapping_of(mapping_of(benchmark.get("config") or benchmark.get("args")).get("strategy"))


def _totals(benchmark: Document) -> Document:
    """Requests by what became of them; other versions have them beside the metrics."""
    return mapping_of(mapping_of(benchmark.get("metrics")).get("request_totals") or benchmark.get("request_totals"))


def _ok(benchmark: Document) -> int:
    """Where no totals are told, as many as the latencies rest on."""
    told = as_count(_totals(benchmark).get("successful"))
    latency = mapping_of(mapping_of(mapping_of(benchmark.get("metrics")).get("request_latency")).get("successful"))
    return (as_count(latency.get("count")) or 0) if told is None else told


def _load(strategy: Document) -> LevelRow:
    kind, rate = str(strategy.get("type_")), as_number(strategy.get("rate"))
    if kind in _BY_CLOCK and rate is not None:
        return level_of(rate_per_s=rate)
    users = as_count(strategy.get("streams") or strategy.get("max_concurrency"))
    users = 1 if kind == "synchronous" else users
    return level_of(users=users, label="" if users is not None else kind)


def _requests(benchmark: Document) -> list[Document]:
    """The successes in the order of sending."""
    requests = [mapping_of(one) for one in list_of(mapping_of(benchmark.get("requests")).get("successful"))]
    return sorted(requests, key=lambda one: as_number(_timings(one).get("request_start")) or 0.0)


def _has_requests(benchmark: Document) -> bool:
    """Whether every success is in the file with its times; a sample of them would not do."""
    requests = _requests(benchmark)
    return len(requests) == _ok(benchmark) and all(as_number(_timings(one).get("request_start")) for one in requests)


def _timings(request: Document) -> Document:
    return mapping_of(mapping_of(request.get("info")).get("timings"))


def _of_requests(requests: list[Document]) -> dict[str, Figure]:
    timings = [_timings(one) for one in requests]
    sent, first, last, end = (
        [as_number(one.get(key)) for one in timings]
        for key in ("request_start", "first_token_iteration", "last_token_iteration", "request_end")
    )
    tokens = [_tokens(one, "output") for one in requests]
    ends, sends = [value for value in end if value is not None], [value for value in sent if value is not None]
    wall_s = max(ends) - min(sends) if ends and sends else None
    known = [value for value in tokens if value is not None]
    prompts = [value for one in requests if (value := _tokens(one, "input")) is not None]
    figures = throughput(
        ok=len(requests),
        tokens=sum(known) if len(known) == len(requests) else None,
        prompt_tokens=sum(prompts) if len(prompts) == len(requests) else None,
        wall_s=wall_s,
    )
    busy = [value for value in _between(sent, end) if value is not None]
    figures |= {"in_flight_mean": number(ratio(sum(busy), wall_s))}
    figures |= from_sample("ttft", _between(sent, first)) | from_sample("e2e", _between(sent, last))
    figures |= from_sample("stream_end", _between(sent, end)) | decode_figures(tokens, _between(first, last))
    return figures


def _between(start: Sequence[float | None], end: Sequence[float | None]) -> list[float | None]:
    return [None if a is None or b is None else b - a for a, b in zip(start, end, strict=True)]


def _tokens(request: Document, side: str) -> float | None:
    """As the server counted them; the number of chunks that GuideLLM puts in their place is no count of tokens."""
    metrics = mapping_of(request.get(f"{side}_metrics"))
    told = as_number(metrics.get("total_tokens"))
    return as_number(metrics.get("text_tokens")) if told is None else told


def _of_summary(metrics: Document, ok: int, duration_s: float | None) -> dict[str, Figure]:
    """What is left where the requests were not kept."""
    output, prompts = (_sum(metrics, name) for name in ("output_token_count", "prompt_token_count"))
    figures = throughput(ok=ok, tokens=output, prompt_tokens=prompts, wall_s=duration_s)
    if not ok:
        return figures
    for theirs, (ours, scale) in _SUMMARIES.items():
        found = mapping_of(mapping_of(metrics.get(theirs)).get("successful"))
        told = mapping_of(found.get("percentiles")) | {"mean": found.get("mean")}
        n = None if ours in ("weighted_tpot", "e2e_per_token") else ok
        figures |= from_summary(ours, told, _STATISTICS, scale=scale, n=n)
    return figures


def _sum(metrics: Document, name: str) -> float | None:
    return as_number(mapping_of(mapping_of(metrics.get(name)).get("successful")).get("total_sum"))


def _failures(benchmark: Document) -> list[tuple[str, int]]:
    errored = list_of(mapping_of(benchmark.get("requests")).get("errored"))
    return [(str(mapping_of(mapping_of(one).get("info")).get("error") or "error"), 1) for one in errored]


def _model(benchmark: Document) -> str:
    return str(mapping_of(mapping_of(benchmark.get("config")).get("backend")).get("model") or "")
