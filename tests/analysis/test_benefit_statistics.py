"""The estimators and verdicts of the prefix-cache test, against published tables and hand computation."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.arm_check import sign_test
from analysis.benefit import Answer, Difference, effective_size, mean_with_interval, median_figure, student_975
from analysis.figures import Figure
from analysis.whole_levels import MEASURES, Comparison


@pytest.mark.parametrize(("freedom", "published"), [(5, 2.571), (9, 2.262), (19, 2.093), (30, 2.042), (120, 1.980)])
def test_students_quantile(freedom: int, published: float) -> None:
    """As in any printed table of the t distribution."""
    assert student_975(freedom) == pytest.approx(published, rel=2e-3)


@pytest.mark.parametrize(("split", "probability"), [((6, 0), 2 / 64), ((0, 5), 2 / 32), ((3, 3), 1.0), ((0, 0), 1.0)])
def test_sign_test(split: tuple[int, int], probability: float) -> None:
    """Two-sided, by counting the outcomes of fair coins."""
    assert sign_test(*split) == pytest.approx(probability)


def test_median_interval_of_fewer_effective_values() -> None:
    """Of 20 values order statistics 6 and 15 bound the median; where they count as 10, those at 2/10 and 9/10 do."""
    values = np.arange(1.0, 21.0)
    full = median_figure(values, 20)
    assert (full.value, full.low, full.high) == (10.5, 6, 15)
    fewer = median_figure(values, 10.9)
    assert (fewer.value, fewer.low, fewer.high) == (10.5, 4, 17)
    assert median_figure(values, 5.9).low is None


def test_mean_interval() -> None:
    """1 to 9: mean 5, deviation sqrt(7.5), t(8) = 2.306."""
    figure = mean_with_interval(np.arange(1.0, 10.0), 9)
    assert figure.value == 5
    assert figure.high == pytest.approx(5 + 2.306 * 7.5**0.5 / 3, abs=5e-3)
    assert mean_with_interval(np.arange(1.0, 6.0), 5).low is None


def test_independent_differences_count_in_full() -> None:
    """Alternating signs, and too few to tell, leave the number of pairs as it is."""
    assert effective_size(np.array([1.0, -1.0] * 20), 16) == 40
    assert effective_size(np.arange(9.0), 16) == 9
    assert effective_size(np.zeros(30), 16) == 30


def test_neighbours_that_are_alike_count_for_less() -> None:
    """Ten low differences, then ten high ones: correlation 17/20 at lag 1, weight 1/2, so 20 / (1 + 0.85)."""
    values = np.concatenate([np.arange(10.0), 100 + np.arange(10.0)])
    assert effective_size(values, 1) == pytest.approx(20 / 1.85)


def test_runs_of_equal_differences_are_found_in_time() -> None:
    """An autoregressive series with coefficient 0.8 counts for far less than its length in nearly every draw."""
    rng = np.random.default_rng(7)
    sizes = []
    for _ in range(40):
        series = [0.0]
        for shock in rng.normal(size=199):
            series.append(0.8 * series[-1] + shock)
        sizes.append(effective_size(np.array(series), 16))
    assert np.mean([size < 100 for size in sizes]) > 0.95


def _difference(value: float, low: float | None, high: float | None, cold: float = 0.5) -> Difference:
    figure = Figure(value, n=20, low=low, high=high)
    return Difference("ttft", 20, 20.0, cold, cold - value, figure, figure, floor_s=max(0.001, 0.02 * cold))


@pytest.mark.parametrize(
    ("value", "low", "high", "answer"),
    [
        (0.200, 0.150, 0.250, Answer.BENEFIT),
        (0.011, 0.002, 0.020, Answer.BENEFIT),  # above 0 for sure, and the median above the floor of 10 ms
        (0.009, 0.002, 0.020, Answer.UNKNOWN),  # above 0 for sure, perhaps not worth the name
        (0.009, 0.008, 0.0099, Answer.NONE),  # real, and below the floor for sure
        (0.000, -0.005, 0.005, Answer.NONE),
        (0.050, -0.001, 0.100, Answer.UNKNOWN),
        (-0.200, -0.250, -0.150, Answer.NONE),
        (0.200, None, None, Answer.UNKNOWN),
    ],
)
def test_verdict_of_an_interval(value: float, low: float | None, high: float | None, answer: Answer) -> None:
    """Benefit: above 0, and the median at least the floor; no benefit: all below the floor; else it cannot tell."""
    assert _difference(value, low, high).answer == answer


def _comparison(name: str, *values: float | None) -> Comparison:
    return Comparison(next(one for one in MEASURES if one.name == name), values)


def test_whole_levels_cancel_an_even_drift() -> None:
    """100 tok/s cold and 110 warm on a server that loses 2 tok/s a level: the first half alone says 8 %, not 10 %."""
    one = _comparison("output_tok_s", 100.0, 108.0, 106.0, 94.0)
    assert one.halves == pytest.approx((1.08, 106 / 94))
    assert one.ratio == pytest.approx(1.10, abs=0.005)
    assert one.floor == pytest.approx(0.06)  # cold against cold; warm against warm differs by 2/108
    assert one.answer == Answer.BENEFIT


@pytest.mark.parametrize(
    ("name", "values", "answer"),
    [
        ("output_tok_s", (100.0, 101.0, 101.0, 100.0), Answer.UNKNOWN),  # within the least floor, 2 %
        ("output_tok_s", (100.0, 110.0, 96.0, 92.0), Answer.UNKNOWN),  # two warm levels differ by 13 %
        ("output_tok_s", (100.0, 90.0, 91.0, 101.0), Answer.NONE),
        ("e2e_mean_s", (2.0, 1.5, 1.5, 2.0), Answer.BENEFIT),  # less time is better
        ("e2e_mean_s", (2.0, 2.5, 2.5, 2.0), Answer.NONE),
        ("output_tok_s", (100.0, None, 110.0, 100.0), Answer.UNKNOWN),
    ],
)
def test_verdict_of_whole_levels(name: str, values: tuple[float | None, ...], answer: Answer) -> None:
    """A ratio within what two equal levels differ by means nothing."""
    assert _comparison(name, *values).answer == answer
