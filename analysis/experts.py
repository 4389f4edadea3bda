"""Which share of a layer's experts one forward pass touches when each token picks a few: the union of the picks.

Uniform gating is one end of a band: every expert is as likely as any other, and the union is as large as it gets. The
other end is skewed gating: expert r is picked with a weight of ``r ** -skew`` (Zipf), without picking one twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float64]
_HIGH = 0.95  # the quantile that is told beside the mean
_CELLS = 2_000_000  # random numbers drawn at a time


@dataclass(frozen=True)
class Union:
    """Shares from 0 to 1 of the experts of one layer; ``high`` is the 95 % quantile over forward passes."""

    mean: float
    high: float | None


def mean_share(experts: int, active: int, tokens: float, skew: float = 0.0) -> float:
    """Expected share that ``tokens`` independent tokens touch: exact for uniform gating, ``1 - (1 - k/E) ** tokens``.

    For skewed gating each expert's chance is that of a race in which all experts run with exponential times and which
    is stopped when ``active`` are expected to have arrived (instead of at the arrival of the last one): within 0.3
    points of the exact share at a skew of 0.5, within 1.1 at a skew of 1.
    """
    chances = _chances(experts, active, skew)
    return float(np.mean(1.0 - (1.0 - chances) ** tokens))


def uniform_union(experts: int, active: int, tokens: int) -> Union:
    """Mean and quantile of the exact distribution: token after token, the new experts are hypergeometric."""
    ways = _new_experts(experts, active)
    chance = np.zeros(experts + 1)
    chance[0] = 1.0
    for _ in range(tokens):
        after = np.zeros_like(chance)
        for new in range(active + 1):
            after[new:] += chance[: experts + 1 - new] * ways[new, : experts + 1 - new]
        chance = after
    touched = np.arange(experts + 1)
    high = int(np.searchsorted(np.cumsum(chance), _HIGH - 1e-12))
    return Union(float(chance @ touched) / experts, high / experts)


def simulated_union(
    experts: int, active: int, tokens: int, *, skew: float = 0.0, passes: int = 5000, seed: int = 1
) -> Union:
    """The same from forward passes that are played: each token takes the ``active`` largest of random scores."""
    random = np.random.default_rng(seed)
    scores = -skew * np.log(np.arange(1, experts + 1, dtype=np.float64))
    at_once = max(1, _CELLS // (tokens * experts))
    shares: list[Weights] = []
    for first in range(0, passes, at_once):
        count = min(at_once, passes - first)
        drawn = scores + random.gumbel(size=(count, tokens, experts))
        picked = np.argpartition(-drawn, active - 1, axis=2)[:, :, :active]
        touched = np.zeros((count, experts), dtype=bool)
        np.put_along_axis(touched, picked.reshape(count, -1), True, axis=1)
        shares.append(touched.mean(axis=1))
    values = np.concatenate(shares)
    return Union(float(values.mean()), float(np.quantile(values, _HIGH, method="inverted_cdf")))


def _chances(experts: int, active: int, skew: float) -> Weights:
    """Of each expert to be picked by one token; they add up to ``active``."""
    if not skew or active >= experts:
        return np.full(experts, active / experts)
    weights = np.arange(1, experts + 1, dtype=np.float64) ** -skew
    low, high = 0.0, 1.0
    while _arrived(weights, high) < active:
        high *= 2.0
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _arrived(weights, middle) < active else (low, middle)
    return -np.expm1(-weights * high)


def _arrived(weights: Weights, time: float) -> float:
    return float(-np.expm1(-weights * time).sum())


def _new_experts(experts: int, active: int) -> Weights:
    """``[new, touched]``: the chance that a token picks so many new experts where so many were touched before."""
    all_picks = math.comb(experts, active)
    return np.array(
        [
            [
                math.comb(experts - touched, new) * math.comb(touched, active - new) / all_picks
                for touched in range(experts + 1)
            ]
            for new in range(active + 1)
        ]
    )
