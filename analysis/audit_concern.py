"""What an audit finds: a rule that does not close, where, by how much, why that may be and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The closed list of concerns. :data:`REASONS` says why each one matters."""

    COUNTS = "counts"
    TOKENS = "tokens and time"
    PEAK = "peak below mean"
    QUANTILES = "quantiles out of order"
    LITTLE = "Little's law"
    REACHED = "concurrency not reached"
    TPOT = "throughput against TPOT"
    PER_REQUEST = "tok/s per request"
    E2E = "E2E against TTFT and TPOT"
    TWO_FIGURES = "two figures for one configuration"
    QUOTED = "one quantity, two values"
    DERIVED = "derived value"
    LENGTHS = "lengths not as asked"
    EARLY = "early stops"
    BIAS = "success bias"
    SMALL = "small sample"
    CACHE = "cache enabled but inert"


REASONS: dict[Kind, str] = {
    Kind.COUNTS: "requests that are in no count may be those that failed",
    Kind.TOKENS: "throughput is tokens by time; where it is not, one of the three is of something else",
    Kind.PEAK: "the best second of a window holds at least its mean",
    Kind.QUANTILES: "a higher quantile is never smaller",
    Kind.LITTLE: "requests in flight = requests per second x seconds in flight, whatever the server does",
    Kind.REACHED: "a level is named after the load asked for; its figures are those of the load that was there",
    Kind.TPOT: "a stream of n tokens takes TTFT + (n - 1) x TPOT; c streams give c x n tokens in that time",
    Kind.PER_REQUEST: "tok/s of one request = its tokens / (E2E - TTFT)",
    Kind.E2E: "a request of n tokens takes TTFT + (n - 1) x TPOT",
    Kind.TWO_FIGURES: "what is concluded depends on which of the two is read",
    Kind.QUOTED: "one of the values is of another start, another setting or a slip",
    Kind.DERIVED: "a ratio that does not follow from its figures was taken from others",
    Kind.LENGTHS: "every time and rate is that of the lengths that were there, not of those in the title",
    Kind.EARLY: "short answers make E2E look better and leave the batch emptier",
    Kind.BIAS: "the successes are then the easy requests, and their latencies those of an easier workload",
    Kind.SMALL: "the largest of fewer than 59 values lies below the p95 more often than one time in twenty",
    Kind.CACHE: "a cache that is on and is never hit is not what runs elsewhere, or is not on",
}


@dataclass(frozen=True)
class Concern:
    """``rows``: names of the rows it rests on. ``told`` and ``wanted``: the two values that should be one, in ``unit``;
    ``None`` where there is no such pair."""

    kind: Kind
    rows: tuple[str, ...]
    text: str
    cause: str
    next_step: str
    told: float | None = None
    wanted: float | None = None
    unit: str = ""

    @property
    def reason(self) -> str:
        return REASONS[self.kind]

    @property
    def line(self) -> str:
        """One line for people."""
        return f"{self.kind}: {', '.join(self.rows)}: {self.text}; likely: {self.cause}; next: {self.next_step}"
