"""The numbers behind a comparison, against tables and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis import holm, student
from analysis.effect import Unit, effect_of_many, effect_of_two
from analysis.estimate import Estimate, mean_estimate, quantile_estimate, spread_of


@pytest.mark.parametrize(
    ("freedom", "share", "expected"),
    [
        (1, 0.975, 12.706),
        (2, 0.975, 4.303),
        (5, 0.995, 4.032),
        (10, 0.95, 1.812),
        (30, 0.999, 3.385),
        (120, 0.975, 1.980),
    ],
)
def test_student_quantiles(freedom: int, share: float, expected: float) -> None:
    """As printed in tables of Student's t, and the tail leads back to the share."""
    assert student.quantile(share, freedom) == pytest.approx(expected, abs=6e-4)
    assert student.tail(expected, freedom) == pytest.approx(2 * (1 - share), rel=3e-3)


def test_student_of_infinite_freedom_is_normal() -> None:
    """1.959964 is the 97.5 % quantile of the normal distribution."""
    assert student.quantile(0.975, math.inf) == pytest.approx(1.959964, abs=1e-6)


def test_holm_by_hand() -> None:
    """0.01 × 4, then 0.02 × 3, then 0.03 × 2 which may not fall below its predecessor, then 0.9."""
    assert holm.adjusted([0.02, 0.9, 0.01, 0.03]) == pytest.approx([0.06, 0.9, 0.04, 0.06])
    assert holm.adjusted([0.6, 0.7]) == [1.0, 1.0]
    assert holm.adjusted([]) == []


def test_mean_of_independent_values() -> None:
    """Over 400 samples the error that is told is on average not below that of the mean, nor half as large again."""
    rng = np.random.default_rng(1)
    told, means = [], []
    for _ in range(400):
        found = mean_estimate(rng.normal(10.0, 1.0, 480), 48)
        assert found is not None
        assert found.parts is not None
        spread = spread_of(found.parts)
        assert spread is not None
        told.append(spread.variance)
        means.append(math.log(found.value))
    assert 1.0 <= float(np.mean(told)) / float(np.var(means)) < 1.5


def test_alike_neighbours_widen_the_error() -> None:
    """Values that keep 80 % of the last one: the variance of their mean is 9 times that of independent ones."""
    rng = np.random.default_rng(2)
    values = np.zeros(4800)
    for i in range(1, len(values)):
        values[i] = 0.8 * values[i - 1] + 0.6 * rng.normal()
    found = mean_estimate(100.0 + values, 48)
    assert found is not None
    assert found.parts is not None
    spread = spread_of(found.parts)
    assert spread is not None
    assert 4 < spread.variance / (1.0 / 4800 / 100.0**2) < 25


def test_too_few_for_an_interval() -> None:
    """Seven requests make no groups; of 40 the 95 % quantile has no neighbour on its far side."""
    values = np.linspace(1.0, 2.0, 40)
    few, high, middle = (
        mean_estimate(values[:7], 0),
        quantile_estimate(values, 0.95, 8),
        quantile_estimate(values, 0.5, 8),
    )
    assert few is not None
    assert high is not None
    assert middle is not None
    assert few.parts is None
    assert high.parts is None
    assert middle.parts is not None


def test_published_intervals_are_taken() -> None:
    """10 ± 2 % against 11 ± 2 % in standard errors: the log of 1.1 over the root of two squares."""
    effect = effect_of_two(Estimate(10.0, 50, 0.02), Estimate(11.0, 50, 0.02))
    assert effect.ratio == pytest.approx(1.1)
    assert effect.chance == pytest.approx(math.erfc(math.log(1.1) / 0.02 / 2.0), rel=1e-9)


def test_turns_take_a_straight_drift_out_of_the_effect() -> None:
    """A B B A with 3 % more each time: the effect is exactly the 5 % that were put in; A A B B has none."""
    values = [math.exp(0.03 * i) * (1.05 if side else 1.0) for i, side in enumerate((0, 1, 1, 0))]
    units = [
        Unit(Estimate(value, 1), side, float(i))
        for i, (value, side) in enumerate(zip(values, (0, 1, 1, 0), strict=True))
    ]
    assert effect_of_many(units, []).ratio == pytest.approx(1.05)
    sequential = [Unit(Estimate(math.exp(0.03 * i), 1), int(i > 1), float(i)) for i in range(4)]
    chance = effect_of_many(sequential, []).chance
    assert effect_of_many(sequential, []).ratio == pytest.approx(1.0)
    assert chance is None or chance > 0.05
