"""When work is done: levels, tickets, and who may take which ticket. Pure: no clock, no socket, no Locust.

All load is tickets and one ticket is one session. The number of a ticket, together with the scenario's
seed, its level and its phase group, decides traffic class and prompt, so the work does not depend on which
worker or user happens to take it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from tokenswarm.arrivals import Arrivals
from tokenswarm.records import Phase
from tokenswarm.trace import TraceSession

FILL_BLOCK = 10_000_000  # ticket numbers reserved for each worker's own endless source


class Ending(StrEnum):
    """What became of a ticket."""

    PLAYED = "played"  # the session ended by itself
    CUT = "cut"  # it was ended from outside
    REFUSED = "refused"  # not sent: all users were busy when it was due
    WITHDRAWN = "withdrawn"  # not sent: the level ended before it was due


class Arms(StrEnum):
    """Which arms of a prefix-cache test the sessions of a level are in."""

    NONE = ""  # no test
    PAIRED = "paired"  # every session comes twice with the same text, once warm and once cold
    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True)
class Level:
    """One step of a run: ``concurrency`` users, then the next step. Times in seconds.

    Closed loop: either ``sessions`` (exactly so many measured sessions) or ``duration_s`` is set. By the clock:
    ``arrivals`` or ``replayed`` is set, and ``concurrency`` is the largest number of sessions at the same time.
    """

    index: int
    concurrency: int
    sessions: int | None = None
    warmup_sessions: int = 0
    duration_s: float | None = None
    warmup_s: float = 0.0
    tail: Literal["fill", "drain"] = "fill"
    time_limit_s: float = 3600.0
    drain_limit_s: float = 60.0
    label: str = ""  # "c=8"; one that comes again is "c=8 #2"
    arms: Arms = Arms.NONE
    quotas: tuple[int, ...] = ()  # users of each traffic class; empty where tickets are mixed by the weights
    arrivals: Arrivals | None = None  # open loop; the first warmup_s of it are not measured
    replayed: bool = False  # the sessions of a trace at their own times
    when_full: Literal["refuse", "wait"] = "refuse"  # by the clock: an arrival beyond ``concurrency`` sessions
    round: int | None = None  # levels of a round do the same work: blocks of interference, whole cold and warm levels

    @property
    def by_clock(self) -> bool:
        """Sessions arrive at times of their own, whatever the server does."""
        return self.arrivals is not None or self.replayed

    @property
    def rate_per_s(self) -> float | None:
        """Mean rate of arrivals in the measured time; None where the schedule does not tell."""
        if self.arrivals is None or not self.duration_s:
            return None
        return (self.arrivals.expected - self.warmup_s * self.arrivals.stretches[0].start_per_s) / self.duration_s


def level_labels(names: Iterable[str]) -> list[str]:
    """``["c=8", "c=8", "c=4"]`` gives ``["c=8", "c=8 #2", "c=4"]``: equal levels stay apart in every table."""
    seen: dict[str, int] = {}
    labels = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        labels.append(name + (f" #{seen[name]}" if seen[name] > 1 else ""))
    return labels


class Ticket(NamedTuple):
    """The right to play one session. ``taken_s``: monotonic seconds at which its user became free; ``due_s``: those at
    which its first request is to be sent, where the clock decides; ``recorded``: what a trace says of the session."""

    level: Level | None
    phase: Phase
    number: int
    taken_s: float
    due_s: float | None = None
    recorded: TraceSession | None = None
    again: int = 0  # how often a worker that is gone took it with it


def own_tickets(worker_index: int) -> range:
    """Numbers for the sessions a worker starts by itself (fill, free-running), never shared with another worker."""
    first = (worker_index + 1) * FILL_BLOCK
    return range(first, first + FILL_BLOCK)


@dataclass
class Ledger:
    """Hands out the tickets ``0 .. total-1`` of one phase of one level; each is played to its end exactly once.

    A worker holds at most one ticket a user, and one spare a user where ``spares`` is set. None of the last
    tickets, as many as there are users, is a spare: no worker may sit on the tail while another is idle.
    """

    total: int
    spares: bool = False
    done: int = 0
    again: Counter[int] = field(default_factory=Counter)  # how often a ticket was taken back
    _next: int = 0
    _returned: deque[int] = field(default_factory=deque)  # by workers that are gone; handed out again
    _held: dict[str, set[int]] = field(default_factory=dict)

    def grant(self, worker: str, users: int, all_users: int) -> list[int]:
        """The next tickets for ``worker``, which plays ``users`` of ``all_users`` users. May be empty."""
        left = self.total - self._next + len(self._returned)
        held = self._held.setdefault(worker, set())
        wanted = max(0, users - len(held))
        if self.spares:
            wanted += max(0, min(2 * users - len(held) - wanted, left - wanted - all_users))
        granted = [self._take() for _ in range(min(wanted, left))]
        held.update(granted)
        return granted

    def _take(self) -> int:
        if self._returned:
            return self._returned.popleft()
        self._next += 1
        return self._next - 1

    def finish(self, worker: str, number: int) -> None:
        """The session of ticket ``number`` has ended at ``worker``, and all its records are in."""
        try:
            self._held.get(worker, set()).remove(number)
        except KeyError:
            raise ValueError(f"worker {worker} finished session {number}, which it was never handed") from None
        self.done += 1

    def put_back(self, worker: str, number: int) -> None:
        """The session of ticket ``number`` was cut at ``worker``: it is to be handed out again."""
        self.finish(worker, number)
        self.done -= 1
        self._returned.append(number)
        self.again[number] += 1

    def take_back(self, worker: str) -> list[int]:
        """``worker`` is gone: the tickets that it holds are to be handed out again. Returns them."""
        held = sorted(self._held.pop(worker, ()))
        self._returned.extend(held)
        self.again.update(held)
        return held

    @property
    def exhausted(self) -> bool:
        """Nothing is left to hand out."""
        return self._next >= self.total and not self._returned

    @property
    def complete(self) -> bool:
        return self.done >= self.total


class Mix:
    """Which traffic class a ticket number belongs to.

    Every prefix of the sequence is as close to the weights as whole sessions allow (Sainte-Laguë's order), so
    the mix is right after a few tickets, at concurrency 1 and with any number of workers.
    """

    def __init__(self, weights: Iterable[float]) -> None:
        self._weights = list(weights)
        if not self._weights or min(self._weights) < 0 or sum(self._weights) <= 0:
            raise ValueError(f"weights {self._weights}: wanted numbers ≥ 0, at least one above 0")
        self._given = [0] * len(self._weights)
        self._sequence: list[int] = []
        self._ranks: list[int] = []

    def pick(self, number: int) -> int:
        """Index of the class of ticket ``number`` (from 0)."""
        if len(self._weights) == 1:
            return 0
        number %= FILL_BLOCK
        self._extend(number)
        return self._sequence[number]

    def rank(self, number: int) -> int:
        """How many of the tickets before ``number`` are of its class."""
        number %= FILL_BLOCK
        if len(self._weights) == 1:
            return number
        self._extend(number)
        return self._ranks[number]

    def count(self, index: int, tickets: int) -> int:
        """How many of the first ``tickets`` tickets are of class ``index``."""
        if len(self._weights) == 1:
            return tickets
        self._extend(tickets - 1)
        return self._sequence[:tickets].count(index)

    def _extend(self, number: int) -> None:
        while len(self._sequence) <= number:
            best = max(range(len(self._weights)), key=lambda i: self._weights[i] / (2 * self._given[i] + 1))
            self._ranks.append(self._given[best])
            self._given[best] += 1
            self._sequence.append(best)
