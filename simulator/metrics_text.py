"""Counters under vLLM's names, as Prometheus text. Times are the seconds a client sees (after the speed factor)."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from simulator.drafts import Drafts
from simulator.engine import Engine, Step
from simulator.mm_cache import MultimodalCache
from simulator.settings import Settings

_LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)


class Histogram:
    """Cumulative buckets in Prometheus' sense."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """``times`` observations of one value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.count += times
        self.total += value * times

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Bucket, count and sum lines."""
        below = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            below += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {below}'
        yield f"{name}_count{{{labels}}} {self.count}"
        yield f"{name}_sum{{{labels}}} {self.total!r}"


class Book:
    """What the server counts while it runs."""

    def __init__(self, model: str) -> None:
        self._labels = f'engine="0",model_name="{model}"'
        self._created = time.time()
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0, "error": 0}  # a client that left is in none, as in vLLM
        self.first_token = Histogram(_FIRST)
        self.between_tokens = Histogram(_BETWEEN)
        self.whole_request = Histogram(_LATENCY)
        self.queue = Histogram(_LATENCY)

    def note(self, step: Step, speed: float) -> None:
        """What a finished step did, its virtual seconds ``speed`` times as long as real ones."""
        self.generation_tokens += len(step.first) + len(step.decoded) + len(step.resumed) + step.accepted
        if step.decoded:
            self.between_tokens.observe((step.end_s - step.start_s) / speed, len(step.decoded))
        for gap_s in step.resumed_gaps_s:
            self.between_tokens.observe(gap_s / speed)
        for sequence in step.first:
            started_s = sequence.started_s if sequence.started_s is not None else step.start_s
            self.prompt_tokens += len(sequence.prompt)
            self.first_token.observe((step.end_s - sequence.arrival_s) / speed)
            self.queue.observe((started_s - sequence.arrival_s) / speed)
        for sequence in step.finished:
            self.whole_request.observe((step.end_s - sequence.arrival_s) / speed)

    def text(self, engine: Engine, images: MultimodalCache, settings: Settings) -> bytes:
        """The page."""
        gauges = {
            "num_requests_running": float(len(engine.running)),
            "num_requests_waiting": float(len(engine.waiting)),
            "kv_cache_usage_perc": engine.pool.usage,
        }
        counters = {
            "prefix_cache_queries": engine.prefix_queries,
            "prefix_cache_hits": engine.prefix_hits,
            "mm_cache_queries": images.queries,
            "mm_cache_hits": images.hits,
            "num_preemptions": engine.preemptions,
            "prompt_tokens": self.prompt_tokens,
            "generation_tokens": self.generation_tokens,
        }
        cache = {
            "block_size": settings.block_size,
            "num_gpu_blocks": settings.kv_blocks,
            "enable_prefix_caching": settings.caches_prefixes,
            "kv_cache_size_tokens": settings.kv_blocks * settings.block_size,
        }
        histograms = {
            "time_to_first_token_seconds": self.first_token,
            "inter_token_latency_seconds": self.between_tokens,
            "e2e_request_latency_seconds": self.whole_request,
            "request_queue_time_seconds": self.queue,
        }
        lines: list[str] = []
        for name, value in gauges.items():
            lines += self._family(name, "gauge", [f"vllm:{name}{{{self._labels}}} {value!r}"])
        labels = "".join(f',{key}="{value}"' for key, value in cache.items())
        lines += self._family("cache_config_info", "gauge", [f"vllm:cache_config_info{{{self._labels}{labels}}} 1.0"])
        for name, count in counters.items():
            lines += self._counter(name, [("", count)])
        if engine.drafts is not None:
            lines += self._drafts(engine.drafts)
        reasons = [(f',finished_reason="{reason}"', count) for reason, count in self.finished.items()]
        lines += self._counter("request_success", reasons)
        for name, histogram in histograms.items():
            lines += self._family(name, "histogram", histogram.lines(f"vllm:{name}", self._labels))
        return ("\n".join(lines) + "\n").encode()

    def _drafts(self, drafts: Drafts) -> list[str]:
        accepted_at = drafts.accepted_at
        positions = [(f',position="{position}"', count) for position, count in enumerate(accepted_at)]
        return [
            *self._counter("spec_decode_num_drafts", [("", drafts.verified)]),
            *self._counter("spec_decode_num_draft_tokens", [("", drafts.verified * drafts.tokens)]),
            *self._counter("spec_decode_num_accepted_tokens", [("", sum(accepted_at))]),
            *self._counter("spec_decode_num_accepted_tokens_per_pos", positions),
        ]

    def _counter(self, name: str, values: list[tuple[str, int]]) -> list[str]:
        totals = [f"vllm:{name}_total{{{self._labels}{extra}}} {value}" for extra, value in values]
        created = [f"vllm:{name}_created{{{self._labels}{extra}}} {self._created!r}" for extra, _ in values]
        return self._family(f"{name}_total", "counter", totals) + self._family(f"{name}_created", "gauge", created)

    @staticmethod
    def _family(name: str, kind: str, samples: Iterable[str]) -> list[str]:
        about = name.replace("_", " ")
        return [f"# HELP vllm:{name} Simulated: {about}.", f"# TYPE vllm:{name} {kind}", *samples]
