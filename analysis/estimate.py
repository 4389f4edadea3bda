"""One figure of one run with how sure it is, from requests that share a queue.

Requests of one run are not independent: those that wait together are late together. So they are taken in groups that
follow each other in time, each at least as large as half a wave of all users, and what counts is how much the groups
differ. They are also taken two by two: where groups still resemble their neighbours, that shows a larger variance, and
the larger one counts.

Each group's part in the error is kept: in two runs of the same load, groups at the same place have much in common (the
burst at the start, long prompts that come at the same turn), and only what they do not share is uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.figures import Values

FEWEST_GROUPS, MOST_GROUPS = 4, 24
_Z = 1.959964  # 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class Estimate:
    """``error``: standard error of the logarithm of ``value``, which is the relative one where it is small; ``None``
    where it is unknown. ``parts``: what each group adds to the deviation of that logarithm, in the order of time."""

    value: float
    n: int
    error: float | None = None
    parts: Values | None = None

    @property
    def freedom(self) -> float:
        """Degrees of freedom behind the error."""
        return math.inf if self.parts is None else len(self.parts) - 1


def group_count(n: int, wave: int) -> int:
    """Groups that ``n`` requests of ``wave`` users make; 0 where they are too few to tell how sure a figure is."""
    groups = min(MOST_GROUPS, n // max(1, math.ceil(wave / 2)))
    return groups if groups >= FEWEST_GROUPS else 0


def mean_estimate(values: Values, groups: int) -> Estimate | None:
    """Mean of values above 0 in the order of time."""
    mean = float(values.mean()) if len(values) else 0.0
    return None if mean <= 0 else _with_parts(mean, len(values), _parts(values / mean, groups))


def quantile_estimate(values: Values, q: float, groups: int) -> Estimate | None:
    """``q`` quantile of values in the order of time.

    Its interval leads back from that of the share of values below it (Woodruff's method), and is not known where that
    share comes too near to 0 or 1: then there are too few requests.
    """
    n = len(values)
    value = float(np.quantile(values, q)) if n else 0.0
    if value <= 0:
        return None
    parts = _parts(np.asarray(values <= value, dtype=np.float64), groups)
    if parts is None:
        return Estimate(value, n)
    # Never surer than independent requests; and a share of n requests is known to half a request.
    reach = _Z * math.sqrt(max(variance_of(parts), q * (1.0 - q) / n)) + 0.5 / n
    if q - reach <= 0.0 or q + reach >= 1.0:
        return Estimate(value, n)
    low, high = (float(end) for end in np.quantile(values, (q - reach, q + reach)))
    if low <= 0:
        return Estimate(value, n)
    spread = math.log(high / low)  # of the value, while the share goes through twice the reach
    return Estimate(value, n, spread / (2.0 * _Z), -parts * spread / (2.0 * reach))


def rate_estimate(value: float, slices: Values, n: int) -> Estimate:
    """A rate whose parts in equal slices of time are known; ``n`` requests stand behind it."""
    mean = float(slices.mean()) if len(slices) else 0.0
    return Estimate(value, n) if mean <= 0 else _with_parts(value, n, _parts(slices / mean, len(slices)))


def share_variance(ones: Values, wave: int) -> float | None:
    """Variance of the share of ones among zeros and ones in the order of time; ``None`` where they are too few."""
    parts = _parts(ones, group_count(len(ones), wave))
    return None if parts is None else variance_of(parts)


def variance_of(parts: Values) -> float:
    """Of the sum of what the groups, or the groups two by two, add."""
    choices = [parts] if len(parts) < 2 * FEWEST_GROUPS else [parts, _pairs(parts)]
    return max(float((one**2).sum()) * len(one) / (len(one) - 1) for one in choices)


def _with_parts(value: float, n: int, parts: Values | None) -> Estimate:
    return Estimate(value, n) if parts is None else Estimate(value, n, math.sqrt(variance_of(parts)), parts)


def _parts(values: Values, groups: int) -> Values | None:
    """By how much each group moves the mean of all values."""
    if groups < FEWEST_GROUPS or len(values) < groups:
        return None
    split: Sequence[Values] = np.array_split(values, groups)
    totals = np.array([group.sum() for group in split])
    sizes = np.array([len(group) for group in split], dtype=np.float64)
    return (totals - sizes * totals.sum() / sizes.sum()) / sizes.sum()


def _pairs(parts: Values) -> Values:
    return np.array([pair.sum() for pair in np.array_split(parts, len(parts) // 2)])
