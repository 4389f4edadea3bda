"""How many requests a level needs: against formulas worked by hand, and by simulation of what was promised."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.figures import Figure, quantile_figure
from analysis.levels import LevelRow
from analysis.sample_size import (
    least_for_interval,
    needs_of,
    requests_for_width,
    rounded,
    sample_size_notes,
)

SIGMA = 0.4  # of the logarithm of a latency, as a loaded engine spreads it


def sample(seed: int, n: int, factor: float = 1.0) -> np.ndarray:
    return factor * np.exp(np.random.default_rng(seed).normal(0.0, SIGMA, n))


@pytest.mark.parametrize(("q", "n"), [(0.50, 6), (0.90, 36), (0.95, 72), (0.99, 368)])
def test_least_for_an_interval(q: float, n: int) -> None:
    """The known least sample sizes of equal-tailed 95 % order-statistic intervals."""
    assert least_for_interval(q) == n


def test_width_by_hand() -> None:
    """From 10 to 10 x e^0.4 at 100 requests: half a width of 0.2 in the logarithm, so ±10 % takes four times that."""
    figure = Figure(10.0 * math.exp(0.2), n=100, low=10.0, high=10.0 * math.exp(0.4))
    assert requests_for_width(figure, 0.10) == pytest.approx(400, abs=1)
    assert requests_for_width(figure, 0.40, q=0.95) == 72  # what one takes to have an interval at all


@pytest.mark.parametrize(
    "figure",
    [Figure(None), Figure(None, n=0), Figure(math.inf, n=50, low=1.0, high=math.inf), Figure(3.0), Figure(3.0, n=1)],
)
def test_unknown_stays_unknown(figure: Figure) -> None:
    """What has no interval recommends no size for a width of its mean."""
    assert requests_for_width(figure) is None


def test_a_table_without_intervals_recommends_nothing() -> None:
    """A printed median of 64 requests does not tell how they spread; a p95 of 64 lacks the 72 for any interval."""
    assert requests_for_width(Figure(0.861, n=64), q=0.5) is None
    assert requests_for_width(Figure(3.339, n=64), q=0.95) == 72


def test_correlated_requests_take_more() -> None:
    """Where three requests tell as much as one, an interval of p95 takes three times 72."""
    assert requests_for_width(Figure(5.0, n=60, effective_n=20.0), q=0.95) == 216


def test_interval_of_the_recommended_size_has_the_width() -> None:
    """Over 200 samples of the recommended size the interval of the median reaches 5 % to either side in the mean."""
    need = requests_for_width(quantile_figure(np.sort(sample(1, 4000)), 0.5), 0.05, q=0.5)
    assert need is not None
    # By hand: 1.96 x 1.2533 x 0.4 / sqrt(n) = 0.05 for n = 386.
    assert need == pytest.approx(386, rel=0.2)
    figures = [quantile_figure(np.sort(sample(seed, need)), 0.5) for seed in range(2, 202)]
    halves = [(figure.high - figure.low) / (2.0 * figure.value) for figure in figures if figure.low and figure.high]
    assert len(halves) == 200
    assert np.mean(halves) == pytest.approx(0.05, rel=0.15)


def test_notes_of_a_level() -> None:
    """One detail a level with the size for each figure; a level without requests behind its figures has none."""
    row = LevelRow(0, 8, label="c=8")
    row.figures = {"ttft_p95_s": Figure(1.0, n=32), "e2e_mean_s": Figure(10.0, n=32, low=9.0, high=11.0)}
    (note,) = sample_size_notes([row, LevelRow(1, 16, label="c=16")])
    assert note.detail
    assert "c=8: requests for an interval of ±10%: TTFT p95 72, E2E mean" in note.text
    assert [need.title for need in needs_of(row)] == ["TTFT p95", "E2E mean"]


def test_sizes_promise_two_digits() -> None:
    """1,532 is told as 1,600, and a small number as it is."""
    assert [rounded(n) for n in (6, 72, 386, 1532)] == ["6", "72", "390", "1600"]
