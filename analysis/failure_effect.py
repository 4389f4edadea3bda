"""Whether more requests fail on one side: the difference of two shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis import student
from analysis.compared_run import ComparedRun, Key
from analysis.effect import SIGNIFICANCE, sureness
from analysis.estimate import share_spread


@dataclass(frozen=True)
class FailureEffect:
    """``base`` and ``candidate`` are shares of the requests, 0 to 1; ``error`` of their difference, ``None`` where only
    counts are known: failures come in bursts, and counts alone do not tell how many of them there were."""

    base: float
    candidate: float
    counts: tuple[tuple[int, int], tuple[int, int]]  # failed, and all, of each side
    error: float | None
    shift: float  # the difference that the interval is centred on: with one failure and one success more on each side
    freedom: float = math.inf

    @property
    def unsure(self) -> str:
        return "" if self.error is not None else "no interval: only counts are known"

    @property
    def ratio(self) -> float:
        return self.candidate / self.base if self.base > 0 else math.inf if self.candidate > 0 else 1.0

    @property
    def chance(self) -> float | None:
        return None if self.error is None else student.tail(self.shift / self.error, self.freedom)

    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the difference of the shares."""
        if self.error is None:
            return None
        half = student.quantile(1.0 - SIGNIFICANCE / 2.0, self.freedom) * self.error
        return max(-1.0, self.shift - half), min(1.0, self.shift + half)

    def detectable(self, cells: int) -> float | None:
        """The difference of the shares that would be found."""
        return None if self.error is None else min(1.0, self.error * sureness(self.freedom, cells))


def failure_effect(key: Key, base: Sequence[ComparedRun], candidate: Sequence[ComparedRun]) -> FailureEffect | None:
    """``None`` where nothing failed on either side, or where a count is unknown (Agresti and Caffo's interval, wider
    where failures come in bursts)."""
    sides = [_counts(key, side) for side in (base, candidate)]
    if any(side is None for side in sides):
        return None
    (failed, n), (others, m) = counts = tuple(side for side in sides if side is not None)
    if failed + others == 0 or not n or not m:
        return None
    adjusted = [(bad + 1) / (all_ + 2) for bad, all_ in counts]
    bursts = [_bursts(key, side) for side in (base, candidate)]
    error = None
    if None not in bursts:
        variances = [
            share * (1 - share) / (all_ + 2) * (burst or 1.0)
            for share, (_, all_), burst in zip(adjusted, counts, bursts, strict=True)
        ]
        error = math.sqrt(sum(variances))
    return FailureEffect(failed / n, others / m, (counts[0], counts[1]), error, adjusted[1] - adjusted[0])


def _counts(key: Key, side: Sequence[ComparedRun]) -> tuple[int, int] | None:
    rows = [one.levels[key] for one in side]
    if any({"failed", "requests"} & row.unknown_counts for row in rows):
        return None
    return sum(row.failed for row in rows), sum(row.failed + row.ok for row in rows)


def _bursts(key: Key, side: Sequence[ComparedRun]) -> float | None:
    """By how much the variance of the share is larger than with independent failures, at least 1."""
    largest = 1.0
    for one in side:
        sample = one.sample(key)
        if sample is None:
            return None
        spread = share_spread(sample.failed, one.levels[key].concurrency or 1)
        if spread is None:
            return None
        n, share = len(sample.failed), float(sample.failed.mean())
        if 0 < share < 1:
            largest = max(largest, spread.variance * n / (share * (1 - share)))
    return largest
