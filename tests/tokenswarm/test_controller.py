"""The controller against hand-driven workers: exact tickets, phases in order, limits that end a level."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest

from tokenswarm.arrivals import Arrivals, Stretch
from tokenswarm.controller import Controller
from tokenswarm.levelfacts import LevelFacts
from tokenswarm.records import Phase
from tokenswarm.schedule import FILL_BLOCK, Ending, Level
from tokenswarm.timetable import Arrival


class Crew:
    """Workers in a table: collects the orders, answers them when told to."""

    def __init__(
        self, levels: list[Level], users: dict[str, int], arrivals: Callable[[Level], Iterator[Arrival]] | None = None
    ) -> None:
        self.orders: list[tuple[str, dict[str, Any], str]] = []
        self.ended: list[tuple[dict[str, Any], LevelFacts]] = []
        self.begun: list[int] = []
        following = iter(levels[1:])
        self.controller = Controller(
            levels[0],
            lambda message, data, worker: self.orders.append((message, data, worker)),
            lambda row, _level, facts: self.ended.append((row, facts)),
            lambda level: next(following, None),
            on_level_begin=lambda level: self.begun.append(level.index),
            **({} if arrivals is None else {"arrivals": arrivals}),
        )
        self.users = users
        self.numbers: dict[tuple[str, str], list[int]] = defaultdict(list)  # granted to a worker and not ended
        self._seen = 0
        for worker in users:
            self.controller.join(worker)

    def idle(self, **users: int) -> None:
        for worker, waiting in (users or self.users).items():
            self.report(worker, waiting, [])

    def report(self, worker: str, waiting: int, done: list[Any]) -> None:
        self.controller.report(worker, waiting, done, self.controller.crew.workers[worker].orders)

    def tickets(self, phase: str, worker: str = "") -> list[int]:
        return [
            number
            for message, data, name in self.orders
            if message == "ts_grant" and data["phase"] == phase and worker in ("", name)
            for number, _again in data["tickets"]
        ]

    def finish(
        self, worker: str, phase: str, *facts: tuple[Any, ...], waiting: int = 0, how: Ending = Ending.PLAYED
    ) -> int:
        """The session of the oldest ticket that the worker holds ends; returns its number."""
        for message, data, name in self.orders[self._seen :]:
            if message == "ts_grant":
                self.numbers[name, data["phase"]] += [number for number, _again in data["tickets"]]
        self._seen = len(self.orders)
        number = FILL_BLOCK if phase == "fill" else self.numbers[worker, phase].pop(0)
        self.report(worker, waiting, [(self.controller.level.index, phase, number, how, list(facts))])
        return number

    def sent(self, message: str, worker: str = "") -> list[dict[str, Any]]:
        return [data for name, data, to in self.orders if name == message and worker in ("", to)]


def users_wanted(crew: Crew) -> int | None:
    target = crew.controller.target()
    return None if target is None else target[0]


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


def test_sessions_that_were_cut_are_played_again_and_the_level_says_so() -> None:
    """A worker that is told to end cuts its sessions: all three are played to their end, one of them twice."""
    crew = Crew([_level(sessions=3)], {"local": 2})
    crew.idle()
    crew.finish("local", "measured", _fact(0.0, 2.0, 1))
    crew.finish("local", "measured", how=Ending.CUT)
    assert crew.tickets("measured")[:3] == [0, 1, 2]
    again = crew.tickets("measured")[3]
    assert again in (0, 1, 2)
    crew.finish("local", "measured", _fact(0.0, 2.0, 1))
    assert crew.ended == []
    crew.finish("local", "measured", _fact(2.0, 4.0, 1))
    crew.idle()
    row, _facts = crew.ended[0]
    assert (row["state"], row["measured_sessions"]) == ("partial", 3)
    assert row["reason"].startswith("1 sessions were cut with their users")


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
    assert users_wanted(crew) == 1
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
        worker = next(name for name in ("w1", "w0") if len(crew.tickets("measured", name)) > ended[name])
        ended[worker] += 1
        crew.finish(worker, "measured", _fact(0, 2, 1))
    assert sorted(crew.tickets("measured")) == list(range(9))
    crew.idle()
    assert crew.ended[0][0]["measured_sessions"] == 9


def test_a_report_from_before_an_order_does_not_end_a_level() -> None:
    """Users that waited when a late report was written are busy since: only an answer to the last order counts."""
    crew = Crew([_level(sessions=None, duration_s=0.05)], {"local": 2})
    before = crew.controller.crew.workers["local"].orders
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
    assert crew.controller.level.index == 1
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
        while not crew.ended:
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
    crew.controller.conclude()
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
    assert told == [("w0", (1, 1)), ("w0", (1, 1))]


# workers that come and go -----------------------------------------------------------------------------------------

GONE = "worker w1 gave no sign of life at 12:00:00"


def changed(crew: Crew) -> bool:
    """Whether somebody who waits for a change is woken at once."""
    with gevent.Timeout(0.05, False):
        crew.controller.wait_for_change()
        return True
    return False


def play_out(crew: Crew, worker: str, phase: str = "measured") -> list[int]:
    """``worker`` plays alone all that it is given."""
    played = []
    for _ in range(100):
        if not (crew.numbers[worker, phase] or len(crew.orders) > crew._seen):
            break
        try:
            played.append(crew.finish(worker, phase, _fact(0.0, 2.0, 1)))
        except IndexError:
            break
    return played


def test_a_worker_that_goes_before_a_level_leaves_its_users_to_the_others() -> None:
    """Locust is asked for the same users again, which the others start; the level begins once they all wait."""
    crew = Crew([_level(concurrency=4, sessions=4)], {"w0": 2, "w1": 2})
    assert changed(crew)
    crew.idle(w0=2)
    before = crew.controller.target()
    crew.controller.leave("w1", GONE)
    after = crew.controller.target()
    assert before is not None
    assert after is not None
    assert (before[0], after[0], after[1] > before[1] >= 4) == (4, 4, True)
    assert changed(crew)
    assert not changed(crew)
    crew.idle(w0=2)
    assert crew.begun == []
    crew.idle(w0=4)
    assert crew.tickets("measured", "w0") == [0, 1, 2, 3]
    play_out(crew, "w0")
    crew.idle(w0=4)
    row, _facts = crew.ended[0]
    assert (row["state"], row["reason"], row["measured_sessions"]) == ("complete", "", 4)


@pytest.mark.parametrize("phase", ["warmup", "measured"])
def test_sessions_of_a_worker_that_goes_are_played_by_the_others(phase: str) -> None:
    """Two of four users are gone with two sessions under way: the others play these first, the level is partial and
    says so, and every session is measured."""
    crew = Crew([_level(concurrency=4, sessions=6, warmup_sessions=4)], {"w0": 2, "w1": 2})
    crew.idle()
    if phase == "measured":
        for worker in ("w0", "w1", "w0", "w1"):
            crew.finish(worker, "warmup")
    mine, theirs = crew.tickets(phase, "w0"), crew.tickets(phase, "w1")
    assert (mine[:2], theirs[:2]) == ([0, 1], [2, 3])
    crew.controller.leave("w1", GONE)
    if phase == "warmup":
        assert [crew.finish("w0", "warmup") for _ in range(4)] == [0, 1, 2, 3]
    played = play_out(crew, "w0")
    assert sorted(played) == list(range(6))
    again = {n: a for _, d, _ in crew.orders if "tickets" in d and d["phase"] == phase for n, a in d["tickets"]}
    assert {number for number, times in again.items() if times} == {2, 3}
    assert (again[2], again[3]) == (1, 1)
    crew.idle(w0=2)
    row, facts = crew.ended[0]
    assert (row["state"], row["measured_sessions"], facts.measured_requests) == ("partial", 6, 6)
    told, after = row["reason"].split("; ")
    assert re.fullmatch(re.escape(GONE) + r", \d+\.\d s into the level", told)
    assert after == "its 2 sessions were given to others"
    assert crew.controller.target() is None


def test_levels_after_the_loss_of_a_worker_have_all_their_users() -> None:
    """The next level is asked for with all its users, dealt anew, and is complete."""
    levels = [_level(index=i, concurrency=4, sessions=4, label=str(i)) for i in range(2)]
    crew = Crew(levels, {"w0": 2, "w1": 2})
    crew.idle()
    before = crew.controller.target()
    crew.controller.leave("w1", GONE)
    play_out(crew, "w0")
    crew.idle(w0=2)
    assert [row["state"] for row, _ in crew.ended] == ["partial"]
    gevent.sleep(0)
    assert users_wanted(crew) == 4
    assert crew.controller.target() != before
    assert crew.begun == [0]
    crew.idle(w0=4)
    assert crew.begun == [0, 1]
    assert len(play_out(crew, "w0")) == 4
    crew.idle(w0=4)
    row, _facts = crew.ended[1]
    assert (row["state"], row["reason"], row["measured_sessions"]) == ("complete", "", 4)


def test_a_worker_that_goes_while_a_level_drains_is_not_waited_for() -> None:
    """All measured sessions are in; its fill sessions are not, and the level ends without them."""
    crew = Crew([_level(concurrency=2, sessions=2, tail="fill")], {"w0": 1, "w1": 1})
    crew.idle()
    for worker in ("w0", "w1"):
        crew.finish(worker, "measured", _fact(0.0, 2.0, 1))
    crew.idle(w0=1)
    assert (len(crew.sent("ts_close")), crew.ended) == (2, [])
    crew.controller.leave("w1", GONE)
    row, facts = crew.ended[0]
    assert (row["state"], row["measured_sessions"], facts.measured_requests) == ("partial", 2, 2)
    assert row["reason"].startswith(GONE)
    assert "sessions" not in row["reason"]


def test_a_worker_that_goes_from_a_level_by_time_takes_its_users_with_it() -> None:
    """The others go on to the end of the time; nothing was promised that another would have to play."""
    crew = Crew([_level(sessions=None, duration_s=0.1)], {"w0": 1, "w1": 1})
    crew.idle()
    crew.controller.leave("w1", GONE)
    with gevent.Timeout(5):
        while not crew.sent("ts_close"):
            gevent.sleep(0.01)
    assert [(worker, name) for name, _data, worker in crew.orders if name != "ts_level"] == [
        ("w0", "ts_open"),
        ("w1", "ts_open"),
        ("w0", "ts_close"),
    ]
    crew.idle(w0=1)
    row, _facts = crew.ended[0]
    assert row["state"] == "partial"
    assert re.fullmatch(re.escape(GONE) + r", \d\.\d s into the level", row["reason"])


@pytest.mark.parametrize("when", ["spawn", "warmup", "measured", "drain"])
def test_without_any_worker_the_run_is_over(when: str) -> None:
    """The level is written with the reason, the next one is not tried, and nobody waits for anything."""
    levels = [_level(warmup_sessions=1, tail="fill"), _level(index=1, label="next")]
    crew = Crew(levels, {"w1": 2})
    changed(crew)
    measured = 0
    if when != "spawn":
        crew.idle()
    if when in ("measured", "drain"):
        crew.finish("w1", "warmup")
        crew.finish("w1", "measured", _fact(0.0, 2.0, 1))
        measured = 1
    if when == "drain":
        crew.finish("w1", "measured", _fact(0.0, 2.0, 1))
        crew.finish("w1", "measured", _fact(0.0, 2.0, 1))
        measured = 3
        assert crew.controller.stage == "drain"
    crew.controller.leave("w1", GONE)
    (row, facts), *more = crew.ended
    assert more == []
    assert (row["level"], row["state"], row["reason"]) == (0, "partial", f"{GONE}; no worker is left")
    assert (row["measured_sessions"], facts.measured_requests) == (measured, measured)
    assert crew.controller.target() is None
    assert changed(crew)
    assert crew.controller.finished
    crew.controller.leave("w1", GONE)
    assert len(crew.ended) == 1


def test_a_level_that_never_began_knows_nothing_of_the_one_before() -> None:
    """The last worker goes between two levels: the second has a row without times, sessions and requests."""
    levels = [_level(sessions=2), _level(index=1, concurrency=1, label="next")]
    crew = Crew(levels, {"w1": 2})
    crew.idle()
    play_out(crew, "w1")
    crew.idle()
    assert crew.controller.level.index == 1
    crew.controller.leave("w1", GONE)
    assert [(row["level"], row["state"]) for row, _ in crew.ended] == [(0, "complete"), (1, "partial")]
    row, facts = crew.ended[1]
    assert row["reason"] == f"{GONE}; no worker is left"
    assert (row["started_s"], row["measured_started_s"], row["measured_ended_s"]) == (None, None, None)
    assert (row["measured_sessions"], facts.measured_requests) == (0, 0)


def test_a_worker_that_goes_while_a_level_is_about_to_begin_does_not_leave_it_short() -> None:
    """What is done at the beginning takes its time; if a worker goes meanwhile, the level waits for its users again."""
    crew = Crew([_level(concurrency=2, sessions=2)], {"w0": 1, "w1": 1})
    gone: list[str] = []

    def lose(level: Level) -> None:
        if not gone:
            gone.append("w1")
            crew.controller.leave("w1", GONE)

    crew.controller._on_level_begin = lose
    crew.idle()
    assert crew.sent("ts_grant") == []
    crew.idle(w0=2)
    assert crew.tickets("measured", "w0") == [0, 1]
    play_out(crew, "w0")
    crew.idle(w0=2)
    assert [(row["state"], row["measured_sessions"]) for row, _ in crew.ended] == [("complete", 2)]


def test_a_worker_that_joins_in_the_middle_is_used_from_the_next_level() -> None:
    """It gets no session of the level under way; the users of the next are dealt anew, it among those who have them."""
    levels = [_level(index=i, concurrency=2, sessions=2, label=str(i)) for i in range(2)]
    crew = Crew(levels, {"w0": 2})
    crew.idle()
    before = crew.controller.target()
    crew.controller.join("w1", dealt=False)
    crew.controller.report("w1", 0, [], 0)
    play_out(crew, "w0")
    assert crew.controller.crew.users == {"w0": 2}
    crew.report("w0", 1, [])
    assert crew.ended == []
    crew.idle(w0=2)
    assert len(crew.ended) == 1
    assert crew.sent("ts_grant", "w1") == []
    after = crew.controller.target()
    assert before is not None
    assert after is not None
    assert (after[0], after[1] > before[1]) == (2, True)
    crew.idle(w0=1, w1=1)
    assert (len(crew.tickets("measured", "w0")), crew.tickets("measured", "w1")) == (3, [1])


def test_a_worker_that_has_its_users_already_changes_no_target() -> None:
    """Locust dealt them before it was heard of: to deal them anew would stop and start users for nothing."""
    crew = Crew([_level()], {"w0": 1})
    before = crew.controller.target()
    crew.controller.join("w1", dealt=True)
    assert crew.controller.target() == before
    crew.controller.join("w2", dealt=False)
    assert crew.controller.target() != before


def test_equal_users_do_not_begin_before_they_are_dealt_to_those_who_joined() -> None:
    """Two users wait already when the next level comes, but one of them is about to be moved to the new worker: a level
    that began now would lose it in the middle."""
    levels = [_level(index=i, concurrency=2, sessions=2, label=str(i)) for i in range(2)]
    crew = Crew(levels, {"w0": 2})
    deal(crew)
    crew.idle()
    crew.controller.join("w1", dealt=False)
    play_out(crew, "w0")
    crew.idle(w0=2)
    gevent.sleep(0)
    crew.idle(w0=2)
    assert crew.begun == [0]
    deal(crew)  # the orders are sent, and not obeyed yet
    assert crew.begun == [0]
    crew.idle(w0=1)
    assert crew.begun == [0]
    crew.idle(w1=1)
    assert crew.begun == [0, 1]


def deal(crew: Crew) -> None:
    target = crew.controller.target()
    assert target is not None
    crew.controller.deal_done(target)


def test_equal_users_begin_at_once_where_nobody_came_or_went() -> None:
    """Locust has dealt them for the level before and has nothing to do."""
    levels = [_level(index=i, concurrency=2, sessions=2, label=str(i)) for i in range(2)]
    crew = Crew(levels, {"w0": 2})
    deal(crew)
    crew.idle()
    play_out(crew, "w0")
    crew.idle(w0=2)
    gevent.sleep(0)
    assert crew.begun == [0, 1]


def test_a_worker_that_came_for_the_next_level_and_goes_again_changes_nothing() -> None:
    """The level under way has never had it."""
    crew = Crew([_level(sessions=2)], {"w0": 2})
    crew.idle()
    crew.controller.join("w1")
    crew.controller.leave("w1", GONE)
    play_out(crew, "w0")
    crew.idle(w0=2)
    row, _facts = crew.ended[0]
    assert (row["state"], row["reason"]) == ("complete", "")


def test_reports_of_workers_that_do_not_take_part_change_nothing() -> None:
    """One that was given up may still talk, and one may that never joined: what it tells is not counted."""
    crew = Crew([_level(concurrency=2, sessions=2)], {"w0": 1, "w1": 1})
    crew.idle()
    crew.controller.leave("w1", GONE)
    for worker in ("w1", "stranger"):
        crew.controller.report(worker, 1, [(0, "measured", 1, Ending.PLAYED, [_fact(0.0, 1.0, 100)])], 2)
    assert (crew.controller.account.ledger.done, crew.controller.account.facts.measured_requests) == (0, 0)
    crew.controller.leave("stranger", "is nobody")
    assert crew.finish("w0", "measured", _fact(0.0, 2.0, 1)) == 0
    assert crew.finish("w0", "measured", _fact(0.0, 2.0, 1)) == 1
    crew.idle(w0=1)
    row, facts = crew.ended[0]
    assert (row["measured_sessions"], facts.measured_requests, facts.ok_tokens) == (2, 2, 2)
    assert "stranger" not in row["reason"]


# how a level is called that did not go as planned -----------------------------------------------------------------


def test_a_lost_worker_does_not_hide_that_the_time_was_up() -> None:
    """A timeout stays one; both reasons are told, in their order."""
    crew = Crew([_level(sessions=4, time_limit_s=0.05)], {"w0": 1, "w1": 1})
    crew.idle()
    with gevent.Timeout(5):
        while not crew.sent("ts_cut"):
            gevent.sleep(0.01)
    crew.controller.leave("w1", GONE)
    crew.idle(w0=1)
    row, _facts = crew.ended[0]
    assert row["state"] == "timeout"
    assert row["reason"].index("time_limit_s = 0.05") < row["reason"].index(GONE)


def test_a_time_that_is_up_outweighs_a_lost_worker() -> None:
    """The other way round as well."""
    crew = Crew([_level(sessions=4, time_limit_s=0.05)], {"w0": 1, "w1": 1})
    crew.idle()
    crew.controller.leave("w1", GONE)
    with gevent.Timeout(5):
        while not crew.sent("ts_cut"):
            gevent.sleep(0.01)
    crew.idle(w0=1)
    row, _facts = crew.ended[0]
    assert row["state"] == "timeout"
    assert row["reason"].index(GONE) < row["reason"].index("time_limit_s = 0.05")


def test_an_interrupted_level_tells_of_the_lost_worker_too() -> None:
    """Interrupted is what it is called; the loss stands in the reason."""
    crew = Crew([_level()], {"w0": 1, "w1": 1})
    crew.idle()
    crew.controller.leave("w1", GONE)
    crew.controller.interrupt("the run was stopped")
    crew.controller.conclude()
    row, _facts = crew.ended[0]
    assert row["state"] == "interrupted"
    assert row["reason"].startswith(GONE)
    assert row["reason"].endswith("; the run was stopped")


def test_a_level_that_is_stopped_is_closed_cut_and_called_by_its_state() -> None:
    """A saturated server: no session begins any more, those under way are cut, and the next level follows."""
    levels = [_level(sessions=None, duration_s=60.0), _level(index=1, label="next")]
    crew = Crew(levels, {"local": 2})
    crew.controller.stop_level("saturated", "before it began")
    crew.idle()
    crew.controller.stop_level("saturated", "in flight grew by 40 in 10 s")
    assert [name for name, _, _ in crew.orders if name in ("ts_close", "ts_cut")] == ["ts_close", "ts_cut"]
    crew.controller.stop_level("saturated", "once more")
    crew.controller.report("local", 2, [(0, "measured", FILL_BLOCK, Ending.CUT, [_fact(0.0, 1.0, 1)])], 4)
    row, _facts = crew.ended[0]
    assert (row["state"], row["reason"]) == ("saturated", "in flight grew by 40 in 10 s")
    gevent.sleep(0)
    assert crew.begun == [0, 1]


# levels by the clock ----------------------------------------------------------------------------------------------


def _by_clock(**changes: Any) -> Level:
    """Ten arrivals a second; the first tenth of a second is warm-up."""
    arrivals = Arrivals("constant", (Stretch(0.3, 10.0, 10.0),))
    return _level(**({"sessions": None, "duration_s": 0.2, "warmup_s": 0.1, "arrivals": arrivals} | changes))


def _at(*times_s: float, warmup_s: float = 0.1) -> Callable[[Level], Iterator[Arrival]]:
    phases = [Phase.WARMUP if at_s < warmup_s else Phase.MEASURED for at_s in times_s]
    return lambda level: (Arrival(n, p, t) for n, (p, t) in enumerate(zip(phases, times_s, strict=True)))


def dealt(crew: Crew, worker: str) -> list[int]:
    return [number for data in crew.sent("ts_due", worker) for _phase, number, *_ in data["tickets"]]


def wait_for_stage(crew: Crew, stage: str) -> None:
    with gevent.Timeout(5):
        while crew.controller.stage != stage:
            gevent.sleep(0.01)


def over(crew: Crew, worker: str, number: int, how: Ending = Ending.PLAYED, waiting: int = 0) -> None:
    phase = "warmup" if number == 0 else "measured"
    facts = [_fact(0.0, 2.0, 1)] if how == Ending.PLAYED and number else []
    crew.report(worker, waiting, [(crew.controller.level.index, phase, number, how, facts)])


def test_a_level_by_the_clock_counts_what_came_of_every_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """One warm-up arrival and four measured: two played, one not admitted, one cut. It ends when all are accounted
    for, and not before its time is over."""
    monkeypatch.setattr("tokenswarm.clockwork.LEAD_S", 0.05)
    monkeypatch.setattr("tokenswarm.clockwork.HAND_OUT_S", 0.05)
    crew = Crew([_by_clock()], {"local": 2}, _at(0.0, 0.1, 0.15, 0.2, 0.25))
    crew.idle()
    gevent.sleep(0)
    assert dealt(crew, "local") == [0, 1, 2, 3, 4]
    for number, how in enumerate([Ending.PLAYED, Ending.PLAYED, Ending.REFUSED, Ending.PLAYED, Ending.CUT]):
        over(crew, "local", number, how)
    assert crew.controller.stage == "measure"
    wait_for_stage(crew, "drain")
    assert [data["late_is_drain"] for data in crew.sent("ts_close")] == [False]
    crew.idle()
    row, facts = crew.ended[0]
    assert (row["state"], row["reason"], row["concurrency"], row["planned_sessions"]) == ("complete", "", None, None)
    assert (row["scheduled"], row["not_admitted"], row["lost"], row["measured_sessions"]) == (4, 1, 0, None)
    assert (row["rate_per_s"], facts.measured_requests) == (pytest.approx(10.0), 2)
    assert row["measured_started_s"] - row["started_s"] == pytest.approx(0.05 + 0.1, abs=0.02)


def test_arrivals_of_a_worker_that_goes_are_dealt_again_or_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its two measured ones the first is due at once and lost, the other comes in time to the worker that is left;
    what is scheduled is the same as without the loss."""
    monkeypatch.setattr("tokenswarm.clockwork.LEAD_S", 0.02)
    monkeypatch.setattr("tokenswarm.clockwork.HAND_OUT_S", 0.05)
    level = _by_clock(duration_s=0.9, arrivals=Arrivals("constant", (Stretch(1.0, 10.0, 10.0),)))
    crew = Crew([level], {"w0": 1, "w1": 1}, _at(0.0, 0.1, 0.11, 0.9))
    crew.idle()
    gevent.sleep(0)
    assert (dealt(crew, "w0"), dealt(crew, "w1")) == ([0, 2], [1, 3])
    crew.controller.leave("w1", GONE)
    assert dealt(crew, "w0") == [0, 2, 3]
    again = crew.sent("ts_due", "w0")[-1]["tickets"][0]
    assert again[-1] == 1
    for number in (0, 2, 3):
        over(crew, "w0", number)
    wait_for_stage(crew, "drain")
    crew.idle(w0=1)
    row, facts = crew.ended[0]
    assert (row["scheduled"], row["lost"], row["not_admitted"], facts.measured_requests) == (3, 1, 0, 2)
    assert row["state"] == "partial"
    assert row["reason"].endswith("s into the level; 1 arrivals lost")


