"""Where the users of one process wait for tickets. Knows what the controller allows, and nothing of HTTP."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

import gevent
import gevent.event

from tokenswarm.quotas import Seats
from tokenswarm.records import Phase, RequestRecord
from tokenswarm.schedule import Ending, Level, Ticket, own_tickets
from tokenswarm.turnstile import Turnstile

FORESEEN = 32  # own sessions that are told ahead of their use
FREE = -1  # stands for the level of a free-running session in reports

Facts = tuple[bool, bool, float, float | None, float | None, float, int | None]
Done = tuple[int, str, int, str, list[Facts]]  # level, phase of the ticket, number, how it ended, facts of its requests


class SessionCut(gevent.GreenletExit):  # type: ignore[misc]
    """Thrown into a user whose session must end now; the user itself goes on."""


def completion_facts(record: RequestRecord) -> Facts | None:
    """What the controller needs of one request: measured, ok, sent, first token, last token, finished (monotonic
    seconds of the worker), output tokens. ``None`` for one that was not sent.

    Warm-up counts too: one that is still under way when measuring begins adds tokens to the window."""
    if record.sent_s is None or record.finished_s is None:
        return None
    return (
        record.phase == Phase.MEASURED,
        record.ok,
        record.sent_s,
        record.first_token_s,
        record.last_token_s,
        record.finished_s,
        record.output_tokens,
    )


class Gate:
    """Tickets for the users of this process, handed out one by one."""

    def __init__(self, levels: Iterable[Level], worker_index: int) -> None:
        self._levels = {level.index: level for level in levels}
        self._granted: deque[Ticket] = deque()
        self._turnstile = Turnstile(self._admit, self._refuse)
        self._woken = 0  # users that have been called and have not come yet
        self._held = False
        self.level: Level | None = None  # of the last order
        self._worker_index = worker_index
        self._own = iter(own_tickets(worker_index))
        self._waiting: deque[gevent.event.AsyncResult[None]] = deque()
        self._sessions: dict[gevent.Greenlet, Ticket] = {}
        self._endless: tuple[Level | None, Phase] | None = None
        self._seats: Seats | None = None  # where users belong to classes
        self._late_after_s: float | None = None
        self._done: list[Done] = []
        self.orders = 0  # obeyed so far
        self.on_change: Callable[[], None] = lambda: None  # users wait, or sessions have ended
        self.on_idle: Callable[[], None] = lambda: None  # a user waits for a ticket that somebody must give
        self.on_expect: Callable[[Sequence[Ticket]], None] | None = None  # these tickets will be taken soon
        self.on_forget: Callable[[], None] = lambda: None  # those that were told will not be taken
        self.on_refuse: Callable[[Ticket], None] = lambda ticket: None  # as many sessions as users are under way
        self._foreseen: deque[int] = deque()  # own numbers, told and not yet taken

    # the controller's orders --------------------------------------------------------

    def learn(self, level: Level) -> None:
        """Tickets of this level may come."""
        self._levels[level.index] = level

    def grant(self, level: int, phase: Phase, tickets: Iterable[tuple[int, int]]) -> None:
        """Numbered tickets for this process alone, and how often each was taken back from another."""
        self._late_after_s = None
        chosen = self.level = self._levels[level]
        granted = [Ticket(chosen, phase, number, 0.0, again=again) for number, again in tickets]
        self._granted.extend(granted)
        self._expect(granted)
        self._wake(len(granted))

    def schedule(self, level: int, tickets: Iterable[Ticket]) -> None:
        """Sessions that arrive at times of their own, in order; the level of each is the one with this number."""
        self._late_after_s = None
        chosen = self.level = self._levels[level]
        arriving = [ticket._replace(level=chosen) for ticket in tickets]
        self._expect(arriving)
        self._turnstile.add(arriving)
        self.on_change()

    def _admit(self, ticket: Ticket) -> None:
        """It is due in a moment: whoever became free last gets ready, with a connection that is still open."""
        self._granted.append(ticket)
        self._wake(1, last=True)

    def _refuse(self, ticket: Ticket) -> None:
        """It is due, and nobody is free: unless it may wait, it is not admitted."""
        may_wait = ticket.level is not None and ticket.level.when_full == "wait"
        if may_wait or ticket not in self._granted or self._granted.index(ticket) < self._woken:
            return
        self._granted.remove(ticket)
        self._turn_away(ticket)

    def _turn_away(self, ticket: Ticket) -> None:
        """Its session will not be played; one whose time has not come was not scheduled after all."""
        early = _is_early(ticket)
        if not early:
            self.on_refuse(ticket)
        how = Ending.WITHDRAWN if early else Ending.REFUSED
        self._done.append((_index(ticket), ticket.phase, ticket.number, how, []))
        self.on_change()

    def open(self, level: int | None, phase: Phase, quotas: Sequence[int] = ()) -> None:
        """From now on every free user starts an own session in ``phase``; ``level`` None is free-running.

        ``quotas``: how many users of this process play each traffic class, where that is fixed.
        """
        self._late_after_s = None
        chosen = self.level = None if level is None else self._levels[level]
        if self._endless is None or self._endless[0] is not chosen:
            self._seats = Seats(self._worker_index, quotas) if quotas else None
        if self._endless != (chosen, phase):
            self._forget()  # they were told for another level or phase
        self._endless = (chosen, phase)
        self._wake(len(self._waiting))

    def close(self, *, late_is_drain: bool) -> None:
        """No new sessions. With ``late_is_drain`` what ends from now on no longer counts as measured."""
        self._endless = self.level = None
        for ticket in [*self._granted, *self._turnstile.clear()]:
            if ticket.due_s is not None:
                self._turn_away(ticket)
        self._granted.clear()
        self._foreseen.clear()
        self.on_forget()
        if late_is_drain:
            self._late_after_s = perf_counter()
        self.on_change()

    def hold(self, held: bool) -> None:
        """While held no session begins: what has been recorded does not get through to the master."""
        self._held = held
        if not held:
            self._wake(len(self._waiting))

    def cut(self) -> None:
        """End every session in flight now; its request under way becomes a ``cancelled`` row."""
        run_callback = gevent.get_hub().loop.run_callback
        for greenlet in list(self._sessions):
            run_callback(greenlet.throw, SessionCut)  # Greenlet.kill would make Locust forget this user
        self.on_change()

    # the user's side ------------------------------------------------------------------

    def take(self) -> Ticket:
        """The next ticket; blocks while there is none."""
        free_since_s = perf_counter()
        while (ticket := self._next()) is None:
            self._wait()
            free_since_s = perf_counter()
        ticket = ticket._replace(taken_s=free_since_s)
        self._sessions[gevent.getcurrent()] = ticket
        return ticket

    def wait_until_due(self, ticket: Ticket) -> None:
        """Where the session has a time of its own."""
        if ticket.due_s is not None:
            self._turnstile.wait(ticket)

    def leave(self) -> None:
        """The run is over."""
        self._turnstile.close()

    def _next(self) -> Ticket | None:
        if self._held:
            return None
        if self._granted:
            return self._granted.popleft()
        if self._endless is not None and (own := self._own_number()) is not None:
            level, phase = self._endless
            return Ticket(level, phase, own, 0.0)
        return None

    def _own_number(self) -> int | None:
        """Of a session that this process starts by itself; None where every class has its users."""
        if self._seats is not None:
            self._foresee_seats(self._seats)
            return self._seats.take()
        if self.on_expect is None:
            return next(self._own)
        self._foresee()
        return self._foreseen.popleft()

    def _foresee_seats(self, seats: Seats) -> None:
        if self.on_expect is not None and self._endless is not None:
            level, phase = self._endless
            self._expect([Ticket(level, phase, number, 0.0) for number in seats.ahead(FORESEEN)])

    def _foresee(self) -> None:
        """Tell the numbers that come next, some ahead of their use."""
        assert self._endless is not None
        level, phase = self._endless
        while len(self._foreseen) < FORESEEN:
            number = next(self._own)
            self._foreseen.append(number)
            self._expect([Ticket(level, phase, number, 0.0)])

    def _expect(self, tickets: Sequence[Ticket]) -> None:
        if self.on_expect is not None:
            self.on_expect(tickets)

    def _forget(self) -> None:
        """Own sessions that were told and will not be played; where there are some, no granted ones wait."""
        if self._seats is not None:
            self._seats.forget()
        if self._foreseen or self._seats is not None:
            self._foreseen.clear()
            self.on_forget()

    def _wait(self) -> None:
        turn: gevent.event.AsyncResult[None] = gevent.event.AsyncResult()
        self._waiting.append(turn)
        self.on_change()
        if self.level is None or not self.level.by_clock:
            self.on_idle()
        try:
            turn.get()
        finally:
            if turn in self._waiting:  # killed while waiting
                self._waiting.remove(turn)
                self.on_change()
            else:
                self._woken -= 1

    def _wake(self, count: int, *, last: bool = False) -> None:
        for _ in range(min(count, len(self._waiting))):
            self._woken += 1
            (self._waiting.pop() if last else self._waiting.popleft()).set(None)
        self.on_change()

    def phase_of(self, ticket: Ticket, finished_s: float, *, cut: bool) -> Phase:
        """The phase a request belongs to, now that its end is known."""
        if ticket.level is not None and ticket.level.by_clock:
            return ticket.phase  # what has arrived counts, to its end or to the limit
        late = self._late_after_s is not None and finished_s > self._late_after_s
        return Phase.DRAIN if cut or (late and ticket.phase == Phase.MEASURED) else ticket.phase

    def done(self, ticket: Ticket, facts: list[Facts], *, played: bool) -> None:
        """The session has ended, by itself (``played``) or cut, and its records are with the recorder."""
        self._sessions.pop(gevent.getcurrent(), None)
        how = Ending.PLAYED if played else Ending.WITHDRAWN if _is_early(ticket) else Ending.CUT
        self._done.append((_index(ticket), ticket.phase, ticket.number, how, facts))
        if self._seats is not None:
            self._seats.leave(ticket.number)
            self._wake(1)  # somebody who found no place, where this user does not come back
        self.on_change()

    # reporting --------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def level_index(self) -> int | None:
        """Of the level that is being played; None between levels, and where there are none."""
        return self.level.index if self.level is not None else None

    @property
    def in_session(self) -> int:
        return len(self._sessions)

    def take_done(self) -> list[Done]:
        """Sessions ended since the last call."""
        done, self._done = self._done, []
        return done

    def idle(self, greenlet: gevent.Greenlet | None) -> bool:
        return greenlet not in self._sessions


def _is_early(ticket: Ticket) -> bool:
    return ticket.due_s is not None and perf_counter() < ticket.due_s


def _index(ticket: Ticket) -> int:
    return FREE if ticket.level is None else ticket.level.index
