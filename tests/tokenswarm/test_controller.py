"""The controller against hand-driven workers: exact tickets, phases in order, limits that end a level."""

from __future__ import annotations

from typing import Any

import gevent
import pytest

from tokenswarm.controller import Controller
from tokenswarm.levelfacts import LevelFacts
from tokenswarm.schedule import Level


class Crew:
    """Workers in a table: collects the orders, answers them when told to."""

    def __init__(self, levels: list[Level], users: dict[str, int]) -> None:
        self.orders: list[tuple[str, dict[str, Any], str]] = []
        self.ended: list[tuple[dict[str, Any], LevelFacts]] = []
        self.controller = Controller(
            levels,
            lambda message, data, worker: self.orders.append((message, data, worker)),
            lambda row, _level, facts: self.ended.append((row, facts)),
        )
        self.users = users
        for worker in users:
            self.controller.join(worker)

    def idle(self, **users: int) -> None:
        for worker, waiting in (users or self.users).items():
            self.report(worker, waiting, [])

    def report(self, worker: str, waiting: int, done: list[Any]) -> None:
        self.controller.report(worker, waiting, done, self.controller.workers[worker].orders)

    def tickets(self, phase: str) -> list[int]:
        return [
            number
            for message, data, _ in self.orders
            if message == "ts_grant" and data["phase"] == phase
            for number in range(data["first"], data["stop"])
        ]

    def finish(self, worker: str, phase: str, *facts: tuple[Any, ...], waiting: int = 0, played: bool = True) -> None:
        self.report(worker, waiting, [(self.controller.position, phase, played, list(facts))])

    def sent(self, message: str) -> list[dict[str, Any]]:
        return [data for name, data, _ in self.orders if name == message]


def _fact(sent_s: float, finished_s: float, tokens: int, *, measured: bool = True, ok: bool = True) -> tuple[Any, ...]:
    return (measured, ok, sent_s, sent_s + 1.0, finished_s, finished_s, tokens)


def _level(**changes: Any) -> Level:
    given: dict[str, Any] = {"index": 0, "concurrency": 2, "sessions": 3, "tail": "drain", "label": "c=2"}
    return Level(**(given | changes))


def test_a_level_begins_only_when_exactly_its_users_wait() -> None:
    """One user of two is not enough, and nothing is handed out before."""
    crew = Crew([_level()], {"local": 2})
    crew.idle(local=1)
    assert crew.orders == []
    crew.idle(local=2)
    assert crew.tickets("measured") == [0, 1]


def test_warm_up_is_over_before_measuring_begins() -> None:
    """The first measured ticket is given when the last warm-up session has ended, not before."""
    crew = Crew([_level(warmup_sessions=2)], {"local": 2})
    crew.idle()
    assert crew.tickets("warmup") == [0, 1]
    crew.finish("local", "warmup", waiting=1)
    assert crew.tickets("measured") == []
    crew.finish("local", "warmup", waiting=2)
    assert crew.tickets("measured") == [0, 1]


def test_exactly_the_asked_sessions_are_measured_and_the_level_drains() -> None:
    """Three sessions on two users: three tickets in all, no fill, and the level ends when all users wait again."""
    crew = Crew([_level()], {"local": 2})
    crew.idle()
    crew.finish("local", "measured", _fact(10.0, 12.0, 5))
    assert crew.tickets("measured") == [0, 1, 2]
    crew.finish("local", "measured", _fact(10.0, 13.0, 7), waiting=1)
    assert crew.ended == []
    crew.finish("local", "measured", _fact(12.0, 15.0, 9), waiting=1)
    assert crew.ended == []  # the second user has not come back to the gate yet
    crew.idle(local=2)
    row, facts = crew.ended[0]
    assert (row["state"], row["measured_sessions"], row["measured_ended_s"]) == ("complete", 3, 15.0)
    assert (facts.measured_requests, facts.wall_s, facts.window_tokens("drain")) == (3, 5.0, 21.0)
    assert crew.controller.target() is None
    before = len(crew.orders)
    crew.idle(local=2)  # users report once more while the run is being closed
    assert len(crew.orders) == before


