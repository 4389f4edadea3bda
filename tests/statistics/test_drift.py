"""A server that gets 10 % slower over the run: pairs and cold, warm, warm, cold against before and after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.benefit import Answer, differences_of
from analysis.pairs import pairs_of
from simulator.engine import Engine
from simulator.settings import Drift
from tests.statistics.conftest import JITTER, flips_of
from tests.statistics.rows import benefit_of, frame_of, times_of
from tests.statistics.virtual_level import Traffic, VirtualLevel, engine_settings, paired_level
from tokenswarm.schedule import Arms

SLOWER = 1.10
# 38 ms are saved in the first of three requests, little enough for a drift to matter. All jobs have the same lengths:
# levels one after the other would differ by chance as well.
SMALL = Traffic(prefix_tokens=96, message_tokens=(25, 25), output_tokens=(16, 16), tool_s=(0.1, 0.3))


def whole_levels(kinds: list[Arms], users: int, sessions: int, *, drifting: bool, cache: bool) -> list[VirtualLevel]:
    """One level after the other on one engine; with the drift, it is 10 % slower at the end of the last."""
    drift = None
    if drifting:
        steady = whole_levels(kinds, users, sessions, drifting=False, cache=cache)
        drift = Drift(until_s=steady[-1].now_s, factor=SLOWER)
    engine = Engine(engine_settings(drift=drift, prefix_cache=cache), seed=1)
    levels: list[VirtualLevel] = []
    for index, kind in enumerate(kinds):
        start_s = levels[-1].now_s if levels else 0.0
        level = paired_level(users, sessions, index=index, kind=kind)
        levels.append(VirtualLevel(engine, SMALL, level, 1, now_s=start_s).run())
    return levels


def mean_e2e(level: VirtualLevel) -> float:
    return float(np.mean([times_of(level.measured(number))["e2e"] for number in range(level.level.sessions or 0)]))


@pytest.mark.slow
@pytest.mark.parametrize(("users", "traffic"), [(1, SMALL), (8, Traffic(tool_s=(1.0, 4.0)))])
def test_pairs_hold_the_truth_under_drift(users: int, traffic: Traffic) -> None:
    """The counterfactual drifts as well: of 20 intervals, none wider than half the truth, 17 or more hold it."""
    level = paired_level(users, 80)
    duration_s = VirtualLevel(Engine(engine_settings(), 1), traffic, level, 1).run().now_s
    settings = engine_settings(step_jitter=JITTER, drift=Drift(until_s=duration_s, factor=SLOWER))
    truth = flips_of(settings, traffic, users, 80, seeds=range(1001, 1005)).mean("first_ttft")
    held = 0
    for seed in range(1, 21):
        played = VirtualLevel(Engine(settings, seed), traffic, level, seed).run()
        saved = differences_of(pairs_of(frame_of(played.rows)), users)["first_ttft"]
        assert saved.pairs == 40
        assert saved.median.low is not None
        assert saved.median.high is not None
        assert saved.median.high - saved.median.low < 0.5 * truth
        held += saved.median.low < truth < saved.median.high
    assert held >= 17


def test_before_and_after_is_off_by_the_drift() -> None:
    """All cold, then all warm: the warm half runs on a server 5 % slower, and E2E hides half of the saving."""
    kinds = [Arms.COLD, Arms.WARM]
    cold, warm = (mean_e2e(level) for level in whole_levels(kinds, 1, 60, drifting=False, cache=True))
    saving = cold - warm
    slow_cold, slow_warm = (mean_e2e(level) for level in whole_levels(kinds, 1, 60, drifting=True, cache=True))
    error = (slow_cold - slow_warm) - 1.05 * saving  # 1.05: the server's mean slowness over both
    assert error == pytest.approx(-0.025 * (cold + warm), rel=0.25)  # 1.025 cold, 1.075 warm
    assert abs(error) > 0.25 * saving


def test_before_and_after_invents_a_benefit(tmp_path: Path) -> None:
    """All warm first, then all cold, with the cache off: E2E "saves" 5 % where pairs find nothing."""
    levels = whole_levels([Arms.WARM, Arms.COLD], 1, 60, drifting=True, cache=False)
    warm, cold = map(mean_e2e, levels)
    assert cold / warm == pytest.approx(1.05, abs=0.01)
    (paired,) = whole_levels([Arms.PAIRED], 1, 120, drifting=True, cache=False)
    assert differences_of(pairs_of(frame_of(paired.rows)), 1)["e2e"].answer == Answer.NONE
    (level,) = benefit_of(tmp_path / "run", [paired]).levels
    assert [finding.key for finding in level.findings] == ["nothing cached"]
    assert level.answer is None


def test_cold_warm_warm_cold_cancels_the_drift(tmp_path: Path) -> None:
    """With the cache off the ratio is 1: each half alone is off by the drift, their mean is not, and nothing is
    claimed."""
    levels = whole_levels([Arms.COLD, Arms.WARM, Arms.WARM, Arms.COLD], 4, 120, drifting=True, cache=False)
    (four,) = benefit_of(tmp_path / "run", levels).whole
    e2e = next(one for one in four.comparisons if one.measure.name == "e2e_mean_s")
    assert e2e.halves is not None
    first, last = e2e.halves
    assert first > 1.015
    assert last < 0.985
    assert e2e.ratio == pytest.approx(1.0, abs=0.01)
    assert {one.answer for one in four.comparisons} == {Answer.UNKNOWN}
