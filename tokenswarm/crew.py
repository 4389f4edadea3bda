"""The workers of a run as its controller sees them: who is there, who waits, what was ordered of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

Send = Callable[[str, dict[str, Any], str], None]  # (message, data, worker)


@dataclass
class WorkerState:
    """What the master knows of one load-generating process."""

    name: str
    waiting: int = 0  # users without a session, as far as known since the last order
    orders: int = 0  # sent to it; a report that has not seen them all tells nothing of who waits now
    answered: int = 0  # the last order that it is known to have obeyed
    ordered_s: float = 0.0  # when the last one was sent
    users: int = 0  # that it had when the level under way began
    dealt: bool = True  # it is known to have had its part of the users
    offset_s: float = 0.0  # to add to its monotonic seconds to get the master's

    @property
    def prompt(self) -> bool:
        """It has answered everything so far."""
        return self.answered == self.orders


class Crew:
    """Workers take part in a level from its beginning; who joins later is used from the next one."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.workers: dict[str, WorkerState] = {}
        self._next: dict[str, WorkerState] = {}
        self.changes = 0  # how often somebody came or went: users must then be dealt anew

    def join(self, worker: str, offset_s: float, *, now: bool, dealt: bool) -> None:
        """``now``: no level is under way; ``dealt``: it has its part of the users already."""
        state = WorkerState(worker, dealt=dealt, offset_s=offset_s)
        self.changes += not dealt
        if now:
            self.workers[worker] = state
        else:
            self._next[worker] = state

    def leave(self, worker: str) -> WorkerState | None:
        """What was known of it; None where it did not take part."""
        came_later = self._next.pop(worker, None)
        state = self.workers.pop(worker, None)
        self.changes += state is not None or came_later is not None
        return state

    def admit(self) -> bool:
        """Those who joined during the last level take part from now on. False where there are none."""
        came, self._next = self._next, {}
        self.workers |= came
        return bool(came)

    def find(self, worker: str) -> WorkerState | None:
        return self.workers.get(worker) or self._next.get(worker)

    def report(self, worker: str, waiting: int, order: int) -> WorkerState | None:
        """None where the worker does not take part, or not any more."""
        state = self.find(worker)
        if state is not None:
            state.answered = order
            if order == state.orders:
                state.waiting = waiting
        return state

    def order(self, message: str, data: dict[str, Any], workers: Iterable[str] | None = None) -> None:
        """Send to some workers, or to all. Who waits there is unknown until they have answered."""
        for name in list(self.workers if workers is None else workers):
            state = self.workers.get(name)
            if state is None:  # gone while others were written to
                continue
            state.orders += 1
            state.ordered_s = perf_counter()
            state.waiting = 0
            self._send(message, {**data, "order": state.orders}, name)

    def silent(self, seconds: float) -> list[str]:
        """Those that have not answered the last order for so long: it may have been lost."""
        before_s = perf_counter() - seconds
        return [state.name for state in self.workers.values() if not state.prompt and state.ordered_s < before_s]

    def begin(self) -> None:
        """A level begins: all users wait."""
        for state in self.workers.values():
            state.users, state.dealt = state.waiting, True

    @property
    def waiting(self) -> int:
        return sum(state.waiting for state in self.workers.values())

    @property
    def settled(self) -> bool:
        """Whether newcomers have their part, which is an even one: Locust says that users are dealt as soon as it has
        sent the orders, and those that are still to be moved wait meanwhile where they were."""
        part = self.waiting // max(1, len(self.workers))
        return all(state.dealt or state.waiting >= part for state in self.workers.values())

    @property
    def users(self) -> dict[str, int]:
        """Of each worker in the level under way."""
        return {state.name: state.users for state in self.workers.values()}