def test_fill_opens_with_the_last_ticket_and_closes_with_the_last_measured_session() -> None:
    """Fill sessions count for the tokens of the window, not for the requests."""
    crew = Crew([_level(sessions=2, tail="fill")], {"local": 2})
    crew.idle()
    assert [data["phase"] for data in crew.sent("ts_open")] == ["fill"]
    crew.finish("local", "measured", _fact(0.0, 4.0, 4))
    assert crew.sent("ts_close") == []
    crew.finish("local", "measured", _fact(0.0, 6.0, 6))
    assert len(crew.sent("ts_close")) == 1
    # first token at 5 s, last at 9 s, 5 tokens: by 6 s the first and a quarter of the other four have come
    crew.finish("local", "fill", _fact(4.0, 9.0, 5, measured=False), waiting=2)
    _row, facts = crew.ended[0]
    assert facts.measured_requests == 2
    assert facts.window_tokens("fill") == pytest.approx(4 + 6 + 2)


def test_sessions_that_locust_stopped_are_lost_and_the_level_still_ends() -> None:
    """A worker that joins makes Locust stop users in the middle: the level is partial and says how many it lost."""
    crew = Crew([_level(sessions=3)], {"local": 2})
    crew.idle()
    crew.finish("local", "measured", _fact(0.0, 2.0, 1))
    crew.finish("local", "measured", played=False)
    crew.finish("local", "measured", _fact(0.0, 2.0, 1))
    crew.idle()
    row, _facts = crew.ended[0]
    assert (row["state"], row["measured_sessions"]) == ("partial", 2)
    assert row["reason"].startswith("1 sessions lost")


def test_no_further_level_where_nothing_succeeds() -> None:
    """A server that is gone: the level is written, and the ones after it are not tried."""
    crew = Crew([_level(sessions=2), _level(index=1, label="next")], {"local": 2})
    crew.idle()
    for _ in range(2):
        crew.finish("local", "measured", _fact(0.0, 1.0, 0, ok=False))
    crew.idle()
    assert len(crew.ended) == 1
    assert crew.controller.target() is None


def test_failed_requests_give_no_tokens_to_a_drained_level() -> None:
    """Output tok/s of a plain drain counts successful requests only; the failure stays in the count."""
    crew = Crew([_level(sessions=2)], {"local": 2})
    crew.idle()
    crew.finish("local", "measured", _fact(0.0, 2.0, 10))
    crew.finish("local", "measured", _fact(0.0, 4.0, 3, ok=False))
    crew.idle()
    _row, facts = crew.ended[0]
    assert (facts.measured_requests, facts.failed_requests, facts.window_tokens("drain")) == (2, 1, 10)


def test_levels_follow_one_another_and_equal_ones_need_no_new_users() -> None:
    """Levels 2, 2, 1: the second starts with the users that wait already, the third when one has left."""
    levels = [_level(index=i, concurrency=c, sessions=c, label=str(i)) for i, c in enumerate([2, 2, 1])]
    crew = Crew(levels, {"local": 2})
    crew.idle()
    for _ in range(2):
        crew.finish("local", "measured", _fact(0, 2, 1))
        crew.finish("local", "measured", _fact(0, 2, 1))
        crew.idle()
        gevent.sleep(0)
    assert crew.controller.target() == (1, 1.0)
    assert len(crew.sent("ts_grant")) == 2
    crew.idle(local=1)
    crew.finish("local", "measured", _fact(0, 2, 1))
    crew.idle(local=1)
    assert [row["level"] for row, _ in crew.ended] == [0, 1, 2]
    assert crew.controller.target() is None


def test_two_workers_share_a_level_exactly() -> None:
    """Users on two workers: every number goes to one of them, and the level ends when all of them are done."""
    crew = Crew([_level(concurrency=3, sessions=9, label="c=3")], {"w0": 2, "w1": 1})
    crew.idle()
    ended = {"w0": 0, "w1": 0}
    for _ in range(9):
        given = {
            name: sum(d["stop"] - d["first"] for m, d, w in crew.orders if m == "ts_grant" and w == name)
            for name in ended
        }
        worker = next(name for name in ("w1", "w0") if given[name] > ended[name])
        ended[worker] += 1
        crew.finish(worker, "measured", _fact(0, 2, 1))
    assert sorted(crew.tickets("measured")) == list(range(9))
    crew.idle()
    assert crew.ended[0][0]["measured_sessions"] == 9


