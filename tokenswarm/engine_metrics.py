"""What an inference engine says of itself on its ``/metrics`` page: the names of four engines, mapped to ours.

Counters are totals since the engine's start, so that a level's values are differences of two samples of one engine.
What an engine does not tell is None, never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

EngineName = Literal["vllm", "sglang", "llamacpp", "tgi"]


class EngineSample(msgspec.Struct, kw_only=True, gc=False):
    """One engine at one moment, a row of ``engine.csv``: gauges, then totals since the engine's start.

    ``*_sum_s`` and ``*_count`` are a histogram's: the difference of the sums over the difference of the counts is the
    mean over the requests between two samples.
    """

    engine: str = ""  # its label where one page shows several; "" where it has none
    # now
    running: int | None = None  # requests
    waiting: int | None = None
    kv_usage: float | None = None  # 0 to 1
    hit_rate: float | None = None  # of the prefix cache of late, 0 to 1, where the engine shows that itself
    # tokens
    prompt_tokens: int | None = None  # cached ones among them
    cached_prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prefix_queries: int | None = None  # prompt tokens looked up in the prefix cache
    prefix_hits: int | None = None  # of these, found
    # items of the multimodal cache, images for example
    mm_queries: int | None = None
    mm_hits: int | None = None
    # requests
    preemptions: int | None = None
    requests_ok: int | None = None  # ended neither by an error nor by an abort, as far as the engine tells them apart
    requests_failed: int | None = None  # by an error of the engine; a client that left is in neither
    requests_refused: int | None = None  # of these, because the engine was overloaded
    ttft_sum_s: float | None = None
    ttft_count: int | None = None
    queue_sum_s: float | None = None
    queue_count: int | None = None
    prefill_sum_s: float | None = None
    prefill_count: int | None = None
    decode_sum_s: float | None = None
    decode_count: int | None = None
    e2e_sum_s: float | None = None
    e2e_count: int | None = None
    tpot_sum_s: float | None = None  # one mean a request
    tpot_count: int | None = None
    gap_sum_s: float | None = None  # times between tokens, of all requests together
    gap_count: int | None = None
    # speculative decoding
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    # when the engine's process began, or its counters: seconds since 1970
    process_start_s: float | None = None


COLUMNS: tuple[str, ...] = ("time_s", "level", "edge", *EngineSample.__struct_fields__)


# Field -> the names that engines have for it, after `_name`; of one engine the first that it shows holds.
_NAMES: dict[str, tuple[str, ...]] = {
    "running": (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "llamacpp:requests_processing",
        "tgi:batch_current_size",
    ),
    "waiting": (
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "llamacpp:requests_deferred",
        "tgi:queue_size",
    ),
    "kv_usage": (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio",
    ),
    "hit_rate": ("vllm:gpu_prefix_cache_hit_rate", "sglang:cache_hit_rate"),
    "prompt_tokens": ("vllm:prompt_tokens", "sglang:prompt_tokens", "tgi:request_input_length_sum"),
    "cached_prompt_tokens": ("vllm:prompt_tokens_cached", "sglang:cached_tokens", "llamacpp:prompt_tokens_cached"),
    "generation_tokens": (
        "vllm:generation_tokens",
        "sglang:generation_tokens",
        "llamacpp:tokens_predicted",
        "tgi:request_generated_tokens_sum",
    ),
    "prefix_queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    "prefix_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
    "mm_queries": ("vllm:mm_cache_queries",),
    "mm_hits": ("vllm:mm_cache_hits",),
    "preemptions": ("vllm:num_preemptions", "sglang:num_retracted_requests"),
    "requests_ok": ("vllm:request_success", "sglang:num_requests", "tgi:request_success"),
    "requests_failed": ("vllm:request_error", "tgi:request_failure"),
    "drafts": ("vllm:spec_decode_num_drafts", "llamacpp:spec_decode_num_drafts"),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens", "llamacpp:spec_decode_num_draft_tokens"),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens", "llamacpp:spec_decode_num_accepted_tokens"),
    "process_start_s": ("vllm:generation_tokens_created", "process_start_time_seconds"),
}
_HISTOGRAMS: dict[str, tuple[str, ...]] = {
    "ttft": ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
    "queue": ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds", "tgi:request_queue_duration"),
    "prefill": ("vllm:request_prefill_time_seconds", "sglang:per_stage_req_latency_seconds"),
    "decode": ("vllm:request_decode_time_seconds",),
    "e2e": ("vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds", "tgi:request_duration"),
    "tpot": (
        "vllm:request_time_per_output_token_seconds",
        "sglang:request_time_per_output_token_seconds",
        "tgi:request_mean_time_per_token_duration",
    ),
    "gap": (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "sglang:inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds",
    ),
}
for _stem, _stems in _HISTOGRAMS.items():
    _NAMES[f"{_stem}_sum_s"] = tuple(f"{name}_sum" for name in _stems)
    _NAMES[f"{_stem}_count"] = tuple(f"{name}_count" for name in _stems)
# llama.cpp has totals without a number of requests, and counts cached prompt tokens apart from computed ones.
_NAMES["prefill_sum_s"] += ("llamacpp:prompt_seconds",)
_NAMES["decode_sum_s"] += ("llamacpp:tokens_predicted_seconds",)
_LLAMACPP_PROMPT = ("llamacpp:prompt_tokens", "llamacpp:prompt_tokens_cached")

_WANTED = frozenset(name for names in _NAMES.values() for name in names) | {*_LLAMACPP_PROMPT}
_NOT_ADDED = ("kv_usage", "hit_rate", "process_start_s")  # of several series of one engine the largest holds
_RANKS = ("pp_rank", "tp_rank", "moe_ep_rank")  # processes of one engine that all tell the same: the first one's holds
_NAME = re.compile(r"[A-Za-z_:][\w:]*")
_PROCESS = "process_start_time_seconds"
_SETTINGS = ("vllm:cache_config_info", "sglang:page_size")

_Series = dict[frozenset[tuple[str, str]], tuple[tuple[int, ...], float]]  # labels -> rank and value


def parse_metrics(text: str) -> list[EngineSample]:
    """The engines on one page, by label; none where it is no engine's page. Unreadable lines are passed over."""
    engines: dict[str, dict[str, _Series]] = {}
    for name, sample in _samples(text, _WANTED.__contains__):
        if math.isfinite(sample.value) and _counts(sample):
            labels = dict(sample.labels)
            if labels.get("finished_reason") == "error":  # vLLM counts errors among its successes
                name = "vllm:request_error"
            engine = labels.pop("engine", "") or labels.pop("dp_rank", "")
            _keep(engines.setdefault(engine, {}).setdefault(name, {}), labels, sample.value)
    process = engines.get("", {}).pop(_PROCESS, {})
    return [
        _engine_sample(label, series | ({_PROCESS: process} if process else {}))
        for label, series in sorted(engines.items())
        if series
    ]


