"""The line about itself that vLLM prints every few seconds."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TextIO

from simulator.engine import Engine, Step

_RECENT_REQUESTS = 1000  # whose hit rate is printed, as in vLLM


class RecentHits:
    """Hits over queries of the most recent requests."""

    def __init__(self) -> None:
        self._requests: deque[tuple[int, int]] = deque()
        self._queries = 0
        self._hits = 0

    def note(self, queries: int, hits: int) -> None:
        """One more request."""
        self._requests.append((queries, hits))
        self._queries += queries
        self._hits += hits
        if len(self._requests) > _RECENT_REQUESTS:
            queries, hits = self._requests.popleft()
            self._queries -= queries
            self._hits -= hits

    def clear(self) -> None:
        """As if there had been no request."""
        self._requests.clear()
        self._queries = self._hits = 0

    def part(self, name: str) -> list[str]:
        """``name: 50.1%``; nothing before the first request."""
        share = self._hits / self._queries if self._queries else 0.0
        return [f"{name}: {share * 100:.1f}%"] if self._requests else []


class EngineLog:
    """Adds up what happens between two lines and writes them to ``stream``, in the words and figures of vLLM 0.32.

    Prompt tokens count when they were computed, not where they came from a cache. Nothing is written in the second
    interval without any token.
    """

    def __init__(self, interval_s: float, stream: TextIO) -> None:
        self.interval_s = interval_s
        self.prefix = RecentHits()
        self.images = RecentHits()
        self._stream = stream
        self._computed = self._generated = 0
        self._since_s = time.monotonic()
        self._was_idle = True

    def note(self, step: Step, caches_prefixes: bool) -> None:
        """What a finished step did."""
        self._generated += len(step.first) + len(step.decoded) + len(step.resumed) + step.accepted
        for sequence in step.first:
            self._computed += len(sequence.prompt) - sequence.cached_tokens
            if caches_prefixes:
                self.prefix.note(len(sequence.prompt), sequence.cached_tokens)

    def write(self, engine: Engine) -> None:
        """One line, unless nothing happens."""
        now_s = time.monotonic()
        passed_s = max(1e-9, now_s - self._since_s)
        idle = not (self._computed or self._generated)
        if not (idle and self._was_idle):
            text = ", ".join(self._parts(engine, passed_s))
            stamp = time.strftime("%m-%d %H:%M:%S")
            print(f"(APIServer pid={os.getpid()}) INFO {stamp} [engine_log.py] Engine 000: {text}", file=self._stream)
            self._stream.flush()
        self._since_s, self._was_idle = now_s, idle
        self._computed = self._generated = 0

    def _parts(self, engine: Engine, passed_s: float) -> list[str]:
        return [
            f"Avg prompt throughput: {self._computed / passed_s:.1f} tokens/s",
            f"Avg generation throughput: {self._generated / passed_s:.1f} tokens/s",
            f"Running: {len(engine.running)} reqs",
            f"Waiting: {len(engine.waiting)} reqs",
            f"GPU KV cache usage: {engine.pool.usage * 100:.1f}%",
            *self.prefix.part("Prefix cache hit rate"),
            *self.images.part("MM cache hit rate"),
        ]
