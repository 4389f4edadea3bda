"""The effective number of requests: against theory, and where it must not be fooled."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.effective_sample import EffectiveSample
from analysis.figures import Values, mean_figure, quantile_figure, share_figure
from tokenswarm.quantiles import correlated_bounds, order_statistic_bounds


def first_order(n: int, correlation: float, seed: int = 1) -> Values:
    shocks = np.random.default_rng(seed).standard_normal(n)
    values = np.empty(n)
    values[0] = shocks[0]
    for i in range(1, n):
        values[i] = correlation * values[i - 1] + math.sqrt(1 - correlation**2) * shocks[i]
    return values


def median_worth(values: Values) -> float:
    return EffectiveSample(values).for_quantile(0.5, float(np.median(values)))


def test_mean_of_a_first_order_process() -> None:
    """n (1 - r) / (1 + r) of n values fix a mean as well: a third at a correlation of 0.5."""
    n = 20_000
    assert EffectiveSample(first_order(n, 0.5)).for_mean() == pytest.approx(n / 3, rel=0.1)


def test_median_of_a_first_order_process() -> None:
    """The signs of two normal values correlate by 2/pi arcsin(r): summed over all lags at r = 0.5, t is 2.31."""
    time = 1 + 2 * sum(2 / math.pi * math.asin(0.5**lag) for lag in range(1, 60))
    assert time == pytest.approx(2.31, abs=0.01)
    n = 20_000
    assert median_worth(first_order(n, 0.5)) == pytest.approx(n / time, rel=0.1)


def test_independent_values_keep_their_number() -> None:
    """Of 200 samples of 128 only those that correlate by chance are worth less, by no more than a third."""
    rng = np.random.default_rng(3)
    worths = [median_worth(rng.standard_normal(128)) for _ in range(200)]
    assert np.mean(worths) > 125
    assert min(worths) > 128 * 0.66
    assert max(worths) == 128


def test_alternating_values_are_worth_no_more_than_they_are() -> None:
    """A mean of values that make up for each other is better than that of independent ones; nobody may count on it."""
    values = np.tile([1.0, 3.0], 100) + np.random.default_rng(1).normal(0, 0.1, 200)
    assert EffectiveSample(values).for_mean() == 200
    assert median_worth(values) == 200


def test_equal_values_show_no_correlation() -> None:
    """Rounded, infinite or constant values have no order of their own: places in a file must not become a trend."""
    assert median_worth(np.full(100, 2.0)) == 100
    rng = np.random.default_rng(4)
    rounded = rng.integers(0, 2, 400).astype(float)
    assert median_worth(rounded) > 300
    late = np.where(rng.random(400) < 0.1, np.inf, rng.random(400))
    assert EffectiveSample(late).for_quantile(0.95, math.inf) > 300


def test_two_halves_that_differ_are_worth_next_to_nothing() -> None:
    """A server that became slower half-way gave no 200 independent values."""
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.normal(1, 0.1, 100), rng.normal(2, 0.1, 100)])
    assert EffectiveSample(values).for_mean() < 10


def test_few_values_cannot_tell() -> None:
    """Seven rising values may be chance."""
    assert EffectiveSample(np.arange(7.0)).for_mean() == 7


def test_very_many_values_are_worth_as_much_a_value() -> None:
    """Where only some stretches are looked at, the share stays that of theory."""
    n = 200_000
    assert EffectiveSample(first_order(n, 0.5)).for_mean() == pytest.approx(n / 3, rel=0.1)


def test_ranks_of_fewer_values_at_the_same_places() -> None:
    """100 values worth 100: their own ranks. Worth 80 of 400: rank 76 of 80 is 376 of 400, outwards."""
    assert correlated_bounds(100, 0.95, 100.0) == order_statistic_bounds(100, 0.95)
    low, high = order_statistic_bounds(80, 0.95)
    assert low is not None
    assert high is not None
    expected = (math.floor(low * 401 / 81), min(400, math.ceil(high * 401 / 81)))
    assert correlated_bounds(400, 0.95, 80.9) == expected


def test_worth_less_than_the_least_has_no_bound() -> None:
    """72 independent values bound p95; 400 that are worth 71 do not, and worth 72 they do."""
    assert correlated_bounds(400, 0.95, 71.9)[1] is None
    assert correlated_bounds(400, 0.95, 72.0)[1] is not None


def test_ends_are_values_that_occurred() -> None:
    """The interval of a quantile has two of the values as its ends, around the value."""
    values = first_order(400, 0.5)
    figure = quantile_figure(np.sort(values), 0.5, EffectiveSample(values))
    assert figure.low in values
    assert figure.high in values
    assert figure.low < figure.value < figure.high
    assert figure.effective_n is not None
    assert figure.effective_n < 300


def test_mean_by_hand() -> None:
    """1, 2, 3, 4, 5: 3 plus or minus 2.776 x 1.5811 / sqrt(5); times are never below 0, one value has no interval."""
    figure = mean_figure(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert (figure.low, figure.high) == (pytest.approx(1.0368, abs=1e-3), pytest.approx(4.9632, abs=1e-3))
    assert mean_figure(np.array([0.0, 0.0, 9.0])).low == 0.0
    alone = mean_figure(np.array([2.0]))
    assert (alone.value, alone.low, alone.high) == (2.0, None, None)


def test_share_by_hand() -> None:
    """Wilson's interval of 1 in 10 is 1.8 to 40.4 %; of none in 10 it ends at 27.8 %; of nothing all is blank."""
    tenth = share_figure(1, 10)
    assert (tenth.low, tenth.high) == (pytest.approx(0.0179, abs=1e-3), pytest.approx(0.4042, abs=1e-3))
    none = share_figure(0, 10)
    assert (none.value, none.low, none.high) == (0.0, 0.0, pytest.approx(0.2775, abs=1e-3))
    assert share_figure(0, 0).value is None
