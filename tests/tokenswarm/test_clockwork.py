"""The clockwork: windows of arrivals to those who answer, in their own time, until the last one is due."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import gevent
import msgspec
import pytest

from tokenswarm.arrivals import Arrivals, Stretch
from tokenswarm.clockwork import Clockwork
from tokenswarm.crew import Crew
from tokenswarm.records import Phase
from tokenswarm.schedule import Level
from tokenswarm.timetable import Arrival, Timetable
from tokenswarm.trace import SharedText, TraceSession, TraceTurn

LEVEL = Level(
    index=4, concurrency=4, duration_s=0.2, warmup_s=0.1, arrivals=Arrivals("constant", (Stretch(0.3, 10.0, 10.0),))
)
FAST = {"LEAD_S": 0.1, "WINDOW_S": 0.2, "HAND_OUT_S": 0.05, "MARGIN_S": 0.02}


class Stage:
    """A clockwork over workers in a table that are ``offsets`` seconds behind the master."""

    def __init__(self, times_s: list[float], offsets: dict[str, float], level: Level = LEVEL) -> None:
        self.orders: list[tuple[float, str, dict[str, Any], str]] = []
        self.ended_s: list[float] = []
        self.crew = Crew(self._send)
        for worker, offset_s in offsets.items():
            self.crew.join(worker, offset_s, now=True, dealt=True)
            self.crew.report(worker, 2, 0)
        self.crew.begin()
        self.began_s = perf_counter()
        arrivals = self._arrivals(times_s)
        self.clockwork = Clockwork(level, Timetable(arrivals), self.crew, on_end=self._end)

    def _send(self, message: str, data: dict[str, Any], worker: str) -> None:
        self.orders.append((perf_counter(), message, data, worker))

    def _end(self) -> None:
        self.ended_s.append(perf_counter())

    @staticmethod
    def _arrivals(times_s: list[float]) -> Iterator[Arrival]:
        for number, at_s in enumerate(times_s):
            yield Arrival(number, Phase.MEASURED, at_s)

    def dealt(self, worker: str = "") -> list[int]:
        orders = [data for _, _, data, name in self.orders if worker in ("", name)]
        return [ticket[1] for data in orders for ticket in data["tickets"]]

    def answer(self) -> None:
        for name, state in self.crew.workers.items():
            self.crew.report(name, 2, state.orders)

    def wait_for_end(self) -> None:
        with gevent.Timeout(5):
            while not self.ended_s:
                self.answer()
                gevent.sleep(0.002)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in FAST.items():
        monkeypatch.setattr(f"tokenswarm.clockwork.{name}", seconds)


def test_the_first_window_is_sent_before_the_level_begins() -> None:
    """It reaches the workers in time; what is due later is sent later, each arrival once."""
    stage = Stage([0.0, 0.05, 0.15, 0.29], {"w0": 0.0})
    gevent.sleep(0)
    # now is -0.1 s in the level: the window ends at 0.1 s, or on a slow machine a little later
    assert stage.dealt()[:2] == [0, 1]
    assert 3 not in stage.dealt()
    assert stage.orders[0][0] < stage.clockwork.began_s
    stage.wait_for_end()
    assert stage.dealt() == [0, 1, 2, 3]
    assert [data["order"] for _, _, data, _ in stage.orders] == list(range(1, len(stage.orders) + 1))
    assert {(message, data["level"]) for _, message, data, _ in stage.orders} == {("ts_due", 4)}


def test_a_level_ends_after_its_length_and_once() -> None:
    """Its last arrival is at 0.05 s, its length 0.3 s: it ends after the length, whatever comes of the sessions."""
    stage = Stage([0.0, 0.05], {"w0": 0.0})
    assert stage.clockwork.began_s == pytest.approx(stage.began_s + 0.1, abs=0.05)
    stage.wait_for_end()
    assert stage.ended_s[0] - stage.clockwork.began_s >= 0.3
    gevent.sleep(0.1)
    assert len(stage.ended_s) == 1


def test_a_replayed_level_ends_with_its_last_session() -> None:
    """There is no length but the trace's: 0.15 s."""
    replayed = Level(index=0, concurrency=4, replayed=True)
    stage = Stage([0.0, 0.15], {"w0": 0.0}, replayed)
    stage.wait_for_end()
    assert stage.ended_s[0] - stage.clockwork.began_s >= 0.15


def test_the_measured_time_begins_after_the_warm_up() -> None:
    """Unknown before, and then the moment itself, whenever it is asked for."""
    stage = Stage([0.0], {"w0": 0.0})
    assert stage.clockwork.measured_started_s is None
    assert stage.clockwork.now_s < 0.0
    stage.wait_for_end()
    assert stage.clockwork.measured_started_s == stage.clockwork.began_s + 0.1
    assert stage.clockwork.now_s >= 0.3


