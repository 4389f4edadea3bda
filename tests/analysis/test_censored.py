"""Kaplan and Meier's estimate by hand and against a simulated truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.censored import Survival, censored_figures
from analysis.figures import Mark


def test_survival_by_hand() -> None:
    """Of 6 one ends at 1, one is cut at 2, two end at 3, one is cut at 4, one ends at 5: S is 5/6, 5/12, then 0."""
    survival = Survival.of(np.array([1.0, 3.0, 3.0, 5.0]), np.array([2.0, 4.0]))
    assert survival.times_s.tolist() == [1.0, 3.0, 5.0]
    assert survival.share.tolist() == pytest.approx([5 / 6, 5 / 12, 0.0])
    # Greenwood: 1 / (6 x 5), and 2 / (4 x 2) on top.
    assert survival.greenwood[:2].tolist() == pytest.approx([1 / 30, 1 / 30 + 1 / 4])
    assert survival.quantile(0.5) == 3.0
    assert survival.quantile(0.95) == 5.0


def test_without_anything_cut_it_is_what_ended() -> None:
    """S falls by a quarter with each of four, and quantiles are the plain ones, with no mark but the small sample's."""
    assert Survival.of(np.array([4.0, 1.0, 3.0, 2.0]), np.zeros(0)).share.tolist() == [0.75, 0.5, 0.25, 0.0]
    figures = censored_figures("e2e", np.array([4.0, 1.0, 3.0, 2.0]), np.zeros(0))
    assert figures["e2e_p50_s"].value == 2.5
    assert figures["e2e_p50_s"].marks == (Mark.NO_BOUND,)


def test_what_was_never_seen_is_a_lower_bound() -> None:
    """Half of the requests were cut after 9 s and all others ended by 2 s: p90 is at least 9 s, and nothing more."""
    figures = censored_figures("e2e", np.full(10, 2.0), np.full(10, 9.0))
    assert figures["e2e_p90_s"].value == 9.0
    assert Mark.CENSORED in figures["e2e_p90_s"].marks
    assert figures["e2e_p90_s"].high is None or figures["e2e_p90_s"].high >= 9.0


def test_truth_behind_a_cut() -> None:
    """Times are exponential with a mean of 10 s, and requests begun over 30 s were cut at its end: p50 of those that
    ended is far too low, Kaplan and Meier's is right, and 93 of 100 intervals hold the truth."""
    rng = np.random.default_rng(2)
    truth, held, naive, found = 10.0 * math.log(2.0), 0, [], []
    for _ in range(200):
        times, room = rng.exponential(10.0, 300), rng.uniform(0.0, 30.0, 300)
        ended = times[times <= room]
        figure = censored_figures("e2e", ended, room[times > room])["e2e_p50_s"]
        assert figure.value is not None
        assert figure.low is not None
        assert figure.high is not None
        assert figure.marks == (Mark.SURVIVAL,)
        held += figure.low <= truth <= figure.high
        naive.append(float(np.median(ended)))
        found.append(figure.value)
    assert held >= 0.93 * 200
    assert np.mean(naive) < 0.75 * truth
    assert np.mean(found) == pytest.approx(truth, rel=0.03)
