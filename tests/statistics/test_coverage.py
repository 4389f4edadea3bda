"""How often the interval holds the truth, and how often a benefit is claimed where there is none: seeds 1 to 100."""

from __future__ import annotations

from collections import Counter

import pytest

from analysis.benefit import Answer, Difference, differences_of
from analysis.pairs import MEASURES, pairs_of
from simulator.engine import Engine
from simulator.settings import EngineSettings
from tests.statistics.conftest import BUSY, JITTER, Flips
from tests.statistics.rows import frame_of
from tests.statistics.virtual_level import PREFILL_TOKEN_S, VirtualLevel, engine_settings, paired_level

SEEDS = range(1, 101)
SAVING_S = 400 * PREFILL_TOKEN_S
LEAST_COVERED, MOST_FALSE = 90, 8  # of 100


def hundred_runs(
    users: int, sessions: int, settings: EngineSettings, *, reports: bool = True
) -> list[dict[str, Difference]]:
    found = []
    for seed in SEEDS:
        level = VirtualLevel(Engine(settings, seed), BUSY, paired_level(users, sessions), seed, reports_cached=reports)
        pairs = pairs_of(frame_of(level.run().rows))
        assert len(pairs) == sessions // 2
        found.append(differences_of(pairs, users))
    return found


def covered(runs: list[dict[str, Difference]], truth: dict[str, float]) -> dict[str, int]:
    """In how many runs the interval of the median holds the truth."""
    counts = dict.fromkeys(truth, 0)
    for run in runs:
        for measure, value in truth.items():
            low, high = run[measure].median.low, run[measure].median.high
            assert low is not None
            assert high is not None
            counts[measure] += low <= value <= high
    return counts


@pytest.mark.slow
def test_interval_at_one_user() -> None:
    """30 pairs on an engine whose steps scatter by 5 %; the truth is cached tokens times their cost."""
    truth = {"first_ttft": SAVING_S, "ttft": SAVING_S / 3, "e2e": SAVING_S / 3, "job": SAVING_S}
    counts = covered(hundred_runs(1, 60, engine_settings(step_jitter=JITTER)), truth)
    assert min(counts.values()) >= LEAST_COVERED, counts


@pytest.mark.slow
def test_interval_at_sixteen_users(sixteen_users: Flips) -> None:
    """40 pairs that queue together; the truth is the counterfactual, averaged over other seeds."""
    truth = {measure: sixteen_users.mean(measure) for measure in MEASURES}
    counts = covered(hundred_runs(16, 80, engine_settings(step_jitter=JITTER)), truth)
    assert min(counts.values()) >= LEAST_COVERED, counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "sessions", "cache"), [(1, 40, {"inert_cache": True}), (16, 80, {"prefix_cache": False})]
)
def test_false_benefit(users: int, sessions: int, cache: dict[str, bool]) -> None:
    """The cache finds nothing and the server does not say so: only the latencies are left to decide."""
    settings = engine_settings(step_jitter=JITTER, **cache)
    runs = hundred_runs(users, sessions, settings, reports=False)
    claims = Counter(measure for run in runs for measure in MEASURES if run[measure].answer == Answer.BENEFIT)
    assert max(claims.values(), default=0) <= MOST_FALSE, claims
