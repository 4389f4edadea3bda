"""One figure of one run with how sure it is, from requests that share a queue.

Requests of one run are not independent: those that wait together are late together, and a server that is slow now is
slow for a while. So they are taken in groups that follow each other in time, each at least as large as half a wave of
all users, and what counts is how much the groups differ and how alike neighbouring groups are: the more alike, the
fewer independent groups there are.

Each group's part in the error is kept: in two runs of the same load, groups at the same place have much in common (the
burst at the start, long prompts that come at the same turn), and only what they do not share is uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.figures import Values

FEWEST_GROUPS, MOST_GROUPS = 8, 48
FEWEST_INDEPENDENT = 3.0  # groups; fewer do not tell how much they differ
_Z = 1.959964  # 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class Spread:
    """Variance, and the degrees of freedom behind it."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class Estimate:
    """``parts``: what each group adds to the deviation of the logarithm of ``value``, in the order of time; ``error``:
    the standard error of that logarithm, where nothing but an interval is known. ``None`` is unknown."""

    value: float
    n: int
    error: float | None = None
    parts: Values | None = None


def group_count(n: int, wave: int) -> int:
    """Groups that ``n`` requests of ``wave`` users make; 0 where they are too few to tell how sure a figure is."""
    groups = min(MOST_GROUPS, n // max(1, math.ceil(wave / 2)))
    return groups if groups >= FEWEST_GROUPS else 0


def mean_estimate(values: Values, groups: int) -> Estimate | None:
    """Mean of values above 0 in the order of time."""
    mean = float(values.mean()) if len(values) else 0.0
    return None if mean <= 0 else Estimate(mean, len(values), parts=_parts(values / mean, groups))


def quantile_estimate(values: Values, q: float, groups: int) -> Estimate | None:
    """``q`` quantile of values in the order of time.

    What a group adds to the share of values below it leads back to what it adds to the quantile (Woodruff's method), by
    how fast the values grow around it; too near to the largest or smallest value that is not known.
    """
    n = len(values)
    value = float(np.quantile(values, q)) if n else 0.0
    if value <= 0:
        return None
    parts = _parts(np.asarray(values <= value, dtype=np.float64), groups)
    if parts is None:
        return Estimate(value, n)
    reach = _Z * math.sqrt(q * (1.0 - q) / n) + 0.5 / n  # a share of n requests is known to half a request
    if q - reach <= 0.0 or q + reach >= 1.0:
        return Estimate(value, n)
    low, high = (float(end) for end in np.quantile(values, (q - reach, q + reach)))
    if low <= 0:
        return Estimate(value, n)
    return Estimate(value, n, parts=-parts * math.log(high / low) / (2.0 * reach))


def rate_estimate(value: float, slices: Values, n: int) -> Estimate:
    """A rate whose parts in equal slices of time are known; ``n`` requests stand behind it."""
    mean = float(slices.mean()) if len(slices) else 0.0
    return Estimate(value, n, parts=None if mean <= 0 else _parts(slices / mean, len(slices)))


def share_spread(ones: Values, wave: int) -> Spread | None:
    """Of the share of ones among zeros and ones in the order of time; ``None`` where they are too few."""
    parts = _parts(ones, group_count(len(ones), wave))
    return None if parts is None else spread_of(parts)


def spread_of(parts: Values) -> Spread | None:
    """Of the sum of what the groups add; ``None`` where they are so alike that fewer than ``FEWEST_INDEPENDENT`` would
    tell as much.

    Neighbours are taken to be alike as in a first-order autoregression. That their likeness comes out too low from few
    groups is made good (Marriott and Pope's correction), with half a standard error on top.
    """
    groups, squares = len(parts), float((parts**2).sum())
    if squares == 0.0:
        return Spread(0.0, groups - 1)
    seen = float(parts[1:] @ parts[:-1]) / squares
    alike = min(1.0, max(0.0, (seen + 1.0 / groups) / (1.0 - 3.0 / groups) + 0.5 / math.sqrt(groups)))
    independent = groups * (1.0 - alike) / (1.0 + alike)
    if independent < FEWEST_INDEPENDENT:
        return None
    return Spread(squares * groups / independent / (1.0 - 1.0 / independent), independent - 1.0)


def _parts(values: Values, groups: int) -> Values | None:
    """By how much each group moves the mean of all values."""
    if groups < FEWEST_GROUPS or len(values) < groups:
        return None
    split: Sequence[Values] = np.array_split(values, groups)
    totals = np.array([group.sum() for group in split])
    sizes = np.array([len(group) for group in split], dtype=np.float64)
    return np.asarray((totals - sizes * totals.sum() / sizes.sum()) / sizes.sum(), dtype=np.float64)
