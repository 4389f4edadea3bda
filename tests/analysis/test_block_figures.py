"""Quantiles and means over blocks: intervals worked out by hand from how blocks and halves of blocks differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.block_figures import effective_size, mean_of_blocks, quantile_of_blocks, student
from analysis.figures import Mark

EVEN = np.array([1.0, 2.0] * 10)  # both halves alike


def test_blocks_and_halves_that_are_alike_count_in_full() -> None:
    """20 values of two blocks: the ranks 6 and 15 enclose the median, as for independent values."""
    block = np.array([1, 10, 2, 9, 5, 6, 3, 8, 4, 7], dtype=float)
    assert effective_size([block, block], 5.5, 0.5) == 20
    figure = quantile_of_blocks([block, block], 0.5)
    assert (figure.value, figure.low, figure.high, figure.n) == (5.5, 3.0, 8.0, 20)


def test_blocks_that_differ_count_as_one_each_at_most() -> None:
    """All values of one block below, of the other above: variance 2 x 2 x (10/2)^2 / 20^2 = 1/4, one value's."""
    low, high = np.full(10, 1.0), np.full(10, 3.0)
    assert effective_size([low, high], 2.0, 0.5) == pytest.approx(1.0)
    figure = quantile_of_blocks([low, high], 0.5)
    assert (figure.value, figure.low, figure.high) == (2.0, None, None)
    assert figure.marks == (Mark.NO_BOUND,)


def test_halves_that_differ_widen_the_interval_by_students_factor() -> None:
    """Both blocks begin low and end high: variance 4/3 x 4 x (10/4)^2 / 20^2 = 1/12, times (3.182 / 1.96)^2."""
    block = np.array([1.0] * 5 + [3.0] * 5)
    assert effective_size([block, block], 2.0, 0.5) == pytest.approx(0.25 / ((3.182 / 1.959964) ** 2 / 12))


def test_a_high_quantile_may_have_one_end_only() -> None:
    """40 values bound the 95 % quantile from below (72 are needed above): the largest rank r with
    P(Binomial(40, 0.95) < r) <= 2.5 % is 35."""
    block = np.array([*range(10), *range(10)], dtype=float)
    figure = quantile_of_blocks([block, block], 0.95)
    assert sum(math.comb(40, k) * 0.95**k * 0.05 ** (40 - k) for k in range(35)) <= 0.025
    assert sum(math.comb(40, k) * 0.95**k * 0.05 ** (40 - k) for k in range(36)) > 0.025
    assert figure.low == 8.0  # every value comes four times, so that the 35th is an 8
    assert (figure.high, figure.marks) == (None, (Mark.NO_BOUND,))


def test_a_single_block_bounds_nothing() -> None:
    """Nobody knows how much another one would differ."""
    figure = quantile_of_blocks([EVEN], 0.5)
    assert (figure.value, figure.low, figure.high) == (1.5, None, None)
    assert mean_of_blocks([3.0]).low is None


def test_no_values_are_unknown() -> None:
    """Neither 0 nor an error, for blocks without a request as for none at all."""
    assert quantile_of_blocks([], 0.5).value is None
    assert quantile_of_blocks([np.zeros(0), np.zeros(0)], 0.5).value is None
    assert mean_of_blocks([]).value is None


def test_requests_later_than_all_others_stay_so() -> None:
    """A fifth of them was cut: the 95 % quantile is infinite, the median is not."""
    block = np.array([1.0, 2.0, 3.0, 4.0, math.inf] * 4)
    assert quantile_of_blocks([block, block], 0.95).value == math.inf
    assert quantile_of_blocks([block, block], 0.5).value == 3.0


def test_a_rate_has_students_interval() -> None:
    """Four blocks, 8 to 14 tok/s: mean 11, standard error sqrt(20/3) / 2, t 3.182 for three degrees."""
    figure = mean_of_blocks([8.0, 10.0, 12.0, 14.0])
    half = 3.182 * math.sqrt(20 / 3) / 2
    assert (figure.value, figure.low, figure.high) == (11.0, pytest.approx(11 - half), pytest.approx(11 + half))
    assert mean_of_blocks([0.0, 10.0]).low == 0.0


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.706), (3, 3.182), (5, 2.571), (11, 2.201), (23, 2.069)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, t: float) -> None:
    """Printed tables of the distribution, to their last digit."""
    assert student(freedom) == pytest.approx(t, abs=0.006)
