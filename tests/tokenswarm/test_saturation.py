"""When more load is pointless: a queue that grows without chance, and users that bring no more tokens."""

from __future__ import annotations

import pytest

from tokenswarm.level_verdict import Judgement, LevelVerdict
from tokenswarm.saturation import SaturationWatch, Second, past_saturation


def constant(per_s: int, ended_per_s: float, length_s: int, waiting: int | None = None) -> list[Second]:
    """Arrivals and completions without chance: ``per_s`` and ``ended_per_s`` in every second."""
    seconds = []
    for now_s in range(1, length_s + 1):
        arrived, ended = per_s * now_s, int(ended_per_s * now_s)
        seconds.append(Second(now_s, arrived - ended, ended, arrived, waiting))
    return seconds


def told(watch: SaturationWatch, seconds: list[Second]) -> tuple[float, str] | None:
    return next(((now.time_s, reason) for now in seconds if (reason := watch.second(now))), None)


def test_the_reason_says_what_was_seen() -> None:
    """10 a second arrive and 5 end, counted from second 10 on: each second is 4.4 short of 94 % of the rate, so that
    28.9 (22 and 10 times the logarithm of 10 / 5) is passed in the 7th."""
    found = told(SaturationWatch(10, warmup_s=10), constant(10, 5, 60))
    assert found == (
        17,
        "the queue grows: in 7 s 70 sessions arrived and 35 ended, in flight rose from 50 to 85",
    )


def test_a_server_that_keeps_up_is_left_alone() -> None:
    """One that ends 95 % of what arrives is given time: 6 % are allowed."""
    assert told(SaturationWatch(10, warmup_s=10), constant(10, 9.5, 1000)) is None


def test_sessions_that_take_long_are_no_queue() -> None:
    """For 25 s nothing ends, then as many as arrive: in flight rises to 250 and stays there."""
    seconds = [Second(t, 10 * min(t, 25), 10 * max(0, t - 25), 10 * t) for t in range(1, 301)]
    assert told(SaturationWatch(10, warmup_s=30), seconds) is None
    assert told(SaturationWatch(10), seconds) is None


def test_an_engine_in_which_nothing_waits_is_given_more_time() -> None:
    """Twice as far behind is wanted; what waits is in the reason."""
    seen = told(SaturationWatch(10, warmup_s=10), constant(10, 5, 60, waiting=0))
    assert seen is not None
    assert seen[0] == 24  # 57.9 in steps of 4.4
    waiting = told(SaturationWatch(10, warmup_s=10), constant(10, 5, 60, waiting=3))
    assert waiting is not None
    assert waiting[1].endswith("to 85, 3 waiting in the engine")


def test_a_late_generator_is_no_growing_queue() -> None:
    """Half of what was asked for arrives, and all of it ends: nothing is in flight for long."""
    seconds = [Second(t, 2, 5 * t - 2, 5 * t) for t in range(1, 301)]
    assert told(SaturationWatch(10, warmup_s=10), seconds) is None


def level(tokens: float | None, e2e_s: float, spread: float = 0.05) -> LevelVerdict:
    return LevelVerdict(Judgement.MET, "", tokens, e2e_s, e2e_s * (1 - spread), e2e_s * (1 + spread))


@pytest.mark.parametrize(
    ("before", "after", "past"),
    [
        (level(700, 5), level(714, 10), True),
        (level(700, 5), level(690, 10.5), True),
        (level(700, 5), level(1100, 6.4), False),  # still brings tokens
        (level(700, 5), level(770, 9.5), False),  # 10 % for twice the users
        (level(700, 5), level(714, 6), False),  # not slower in proportion: lengths differ
        (level(700, 5, 0.4), level(714, 10, 0.4), False),  # too few requests to be sure
        (level(None, 5), level(714, 10), False),
    ],
)
def test_more_users_without_more_tokens(before: LevelVerdict, after: LevelVerdict, past: bool) -> None:
    """Both must be so: tokens at most 7 % up for twice the users, and times that grew with them for sure."""
    assert (past_saturation(16, before, 32, after) is not None) == past
