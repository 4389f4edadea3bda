"""Where a quantile that grows with the load crosses a limit: an isotonic fit, with the crossing of its bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_Z = 1.959964


@dataclass(frozen=True)
class Reading:
    """``value`` above 0 at a ``load``, with its interval as far as it is known."""

    load: float
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Crossing:
    """Loads at which the fit and its bounds reach the limit, in straight lines between levels; ``None`` where that is
    outside of what was measured, or where a bound is not known."""

    at: float | None
    low: float | None
    high: float | None


def crossing_of(readings: Sequence[Reading], limit: float) -> Crossing:
    """``low`` is where the upper bound crosses: so much fits at least. Readings in any order of loads."""
    ordered = sorted(readings, key=lambda one: one.load)
    if len(ordered) < 2:
        return Crossing(None, None, None)
    loads = [one.load for one in ordered]
    # A quantile that never falls lies below every later upper bound and above every earlier lower one.
    highs = list(accumulate((math.inf if one.high is None else one.high for one in reversed(ordered)), min))[::-1]
    lows = list(accumulate((0.0 if one.low is None else one.low for one in ordered), max))
    return Crossing(
        _reached(loads, isotonic(ordered), limit), _reached(loads, highs, limit), _reached(loads, lows, limit)
    )


def isotonic(ordered: Sequence[Reading]) -> list[float]:
    """Values that never fall, nearest to the logarithms of those that were read (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []  # mean of the logarithms, weight, readings
    for one in ordered:
        block = (math.log(max(one.value, 1e-12)) if math.isfinite(one.value) else math.inf, _weight(one), 1)
        while blocks and blocks[-1][0] > block[0]:
            block = _pooled(blocks.pop(), block)
        blocks.append(block)
    return [math.exp(mean) if math.isfinite(mean) else math.inf for mean, _, count in blocks for _ in range(count)]


def _pooled(first: tuple[float, float, int], second: tuple[float, float, int]) -> tuple[float, float, int]:
    weight = first[1] + second[1]
    return (first[0] * first[1] + second[0] * second[1]) / weight, weight, first[2] + second[2]


def _weight(one: Reading) -> float:
    """One over the squared error of the logarithm; 1 where that is not known."""
    if one.low is None or one.high is None or not 0 < one.low < one.high < math.inf:
        return 1.0
    return (2.0 * _Z / math.log(one.high / one.low)) ** 2


def _reached(loads: Sequence[float], values: Sequence[float], limit: float) -> float | None:
    """``None`` where it is above the limit from the first load on, or never."""
    if values[0] > limit:
        return None
    for i in range(1, len(loads)):
        if values[i] > limit:
            span = values[i] - values[i - 1]
            share = 0.0 if math.isinf(span) else (limit - values[i - 1]) / span
            return loads[i - 1] + share * (loads[i] - loads[i - 1])
    return None