def _samples(text: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Sample]]:
    """The samples with wanted names, which are few of a page's lines: it is read in the process that makes the load."""
    for line in text[: text.rfind("\n") + 1].splitlines():  # a line without its end was cut, perhaps in a number
        start = _NAME.match(line)
        if start and wanted(name := _name(start[0])):
            try:
                for family in text_string_to_metric_families(line):
                    yield from ((name, sample) for sample in family.samples)
            except ValueError:
                continue


def _name(name: str) -> str:
    """One spelling: a colon behind the engine, and counters without ``_total``, which not all versions add."""
    engine, colon, rest = name.partition(":")
    if not colon and name.startswith(("vllm_", "sglang_", "llamacpp_", "tgi_")):
        engine, _, rest = name.partition("_")
    return f"{engine}:{rest.removesuffix('_total')}" if rest else name


def _counts(sample: Sample) -> bool:
    """False for those series of a name that are not what our field means."""
    if "request_success" in sample.name:
        return sample.labels.get("finished_reason") != "abort"
    return "per_stage_req_latency" not in sample.name or sample.labels.get("stage") == "prefill_forward"


def _keep(series: _Series, labels: dict[str, str], value: float) -> None:
    ranks = [labels.pop(name, "0") for name in _RANKS]
    rank = tuple(int(text) if text.isdigit() else 0 for text in ranks)
    key = frozenset(labels.items())
    if key not in series or rank < series[key][0]:
        series[key] = rank, value


def _engine_sample(label: str, engine: dict[str, _Series]) -> EngineSample:
    facts: dict[str, Any] = {}
    for field, names in _NAMES.items():
        name = next((name for name in names if name in engine), None)
        if name is not None:
            values = [value for _, value in engine[name].values()]
            facts[field] = _typed(field, max(values) if field in _NOT_ADDED else sum(values))
    if all(name in engine for name in _LLAMACPP_PROMPT):
        parts = (value for name in _LLAMACPP_PROMPT for _, value in engine[name].values())
        facts["prompt_tokens"] = _typed("prompt_tokens", sum(parts))
    if (failures := engine.get("tgi:request_failure")) is not None:
        refused = (value for labels, (_, value) in failures.items() if ("err", "overloaded") in labels)
        facts["requests_refused"] = _typed("requests_refused", sum(refused))
    return EngineSample(engine=label, **facts)


def _typed(field: str, value: float) -> float | int | None:
    if field == "hit_rate" and value < 0:  # vLLM's old word for "no cache"
        return None
    return value if field in _NOT_ADDED or field.endswith("_s") else round(value)


class CacheConfig(msgspec.Struct, frozen=True):
    """What an engine says of its prefix cache's settings; None where it does not tell."""

    engine: EngineName | None = None
    enabled: bool | None = None
    block_tokens: int | None = None


def parse_cache_config(text: str) -> CacheConfig:
    """From the same page: which engine it is, and how its cache is set up (vLLM all of it, SGLang the page size)."""
    engine: EngineName | None = None
    enabled: bool | None = None
    block: int | None = None
    for name, sample in _samples(text, lambda name: name in _WANTED or name in _SETTINGS):
        engine = engine or _engine_name(name)
        if name == "vllm:cache_config_info":
            enabled = {"True": True, "False": False}.get(sample.labels.get("enable_prefix_caching", ""))
            size = sample.labels.get("block_size", "")
            block = int(size) if size.isdigit() else None
        elif name == "sglang:page_size":
            block = int(sample.value)
    return CacheConfig(engine, enabled, block)


def _engine_name(name: str) -> EngineName | None:
    match name.partition(":")[0]:
        case "vllm" | "sglang" | "llamacpp" | "tgi" as engine:
            return engine
    return None
