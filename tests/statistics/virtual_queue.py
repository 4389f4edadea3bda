"""Open loops in virtual time on queues of textbooks: Poisson arrivals, one server that is shared, or several in a row.

What a saturation watch would have seen of them second by second.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable
from random import Random

from tokenswarm.saturation import Second

Draw = Callable[[Random], float]  # work of one session, mean 1


def even(rng: Random) -> float:
    """Lengths from half to one and a half of the mean."""
    return rng.uniform(0.5, 1.5)


def exponential(rng: Random) -> float:
    return rng.expovariate(1.0)


def slots(rng: Random, per_s: float, busy: float, count: int, draw: Draw, length_s: float) -> list[Second]:
    """``count`` sessions at a time, each at its own speed, the others wait: M/G/c. ``busy``: load over capacity."""
    arrivals = _arrivals(rng, per_s, length_s)
    free, ends = [0.0] * count, []
    for at_s in arrivals:
        end_s = max(at_s, heapq.heappop(free)) + draw(rng) * count * busy / per_s
        heapq.heappush(free, end_s)
        ends.append(end_s)
    return _seconds(arrivals, sorted(ends), length_s)


def shared(rng: Random, per_s: float, busy: float, draw: Draw, length_s: float) -> list[Second]:
    """All sessions at once, each the slower the more there are: M/G/1 with processor sharing, as an engine that
    batches. Time goes on at the rate at which one session is served; ``done`` is where it stands."""
    arrivals = _arrivals(rng, per_s, length_s)
    in_service: list[float] = []  # where each will have had its work
    ends: list[float] = []
    now_s = done = 0.0
    for at_s in [*arrivals, length_s]:
        while in_service and now_s + (in_service[0] - done) * len(in_service) <= at_s:
            now_s += (in_service[0] - done) * len(in_service)
            done = heapq.heappop(in_service)
            ends.append(now_s)
        if in_service:
            done += (at_s - now_s) / len(in_service)
        now_s = at_s
        heapq.heappush(in_service, done + draw(rng) * busy / per_s)
    return _seconds(arrivals, ends, length_s)


def _arrivals(rng: Random, per_s: float, length_s: float) -> list[float]:
    times, at_s = [], rng.expovariate(per_s)
    while at_s < length_s:
        times.append(at_s)
        at_s += rng.expovariate(per_s)
    return times


def _seconds(arrivals: list[float], ends: list[float], length_s: float) -> list[Second]:
    seconds = []
    for now_s in range(1, math.floor(length_s) + 1):
        arrived, ended = bisect_right(arrivals, now_s), bisect_right(ends, now_s)
        seconds.append(Second(float(now_s), arrived - ended, ended, arrived))
    return seconds
