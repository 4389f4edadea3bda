"""Results of AIPerf: ``…_aiperf.json`` or ``.csv`` sum a run up, ``….jsonl`` beside them has one line a request.

A request ends with its last chunk of text, so its latency is our E2E, and its inter-token latency is our TPOT, with
tokens that the tool's tokenizer counts. The server's own counts are beside them in the lines, and TPOT and tok/s are
worked out from those where every request has one. Inter-chunk latency is our chunk gap. Prompt tokens by the tokenizer
leave out the chat template: they are what was asked for. Lines of a warm-up phase are left out.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from analysis.figures import Figure, Mark, number, ratio
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
    gaps_of,
    level_of,
    list_of,
    mapping_of,
    throughput,
)
from analysis.levels import LevelRow
from analysis.outcome import Note
from tokenswarm.errors import RunFolderError

TOOL = "AIPerf"
_TIMES = {
    "time_to_first_token": "ttft",
    "request_latency": "e2e",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "chunk_gap",
}
_STATISTICS = {"p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "mean": "avg"}
_TITLES = {
    "Time to First Token": "time_to_first_token",
    "Request Latency": "request_latency",
    "Inter Token Latency": "inter_token_latency",
    "Inter Chunk Latency": "inter_chunk_latency",
    "Output Token Throughput Per User": "output_token_throughput_per_user",
    "Benchmark Duration": "benchmark_duration",
    "Request Count": "request_count",
    "Error Request Count": "error_request_count",
    "Completed Requests": "completed_request_count",
    "Request Throughput": "request_throughput",
    "Total Output Sequence Length": "total_osl",
    "Total Input Sequence Length": "total_isl",
    "Total Token Throughput": "total_token_throughput",
    "Output Token Throughput": "output_token_throughput",
    "Effective Concurrency": "effective_concurrency",
    "Total Usage Completion Tokens": "total_usage_completion_tokens",
    "Total Usage Prompt Tokens": "total_usage_prompt_tokens",
    "Credit-to-Start Latency": "credit_to_start_latency",
}
_SUFFIX = "_aiperf.json"


def is_aiperf(document: Document) -> bool:
    """The summary of a run."""
    return "aiperf_version" in document or document.keys() >= {"request_latency", "input_config", "request_throughput"}


def is_aiperf_record(document: Document) -> bool:
    """One request."""
    metadata = mapping_of(document.get("metadata"))
    return {"metadata", "metrics"} <= document.keys() and "request_start_ns" in metadata


def companion_of(path: Path) -> Path:
    """The file of requests beside a summary, or the summary beside the requests."""
    if path.name.endswith(_SUFFIX):
        return path.with_name(path.name.removesuffix(_SUFFIX) + ".jsonl")
    return path.with_name(path.name.removesuffix(".jsonl") + _SUFFIX)


def is_aiperf_csv(titles: list[str]) -> bool:
    return titles[:3] == ["Metric", "avg", "min"] and "p95" in titles


def read_aiperf(summary: Document, records: list[Document]) -> Imported:
    """One level. Either may be empty: without the summary the number of users is unknown, without the records the
    figures are those that AIPerf worked out."""
    imported = Imported(TOOL, version=str(summary.get("aiperf_version") or ""), model=_model(summary))
    users, rate = _load(summary)
    row = level_of(users=users, rate_per_s=rate, label="run" if users is None and rate is None else "")
    kept = sorted((one for one in records if _phase(one) != "warmup"), key=lambda one: _sent_s(one) or 0.0)
    if left_out := len(records) - len(kept):
        imported.notes.append(Note("left out", f"not in counts and latencies: {left_out} warm-up requests"))
    if kept:
        _from_records(row, kept)
        imported.failures = _failures(kept)
    else:
        _from_summary(row, summary)
        imported.notes.append(Note("tokens", "output tokens are those that AIPerf's tokenizer counted"))
    row.figures |= _own_rates(summary)
    if summary.get("was_cancelled"):
        row.state, row.reason = "interrupted", "AIPerf was cancelled"
    imported.levels.append(row)
    return imported


def _own_rates(summary: Document) -> dict[str, Figure]:
    """AIPerf divides by a little more than the time from the first send to the last answer."""
    rates = {
        "output_token_throughput": "whole_run_tok_s",
        "total_token_throughput": "whole_run_total_tok_s",
        "request_throughput": "whole_run_requests_per_s",
    }
    return {ours: number(as_number(mapping_of(summary.get(theirs)).get("avg"))) for theirs, ours in rates.items()}


def read_aiperf_csv(path: Path) -> Imported:
    """The rounded figures of the CSV file; it does not name the number of users."""
    summary: Document = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise RunFolderError(f"{path}: wanted AIPerf's CSV file: {problem}") from problem
    header: list[str] = []
    for cells in lines:
        if cells[:1] == ["Metric"]:
            header = ["avg" if name == "Value" else name for name in cells]
        elif len(cells) == len(header) and (found := re.fullmatch(r"(.*?)(?: \(([^()]*)\))?", cells[0])):
            key = _TITLES.get(found[1].removesuffix(" (CO-aware)"))
            if key:
                summary[key] = {name: _cell(cell) for name, cell in zip(header[1:], cells[1:], strict=True)}
    imported = read_aiperf(summary, [])
    imported.notes.append(Note("input", "AIPerf's CSV file has two decimals, and no number of users"))
    return imported


def _cell(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _load(summary: Document) -> tuple[int | None, float | None]:
    """Users, or else requests per second."""
    phases = [mapping_of(one) for one in list_of(mapping_of(summary.get("input_config")).get("phases"))]
    profiling = next((one for one in phases if one.get("kind", "profiling") == "profiling"), {})
    return as_count(profiling.get("concurrency")), as_number(profiling.get("rate"))


def _model(summary: Document) -> str:
    items = list_of(mapping_of(mapping_of(summary.get("input_config")).get("models")).get("items"))
    return str(mapping_of(items[0]).get("name") or "") if items else ""


def _phase(record: Document) -> str:
    return str(mapping_of(record.get("metadata")).get("benchmark_phase") or "")


def _value(record: Document, key: str) -> float | None:
    return as_number(mapping_of(mapping_of(record.get("metrics")).get(key)).get("value"))


def _ms(records: list[Document], key: str) -> list[float | None]:
    values = [_value(one, key) for one in records]
    return [None if value is None else value / 1000.0 for value in values]


def _is_cut(record: Document) -> bool:
    return bool(mapping_of(record.get("metadata")).get("was_cancelled"))


def _failures(records: list[Document]) -> list[tuple[str, int]]:
    errors = [mapping_of(one.get("error")) for one in records if one.get("error") and not _is_cut(one)]
    return [
        (f"{one.get('type') or 'error'} {one.get('code') or ''}: {one.get('message') or ''}".strip(": "), 1)
        for one in errors
    ]


def _from_records(row: LevelRow, records: list[Document]) -> None:
    good = [one for one in records if not one.get("error") and not _is_cut(one)]
    cut = sum(_is_cut(one) for one in records)
    count(row, ok=len(good), failed=len(records) - len(good) - cut, cancelled=cut)
    count_failures(row, _failures(records))
    if not good:
        return
    ttft, e2e = _ms(good, "time_to_first_token"), _ms(good, "request_latency")
    wall_s = _wall_s(records, good, e2e)
    usage = [_value(one, "usage_completion_tokens") for one in good]
    counted = _sum(usage) is not None
    tokens = usage if counted else [_value(one, "output_sequence_length") for one in good]
    prompts = _sum([_value(one, "usage_prompt_tokens") for one in good])
    row.figures |= throughput(ok=len(good), tokens=_sum(tokens), prompt_tokens=prompts, wall_s=wall_s)
    decode = [None if a is None or b is None else b - a for a, b in zip(ttft, e2e, strict=True)]
    row.figures |= from_sample("ttft", ttft) | from_sample("e2e", e2e) | decode_figures(tokens, decode)
    row.figures |= gaps_of("chunk_gap", [gap / 1000.0 for one in good for gap in _gaps(one)])
    row.figures |= _further(records, good) | {"in_flight_mean": number(ratio(_sum(e2e), wall_s))}
    if not counted:
        _estimate(row)


def _further(records: list[Document], good: list[Document]) -> dict[str, Figure]:
    asked = [_value(one, "input_sequence_length") for one in good]
    speeds = [value for one in good if (value := _value(one, "output_token_throughput_per_user")) is not None]
    delays = [delay for delay in _delays(records) if delay is not None]
    shown = {
        name: figure for name, figure in from_sample("send_delay", delays).items() if name[11:14] in ("p50", "p95")
    }
    return shown | {
        "send_delay_max_s": number(max(delays, default=None)),
        "asked_input_tokens_mean": number(ratio(_sum(asked), len(good))),
        "mean_request_tok_s": number(ratio(sum(speeds), len(speeds))),
    }


def _estimate(row: LevelRow) -> None:
    """The server did not count the tokens of every answer."""
    row.estimated_tokens = row.ok
    for name in row.figures:
        if name.startswith(("tpot", "output_tok", "tokens", "per_request_tok")):
            row.figures[name] = row.figures[name].marked(Mark.ESTIMATED)


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _gaps(record: Document) -> list[float]:
    values = list_of(mapping_of(mapping_of(record.get("metrics")).get("inter_chunk_latency")).get("value"))
    return [float(value) for value in values if as_number(value) is not None]


def _wall_s(records: list[Document], good: list[Document], e2e: list[float | None]) -> float | None:
    """From the first send of any request to the last token of any success."""
    sends = [sent for one in records if (sent := _sent_s(one)) is not None]
    starts = [_sent_s(one) for one in good]
    ends = [
        start + length for start, length in zip(starts, e2e, strict=True) if start is not None and length is not None
    ]
    return max(ends) - min(sends) if ends else None


def _sent_s(record: Document) -> float | None:
    stamp = as_number(mapping_of(record.get("metadata")).get("request_start_ns"))
    return None if stamp is None else stamp / 1e9


def _delays(records: list[Document]) -> list[float | None]:
    """From the time at which a request was let go to its send."""
    stamps = [mapping_of(one.get("metadata")) for one in records]
    pairs = [(as_number(one.get("credit_issued_ns")), as_number(one.get("request_start_ns"))) for one in stamps]
    return [(sent - due) / 1e9 if due and sent else None for due, sent in pairs]


def _from_summary(row: LevelRow, summary: Document) -> None:
    def single(key: str) -> float | None:
        return as_number(mapping_of(summary.get(key)).get("avg"))

    ok, ended = as_count(single("request_count")) or 0, as_count(single("completed_request_count"))
    failed = as_count(single("error_request_count"))
    count(row, ok=ok, failed=ended - ok if failed is None and ended is not None else failed)
    tokens = single("total_osl")
    row.figures |= throughput(
        ok=ok,
        tokens=tokens,
        prompt_tokens=single("total_usage_prompt_tokens"),
        wall_s=single("benchmark_duration"),
    )
    row.figures |= {
        "in_flight_mean": number(single("effective_concurrency")),
        "mean_request_tok_s": number(single("output_token_throughput_per_user")),
        "asked_input_tokens_mean": number(ratio(single("total_isl"), ok)),
    }
    for theirs, ours in _TIMES.items():
        n = None if ours == "chunk_gap" else ok
        row.figures |= from_summary(ours, mapping_of(summary.get(theirs)), _STATISTICS, scale=0.001, n=n)
    delay = mapping_of(summary.get("credit_to_start_latency"))
    row.figures |= from_summary("send_delay", delay, {"p50": "p50", "p95": "p95", "max": "max"}, scale=0.001, n=ok)
    _estimate(row)
