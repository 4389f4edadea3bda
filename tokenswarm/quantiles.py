"""The one definition of a quantile, its distribution-free interval, and a histogram that can be merged.

Pure Python: the load process imports this module, and numpy would cost it memory and start-up time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import mul, sub


def quantile(values: Iterable[float], q: float) -> float | None:
    """Linear interpolation between order statistics (numpy's default, Hyndman and Fan's type 7).

    ``None`` for no values. Infinite values are allowed: they are failures counted as infinitely late.
    """
    return quantile_of_sorted(sorted(values), q)


def quantile_of_sorted(ordered: Sequence[float], q: float) -> float | None:
    """As :func:`quantile`, for values that are already in ascending order (a list or an array)."""
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"a quantile lies between 0 and 1, not {q}")
    if len(ordered) == 0:
        return None
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    share = position - below
    low = float(ordered[below])
    if share == 0.0:
        return low
    high = float(ordered[below + 1])
    # Equal ends first: inf - inf would be no number.
    return low if high == low else low + (high - low) * share


def order_statistic_interval(n: int, q: float, confidence: float = 0.95) -> tuple[int, int] | None:
    """Ranks (counted from 1) of the two order statistics that enclose the ``q`` quantile of the population.

    Exact, equal-tailed and free of any assumption about the distribution but independence: each end misses with at most
    ``(1 - confidence) / 2``. ``None`` where ``n`` is too small for that: 95 % needs 6 values for the median and 72 for
    the 95 % quantile.
    """
    lower, upper = order_statistic_bounds(n, q, confidence)
    return None if lower is None or upper is None else (lower, upper)


def order_statistic_bounds(n: int, q: float, confidence: float = 0.95) -> tuple[int | None, int | None]:
    """Both ends of :func:`order_statistic_interval`, each ``None`` where ``n`` is too small for it alone.

    A high quantile is bounded from below by few values already.
    """
    tail = (1.0 - confidence) / 2.0
    lower = _largest_rank_missed_at_most(n, q, tail)
    from_above = _largest_rank_missed_at_most(n, 1.0 - q, tail)
    return lower or None, n + 1 - from_above if from_above else None


def correlated_bounds(n: int, q: float, effective: float, confidence: float = 0.95) -> tuple[int | None, int | None]:
    """As :func:`order_statistic_bounds`, for ``n`` values that are worth ``effective`` independent ones, 1 to ``n``.

    The ranks are those of so few values, at the same place among all: an end exists where so few have one.
    """
    size = max(1, min(n, math.floor(effective)))
    lower, upper = order_statistic_bounds(size, q, confidence)
    if size == n:
        return lower, upper
    stretch = (n + 1) / (size + 1)
    low = None if lower is None else max(1, math.floor(lower * stretch))
    return low, None if upper is None else min(n, math.ceil(upper * stretch))


def _largest_rank_missed_at_most(n: int, q: float, tail: float) -> int:
    """The largest r with P(Binomial(n, q) < r) <= tail; 0 where there is none."""
    if n < 1 or not 0.0 < q < 1.0:
        return 0
    mean, deviation = n * q, math.sqrt(n * q * (1.0 - q))
    # Everything below this start together is far less than the rounding of `tail`.
    k = max(0, math.floor(mean - 12.0 * deviation - 40.0))
    probability = math.exp(
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(q) + (n - k) * math.log1p(-q)
    )
    odds = q / (1.0 - q)
    below = probability
    while below <= tail and k < n:
        probability *= odds * (n - k) / (k + 1)
        k += 1
        below += probability
    return k


class LogHistogram:
    """Counts in buckets that grow by 2 %: any quantile comes out within 1 % of the exact one.

    Two histograms merge by adding their counts, so workers and levels can be pooled without keeping values.
    ``counts`` maps bucket number to count; bucket ``b`` holds the values in ``(1.02 ** (b - 1), 1.02 ** b]``.
    Values below ``SMALLEST`` (two token events that share one receive stamp are 0 s apart) go to ``ZERO_BUCKET`` and
    come back as 0.
    """

    GROWTH = 1.02
    SMALLEST = 1e-9
    ZERO_BUCKET = -10_000
    _PER_LOG = 1.0 / math.log(GROWTH)
    # Puts the value shown for a bucket at equal relative distance (0.99 %) from both of its ends.
    _CENTRE = 2.0 / (1.0 + GROWTH)

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})

    @classmethod
    def bucket_of(cls, value: float) -> int:
        """Bucket number of one finite value."""
        return math.ceil(math.log(value) * cls._PER_LOG) if value >= cls.SMALLEST else cls.ZERO_BUCKET

    @classmethod
    def value_of(cls, bucket: int) -> float:
        """The value that stands for all values of a bucket."""
        return 0.0 if bucket == cls.ZERO_BUCKET else cls._CENTRE * cls.GROWTH**bucket

    def add(self, value: float, count: int = 1) -> None:
        bucket = self.bucket_of(value)
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    def add_gaps(self, times: Sequence[float]) -> None:
        """The differences of ascending times. All in C: this runs for every token of a load."""
        gaps = list(map(sub, times[1:], times))
        if gaps and min(gaps) < self.SMALLEST:
            zeros = sum(gap < self.SMALLEST for gap in gaps)
            self.counts[self.ZERO_BUCKET] = self.counts.get(self.ZERO_BUCKET, 0) + zeros
            gaps = [gap for gap in gaps if gap >= self.SMALLEST]
        self.merge(Counter(map(math.ceil, map(mul, map(math.log, gaps), repeat(self._PER_LOG)))))

    def merge(self, counts: Mapping[int, int]) -> None:
        """Add the counts of another histogram (its ``counts``)."""
        mine = self.counts
        for bucket, count in counts.items():
            mine[bucket] = mine.get(bucket, 0) + count

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def quantile(self, q: float) -> float | None:
        """Within 1 % of :func:`quantile` of the values added; ``None`` when empty."""
        total = self.total
        if not total:
            return None
        position = q * (total - 1)
        below = math.floor(position)
        low, high = self._at_ranks(below, min(below + 1, total - 1))
        return low + (high - low) * (position - below)

    def mean(self) -> float | None:
        """Within 1 % of the mean of the values added; ``None`` when empty."""
        total = self.total
        return sum(self.value_of(b) * n for b, n in self.counts.items()) / total if total else None

    def _at_ranks(self, first: int, second: int) -> tuple[float, float]:
        """Values at two ranks counted from 0, ``first <= second``."""
        low: float | None = None
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if low is None and seen > first:
                low = self.value_of(bucket)
            if low is not None and seen > second:
                return low, self.value_of(bucket)
        raise ValueError(f"rank {second} is beyond the {seen} values of the histogram")