def test_arrivals_that_the_last_worker_held_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scheduled are three measured ones, one was played, two went with the worker."""
    monkeypatch.setattr("tokenswarm.clockwork.LEAD_S", 0.02)
    monkeypatch.setattr("tokenswarm.clockwork.HAND_OUT_S", 0.05)
    crew = Crew([_by_clock()], {"w1": 2}, _at(0.0, 0.1, 0.15, 0.2))
    crew.idle()
    gevent.sleep(0)
    over(crew, "w1", 1)
    crew.controller.leave("w1", GONE)
    row, _facts = crew.ended[0]
    assert (row["scheduled"], row["lost"], row["state"]) == (3, 2, "partial")
    assert crew.controller.target() is None


def test_a_level_by_the_clock_that_is_stopped_has_fewer_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose time had not come are withdrawn by the worker and were never scheduled."""
    monkeypatch.setattr("tokenswarm.clockwork.LEAD_S", 0.02)
    monkeypatch.setattr("tokenswarm.clockwork.HAND_OUT_S", 0.05)
    crew = Crew([_by_clock()], {"local": 2}, _at(0.0, 0.1, 0.15, 0.2))
    crew.idle()
    gevent.sleep(0)
    over(crew, "local", 0)
    over(crew, "local", 1)
    crew.controller.stop_level("saturated", "in flight grew")
    over(crew, "local", 2, Ending.CUT)
    over(crew, "local", 3, Ending.WITHDRAWN, waiting=2)
    row, _facts = crew.ended[0]
    assert (row["state"], row["scheduled"], row["lost"], row["not_admitted"]) == ("saturated", 2, 0, 0)


