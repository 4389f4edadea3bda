"""The workers as the controller sees them: who takes part, who waits, who has answered."""

from __future__ import annotations

from typing import Any

from tokenswarm.crew import Crew


def a_crew(**waiting: int) -> tuple[Crew, list[tuple[str, dict[str, Any], str]]]:
    """A crew whose workers wait with so many users each, and all that it sends."""
    sent: list[tuple[str, dict[str, Any], str]] = []
    crew = Crew(lambda message, data, worker: sent.append((message, data, worker)))
    for worker, users in waiting.items():
        crew.join(worker, 0.0, now=True, dealt=True)
        crew.report(worker, users, 0)
    return crew, sent


def test_who_waits_is_unknown_after_an_order_until_the_worker_has_answered_it() -> None:
    """A report from before the order says nothing of the users that it has set going."""
    crew, sent = a_crew(w0=2, w1=1)
    assert crew.waiting == 3
    crew.order("ts_grant", {"level": 0}, ["w0"])
    assert sent == [("ts_grant", {"level": 0, "order": 1}, "w0")]
    assert crew.waiting == 1
    crew.report("w0", 2, 0)
    assert (crew.waiting, crew.workers["w0"].prompt) == (1, False)
    crew.report("w0", 1, 1)
    assert (crew.waiting, crew.workers["w0"].prompt) == (2, True)


def test_every_worker_counts_its_own_orders() -> None:
    """One to both, one to the second: it has two to answer."""
    crew, sent = a_crew(w0=1, w1=1)
    crew.order("ts_open", {})
    crew.order("ts_close", {}, ["w1"])
    assert [(message, data["order"], worker) for message, data, worker in sent] == [
        ("ts_open", 1, "w0"),
        ("ts_open", 1, "w1"),
        ("ts_close", 2, "w1"),
    ]


def test_who_has_not_answered_for_a_while_is_silent() -> None:
    """An order may have been lost; one that was answered, or has just been sent, is no reason to worry."""
    crew, _sent = a_crew(w0=1, w1=1)
    crew.order("ts_open", {})
    crew.report("w0", 1, 1)
    assert crew.silent(60.0) == []
    assert crew.silent(-1.0) == ["w1"]


def test_users_of_a_level_are_those_that_waited_when_it_began() -> None:
    """They stay the same while sessions are under way."""
    crew, _ = a_crew(w0=2, w1=3)
    crew.begin()
    crew.order("ts_open", {})
    assert (crew.users, crew.waiting) == ({"w0": 2, "w1": 3}, 0)


def test_who_joins_during_a_level_takes_part_after_it() -> None:
    """Until then it gets no order and its users are not counted, but what it tells is kept."""
    crew, sent = a_crew(w0=2)
    crew.begin()
    crew.join("w1", 0.5, now=False, dealt=False)
    state = crew.report("w1", 1, 0)
    assert state is not None
    assert state.offset_s == 0.5
    crew.order("ts_close", {})
    assert [worker for _, _, worker in sent] == ["w0"]
    assert (list(crew.workers), crew.users) == (["w0"], {"w0": 2})
    crew.admit()
    assert (list(crew.workers), crew.waiting) == (["w0", "w1"], 1)
    crew.admit()
    assert list(crew.workers) == ["w0", "w1"]


def test_who_leaves_is_not_known_any_more() -> None:
    """Its reports have no place to go, and it cannot leave twice."""
    crew, _ = a_crew(w0=2, w1=1)
    crew.begin()
    gone = crew.leave("w1")
    assert gone is not None
    assert (gone.name, gone.users) == ("w1", 1)
    assert (crew.users, crew.waiting) == ({"w0": 2}, 2)
    assert crew.report("w1", 1, 0) is None
    assert crew.leave("w1") is None
    assert crew.report("stranger", 1, 0) is None


def test_one_that_comes_back_during_a_level_begins_anew() -> None:
    """It has no orders to answer of those it got before, and takes part from the next level."""
    crew, _ = a_crew(w0=1, w1=1)
    crew.begin()
    crew.order("ts_open", {})
    crew.leave("w1")
    crew.join("w1", 0.0, now=False, dealt=False)
    state = crew.report("w1", 1, 0)
    assert state is not None
    assert (state.waiting, state.orders, state.users) == (1, 0, 0)
    assert "w1" not in crew.workers


def test_newcomers_are_settled_with_an_even_part() -> None:
    """Seven users on three workers: at least two for the newcomer, which may still wait elsewhere; who has been there
    may have any number."""
    crew, _ = a_crew(w0=6, w1=1)
    assert crew.settled
    crew.join("w2", 0.0, now=True, dealt=False)
    assert not crew.settled
    crew.report("w0", 5, 0)
    crew.report("w2", 1, 0)
    assert not crew.settled
    crew.report("w0", 4, 0)
    crew.report("w2", 2, 0)
    assert crew.settled
    crew.begin()
    crew.report("w2", 0, 0)
    assert crew.settled


def test_one_user_settles_any_number_of_newcomers() -> None:
    """There is nothing to deal to the others."""
    crew, _ = a_crew(w0=1)
    crew.join("w1", 0.0, now=True, dealt=False)
    assert crew.settled


def test_changes_tell_that_users_are_to_be_dealt_anew() -> None:
    """Each time that somebody comes without users or goes; not when one comes that has its part, or nobody goes."""
    crew, _ = a_crew(w0=1)
    assert crew.changes == 0
    crew.join("w1", 0.0, now=True, dealt=False)
    crew.join("w2", 0.0, now=False, dealt=False)
    assert crew.changes == 2
    crew.leave("w2")
    crew.leave("w1")
    crew.leave("w1")
    assert crew.changes == 4
