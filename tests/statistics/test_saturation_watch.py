"""How often the watch on a growing queue errs, on queues whose load is known: 100 levels of 120 s at 5 a second."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.statistics.virtual_queue import even, exponential, shared, slots
from tokenswarm.saturation import SaturationWatch, Second

PER_S, WARMUP_S, LENGTH_S = 5.0, 20.0, 140.0
SEEDS = range(1, 101)
Play = Callable[[Random, float], list[Second]]  # with the load over the capacity

SHARED: Play = lambda rng, busy: shared(rng, PER_S, busy, even, LENGTH_S)  # noqa: E731
ONE_SLOT: Play = lambda rng, busy: slots(rng, PER_S, busy, 1, exponential, LENGTH_S)  # noqa: E731
FOUR_SLOTS: Play = lambda rng, busy: slots(rng, PER_S, busy, 4, exponential, LENGTH_S)  # noqa: E731


def stopped_s(seconds: list[Second]) -> float:
    """Measured seconds until the watch gives the level up; infinite where it does not."""
    watch = SaturationWatch(PER_S, warmup_s=WARMUP_S)
    return next((now.time_s - WARMUP_S for now in seconds if watch.second(now)), float("inf"))


@pytest.mark.parametrize("play", [SHARED, ONE_SLOT, FOUR_SLOTS], ids=["shared", "one slot", "four slots"])
def test_a_server_at_nine_tenths_of_its_capacity_is_left_alone(play: Play) -> None:
    """In at most 1 of 100 levels a queue that comes and goes by chance passes for one that grows."""
    levels = [play(Random(seed), 0.9) for seed in SEEDS]
    assert min(level[-1].arrived for level in levels) > 550
    assert sum(stopped_s(level) < LENGTH_S for level in levels) <= 1


def test_a_server_with_three_tenths_too_much_is_given_up_within_half_a_minute() -> None:
    """In at least 95 of 100 levels, where the engine shares its time among sessions of mixed lengths."""
    times = sorted(stopped_s(SHARED(Random(seed), 1.3)) for seed in SEEDS)
    assert times[94] <= 30


@pytest.mark.parametrize("play", [ONE_SLOT, FOUR_SLOTS], ids=["one slot", "four slots"])
def test_exponential_lengths_take_a_minute(play: Play) -> None:
    """Completions at random hide a growing queue for longer: 95 of 100 are given up within 60 s, all in the level."""
    times = sorted(stopped_s(play(Random(seed), 1.3)) for seed in SEEDS)
    assert times[94] <= 60
    assert times[99] < LENGTH_S


@pytest.mark.parametrize("play", [SHARED, ONE_SLOT, FOUR_SLOTS], ids=["shared", "one slot", "four slots"])
def test_twice_too_much_is_given_up_within_half_a_minute(play: Play) -> None:
    """Whatever the server, in at least 95 of 100."""
    times = sorted(stopped_s(play(Random(seed), 2.0)) for seed in SEEDS)
    assert times[94] <= 30
