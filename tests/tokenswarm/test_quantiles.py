"""Quantiles against numpy, intervals against exact rational binomials, histograms against the raw values."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from fractions import Fraction
from itertools import accumulate, pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenswarm.quantiles import (
    LogHistogram,
    order_statistic_bounds,
    order_statistic_interval,
    quantile,
    quantile_of_sorted,
)

finite = st.floats(min_value=0.0, max_value=1e6, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=60), st.floats(min_value=0.0, max_value=1.0))
def test_quantile_is_numpys_default(values: list[float], q: float) -> None:
    """Every quantile of every sample equals numpy's linear interpolation."""
    assert quantile(values, q) == pytest.approx(float(np.quantile(values, q)), rel=1e-12, abs=1e-9)


def test_quantile_worked_by_hand() -> None:
    """The 95 % quantile of 0, 10, ... 100 lies half-way between the last but one and the last."""
    assert quantile([100, 0, 10, 20, 30, 40, 50, 60, 70, 80, 90], 0.95) == 95.0
    assert quantile([5.0], 0.99) == 5.0
    assert quantile([1.0, 2.0], 0.5) == 1.5


def test_no_values_have_no_quantile() -> None:
    """Nothing measured is unknown, not zero."""
    assert quantile([], 0.5) is None


def test_quantile_outside_0_to_1_is_refused() -> None:
    """A percentage given where a share is wanted must not be taken."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([1.0], 95)


def test_infinitely_late_values_reach_only_the_quantiles_they_touch() -> None:
    """Two failures of ten push p95 to infinity, leave the median finite, and never give NaN."""
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, math.inf, math.inf]
    assert quantile_of_sorted(values, 0.5) == 5.5
    assert quantile_of_sorted(values, 0.95) == math.inf
    assert quantile_of_sorted([1.0, math.inf], 0.0) == 1.0


def _missed_below(n: int, q: Fraction, rank: int) -> Fraction:
    """P(fewer than ``rank`` of n values lie below the quantile), in exact arithmetic."""
    return sum((comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(rank)), Fraction(0))


@pytest.mark.parametrize(("q", "smallest"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368)])
def test_smallest_sample_that_bounds_a_quantile(q: float, smallest: int) -> None:
    """Equal-tailed 95 % needs q**n <= 0.025: 6 values for the median, 72 for p95."""
    assert q**smallest <= 0.025 < q ** (smallest - 1)
    assert order_statistic_interval(smallest, q) is not None
    assert order_statistic_interval(smallest - 1, q) is None


@pytest.mark.parametrize("n", [6, 7, 20, 72, 73, 128, 400])
@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(9, 10), Fraction(19, 20)])
def test_interval_ranks_are_the_tightest_that_cover(n: int, q: Fraction) -> None:
    """Each end misses with at most 2.5 % in exact arithmetic, and one rank further in would miss with more."""
    tail = Fraction(25, 1000)
    ranks = order_statistic_interval(n, float(q))
    if ranks is None:
        assert _missed_below(n, q, 1) > tail or q**n > tail
        return
    lower, upper = ranks
    above = n + 1 - upper  # counted from the top
    assert _missed_below(n, q, lower) <= tail < _missed_below(n, q, lower + 1)
    assert _missed_below(n, 1 - q, above) <= tail < _missed_below(n, 1 - q, above + 1)


def test_interval_of_a_large_sample() -> None:
    """A million values: the ranks agree with the normal approximation to a part of the deviation, within a moment."""
    n, q = 1_000_000, 0.95
    ranks = order_statistic_interval(n, q)
    assert ranks is not None
    reach = 1.959964 * math.sqrt(n * q * (1 - q))
    assert ranks[0] == pytest.approx(n * q - reach, abs=3)
    assert ranks[1] == pytest.approx(n * q + reach, abs=3)


def test_each_end_of_an_interval_exists_by_itself() -> None:
    """Of 40 values the 35th bounds the 95 % quantile from below (at most 34 of 40 lie below it with probability 0.014,
    at most 35 with 0.048), none from above; for the 5 % quantile the other way round."""
    assert order_statistic_bounds(40, 0.95) == (35, None)
    assert order_statistic_bounds(40, 0.05) == (None, 6)
    assert order_statistic_bounds(20, 0.5) == order_statistic_interval(20, 0.5) == (6, 15)
    assert order_statistic_bounds(0, 0.5) == (None, None)


def test_interval_covers_the_true_quantile_of_a_skewed_population() -> None:
    """In 2,000 seeded exponential samples of 128 the p95 interval contains ln 20 at least 93.5 % of the time."""
    rng = random.Random(11)
    ranks = order_statistic_interval(128, 0.95)
    assert ranks is not None
    truth = math.log(20.0)
    hits = 0
    for _ in range(2000):
        sample = sorted(rng.expovariate(1.0) for _ in range(128))
        hits += sample[ranks[0] - 1] <= truth <= sample[ranks[1] - 1]
    assert hits >= 1870


@given(
    st.lists(st.floats(min_value=1e-6, max_value=1e4), min_size=1, max_size=200),
    st.floats(min_value=0.0, max_value=1.0),
)
def test_histogram_quantile_is_within_one_percent(values: list[float], q: float) -> None:
    """Whatever the values, a quantile read from the buckets is within the declared 1 %."""
    histogram = LogHistogram()
    for value in values:
        histogram.add(value)
    assert histogram.quantile(q) == pytest.approx(float(np.quantile(values, q)), rel=0.01)
    assert histogram.mean() == pytest.approx(float(np.mean(values)), rel=0.01)


@given(st.lists(finite, max_size=50), st.lists(finite, max_size=50))
def test_merged_histograms_equal_one_histogram(left: list[float], right: list[float]) -> None:
    """Adding the counts of two workers gives the histogram of all values."""
    one, two, both = LogHistogram(), LogHistogram(), LogHistogram()
    for value in left:
        one.add(value)
        both.add(value)
    for value in right:
        two.add(value)
        both.add(value)
    one.merge(two.counts)
    assert one.counts == both.counts
    assert LogHistogram(one.counts).total == len(left) + len(right)


def test_events_with_one_stamp_are_zero_apart() -> None:
    """Gaps of 0 s are counted and come back as 0, beside gaps that are not."""
    histogram = LogHistogram()
    histogram.add(0.0, 3)
    histogram.add(0.010)
    assert histogram.total == 4
    assert histogram.quantile(0.5) == 0.0
    assert histogram.quantile(1.0) == pytest.approx(0.010, rel=0.01)


def test_an_empty_histogram_knows_nothing() -> None:
    """No gaps: no quantile and no mean."""
    assert LogHistogram().quantile(0.5) is None
    assert LogHistogram().mean() is None


def test_module_needs_no_numpy() -> None:
    """The load process imports quantiles without paying for numpy or pandas."""
    code = "import sys, tokenswarm.quantiles; print([m for m in ('numpy', 'pandas') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.strip() == "[]"


@given(st.lists(st.floats(0, 100, allow_nan=False), min_size=0, max_size=50))
def test_gaps_in_bulk_count_like_gaps_one_by_one(gaps: list[float]) -> None:
    """The quick way for whole answers fills the same buckets as adding each difference by itself."""
    times = list(accumulate(gaps, initial=5.0))
    bulk, single = LogHistogram(), LogHistogram()
    bulk.add_gaps(times)
    for earlier, later in pairwise(times):
        single.add(later - earlier)
    assert bulk.counts == single.counts