def test_times_are_told_in_the_workers_own_time() -> None:
    """A worker 900 s behind, one 20 s ahead: 0.05 s into the level is began + 0.05 s on the master's clock, and so
    much less or more on theirs."""
    stage = Stage([0.0, 0.05], {"w0": 900.0, "w1": -20.0})
    gevent.sleep(0)
    stage.clockwork.stop()
    told = {worker: data["tickets"] for _, _, data, worker in stage.orders}
    began_s = stage.clockwork.began_s
    assert told == {
        "w0": [["measured", 0, pytest.approx(began_s - 900.0, abs=1e-9), None, 0]],
        "w1": [["measured", 1, pytest.approx(began_s + 0.05 + 20.0, abs=1e-9), None, 0]],
    }


def test_a_recorded_session_is_told_as_plain_values() -> None:
    """What the trace says of it goes along."""
    recorded = TraceSession(0.0, (TraceTurn(10, 5), TraceTurn(3, 2, 1.5)), (SharedText("a", 4),), "chat")
    told = Clockwork._told(Arrival(7, Phase.MEASURED, 0.5, recorded, 2), 100.0)
    session = [0.0, [[10, 5, 0.0], [3, 2, 1.5]], [["a", 4]], "chat", None]
    arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(told))
    assert arrived == ["measured", 7, 100.5, session, 2]
    assert msgspec.convert(arrived[3], TraceSession) == recorded


def test_who_has_not_answered_gets_no_more_while_another_has() -> None:
    """It may be gone: what it already holds is enough to lose."""
    times_s = [0.02 * number for number in range(14)]
    stage = Stage(times_s, {"w0": 0.0, "w1": 0.0})
    gevent.sleep(0)
    silent = stage.dealt("w1")
    assert silent != []
    with gevent.Timeout(5):
        while not stage.clockwork.timetable.exhausted:
            stage.crew.report("w0", 2, stage.crew.workers["w0"].orders)
            gevent.sleep(0.002)
    stage.clockwork.stop()
    assert stage.dealt("w1") == silent
    assert sorted(stage.dealt()) == list(range(14))


def test_where_nobody_has_answered_all_get_more() -> None:
    """All of them are slow then, and the load must not stop."""
    stage = Stage([0.0, 0.01, 0.25, 0.26], {"w0": 0.0, "w1": 0.0})
    with gevent.Timeout(5):
        while not stage.clockwork.timetable.exhausted:
            gevent.sleep(0.002)
    stage.clockwork.stop()
    assert (stage.dealt("w0"), stage.dealt("w1")) == ([0, 2], [1, 3])


def test_what_a_worker_that_goes_had_is_sent_to_the_others_or_lost() -> None:
    """Of four in the first window it has two: one that is due later goes to the other worker, one is over."""
    stage = Stage([-1.0, -0.9, 0.08, 0.09], {"w0": 0.0, "w1": 5.0})
    gevent.sleep(0)
    assert (stage.dealt("w0"), stage.dealt("w1")) == ([0, 2], [1, 3])
    stage.crew.leave("w0")
    assert stage.clockwork.leave("w0") == 1
    _, message, data, worker = stage.orders[-1]
    assert (message, worker) == ("ts_due", "w1")
    assert data["tickets"] == [["measured", 2, pytest.approx(stage.clockwork.began_s + 0.08 - 5.0, abs=1e-9), None, 1]]
    assert stage.clockwork.timetable.lost == 1
    stage.clockwork.stop()


def test_what_is_about_to_be_due_cannot_be_sent_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sooner than the margin it is lost, later it is sent."""
    monkeypatch.setattr("tokenswarm.clockwork.WINDOW_S", 100.0)
    monkeypatch.setattr("tokenswarm.clockwork.MARGIN_S", 20.0)
    stage = Stage([10.0, 10.0, 30.0, 30.0], {"w0": 0.0, "w1": 0.0})
    gevent.sleep(0)
    stage.crew.leave("w0")
    assert stage.clockwork.leave("w0") == 1
    assert stage.dealt("w1") == [1, 3, 2]
    stage.clockwork.stop()


def test_nothing_is_sent_after_it_was_stopped() -> None:
    """Neither later windows nor what a worker leaves behind, which is lost; and the end is not told."""
    stage = Stage([0.0, 0.05, 0.08, 0.25], {"w0": 0.0, "w1": 0.0})
    gevent.sleep(0)
    before = list(stage.orders)
    stage.clockwork.stop()
    stage.crew.leave("w1")
    assert stage.clockwork.leave("w1") == 1
    gevent.sleep(0.45)
    assert (stage.orders, stage.ended_s) == (before, [])
