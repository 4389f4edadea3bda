"""Where the users of one process wait for tickets. Knows what the controller allows, and nothing of HTTP."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

import gevent
import gevent.event

from tokenswarm.quotas import Seats
from tokenswarm.records import Phase, RequestRecord
from tokenswarm.schedule import Level, Ticket, own_tickets

FORESEEN = 32  # own sessions that are told ahead of their use
FREE = -1  # stands for the level of a free-running session in reports

Facts = tuple[bool, bool, float, float | None, float | None, float, int | None]
Done = tuple[int, str, bool, list[Facts]]  # level, phase of the ticket, played to its end, facts of its requests


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

    def __init__(self, levels: Sequence[Level], worker_index: int) -> None:
        self._levels = levels
        self._granted: deque[tuple[Level, Phase, int]] = deque()
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
        self.on_expect: Callable[[Sequence[Ticket]], None] | None = None  # these tickets will be taken soon
        self.on_forget: Callable[[], None] = lambda: None  # those that were told will not be taken
        self._foreseen: deque[int] = deque()  # own numbers, told and not yet taken

    # the controller's orders --------------------------------------------------------

    def grant(self, level: int, phase: Phase, numbers: range) -> None:
        """Numbered tickets for this process alone."""
        self._late_after_s = None
        chosen = self._levels[level]
        self._granted.extend((chosen, phase, number) for number in numbers)
        self._expect(chosen, phase, numbers)
        self._wake(len(numbers))

    def open(self, level: int | None, phase: Phase, quotas: Sequence[int] = ()) -> None:
        """From now on every free user starts an own session in ``phase``; ``level`` None is free-running.

        ``quotas``: how many users of this process play each traffic class, where that is fixed.
        """
        self._late_after_s = None
        chosen = None if level is None else self._levels[level]
        if self._endless is None or self._endless[0] is not chosen:
            self._seats = Seats(self._worker_index, quotas) if quotas else None
        if self._endless != (chosen, phase):
            self._forget()  # they were told for another level or phase
        self._endless = (chosen, phase)
        self._wake(len(self._waiting))

    def close(self, *, late_is_drain: bool) -> None:
        """No new sessions. With ``late_is_drain`` what ends from now on no longer counts as measured."""
        self._endless = None
        self._granted.clear()
        self._foreseen.clear()
        self.on_forget()
        if late_is_drain:
            self._late_after_s = perf_counter()
        self.on_change()

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
        while True:
            if self._granted:
                level, phase, number = self._granted.popleft()
                break
            if self._endless is not None and (own := self._own_number()) is not None:
                (level_or_none, phase), number = self._endless, own
                level = level_or_none  # type: ignore[assignment]
                break
            self._wait()
            free_since_s = perf_counter()
        ticket = Ticket(level, phase, number, free_since_s)
        self._sessions[gevent.getcurrent()] = ticket
        return ticket

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
            self._expect(level, phase, seats.ahead(FORESEEN))

    def _foresee(self) -> None:
        """Tell the numbers that come next, some ahead of their use."""
        assert self._endless is not None
        level, phase = self._endless
        while len(self._foreseen) < FORESEEN:
            number = next(self._own)
            self._foreseen.append(number)
            self._expect(level, phase, [number])

    def _expect(self, level: Level | None, phase: Phase, numbers: Iterable[int]) -> None:
        if self.on_expect is not None:
            self.on_expect([Ticket(level, phase, number, 0.0) for number in numbers])

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
        try:
            turn.get()
        finally:
            if turn in self._waiting:  # killed while waiting
                self._waiting.remove(turn)
                self.on_change()

    def _wake(self, count: int) -> None:
        for _ in range(min(count, len(self._waiting))):
            self._waiting.popleft().set(None)
        self.on_change()

    def phase_of(self, ticket: Ticket, finished_s: float, *, cut: bool) -> Phase:
        """The phase a request belongs to, now that its end is known."""
        late = self._late_after_s is not None and finished_s > self._late_after_s
        return Phase.DRAIN if cut or (late and ticket.phase == Phase.MEASURED) else ticket.phase

    def done(self, ticket: Ticket, facts: list[Facts], *, played: bool) -> None:
        """The session has ended, by itself (``played``) or cut, and its records are with the recorder."""
        self._sessions.pop(gevent.getcurrent(), None)
        level = FREE if ticket.level is None else ticket.level.index
        self._done.append((level, ticket.phase, played, facts))
        if self._seats is not None:
            self._seats.leave(ticket.number)
            self._wake(1)  # somebody who found no place, where this user does not come back
        self.on_change()

    # reporting --------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def in_session(self) -> int:
        return len(self._sessions)

    def take_done(self) -> list[Done]:
        """Sessions ended since the last call."""
        done, self._done = self._done, []
        return done

    def idle(self, greenlet: gevent.Greenlet | None) -> bool:
        return greenlet not in self._sessions
