"""Distributions: limits, means and shapes against hand computation and an independent sampler."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random
from statistics import fmean, quantiles
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tokenswarm.distributions import Distribution, Shape

ADAPTER: TypeAdapter[Any] = TypeAdapter(Distribution)


def shape(written: Any) -> Shape:
    """The distribution that a scenario file with this value has."""
    return ADAPTER.validate_python(written)


PHI_1 = 0.8413447460685429  # share of a standard normal curve below 1
PDF_0, PDF_1 = 0.3989422804014327, 0.24197072451914337  # its density at 0 and 1


@pytest.mark.parametrize(
    ("written", "mean"),
    [
        (5, 5),
        ({"fixed": 2.5}, 2.5),
        ({"uniform": [461, 563]}, 512),
        ({"normal": {"mean": 512, "std": 50}}, 512),
        ({"normal": {"mean": 100, "std": 50, "min": 50, "max": 150}}, 100),  # cut evenly on both sides
        ({"normal": {"mean": 100, "std": 50, "min": 100}}, 100 + 50 * PDF_0 / 0.5),  # the upper half
        ({"normal": {"mean": 100, "std": 50, "min": 100, "max": 150}}, 100 + 50 * (PDF_0 - PDF_1) / (PHI_1 - 0.5)),
        ({"normal": {"mean": 0, "std": 10}}, 10 * PDF_0 / 0.5),  # no min means 0
        ({"lognormal": {"median": 400, "sigma": 1.0}}, 400 * math.exp(0.5)),
        ({"lognormal": {"median": 400, "sigma": 1.0, "min": 400}}, 400 * math.exp(0.5) * PHI_1 / 0.5),
        ({"lognormal": {"median": 400, "sigma": 1.0, "max": 400}}, 400 * math.exp(0.5) * (1 - PHI_1) / 0.5),
        ({"exponential": 8}, 8),
        ({"geometric": {"mean": 6}}, 6),
        ({"geometric": {"mean": 1}}, 1),
        ({"geometric": {"mean": 2, "max": 2}}, 4 / 3),  # 1 twice as often as 2
        ({"geometric": {"mean": 2, "max": 3}}, 11 / 7),  # weights 4, 2, 1
    ],
)
def test_mean(written, mean):
    """The stated mean is the one computed by hand, and 40,000 draws agree with it within five standard errors."""
    distribution = shape(written)
    assert distribution.mean == pytest.approx(mean, rel=1e-9)
    rng = Random(20240607)
    draws = [distribution.sample(rng) for _ in range(40_000)]
    middle = fmean(draws)
    error = math.sqrt(fmean((x - middle) ** 2 for x in draws) / len(draws))
    assert abs(middle - mean) <= 5 * error + 1e-9


def rejected(draw: Callable[[Random], float], low: float, high: float, count: int) -> list[float]:
    """Values of ``draw`` between the limits, thrown again until they fit: slow, and obviously right."""
    rng = Random(5)
    kept: list[float] = []
    while len(kept) < count:
        value = draw(rng)
        if low <= value <= high:
            kept.append(value)
    return kept


@pytest.mark.parametrize(
    ("written", "draw", "low", "high"),
    [
        ({"normal": {"mean": 50, "std": 30, "min": 40, "max": 90}}, lambda r: r.gauss(50, 30), 40, 90),
        ({"normal": {"mean": 20, "std": 30}}, lambda r: r.gauss(20, 30), 0, math.inf),
        ({"lognormal": {"median": 30, "sigma": 0.8, "min": 10, "max": 90}},
         lambda r: r.lognormvariate(math.log(30), 0.8), 10, 90),
        ({"exponential": 8}, lambda r: r.expovariate(1 / 8), 0, math.inf),
        ({"uniform": [3, 9]}, lambda r: r.uniform(0, 20), 3, 9),
    ],
)  # fmt: skip
def test_shape_agrees_with_drawing_again_outside_the_limits(written, draw, low, high):
    """Every tenth of the distribution holds a tenth of an independent sample (chi-square over ten cells)."""
    rng, count = Random(11), 20_000
    ends = quantiles(rejected(draw, low, high, 100_000), n=10)
    distribution = shape(written)
    cells = Counter(sum(value > end for end in ends) for value in (distribution.sample(rng) for _ in range(count)))
    chi_square = sum((cells[cell] - count / 10) ** 2 / (count / 10) for cell in range(10))
    assert chi_square < 40  # nine degrees of freedom: 27.9 at one in a thousand; the cell borders are sampled too


def test_whole_uniform_numbers_include_both_ends_equally():
    """A die: six faces, each a sixth of 60,000 throws within five standard deviations."""
    rng, die = Random(3), shape({"uniform": [1, 6]})
    faces = Counter(die.sample_int(rng) for _ in range(60_000))
    assert sorted(faces) == [1, 2, 3, 4, 5, 6]
    assert all(abs(count - 10_000) < 5 * math.sqrt(60_000 * 1 / 6 * 5 / 6) for count in faces.values())


def test_geometric_weights_halve():
    """With mean 2 and max 3 the numbers 1, 2, 3 come as 4 : 2 : 1."""
    rng, numbers = Random(9), shape({"geometric": {"mean": 2, "max": 3}})
    count = 70_000
    seen = Counter(numbers.sample_int(rng) for _ in range(count))
    assert sorted(seen) == [1, 2, 3]
    for number, weight in ((1, 4), (2, 2), (3, 1)):
        share = weight / 7
        assert abs(seen[number] - count * share) < 5 * math.sqrt(count * share * (1 - share))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, {0}),
        (0.2, {1}),
        (2.5, {2, 3}),
        ({"uniform": [0, 1]}, {0, 1}),
        ({"uniform": [0.2, 0.4]}, {1}),
        ({"normal": {"mean": 0, "std": 0.3}}, {1}),  # no min: a count is at least 1
        ({"normal": {"mean": 0, "std": 0.3, "min": 0, "max": 1}}, {0, 1}),
        ({"normal": {"mean": 10, "std": 9, "min": 9.6, "max": 10.4}}, {10}),
        ({"exponential": 0.01}, {1}),
    ],
)
def test_whole_values(written, expected):
    """Whole values are rounded inside the limits, and 0 only where the lower limit was written as 0."""
    rng = Random(1)
    distribution = shape(written)
    assert {distribution.sample_int(rng) for _ in range(2000)} <= expected


SIZES = st.floats(0.5, 1e6)
SHAPES = st.one_of(
    SIZES,
    st.lists(SIZES, min_size=2, max_size=2).map(lambda ends: {"uniform": sorted(ends)}),
    st.fixed_dictionaries({"mean": SIZES, "std": SIZES}, optional={"min": SIZES, "max": SIZES}).map(
        lambda curve: {"normal": curve}
    ),
    st.fixed_dictionaries({"median": SIZES, "sigma": st.floats(0.01, 4)}, optional={"min": SIZES, "max": SIZES}).map(
        lambda curve: {"lognormal": curve}
    ),
    SIZES.map(lambda mean: {"exponential": mean}),
    st.fixed_dictionaries({"mean": st.floats(1, 1e5)}, optional={"max": st.floats(1, 1e5)}).map(
        lambda curve: {"geometric": curve}
    ),
)


@settings(max_examples=300, deadline=None)
@given(SHAPES, st.integers(0, 2**64))
def test_every_accepted_distribution_keeps_its_limits(written, seed):
    """Samples, whole samples and the mean lie between lowest and highest, and a seed repeats its values."""
    try:
        distribution = shape(written)
    except ValidationError:
        assume(False)
    rng, again = Random(seed), Random(seed)
    for _ in range(20):
        value = distribution.sample(rng)
        assert distribution.lowest <= value <= distribution.highest
        assert value == distribution.sample(again)
    low, high = distribution.lowest, distribution.highest
    assert low * (1 - 1e-6) <= distribution.mean <= high * (1 + 1e-6)
    whole = distribution.sample_int(rng)
    assert isinstance(whole, int)
    assert whole >= 1
    holds_a_count = high >= 1 and (math.isinf(high) or math.ceil(low) <= math.floor(high))
    if holds_a_count:
        assert math.ceil(low) <= whole <= high


class Edge(Random):
    """A generator stuck at one end of its range."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


@pytest.mark.parametrize("edge", [0.0, 1 - 2**-53])
@pytest.mark.parametrize(
    "written",
    [
        {"normal": {"mean": 5, "std": 2}},
        {"normal": {"mean": 1e6, "std": 2}},
        {"lognormal": {"median": 5, "sigma": 4}},
        {"exponential": 5},
        {"geometric": {"mean": 5}},
        {"geometric": {"mean": 1}},
        {"geometric": {"mean": 5, "max": 1}},
    ],
)
def test_the_ends_of_the_generator_give_finite_values(edge, written):
    """Neither the smallest nor the largest random number leads to infinity or an error."""
    value = shape(written).sample(Edge(edge))
    assert math.isfinite(value)
    assert value >= 0
