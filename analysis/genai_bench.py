"""Results of genai-bench: one file a level, with its requests, and ``experiment_metadata.json`` beside them.

TTFT is the first chunk with text, as ours. A request ends with its stream, and TPOT is taken from that. The tool's
rates divide by the time of the whole run, in which it also starts its users and cuts what is under way at the end,
while the tokens of what was cut are not counted. Requests carry no times of day, so the wall time of ours is unknown.
"""

from __future__ import annotations

from typing import Any

from analysis.figures import Figure, number, ratio
from analysis.imported import (
    Document,
    Imported,
    as_count,
    as_number,
    count,
    count_failures,
    from_sample,
    level_of,
    list_of,
    mapping_of,
)
from analysis.levels import LevelRow
from analysis.outcome import Note

TOOL = "genai-bench"
_KEYS = {"aggregated_metrics", "individual_request_metrics"}
_SCALES = {"s": 1.0, "ms": 0.001}
_RATES = {
    "mean_output_throughput_tokens_per_s": "whole_run_tok_s",
    "mean_input_throughput_tokens_per_s": "whole_run_prompt_tok_s",
    "mean_total_tokens_throughput_tokens_per_s": "whole_run_total_tok_s",
    "requests_per_second": "whole_run_requests_per_s",
}


def is_genai_bench(document: Document) -> bool:
    return document.keys() >= _KEYS


def is_experiment(document: Document) -> bool:
    """The description beside the results."""
    return document.keys() >= {"benchmark_version", "traffic_scenario", "api_backend"}


def read_genai_bench(documents: list[Document], experiment: Document) -> Imported:
    """Each document is a level; ``experiment`` names model and version, or is empty."""
    imported = Imported(
        TOOL, version=str(experiment.get("benchmark_version") or ""), model=str(experiment.get("api_model_name") or "")
    )
    for document in documents:
        failures = _failures(document)
        imported.levels.append(_level(document, failures))
        imported.failures += failures
    text = "requests that were cut at the end of a run are not in the file; answers faster than 1000 tok/s are left out"
    imported.notes.append(Note("failures", text))
    scenarios = {str(mapping_of(one.get("aggregated_metrics")).get("scenario")) for one in documents}
    imported.notes += [Note("load", f"traffic scenario: {name}") for name in sorted(scenarios)]
    return imported


def _level(document: Document, failures: list[tuple[str, int]]) -> LevelRow:
    total = mapping_of(document.get("aggregated_metrics"))
    users = as_count(total.get("num_concurrency")) or as_count(total.get("batch_size"))
    row = level_of(users=users, rate_per_s=as_number(total.get("request_rate")))
    good = [
        one for one in map(mapping_of, list_of(document.get("individual_request_metrics"))) if not one.get("error_code")
    ]
    count(row, ok=len(good), failed=sum(occurrences for _, occurrences in failures))
    count_failures(row, failures)
    scale = _SCALES.get(str(document.get("_time_unit") or "s"), 1.0)
    row.figures |= _totals(good) | {ours: number(as_number(total.get(theirs))) for theirs, ours in _RATES.items()}
    duration = as_number(total.get("run_duration"))
    row.figures["whole_run_s"] = number(None if duration is None else duration * scale)
    row.figures |= _times(good, scale)
    return row


def _totals(good: list[Document]) -> dict[str, Figure]:
    output, prompts = _values(good, "num_output_tokens"), _values(good, "num_input_tokens")
    speeds = _values(good, "output_inference_speed")
    return {
        "tokens": number(sum(output) if good else None),
        "output_tokens_mean": number(ratio(sum(output), len(output))),
        "prompt_tokens_mean": number(ratio(sum(prompts), len(prompts))),
        "mean_request_tok_s": number(ratio(sum(speeds), len(speeds))),
    }


def _times(good: list[Document], scale: float) -> dict[str, Figure]:
    named = {"ttft": "ttft", "e2e_latency": "stream_end", "tpot": "stream_tpot"}
    figures: dict[str, Figure] = {}
    for theirs, ours in named.items():
        figures |= from_sample(ours, [value * scale for value in _values(good, theirs)])
    return figures


def _values(good: list[Document], key: str) -> list[float]:
    return [value for one in good if (value := as_number(one.get(key))) is not None]


def _failures(document: Document) -> list[tuple[str, int]]:
    """The texts of the failed requests, else the codes as counted."""
    failed = [
        one for one in map(mapping_of, list_of(document.get("individual_request_metrics"))) if one.get("error_code")
    ]
    if failed:
        return [(f"HTTP {one['error_code']}: {one.get('error_message') or ''}".rstrip(": "), 1) for one in failed]
    codes: Any = mapping_of(mapping_of(document.get("aggregated_metrics")).get("error_codes_frequency"))
    return [(f"HTTP {code}", as_count(occurrences) or 0) for code, occurrences in codes.items()]
