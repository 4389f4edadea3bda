"""Intervals of rates, from how much the stretches of a level differ: tokens or requests a second in each of them.

Stretches are as long as the mean request at least, or one would know what its neighbour saw. What neighbours still have
in common, the effective sample size takes into account.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from analysis.effective_sample import FEWEST, EffectiveSample
from analysis.figures import Figure, Values, number, student_975

MOST_STRETCHES = 30
FEWEST_WORTH = 4.0  # independent stretches; where a level rises or falls all the time its rate has no interval


def stretch_edges(start_s: float, end_s: float, request_s: float | None) -> Values:
    """Ends of equal stretches, one more than there are of these; empty where the time is too short for ``FEWEST``.

    ``request_s``: how long requests take in the mean.
    """
    length = end_s - start_s
    count = MOST_STRETCHES if not request_s else min(MOST_STRETCHES, math.floor(length / request_s))
    return np.linspace(start_s, end_s, count + 1) if count >= FEWEST and length > 0 else np.zeros(0)


def rate_figure(rate: float | None, reached: Values, edges: Values) -> Figure:
    """``rate`` a second with its interval, as far as there are stretches.

    ``reached``: the running total (tokens, requests) at each of the ``edges``. ``n`` is the number of stretches.
    """
    figure = number(rate)
    if figure.value is None or not len(edges):
        return figure
    rates = np.diff(reached) / np.diff(edges)
    worth = EffectiveSample(rates).for_mean()
    if worth < FEWEST_WORTH:
        return replace(figure, n=len(rates))
    half = student_975(worth - 1.0) * float(rates.std(ddof=1)) / math.sqrt(worth)
    return replace(figure, n=len(rates), low=max(0.0, figure.value - half), high=figure.value + half)


def counted(moments_s: Values, edges: Values) -> Values:
    """How many of the moments had come at each edge."""
    return np.searchsorted(np.sort(moments_s), edges, side="right").astype(np.float64)
