"""What a session would have taken in the other arm, by playing the same engine again: the truth to be recovered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest

from simulator.engine import Engine
from simulator.settings import EngineSettings
from tests.statistics.rows import times_of
from tests.statistics.virtual_level import Traffic, VirtualLevel, engine_settings, paired_level
from tokenswarm.arms import COLD

# 16 agents with 2 to 8 s of tool time keep the engine about half busy, a third of that with the prompts of others.
BUSY = Traffic(tool_s=(2.0, 8.0))
JITTER = 0.05


@dataclass(frozen=True)
class Flips:
    """Time in the cold arm minus time in the warm one of the same session, everything else unchanged; by measure."""

    saved: dict[str, list[float]]

    def mean(self, measure: str) -> float:
        return float(np.mean(self.saved[measure]))

    def median(self, measure: str) -> float:
        return float(np.median(self.saved[measure]))

    def error(self, measure: str) -> float:
        """Standard error of the mean, as a share of it."""
        values = self.saved[measure]
        return float(np.std(values) / len(values) ** 0.5) / self.mean(measure)


def flips_of(
    settings: EngineSettings, traffic: Traffic, users: int, sessions: int, seeds: Iterable[int], every: int = 1
) -> Flips:
    """Of every ``every``-th measured session of one level a seed."""
    saved: dict[str, list[float]] = {}
    for seed in seeds:
        kept = frozenset(range(0, sessions, every))
        level = VirtualLevel(Engine(settings, seed), traffic, paired_level(users, sessions), seed, keep=kept).run()
        for number in sorted(kept):
            factual = level.measured(number)
            this, other = times_of(factual), times_of(level.flip(number))
            for measure in this:
                difference = this[measure] - other[measure]
                saved.setdefault(measure, []).append(difference if factual[0].arm == COLD else -difference)
    return Flips(saved)


@pytest.fixture(scope="session")
def sixteen_users() -> Flips:
    """The counterfactual at 16 users, averaged over 960 sessions of seeds that no other test here uses."""
    return flips_of(engine_settings(step_jitter=JITTER), BUSY, 16, 480, seeds=(1001, 1002))
