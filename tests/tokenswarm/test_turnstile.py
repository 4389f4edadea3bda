"""The turnstile: tickets are let in a little before their time, users wait for it to the moment, nobody is early."""

from __future__ import annotations

from time import perf_counter

import gevent
import pytest

from tokenswarm.alarm import Alarm
from tokenswarm.records import Phase
from tokenswarm.schedule import Ticket
from tokenswarm.turnstile import LEAD_S, Turnstile


def due(number: int, due_s: float) -> Ticket:
    return Ticket(None, Phase.MEASURED, number, 0.0, due_s=due_s)


class Log:
    """What a turnstile does, and when."""

    def __init__(self) -> None:
        self.admitted: dict[int, float] = {}
        self.refused: dict[int, float] = {}
        self.turnstile = Turnstile(self._admit, self._refuse)

    def _admit(self, ticket: Ticket) -> None:
        self.admitted[ticket.number] = perf_counter()

    def _refuse(self, ticket: Ticket) -> None:
        self.refused[ticket.number] = perf_counter()


def test_tickets_are_admitted_ahead_and_refused_when_they_are_due() -> None:
    """By hand, at moments that are told: due at 10 s, let in at 10 s less the lead, refused at 10 s as nobody waits."""
    log = Log()
    turnstile = log.turnstile
    turnstile._coming.extend([due(0, 10.0), due(1, 10.0), due(2, 20.0)])
    assert turnstile._turn(9.9) == pytest.approx(10.0 - LEAD_S)
    assert list(log.admitted) == []
    assert turnstile._turn(10.0 - LEAD_S) == 10.0
    assert (list(log.admitted), list(log.refused)) == ([0, 1], [])
    assert turnstile._turn(10.0) == pytest.approx(20.0 - LEAD_S)
    assert list(log.refused) == [0, 1]
    assert turnstile._turn(20.0) is None
    assert (list(log.admitted), list(log.refused)) == ([0, 1, 2], [0, 1, 2])


def test_users_are_never_early_and_seldom_late() -> None:
    """Ten users wait for ten moments: each goes on at its own, never before, and is not refused."""
    log, went_on = Log(), dict[int, float]()
    tickets = [due(number, perf_counter() + 0.06 + 0.007 * number) for number in range(10)]

    def play(ticket: Ticket) -> None:
        log.turnstile.wait(ticket)
        went_on[ticket.number] = perf_counter()

    log.turnstile.add(tickets)
    with gevent.Timeout(5):
        gevent.joinall([gevent.spawn(play, ticket) for ticket in tickets])
    log.turnstile.close()
    late_s = sorted(went_on[ticket.number] - (ticket.due_s or 0.0) for ticket in tickets)
    assert late_s[0] >= 0.0
    assert late_s[5] < 0.1  # on a busy machine; microseconds otherwise
    assert log.refused == {}


def test_nobody_is_refused_before_its_time() -> None:
    """With the real clock: in at the lead, out at the time."""
    log, due_s = Log(), perf_counter() + LEAD_S + 0.03
    log.turnstile.add([due(0, due_s)])
    with gevent.Timeout(5):
        while not log.refused:
            gevent.sleep(0.002)
    log.turnstile.close()
    assert due_s - LEAD_S <= log.admitted[0] < due_s <= log.refused[0]


def test_who_comes_after_the_time_does_not_wait() -> None:
    """An arrival that had to wait for a user begins at once."""
    log = Log()
    with gevent.Timeout(1):
        log.turnstile.wait(due(0, perf_counter() - 1.0))


def test_tickets_that_come_late_and_early_ones_find_their_places() -> None:
    """What another worker left behind is due before what is here already: it is let in and due in its turn, even if
    others are admitted by then."""
    log = Log()
    turnstile, far_s = log.turnstile, perf_counter() + 1e6
    turnstile.add([due(0, far_s + 1.0), due(3, far_s + 4.0)])
    turnstile.add([due(1, far_s + 0.5), due(2, far_s + 2.0)])
    assert [ticket.number for ticket in turnstile.clear()] == [1, 0, 2, 3]
    turnstile._coming.append(due(0, 10.04))
    turnstile._turn(10.0)
    turnstile._coming.append(due(1, 10.02))
    assert turnstile._turn(10.0) == 10.02
    turnstile._turn(10.02)
    assert list(log.refused) == [1]
    turnstile._turn(10.04)
    assert list(log.refused) == [1, 0]
    turnstile.close()


def test_what_is_cleared_is_never_admitted() -> None:
    """The level ends: those to come are given back, once, in their order."""
    log, now_s = Log(), perf_counter()
    log.turnstile.add([due(0, now_s), due(1, now_s + 0.01), due(2, now_s + LEAD_S + 0.03)])
    assert [ticket.number for ticket in log.turnstile.clear()] == [0, 1, 2]
    assert log.turnstile.clear() == []
    gevent.sleep(LEAD_S + 0.05)
    assert (log.admitted, log.refused) == ({}, {})
    log.turnstile.add([due(3, perf_counter())])
    gevent.sleep(0.001)
    assert list(log.admitted) == [3], "the next level uses it again"
    log.turnstile.close()


def test_a_closed_turnstile_lets_nobody_in() -> None:
    """The run is over; closing one that was never used does no harm either."""
    log = Log()
    log.turnstile.add([due(0, perf_counter() + LEAD_S + 0.1)])
    gevent.sleep(0.001)
    log.turnstile.close()
    gevent.sleep(0.15)
    assert log.admitted == {}
    Log().turnstile.close()


def test_a_user_that_is_cut_while_it_waits_is_forgotten() -> None:
    """When its time comes nobody is there."""
    log, due_s = Log(), perf_counter() + 0.2
    log.turnstile.add([due(0, due_s)])
    user = gevent.spawn(log.turnstile.wait, due(0, due_s))
    gevent.sleep(0.001)
    user.kill()
    with gevent.Timeout(5):
        while not log.refused:
            gevent.sleep(0.01)
    assert list(log.refused) == [0]
    log.turnstile.close()


# the alarm --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timer", ["of the kernel", "of the event loop"])
def test_an_alarm_rings_at_its_moment_and_can_be_set_anew(timer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never early; a later or an earlier moment that is set meanwhile is the one that counts."""
    if timer == "of the event loop":
        monkeypatch.setattr("tokenswarm.alarm.sys.platform", "darwin")
    alarm, rung = Alarm(), list[float]()

    def listen() -> None:
        alarm.wait()
        rung.append(perf_counter())

    for first_s, then_s in ((0.02, None), (0.02, 0.05), (60.0, 0.02), (None, 0.02), (0.02, -5.0)):
        now_s = perf_counter()
        alarm.set(None if first_s is None else now_s + first_s)
        listener = gevent.spawn(listen)
        gevent.sleep(0)
        if then_s is not None:
            alarm.set(now_s + then_s)
        with gevent.Timeout(5):
            listener.join()
        wanted_s = first_s if then_s is None else then_s
        assert wanted_s is not None
        assert rung[-1] - now_s >= wanted_s
        assert rung[-1] - now_s < max(0.0, wanted_s) + 0.5
    alarm.close()
    alarm.close()