def test_a_report_from_before_an_order_does_not_end_a_level() -> None:
    """Users that waited when a late report was written are busy since: only an answer to the last order counts."""
    crew = Crew([_level(sessions=None, duration_s=0.05)], {"local": 2})
    before = crew.controller.workers["local"].orders
    crew.idle()
    with gevent.Timeout(5):
        while not crew.sent("ts_close"):
            gevent.sleep(0.01)
    crew.controller.report("local", 2, [], before)
    assert crew.ended == []
    crew.idle(local=2)
    assert len(crew.ended) == 1


def test_a_level_that_cannot_finish_is_cut_and_marked() -> None:
    """After its time limit the level closes, its sessions are cut, and the next level still runs."""
    crew = Crew([_level(time_limit_s=0.05), _level(index=1, label="again")], {"local": 2})
    crew.idle()
    with gevent.Timeout(5):
        while not crew.sent("ts_cut"):
            gevent.sleep(0.01)
    crew.idle(local=2)
    row, _facts = crew.ended[0]
    assert row["state"] == "timeout"
    assert "0.05" in row["reason"]
    gevent.sleep(0)
    assert crew.controller.position == 1
    assert len(crew.tickets("measured")) == 4


def test_a_level_by_time_warms_up_measures_and_drains() -> None:
    """Endless sessions, first as warm-up, then measured; late ones are drain and are cut after the limit."""
    level = _level(sessions=None, duration_s=0.1, warmup_s=0.05, drain_limit_s=0.05)
    crew = Crew([level], {"local": 2})
    crew.idle()
    assert [data["phase"] for data in crew.sent("ts_open")] == ["warmup"]
    with gevent.Timeout(5):
        while not crew.sent("ts_cut"):
            gevent.sleep(0.01)
    assert [data["phase"] for data in crew.sent("ts_open")] == ["warmup", "measured"]
    assert [data["late_is_drain"] for data in crew.sent("ts_close")] == [True]
    crew.idle(local=2)
    row, _facts = crew.ended[0]
    assert row["state"] == "complete"
    assert row["ended_s"] - row["measured_started_s"] >= 0.1


def test_users_that_never_come_end_the_run_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be measured with fewer users than the level wants; the run says so and ends."""
    monkeypatch.setattr("tokenswarm.controller.SPAWN_LIMIT_S", 0.05)
    crew = Crew([_level()], {"local": 2})
    crew.idle(local=1)
    with gevent.Timeout(5):
        crew.controller.wait_for_change()
    row, _facts = crew.ended[0]
    assert row["state"] == "partial"
    assert row["reason"].startswith("only 1 of 2 users were ready")
    assert crew.controller.target() is None


def test_an_interrupted_level_is_written_as_such() -> None:
    """A run that is stopped in the middle of a level leaves a row for it."""
    crew = Crew([_level()], {"local": 2})
    crew.idle()
    crew.finish("local", "measured", _fact(0, 2, 1))
    crew.controller.interrupt("the run was stopped")
    row, _facts = crew.ended[0]
    assert (row["state"], row["reason"], row["measured_sessions"]) == ("interrupted", "the run was stopped", 1)


def test_every_worker_is_told_its_part_of_the_quotas() -> None:
    """Four users of one class and two of another on workers of three: 2 + 1 each, for warm-up and measuring alike."""
    level = _level(sessions=None, duration_s=0.05, warmup_s=0.01, concurrency=6, quotas=(4, 2))
    crew = Crew([level], {"w0": 3, "w1": 3})
    crew.idle()
    with gevent.Timeout(5):
        while not crew.sent("ts_close"):
            gevent.sleep(0.01)
    told = [(worker, data["phase"], data["quotas"]) for name, data, worker in crew.orders if name == "ts_open"]
    assert told == [(w, phase, (2, 1)) for phase in ("warmup", "measured") for w in ("w0", "w1")]


def test_a_worker_that_joins_in_the_middle_of_a_block_plays_nothing() -> None:
    """Its users would be too many of their class."""
    level = _level(sessions=None, duration_s=0.05, warmup_s=0.05, concurrency=2, quotas=(1, 1))
    crew = Crew([level], {"w0": 2})
    crew.idle()
    crew.controller.join("w1")
    with gevent.Timeout(5):
        while not crew.sent("ts_close"):
            gevent.sleep(0.01)
    told = [(worker, data["quotas"]) for name, data, worker in crew.orders if name == "ts_open"]
    assert told == [("w0", (1, 1)), ("w0", (1, 1)), ("w1", (0, 0))]
