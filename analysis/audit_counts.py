"""Rules on counts and on the order of numbers. Each takes a figure set and gives the concerns it raises."""

from __future__ import annotations

import math
from itertools import pairwise

from analysis.audit_concern import Concern, Kind
from analysis.audit_identities import SAME
from analysis.audit_set import FigureSet, name_of
from analysis.audit_span import exact
from analysis.figures import QUANTILES, Mark

CONFIDENCE = 0.95
_LATENCIES = ("ttft", "tpot", "itl", "e2e", "job", "scheduled_ttft", "scheduled_e2e")
_TABLE_OF_LOST = "look in the raw results for requests without an end, and say how many there were"


def least_requests(q: float) -> int:
    """So many that the largest is, with 95 % confidence, not below the quantile: 59 for p95, 299 for p99."""
    return math.ceil(math.log(1.0 - CONFIDENCE) / math.log(q))


def counts_close(one: FigureSet) -> list[Concern]:
    """Sent = ok + failed + unfinished. A count that is not told is not taken for 0."""
    sent, ok, failed = (one.count(name) for name in ("requests", "ok", "failed"))
    if sent is None or ok is None or failed is None:
        return []
    known = ok + failed + one.row.cancelled
    if known == sent:
        return []
    text = f"{sent} requests, but {ok} ok + {failed} failed + {one.row.cancelled} cut are {known}"
    cause = "requests without an end, or retries counted once in one place and more often in another"
    return [Concern(Kind.COUNTS, one.names, text, cause, _TABLE_OF_LOST, float(known), float(sent), "requests")]


def tokens_and_time(one: FigureSet) -> list[Concern]:
    """Throughput x time = tokens, and requests per second x time = successes."""
    wall = one.span("wall_s")
    if wall is None or wall.low <= 0:
        return []
    ok = one.count("ok")
    tokens = one.span("window_tokens") or one.span("tokens")
    found = []
    for rate, total, unit in (
        (one.span("output_tok_s"), tokens, "tok/s"),
        (one.span("requests_per_s"), exact(ok) if ok is not None else None, "requests/s"),
    ):
        if rate is None or total is None or rate.agrees(wanted := total / wall, SAME):
            continue
        text = f"{rate.value:.4g} {unit}, but {total.value:.0f} in {wall.value:.4g} s are {wanted.value:.4g}"
        cause = "another window (with or without warm-up and the end), or other requests"
        step = "say over which time and which requests the rate is"
        found.append(Concern(Kind.TOKENS, one.names, text, cause, step, rate.value, wanted.value, unit))
    return found


def peak_holds_mean(one: FigureSet) -> list[Concern]:
    """Peak >= mean of the same window."""
    peak, mean = one.span("peak_tok_s"), one.span("output_tok_s")
    if peak is None or mean is None or not peak.below(mean):
        return []
    text = f"peak {peak.value:.0f} tok/s is below the mean of {mean.value:.1f}"
    cause = "a peak over longer than a second, of one process of several, or of another run"
    step = "take the peak from the same requests and the same window as the mean"
    return [Concern(Kind.PEAK, one.names, text, cause, step, peak.value, mean.value, "tok/s")]


def quantiles_in_order(one: FigureSet) -> list[Concern]:
    """p50 <= p90 <= p95 <= p99 of each latency, and TTFT <= E2E at each of them."""
    pairs = [
        (f"{latency}_{low}_s", f"{latency}_{high}_s")
        for latency in _LATENCIES
        for low, high in pairwise([label for label in QUANTILES if f"{latency}_{label}_s" in one.spans])
    ]
    pairs += [(f"ttft_{label}_s", f"e2e_{label}_s") for label in (*QUANTILES, "mean")]
    found = []
    for name, larger in pairs:
        low, high = one.span(name), one.span(larger)
        if low is None or high is None or not high.below(low):
            continue
        text = f"{larger.removesuffix('_s')} {high.value:.4g} s is below {name.removesuffix('_s')} {low.value:.4g} s"
        cause = "cells or columns changed places, another unit, or quantiles of different requests"
        step = "compute both again from the same requests"
        found.append(Concern(Kind.QUANTILES, one.names, text, cause, step, high.value, low.value, "s"))
    return found


def small_samples(one: FigureSet) -> list[Concern]:
    """p95, or p99 where p95 has enough, of requests so few that even their largest value does not bound it."""
    found: list[Concern] = []
    for label in ("p95", "p99"):
        for n, names in _by_sample(one, label).items():
            if n >= (needed := least_requests(QUANTILES[label])) or any(other.told == n for other in found):
                continue
            rows = tuple(name_of(row) for row in one.rows if any(row.figure(name).value is not None for name in names))
            what = ", ".join(name.removesuffix(f"_{label}_s").upper() for name in names)
            text = f"{label} of {what} rests on {n} requests, fewer than {needed}"
            step = f"take {needed} requests or more, or show the median and the largest value"
            cause = "a number of requests that grows with the concurrency"
            found.append(Concern(Kind.SMALL, rows, text, cause, step, float(n), float(needed), "requests"))
    return found


def _by_sample(one: FigureSet, label: str) -> dict[int, list[str]]:
    """The figures of a quantile, by the number of requests that they rest on."""
    names: dict[int, list[str]] = {}
    for latency in ("ttft", "tpot", "e2e"):
        name = f"{latency}_{label}_s"
        if label == "p99" and Mark.NO_BOUND in one.row.figure(name).marks:  # told beside the figure; few levels have it
            continue
        n = one.row.figure(name).n or one.count("ok") or one.count("requests")
        if name in one.spans and n:
            names.setdefault(n, []).append(name)
    return names


def reached(one: FigureSet) -> list[Concern]:
    """The level held the load that it is named after, for some time at least."""
    users, steady, in_flight = one.row.concurrency, one.span("steady_s"), one.span("in_flight_mean")
    if users is None or one.row.by_clock or one.row.traffic is not None or in_flight is None:
        return []
    never = steady is not None and steady.value == 0.0
    thinks = one.value("pause_mean_s") or 0.0
    if not never and (steady is not None or thinks > 0 or in_flight.high >= 0.5 * users):
        return []
    text = f"{in_flight.value:.2g} requests in flight on average at a concurrency of {users}"
    cause = (
        "too few requests for so many users, a slow start of the users, a busy load generator, or time between requests"
    )
    step = "take at least four requests for each user; do not read this row as one at its concurrency"
    return [Concern(Kind.REACHED, one.names, text, cause, step, in_flight.value, float(users), "requests in flight")]
