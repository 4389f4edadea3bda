"""Arrival times of an open loop: by hand where they are certain, by tests of their distribution where they are not.

The tests by chance are of fixed seeds, so that they give the same every time; the seeds were not chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice, pairwise
from random import Random

import pytest

from tokenswarm.arrivals import Arrivals, Stretch

KS_AT_1_PERCENT = 1.6276  # times the root of n: the Kolmogorov distribution's 99th percentile


def kolmogorov(values: list[float], cumulative: Callable[[float], float]) -> float:
    """√n times the largest distance between the values' distribution and the one that they should have."""
    ordered, n = sorted(values), len(values)
    distances = (max((at + 1) / n - cumulative(x), cumulative(x) - at / n) for at, x in enumerate(ordered))
    return math.sqrt(n) * max(distances)


def gamma_cumulative(shape: float) -> Callable[[float], float]:
    """Distribution function of gamma gaps with mean 1, by the series of the incomplete gamma function."""

    def below(x: float) -> float:
        z = shape * x
        term = total = 1 / shape
        n = 0
        while abs(term) > 1e-15 * abs(total):
            n += 1
            term *= z / (shape + n)
            total += term
        return min(1.0, total * math.exp(-z + shape * math.log(z) - math.lgamma(shape))) if z > 0 else 0.0

    return below


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise([0.0, *times])]


def test_the_series_is_the_incomplete_gamma_function() -> None:
    """Shape 1 is the exponential; shape 2 is 1 - (1 + 2x) e^-2x; shape ½ is an error function."""
    for x in (0.01, 0.3, 1.0, 2.5, 8.0):
        assert gamma_cumulative(1.0)(x) == pytest.approx(1 - math.exp(-x))
        assert gamma_cumulative(2.0)(x) == pytest.approx(1 - (1 + 2 * x) * math.exp(-2 * x))
        assert gamma_cumulative(0.5)(x) == pytest.approx(math.erf(math.sqrt(x / 2)))


def test_constant_arrivals_stand_at_equal_distances() -> None:
    """Four a second for 1.5 s: at 0, ¼, ½ … and none at the end."""
    arrivals = Arrivals("constant", (Stretch(1.5, 4, 4),))
    assert list(arrivals.times_s(Random(1))) == pytest.approx([0, 0.25, 0.5, 0.75, 1.0, 1.25])
    assert arrivals.expected == 6
    assert arrivals.length_s == 1.5


def test_a_constant_ramp_follows_the_inverse_of_its_integral() -> None:
    """From 1 to 3 a second in 4 s: by t there were t + t²/4, so the k-th comes at √(4 + 4k) - 2, eight in all."""
    times = list(Arrivals("constant", (Stretch(4, 1, 3),)).times_s(Random(1)))
    assert times == pytest.approx([math.sqrt(4 + 4 * k) - 2 for k in range(8)])


def test_a_ramp_down_is_the_mirror_of_one_up() -> None:
    """From 3 to 1 a second in 4 s: 3t - t²/4, so the k-th comes at 6 - √(36 - 4k)."""
    times = list(Arrivals("constant", (Stretch(4, 3, 1),)).times_s(Random(1)))
    assert times == pytest.approx([6 - math.sqrt(36 - 4 * k) for k in range(8)])


def test_steps_follow_each_other_without_a_gap() -> None:
    """2 a second for 2 s, then 4 for 1 s, then 1 for 2 s: what is begun in one step goes on at the next one's rate."""
    stretches = (Stretch(2, 2, 2), Stretch(1, 4, 4), Stretch(2, 1, 1))
    times = list(Arrivals("constant", stretches).times_s(Random(1)))
    assert times == pytest.approx([0, 0.5, 1, 1.5, 2, 2.25, 2.5, 2.75, 3, 4])
    odd = list(Arrivals("constant", (Stretch(0.75, 2, 2), Stretch(2, 1, 1))).times_s(Random(1)))
    assert odd == pytest.approx([0, 0.5, 1.25, 2.25])  # half an arrival was left over at 0.75 s


