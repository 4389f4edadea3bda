"""Figures over several blocks of the same load, with intervals that rest on how much the blocks differ.

Requests of one block share a queue. As if they were independent, their order statistics would give an interval that is
too narrow: where a queue is long it holds the 95 % quantile of TTFT in 76 of 100 runs. The blocks are independent, and
so nearly are their halves. From these comes the number of independent requests that would be as good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.benefit import student_975
from analysis.figures import Figure, Mark, Values
from tokenswarm.quantiles import order_statistic_bounds, quantile_of_sorted

_Z = 1.959964  # 97.5 % quantile of the normal distribution
_STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # likewise of Student's t, where its series is not exact
_SAME = 1.0 + 1e-9  # two values this close differ by rounding only


def quantile_of_blocks(blocks: Sequence[Values], q: float) -> Figure:
    """Quantile of all values. Each block's are in the order of time; infinite ones are late beyond measure.

    The interval is distribution-free and has one end only where there are too few values for the other.
    """
    values = np.sort(np.concatenate([np.zeros(0), *blocks]))
    value = quantile_of_sorted(values.tolist(), q)
    if value is None:
        return Figure(None, n=0)
    n, size = len(values), math.floor(effective_size(blocks, value, q))
    lower, upper = order_statistic_bounds(size, q)
    low = None if lower is None else float(values[max(1, lower * n // size) - 1])
    high = None if upper is None else float(values[n - max(1, (size + 1 - upper) * n // size)])
    return Figure(value, n=n, low=low, high=high, marks=(Mark.NO_BOUND,) if low is None or high is None else ())


def effective_size(blocks: Sequence[Values], value: float, q: float) -> float:
    """Independent values that would fix the ``q`` quantile ``value`` as well as these do; 0 for a single block.

    What counts is the share of values up to ``value`` in each half of a block, with Student's factor for so many
    halves, and in each block as a whole, in case that the blocks themselves differ. Never more than there are values.
    """
    if len(blocks) < 2:
        return 0.0
    halves = [half for block in blocks for half in np.array_split(block, 2)]
    factor = (student(len(halves) - 1) / _Z) ** 2
    variance = max(factor * _variance(halves, value), _variance(blocks, value))
    n = float(sum(len(block) for block in blocks))
    return n if variance * n <= q * (1.0 - q) else q * (1.0 - q) / variance


def _variance(groups: Sequence[Values], value: float) -> float:
    """Of the share of all values that are at most ``value``, from how it differs between groups."""
    counts = np.array([np.count_nonzero(group <= value * _SAME) for group in groups], dtype=np.float64)
    sizes = np.array([len(group) for group in groups], dtype=np.float64)
    rest = counts - sizes * counts.sum() / sizes.sum()
    return float((rest**2).sum()) * len(groups) / (len(groups) - 1) / float(sizes.sum()) ** 2


def mean_of_blocks(values: Sequence[float]) -> Figure:
    """Mean of one value a block, none below 0, with Student's interval."""
    n = len(values)
    if n == 0:
        return Figure(None, n=0)
    mean = float(np.mean(values))
    if n == 1:
        return Figure(mean, n=n, marks=(Mark.NO_BOUND,))
    half = student(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Figure(mean, n=n, low=max(0.0, mean - half), high=mean + half)


def student(freedom: int) -> float:
    """97.5 % quantile of Student's t for whole degrees of ``freedom`` from 1 on."""
    return _STUDENT.get(freedom) or student_975(freedom)
