"""Student's t for any degrees of freedom: its two-sided tail and its quantile, from the incomplete beta function."""

from __future__ import annotations

import math
from functools import lru_cache

_TINY, _CLOSE = 1e-300, 1e-13


def tail(t: float, freedom: float) -> float:
    """Probability that chance gives a value at least as far from 0 as ``t``; infinite ``freedom`` is the normal
    distribution."""
    if math.isinf(freedom):
        return math.erfc(abs(t) / math.sqrt(2.0))
    return 1.0 if t == 0.0 else _beta_share(freedom / 2.0, 0.5, freedom / (freedom + t * t))


@lru_cache(maxsize=4096)
def quantile(share: float, freedom: float) -> float:
    """The value that is exceeded with probability ``1 - share``, for shares from 0.5 on."""
    wanted, low, high = 2.0 * (1.0 - share), 0.0, 1.0
    while tail(high, freedom) > wanted:
        low, high = high, 2.0 * high
    while high - low > 1e-10 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if tail(middle, freedom) > wanted else (low, middle)
    return high


def _beta_share(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function (Abramowitz and Stegun 26.5.8, from the side that converges fast)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction by Lentz's method."""
    c, d = 1.0, 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _not_zero(1.0 + term * d)
            c = _not_zero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < _CLOSE:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