def test_a_stretch_inverts_its_own_integral() -> None:
    """``when`` of a ramp: the count expected until then, by the area of the trapezium, is what was asked for."""
    for stretch in (Stretch(10, 2, 9), Stretch(10, 9, 2), Stretch(10, 5, 5), Stretch(10, 5, 5 + 1e-12)):
        slope = (stretch.end_per_s - stretch.start_per_s) / stretch.length_s
        for count in (0.0, 0.5, 7.0, stretch.expected):
            t = stretch.when(count)
            assert t * (stretch.start_per_s + (stretch.start_per_s + slope * t)) / 2 == pytest.approx(count)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_gaps_are_exponential(seed: int) -> None:
    """20 a second for 500 s: the gaps pass a Kolmogorov-Smirnov test against 1 - e^-20x at 1 %."""
    times = list(Arrivals("poisson", (Stretch(500, 20, 20),)).times_s(Random(seed)))
    assert kolmogorov(gaps(times), lambda x: 1 - math.exp(-20 * x)) < KS_AT_1_PERCENT


def test_the_test_tells_constant_and_gamma_gaps_from_poisson() -> None:
    """The same test refuses gaps with a coefficient of variation 20 % off, and equal ones."""
    for arrivals in (
        Arrivals("gamma", (Stretch(500, 20, 20),), burstiness=1 / 1.2**2),
        Arrivals("constant", (Stretch(500, 20, 20),)),
    ):
        times = list(arrivals.times_s(Random(1)))
        assert kolmogorov(gaps(times), lambda x: 1 - math.exp(-20 * x)) > KS_AT_1_PERCENT


@pytest.mark.parametrize("burstiness", [0.25, 0.5, 1.0, 4.0])
def test_gamma_gaps_have_their_distribution(burstiness: float) -> None:
    """Shape and mean as asked, by the same test; their coefficient of variation is burstiness^-½."""
    found = gaps(list(Arrivals("gamma", (Stretch(500, 20, 20),), burstiness).times_s(Random(5))))
    below = gamma_cumulative(burstiness)
    assert kolmogorov(found, lambda x: below(20 * x)) < KS_AT_1_PERCENT
    mean = sum(found) / len(found)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in found) / len(found))
    assert deviation / mean == pytest.approx(burstiness**-0.5, rel=0.05)


@pytest.mark.parametrize("process", ["poisson", "gamma"])
def test_arrivals_of_a_ramp_lie_where_its_rate_says(process: str) -> None:
    """From 5 to 45 a second in 100 s: of 2,500 expected, those before t are 5t + t²/5. In operational time gaps pass
    the test of a steady rate; each quarter of the time has its share of arrivals within four standard deviations."""
    ramp = Arrivals(process, (Stretch(100, 5, 45),), burstiness=2.0)
    times = list(ramp.times_s(Random(3)))
    operational = gaps([5 * t + t * t / 5 for t in times])
    below = gamma_cumulative(2.0 if process == "gamma" else 1.0)
    assert kolmogorov(operational, below) < KS_AT_1_PERCENT
    for start in (0, 25, 50, 75):
        expected = 5 * 25 + ((start + 25) ** 2 - start**2) / 5
        assert abs(sum(start <= t < start + 25 for t in times) - expected) < 4 * math.sqrt(expected)


def test_steps_have_the_expected_counts() -> None:
    """Poisson at 10, 40 and 20 a second for 50 s each: 500, 2,000 and 1,000, within four standard deviations."""
    steps = tuple(Stretch(50, rate, rate) for rate in (10, 40, 20))
    times = list(Arrivals("poisson", steps).times_s(Random(4)))
    for start, expected in ((0, 500), (50, 2000), (100, 1000)):
        count = sum(start <= t < start + 50 for t in times)
        assert abs(count - expected) < 4 * math.sqrt(expected)


def test_the_same_seed_gives_the_same_times() -> None:
    """In order, before the end, the same from the same seed and others from another."""
    arrivals = Arrivals("poisson", (Stretch(10, 3, 8), Stretch(5, 8, 8)))
    times = list(arrivals.times_s(Random("arrivals 7/0")))
    assert times == list(arrivals.times_s(Random("arrivals 7/0")))
    assert times == sorted(times)
    assert times[-1] < 15
    assert times != list(arrivals.times_s(Random("arrivals 8/0")))


def test_times_come_one_by_one() -> None:
    """A week at a thousand a second is not made at once."""
    week = Arrivals("poisson", (Stretch(604_800, 1000, 1000),))
    assert len(list(islice(week.times_s(Random(1)), 5))) == 5
