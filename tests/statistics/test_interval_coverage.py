"""Do the intervals of a level hold the truth as often as they say, whether neighbours resemble each other or not?

A latency is lognormal with a sigma of 0.4; its logarithm is an AR(1) process, so that the truth is known exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pytest

from analysis.effective_sample import EffectiveSample
from analysis.figures import Figure, Values, mean_figure, quantile_figure

SIGMA = 0.4
RUNS = 600
LEAST_COVERED = 0.93  # of intervals that promise 95 %
CHANCE = 0.015  # in which the share of 600 runs may err (about 1.6 standard errors)


def latencies(n: int, correlation: float, seed: int) -> Values:
    """One run a row; neighbours in a row have this ``correlation`` (of the logarithms)."""
    shocks = np.random.default_rng(seed).standard_normal((RUNS, n))
    scores = np.empty_like(shocks)
    scores[:, 0] = shocks[:, 0]
    for i in range(1, n):
        scores[:, i] = correlation * scores[:, i - 1] + math.sqrt(1.0 - correlation**2) * shocks[:, i]
    return np.exp(SIGMA * scores)


def queue(n: int, busy: float, seed: int) -> Values:
    """Times in a queue with one server (M/M/1), the mean time of service 1; one run a row, from the steady state on."""
    rng = np.random.default_rng(seed)
    waiting = np.where(rng.random(RUNS) < busy, rng.exponential(1.0 / (1.0 - busy), RUNS), 0.0)
    times = np.empty((RUNS, n))
    for i in range(n):
        times[:, i] = waiting + rng.exponential(1.0, RUNS)
        waiting = np.maximum(0.0, times[:, i] - rng.exponential(1.0 / busy, RUNS))
    return times


@dataclass(frozen=True)
class Coverage:
    """Over all runs: ``shown``: share with an interval; of these ``covered``, the share that holds the truth, and
    ``width``, their mean width as a share of the truth."""

    shown: float
    covered: float
    width: float


def coverage(figures: list[Figure], truth: float) -> Coverage:
    ends = [(figure.low, figure.high) for figure in figures if figure.low is not None and figure.high is not None]
    if not ends:
        return Coverage(0.0, math.nan, math.nan)
    covered = sum(low <= truth <= high for low, high in ends) / len(ends)
    return Coverage(len(ends) / len(figures), covered, float(np.mean([high - low for low, high in ends])) / truth)


def of_quantile(runs: Values, q: float, truth: float) -> Coverage:
    return coverage([quantile_figure(np.sort(run), q, EffectiveSample(run)) for run in runs], truth)


def of_mean(runs: Values, truth: float) -> Coverage:
    return coverage([mean_figure(run, EffectiveSample(run)) for run in runs], truth)


def lognormal_quantile(q: float) -> float:
    return math.exp(SIGMA * NormalDist().inv_cdf(q))


@pytest.mark.parametrize(
    ("q", "n", "correlation"),
    [
        *((0.50, n, correlation) for n in (64, 128, 400) for correlation in (0.0, 0.5)),
        *((0.95, n, 0.0) for n in (128, 400)),
        *((0.95, n, 0.5) for n in (400, 1000)),
    ],
)
def test_an_interval_is_shown_and_holds_the_truth(q: float, n: int, correlation: float) -> None:
    """Of 600 runs every one has an interval, and at least 93 % of these hold the true quantile."""
    found = of_quantile(latencies(n, correlation, seed=n), q, lognormal_quantile(q))
    assert found.shown == 1.0
    assert found.covered >= LEAST_COVERED, found


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_interval_of_a_mean_holds_the_truth(correlation: float) -> None:
    """Likewise of the mean of 400 requests."""
    found = of_mean(latencies(400, correlation, seed=5), math.exp(SIGMA**2 / 2))
    assert found.shown == 1.0
    assert found.covered >= LEAST_COVERED, found


def test_intervals_for_independent_requests_would_be_too_narrow() -> None:
    """Taken for independent, correlated requests of the same level leave the median out of far more than 5 % of their
    intervals: the effective number is what makes the difference."""
    runs = latencies(400, 0.5, seed=400)
    naive = coverage([quantile_figure(np.sort(run), 0.50) for run in runs], lognormal_quantile(0.50))
    assert naive.covered < 0.85, naive


def test_independent_requests_pay_next_to_nothing() -> None:
    """Looking for a correlation widens the interval of independent requests by less than 3 %."""
    runs = latencies(128, 0.0, seed=128)
    for q in (0.50, 0.95):
        truth = lognormal_quantile(q)
        naive = coverage([quantile_figure(np.sort(run), q) for run in runs], truth)
        assert of_quantile(runs, q, truth).width < 1.03 * naive.width


@pytest.mark.parametrize(("q", "busy"), [(0.50, 0.3), (0.95, 0.3), (0.50, 0.6)])
def test_a_queue_with_many_requests(q: float, busy: float) -> None:
    """Times in a queue are correlated in another way, the longest most of all: 2,000 of them are enough."""
    truth = -math.log(1.0 - q) / (1.0 - busy)
    found = of_quantile(queue(2000, busy, seed=7), q, truth)
    assert found.shown > 0.99
    assert found.covered >= LEAST_COVERED - CHANCE, found
