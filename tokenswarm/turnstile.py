"""Lets sessions in at their times: a little before so that a user can get ready, and for good when they are due."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter

import gevent
import gevent.event

from tokenswarm.alarm import Alarm
from tokenswarm.schedule import Ticket

LEAD_S = 0.05  # a user makes the prompt in this time


class Turnstile:
    """Calls ``admit`` with each ticket ``LEAD_S`` before it is due, and ``refuse`` when it is due."""

    def __init__(self, admit: Callable[[Ticket], None], refuse: Callable[[Ticket], None]) -> None:
        self._admit = admit
        self._refuse = refuse
        self._coming: deque[Ticket] = deque()
        self._admitted: deque[Ticket] = deque()  # not due yet
        self._waiting: dict[int, gevent.event.Event] = {}  # users that are ready, by the number of their ticket
        self._alarm = Alarm()
        self._greenlet: gevent.Greenlet | None = None

    def add(self, tickets: Iterable[Ticket]) -> None:
        """Some may be due before those that are here already: another worker has left them behind."""
        self._coming = deque(sorted((*self._coming, *tickets), key=_due))
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._turn_for_ever)
        self._alarm.set(0.0)

    def wait(self, ticket: Ticket) -> None:
        """Until it is due."""
        if _due(ticket) <= perf_counter():
            return
        event = self._waiting[ticket.number] = gevent.event.Event()
        try:
            event.wait()
        finally:
            self._waiting.pop(ticket.number, None)

    def close(self) -> None:
        """Nobody comes any more."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
        self._alarm.close()

    def clear(self) -> list[Ticket]:
        """Those that were not admitted yet; they will not be."""
        rest = list(self._coming)
        self._coming.clear()
        return rest

    def _turn_for_ever(self) -> None:
        while True:
            self._alarm.set(self._turn(perf_counter()))
            self._alarm.wait()

    def _turn(self, now_s: float) -> float | None:
        """Do what is due; returns when there will be something to do."""
        while self._coming and _due(self._coming[0]) - LEAD_S <= now_s:
            ticket = self._coming.popleft()
            insort(self._admitted, ticket, key=_due)
            self._admit(ticket)
        while self._admitted and _due(self._admitted[0]) <= now_s:
            ticket = self._admitted.popleft()
            if ticket.number in self._waiting:
                self._waiting[ticket.number].set()
            else:
                self._refuse(ticket)
        times_s = [_due(self._coming[0]) - LEAD_S] if self._coming else []
        times_s += [_due(self._admitted[0])] if self._admitted else []
        return min(times_s, default=None)


def _due(ticket: Ticket) -> float:
    assert ticket.due_s is not None, "a ticket with a time of its own"
    return ticket.due_s
