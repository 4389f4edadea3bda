"""The outbox: in order, numbered, a bounded number under way, and sessions held while too much waits."""

from __future__ import annotations

from typing import Any

import pytest

from tokenswarm.outbox import MOST_BYTES, MOST_UNDER_WAY, Outbox

MEGABYTE = 1_000_000


class Line:
    """A master that acknowledges when it is told to."""

    def __init__(self, life: int = 3) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.held: list[bool] = []
        self.outbox = Outbox(life, lambda message, data: self.sent.append((message, data)), self.held.append)

    def post(self, *sizes: int) -> None:
        for size in sizes:
            self.outbox.post("ts_report", {"size": size}, size)

    @property
    def numbers(self) -> list[int]:
        return [data["number"] for _message, data in self.sent]


def test_messages_are_numbered_from_one_in_their_order() -> None:
    """Each carries its life, so that the master can tell a gap from a new beginning."""
    line = Line(life=7)
    line.post(10, 20, 30)
    assert line.sent == [
        ("ts_report", {"size": 10, "life": 7, "number": 1}),
        ("ts_report", {"size": 20, "life": 7, "number": 2}),
        ("ts_report", {"size": 30, "life": 7, "number": 3}),
    ]
    assert line.outbox.backlog_bytes == 60


def test_at_most_so_many_are_under_way() -> None:
    """The rest waits and follows in its order, as many as are acknowledged."""
    assert MOST_UNDER_WAY == 64
    line = Line()
    line.post(*range(100))
    assert line.numbers == list(range(1, 65))
    assert line.outbox.behind
    line.outbox.acknowledged(3, 10)
    assert line.numbers == list(range(1, 75))
    assert [data["size"] for _message, data in line.sent] == list(range(74))
    line.outbox.acknowledged(3, 74)
    assert line.numbers == list(range(1, 101))
    assert not line.outbox.behind
    line.outbox.acknowledged(3, 100)
    assert line.outbox.backlog_bytes == 0


def test_an_acknowledgement_is_for_all_messages_up_to_it() -> None:
    """One that comes again, or late, changes nothing."""
    line = Line()
    line.post(1, 2, 4, 8)
    line.outbox.acknowledged(3, 3)
    assert line.outbox.backlog_bytes == 8
    line.outbox.acknowledged(3, 2)
    line.outbox.acknowledged(3, 3)
    assert line.outbox.backlog_bytes == 8


def test_an_acknowledgement_of_another_life_is_ignored() -> None:
    """Its numbers are of other messages."""
    line = Line(life=3)
    line.post(5, 6)
    line.outbox.acknowledged(2, 2)
    line.outbox.acknowledged(4, 2)
    assert line.outbox.backlog_bytes == 11


def test_sessions_are_held_above_the_limit_and_released_below_half() -> None:
    """16 MB are the limit and do not hold yet; one byte more does; 8 MB still do, one byte less does not."""
    assert MOST_BYTES == 16 * MEGABYTE
    line = Line()
    line.post(8 * MEGABYTE, 8 * MEGABYTE)
    assert line.held == []
    line.post(1)
    assert line.held == [True]
    line.post(1)
    assert line.held == [True]
    line.outbox.acknowledged(3, 1)  # 8 MB + 2 bytes are left
    assert line.held == [True]
    line.outbox.acknowledged(3, 2)  # 2 bytes
    assert line.held == [True, False]
    line.post(16 * MEGABYTE)
    assert line.held == [True, False, True]


def test_exactly_half_of_the_limit_still_holds() -> None:
    """Below it, not at it."""
    line = Line()
    line.post(9 * MEGABYTE, 8 * MEGABYTE - 1, 1)
    assert line.held == [True]
    line.outbox.acknowledged(3, 1)
    assert (line.outbox.backlog_bytes, line.held) == (8 * MEGABYTE, [True])
    line.outbox.acknowledged(3, 2)
    assert line.held == [True, False]


def test_the_time_without_new_sessions_is_known_while_it_goes_on_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held from 100 to 103 s and from 110 s on: 3 s in between, 5 s at 112 s."""
    now = [100.0]
    monkeypatch.setattr("tokenswarm.outbox.perf_counter", lambda: now[0])
    line = Line()
    assert line.outbox.held_s == 0.0
    line.post(17 * MEGABYTE)
    now[0] = 101.0
    assert line.outbox.held_s == 1.0
    line.post(1)
    now[0] = 103.0
    line.outbox.acknowledged(3, 2)
    now[0] = 110.0
    assert line.outbox.held_s == 3.0
    line.post(17 * MEGABYTE)
    now[0] = 112.0
    assert line.outbox.held_s == 5.0
