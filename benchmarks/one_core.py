"""Three loads that one process on one core must carry and measure truthfully, each in three separate runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import Row
from benchmarks.load import Bench, Shape, steady_run
from tokenswarm.quantiles import quantile

RUNS = 3
THINKERS, THINK_S = 1_000, 20.0
STREAMS = 500
ARRIVALS_PER_S = 2_000


@dataclass(frozen=True)
class Thinkers(Shape):
    """Chats of many turns whose users think most of the time."""

    think_s: float = THINK_S

    @property
    def asked_tokens_per_s(self) -> float:
        answer_s = (self.ttft_us + self.jitter_us / 2 + (self.tokens - 1) * self.itl_us) / 1e6
        return self.streams * self.tokens / (self.think_s + answer_s)

    def traffic(self) -> list[dict[str, Any]]:
        (chat,) = super().traffic()
        return [{**chat, "turns": 100, "think_time_s": {"exponential": self.think_s}}]


@dataclass(frozen=True)
class Arriving(Shape):
    """An open loop: ``streams`` is the most at the same time."""

    per_s: float = ARRIVALS_PER_S

    def load(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {"open": {"requests_per_s": self.per_s, "max_users": self.streams, **more}}


def thinking(bench: Bench) -> list[Row]:
    """1,000 chats, 128 tokens of 20 ms an answer, 20 s of thought on average before the next; all begin at once."""
    shape = Thinkers(THINKERS, itl_us=20_000, jitter_us=20_000)
    return _runs(bench, "thinking", shape, 30.0, steady_after=round(1.2 * THINKERS), spare_s=12.0)


def streams(bench: Bench) -> list[Row]:
    """500 streams of 20 ms a token, spread over the interval."""
    return _runs(bench, "streams", Shape(STREAMS, itl_us=20_000, jitter_us=20_000), 15.0, spare_s=5.0)


def arrivals(bench: Bench) -> list[Row]:
    """2,000 requests a second for one token each, by chance (Poisson), whatever the server does."""
    shape = Arriving(1_000, tokens=1, itl_us=0, input_tokens=16)
    return _runs(bench, "arrivals", shape, 15.0, steady_after=ARRIVALS_PER_S)


def _runs(bench: Bench, name: str, shape: Shape, seconds: float, **more: Any) -> list[Row]:
    rows = []
    for number in range(1, RUNS + 1):
        part = bench.part(name)
        row, _ = steady_run(part, shape, seconds, **more)
        rows.append({"run": number, "users": shape.streams, **row, "send_delay_p95_ms": _send_delay_p95_ms(part)})
    return rows


def _send_delay_p95_ms(bench: Bench) -> float | None:
    """From the time at which a request was due to that at which it was sent."""
    delays = [
        float(row["sent_s"]) - float(row["scheduled_s"])
        for row in bench.requests()
        if row["phase"] == "measured" and row["sent_s"] and row["scheduled_s"]
    ]
    value = quantile(delays, 0.95)
    return None if value is None else value * 1e3