def test_what_has_arrived_may_go_on_for_a_while_and_is_then_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """One session of two is still under way when the limit for it is over: it is cut, and the level is complete."""
    monkeypatch.setattr("tokenswarm.clockwork.LEAD_S", 0.02)
    monkeypatch.setattr("tokenswarm.clockwork.HAND_OUT_S", 0.05)
    crew = Crew([_by_clock(drain_limit_s=0.05)], {"local": 2}, _at(0.1, 0.15))
    crew.idle()
    wait_for_stage(crew, "tail")
    over(crew, "local", 1)
    assert crew.sent("ts_close") == []
    wait_for_stage(crew, "drain")
    assert len(crew.sent("ts_cut")) == 1
    crew.report("local", 2, [(0, "measured", 0, Ending.CUT, [_fact(0.0, 3.0, 1, ok=False)])])
    row, facts = crew.ended[0]
    assert (row["state"], row["reason"], row["scheduled"], row["lost"]) == ("complete", "", 2, 0)
    assert facts.measured_requests == 2


def test_nothing_is_dealt_again_once_a_level_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that goes while the level drains had an arrival that was to be withdrawn: nobody plays it."""
    monkeypatch.setattr("tokenswarm.clockwork.LEAD_S", 0.02)
    monkeypatch.setattr("tokenswarm.clockwork.HAND_OUT_S", 0.05)
    level = _by_clock(duration_s=1.9, arrivals=Arrivals("constant", (Stretch(2.0, 10.0, 10.0),)))
    crew = Crew([level], {"w0": 1, "w1": 1}, _at(0.1, 0.11, 1.8, 1.9))
    crew.idle()
    gevent.sleep(0)
    crew.controller.stop_level("saturated", "in flight grew")
    before = len(crew.orders)
    crew.controller.leave("w1", GONE)
    assert len(crew.orders) == before
