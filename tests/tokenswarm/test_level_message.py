"""Levels on the wire: plain values on the way, the same level on the other side."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tokenswarm.arrivals import Arrivals, Stretch
from tokenswarm.level_message import level_message, level_of
from tokenswarm.schedule import Arms, Level

LEVELS = [
    Level(index=0, concurrency=8, sessions=64, warmup_sessions=8, label="c=8"),
    Level(index=1, concurrency=3, duration_s=20.0, warmup_s=2.5, tail="drain", quotas=(2, 1), round=4, arms=Arms.COLD),
    Level(
        index=2,
        concurrency=512,
        duration_s=60.0,
        warmup_s=5.0,
        arrivals=Arrivals("gamma", (Stretch(30.0, 1.0, 4.0), Stretch(35.0, 4.0, 4.0)), burstiness=0.25),
        label="1 to 4/s",
    ),
    Level(index=3, concurrency=100, replayed=True, when_full="wait", drain_limit_s=600.0, label="replay x2"),
]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.label or "by time")
def test_a_level_is_the_same_on_the_other_side(level: Level) -> None:
    """Through the encoding that Locust uses, which knows no tuples: equal in every field, arrivals among them."""
    wire = msgspec.msgpack.encode(level_message(level))
    arrived = level_of(msgspec.msgpack.decode(wire))
    assert arrived == level
    assert (arrived.by_clock, arrived.rate_per_s) == (level.by_clock, level.rate_per_s)
    assert isinstance(arrived.arms, Arms)
    assert isinstance(arrived.quotas, tuple)


def test_a_message_has_plain_values_only() -> None:
    """Locust's encoder refuses everything else."""

    def plain(value: Any) -> bool:
        match value:
            case dict():
                return all(type(key) is str and plain(one) for key, one in value.items())
            case list() | tuple():
                return all(map(plain, value))
            case _:
                return value is None or type(value) in (str, int, float, bool)

    assert all(plain(level_message(level)) for level in LEVELS)
    assert not plain({"level": LEVELS[0]})


def test_a_message_that_is_no_level_is_refused() -> None:
    """A worker of another version would play something else."""
    with pytest.raises(msgspec.ValidationError):
        level_of({"index": 0, "concurrency": "many"})
