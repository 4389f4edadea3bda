"""The sessions of a level by the clock: which arrive when, which worker got them, what became of them.

The whole schedule is fixed by the seed, the level and its arrivals; workers get the part that is due next. So the union
of what they send is what was asked for, however many they are, and one that dies takes no more with it than it holds.
Pure: no clock, no socket, no Locust. Times are seconds from the beginning of the level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from tokenswarm.records import Phase
from tokenswarm.schedule import Level, Mix
from tokenswarm.trace import TraceSession


class Arrival(NamedTuple):
    """The session with this number arrives ``at_s``; ``again``: how often it was taken back from a worker."""

    number: int
    phase: Phase
    at_s: float
    recorded: TraceSession | None = None
    again: int = 0


def arrivals_of(level: Level, seed: int, trace: Iterable[TraceSession] = ()) -> Iterator[Arrival]:
    """All arrivals of a level in order; of a replayed one those of ``trace``."""
    if level.replayed:
        for number, session in enumerate(trace):
            yield Arrival(number, Phase.MEASURED, session.at_s, session)
    elif level.arrivals is not None:
        times_s = level.arrivals.times_s(Random(f"arrivals {seed}/{level.index}"))
        for number, at_s in enumerate(times_s):
            yield Arrival(number, Phase.WARMUP if at_s < level.warmup_s else Phase.MEASURED, at_s)


@dataclass
class Timetable:
    """Hands out the arrivals of one level, each to one worker."""

    arrivals: Iterator[Arrival]
    scheduled: int = 0  # measured ones handed out so far
    finished: int = 0  # of all phases
    lost: int = 0  # measured ones that a worker took with it
    given: int = 0
    last_s: float = 0.0
    _ahead: Arrival | None = None
    _held: dict[str, dict[int, Arrival]] = field(default_factory=dict)
    _mix: Mix | None = None
    _mixed: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        self._ahead = next(self.arrivals, None)

    def hand_out(self, until_s: float, users: Mapping[str, int]) -> dict[str, list[Arrival]]:
        """What is due before ``until_s``, dealt to the workers in proportion to their ``users``."""
        due = []
        while any(users.values()) and self._ahead is not None and self._ahead.at_s < until_s:
            due.append(self._ahead)
            self._ahead = next(self.arrivals, None)
        self.scheduled += sum(arrival.phase == Phase.MEASURED for arrival in due)
        return self._deal(due, users)

    def _deal(self, due: list[Arrival], users: Mapping[str, int]) -> dict[str, list[Arrival]]:
        dealt: dict[str, list[Arrival]] = {}
        if due:
            self.last_s = max(self.last_s, due[-1].at_s)
        for arrival in due:
            worker = self._next_worker(users)
            dealt.setdefault(worker, []).append(arrival)
            self._held.setdefault(worker, {})[arrival.number] = arrival
        return dealt

    def _next_worker(self, users: Mapping[str, int]) -> str:
        shares = tuple((worker, number) for worker, number in users.items() if number)
        if self._mix is None or shares != self._mixed:
            self._mix, self._mixed, self.given = Mix(number for _, number in shares), shares, 0
        place = self._mix.pick(self.given)
        self.given += 1
        return shares[place][0]

    def finish(self, worker: str, number: int, *, withdrawn: bool = False) -> None:
        """The session has ended at ``worker``, or was not admitted there, and its records are in; or it was withdrawn
        before its time because the level ends early."""
        arrival = self._held.get(worker, {}).pop(number, None)
        if arrival is None:
            raise ValueError(f"worker {worker} finished session {number}, which it was never handed")
        self.finished += not withdrawn
        self.scheduled -= withdrawn and arrival.phase == Phase.MEASURED

    def take_back(self, worker: str, from_s: float, users: Mapping[str, int]) -> dict[str, list[Arrival]]:
        """``worker`` is gone. What it holds and is due at ``from_s`` or later is dealt to ``users`` again; the rest,
        sessions under way and what was due meanwhile, is lost."""
        held = sorted(self._held.pop(worker, {}).values(), key=lambda arrival: arrival.at_s)
        again = [arrival._replace(again=arrival.again + 1) for arrival in held if arrival.at_s >= from_s]
        gone = [arrival for arrival in held if arrival.at_s < from_s]
        if not any(users.values()):
            again, gone = [], held
        self.lost += sum(arrival.phase == Phase.MEASURED for arrival in gone)
        return self._deal(again, users)

    @property
    def exhausted(self) -> bool:
        """Nothing is left to hand out."""
        return self._ahead is None

    @property
    def complete(self) -> bool:
        return self.exhausted and not any(self._held.values())

    def arrived(self, now_s: float) -> int:
        """Measured sessions that were scheduled up to now."""
        early = sum(
            arrival.at_s > now_s and arrival.phase == Phase.MEASURED
            for held in self._held.values()
            for arrival in held.values()
        )
        return self.scheduled - early

    def under_way(self, now_s: float) -> int:
        """Sessions that have arrived and not ended."""
        return sum(arrival.at_s <= now_s for held in self._held.values() for arrival in held.values())
