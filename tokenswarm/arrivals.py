"""When sessions arrive in an open loop, whatever the server does: seeded times on an absolute schedule.

A process with a rate that changes is drawn at rate one in operational time (the expected number of arrivals so far) and
carried over to seconds (Çinlar, Introduction to Stochastic Processes, 1975, ch. 4.7): ramps and steps then hold for
every kind of process. Pure: no clock, no socket, no Locust.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Literal

Process = Literal["constant", "poisson", "gamma"]


@dataclass(frozen=True)
class Stretch:
    """``length_s`` seconds in which the rate goes evenly from ``start_per_s`` to ``end_per_s`` sessions a second."""

    length_s: float
    start_per_s: float
    end_per_s: float

    @property
    def expected(self) -> float:
        return self.length_s * (self.start_per_s + self.end_per_s) / 2

    def when(self, count: float) -> float:
        """Seconds from its beginning at which ``count`` arrivals are expected."""
        slope = (self.end_per_s - self.start_per_s) / self.length_s
        if abs(slope) * self.length_s < 1e-9 * max(self.start_per_s, self.end_per_s):
            return count / self.start_per_s
        root = math.sqrt(max(0.0, self.start_per_s**2 + 2 * slope * count))
        return 2 * count / (self.start_per_s + root)


@dataclass(frozen=True)
class Arrivals:
    """The arrivals of one level. ``burstiness`` is the shape of the gamma process: its gaps have a coefficient of
    variation of ``burstiness ** -0.5``; 1 is a Poisson process, less comes in bursts, more is more regular."""

    process: Process
    stretches: tuple[Stretch, ...]
    burstiness: float = 1.0

    @property
    def length_s(self) -> float:
        return sum(stretch.length_s for stretch in self.stretches)

    @property
    def expected(self) -> float:
        """Mean number of arrivals."""
        return sum(stretch.expected for stretch in self.stretches)

    def times_s(self, rng: Random) -> Iterator[float]:
        """Seconds from the beginning, in order, all before the end. A constant rate begins with an arrival at 0."""
        ends = list(accumulate(stretch.expected for stretch in self.stretches))
        starts_s = [0.0, *accumulate(stretch.length_s for stretch in self.stretches)]
        index, count = 0, 0.0 if self.process == "constant" else self._gap(rng)
        while index < len(ends):
            if count >= ends[index]:
                index += 1
                continue
            before = ends[index - 1] if index else 0.0
            yield starts_s[index] + self.stretches[index].when(count - before)
            count += self._gap(rng)

    def _gap(self, rng: Random) -> float:
        match self.process:
            case "constant":
                return 1.0
            case "poisson":
                return rng.expovariate(1.0)
            case "gamma":
                return rng.gammavariate(self.burstiness, 1.0 / self.burstiness)
