"""How many independent requests would tell as much as those of a level, whose neighbours share a queue and a batch.

For values in the order in which they were served. The variance of a mean is that of independent values times the
*autocorrelation time* t = 1 + 2 x the sum of all autocorrelations; for a quantile they are those of the indicator "at
most this quantile" (Heidelberger and Lewis, Operations Research 32, 1984). So n values are worth n / t. Two estimates
of t are made, and the larger counts:

* from the ranks' correlation of neighbours, as that of an AR(1) process behind normal scores. It is the less noisy one,
  and all there is where few values lie beyond a high quantile;
* from the autocorrelations themselves, summed as the initial monotone sequence of pairs (Geyer, Statistical Science 7,
  1992). It sees queues, whose longest waits come together and fade slowly.

Neither counts unless neighbours correlate by more than chance would explain, so that independent values keep their
interval. Never more than there are values. Of very many values a few long stretches are looked at, spread evenly.
"""

from __future__ import annotations

import math
from functools import cached_property
from statistics import NormalDist

import numpy as np

from analysis.figures import Values

FEWEST = 8  # values that can tell a correlation from chance
LEAST = 6.0  # as which a median has an interval still: nearly all of what was seen, which says enough of a drift
_RANKS_Z = 1.645  # one-sided 5 %: costs independent values little, for the AR(1) estimate follows the correlation
_VALUES_Z = 3.09  # one-sided 0.1 %: a sum over many lags is large at once
_HIGHEST = 0.98  # correlation of neighbours beyond which no series can be told from a drift
_STRETCHES, _STRETCH = 4, 8192
_FIRST_LAGS = 32  # looked at one by one, before all are
_NORMAL = NormalDist()
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


class EffectiveSample:
    """``values`` in the order in which they were served; infinite ones are late beyond measure."""

    def __init__(self, values: Values) -> None:
        self._n = len(values)
        self._values = _stretches(values)

    @property
    def n(self) -> int:
        return self._n

    def for_quantile(self, q: float, value: float) -> float:
        """Independent values that would fix the ``q`` quantile, ``value``, as well; at least ``LEAST``."""
        if self._cannot_tell:
            return float(self.n)
        scores = self._scores_correlation
        smooth = 1.0 if scores is None else _time_of_indicator(scores, q)
        return max(LEAST, self._worth(max(smooth, _initial_monotone(self._values <= value))))

    def for_mean(self) -> float:
        """Independent values that would fix the mean as well; at least 1. Infinite values are no part of a mean."""
        if self._cannot_tell:
            return float(self.n)
        scores = self._scores_correlation
        smooth = 1.0 if scores is None else (1.0 + scores) / (1.0 - scores)
        return self._worth(max(smooth, _initial_monotone(self._values)))

    @property
    def _cannot_tell(self) -> bool:
        return self.n < FEWEST

    def _worth(self, time: float) -> float:
        return max(1.0, self.n / time)

    @cached_property
    def _scores_correlation(self) -> float | None:
        """Correlation of neighbours' normal scores, by way of their ranks (Pearson's 2 sin(pi r / 6)); ``None`` where
        it may be chance."""
        correlation = _of_neighbours(_ranks(self._values))
        if correlation <= _RANKS_Z / math.sqrt(len(self._values)):
            return None
        return min(_HIGHEST, 2.0 * math.sin(math.pi / 6.0 * correlation))


def _stretches(values: Values) -> Values:
    """All values, or of very many some stretches one after the other; a few wrong neighbours change nothing."""
    if len(values) <= _STRETCHES * _STRETCH:
        return values
    starts = np.linspace(0, len(values) - _STRETCH, _STRETCHES).astype(int)
    return np.concatenate([values[start : start + _STRETCH] for start in starts])


def _ranks(values: Values) -> Values:
    """Equal values share their mean rank: by their places they would seem to rise."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Values = (2.0 * counts.cumsum() - counts)[places]
    return ranks


def _of_neighbours(values: Values) -> float:
    rest = values - values.mean()
    power = _dot(rest, rest)
    return _dot(rest[1:], rest[:-1]) / power if power > 0 else 0.0


def _dot(one: Values, other: Values) -> float:
    """Without the threads of a linear algebra library, which cost more than they save here."""
    return float(np.einsum("i,i", one, other))


def _time_of_indicator(correlation: float, q: float) -> float:
    """Autocorrelation time of "at most the ``q`` quantile" where normal scores are AR(1)."""
    time, power = 1.0, correlation
    while power > 1e-3:
        time += 2.0 * _of_indicators(power, q)
        power *= correlation
    return time


def _of_indicators(correlation: float, q: float) -> float:
    """Correlation of "at most the ``q`` quantile" for two standard normal values of this ``correlation`` > 0."""
    z = _NORMAL.inv_cdf(q)
    r = (_NODES + 1.0) / 2.0 * correlation
    density = np.exp(-z * z / (1.0 + r)) / np.sqrt(1.0 - r * r)
    return float(density @ _WEIGHTS) * correlation / (4.0 * math.pi * q * (1.0 - q))


def _initial_monotone(values: np.ndarray) -> float:
    """Autocorrelation time; 1 where neighbours correlate no more than independent ones would by chance."""
    rest = np.asarray(values, dtype=np.float64)
    rest = rest - rest.mean()
    n, power = len(rest), _dot(rest, rest)
    if power <= 0.0 or _dot(rest[1:], rest[:-1]) / power <= _chance(values, n):
        return 1.0
    pairs = _positive_pairs(rest)
    time = 2.0 * float(np.minimum.accumulate(np.array(pairs) / power).sum()) - 1.0
    # Taken around the sample's own mean, each correlation is too small by about t / n.
    return max(1.0, time / (1.0 - 2.0 * len(pairs) / n))


def _positive_pairs(rest: Values) -> list[float]:
    """Sums of each two neighbouring autocovariances (times n) from lag 0 on, before the first that is not positive, and
    up to a quarter of n: beyond it too few pairs tell (Box and Jenkins)."""
    n = len(rest)
    lags = n // 8 * 2
    pairs = [_dot(rest[lag:], rest[: n - lag]) for lag in range(min(lags, _FIRST_LAGS))]
    pairs = [even + odd for even, odd in zip(pairs[0::2], pairs[1::2], strict=True)]
    if lags > _FIRST_LAGS and min(pairs) > 0.0:
        size = 1 << (n + lags).bit_length()
        spectrum = np.fft.rfft(rest, size)
        powers = np.fft.irfft((spectrum * spectrum.conj()).real, size)[:lags]
        pairs = (powers[0::2] + powers[1::2]).tolist()
    return pairs[: next((i for i, pair in enumerate(pairs) if pair <= 0.0), len(pairs))]


def _chance(values: np.ndarray, n: int) -> float:
    """What the correlation of neighbours reaches by chance in one of 1,000 cases. That of a rare event is skewed: few
    pairs of neighbours decide (Cornish and Fisher's first term, with the skewness of a Poisson count)."""
    z = _VALUES_Z
    if values.dtype == np.bool_:
        rare = min(float(values.mean()), 1.0 - float(values.mean()))
        z += (z * z - 1.0) / (6.0 * rare * math.sqrt(n))
    return z / math.sqrt(n)
