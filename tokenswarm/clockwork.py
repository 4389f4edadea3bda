"""Sends the arrivals of a level by the clock to the workers, window by window, and knows what became of them."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import gevent
import msgspec

from tokenswarm.crew import Crew
from tokenswarm.schedule import Level
from tokenswarm.timetable import Arrival, Timetable

LEAD_S = 0.5  # from the beginning of the level to its first moment: the first arrivals must reach the workers
WINDOW_S = 1.5  # handed out so far ahead
HAND_OUT_S = 0.5  # between two looks; a worker that dies takes no more than the two together with it
MARGIN_S = 0.25  # what is due sooner cannot be handed to another worker in time


class Clockwork:
    """One level. All times are seconds from its beginning, ``began_s`` on the master's monotonic clock."""

    def __init__(self, level: Level, timetable: Timetable, crew: Crew, *, on_end: Callable[[], None]) -> None:
        """``on_end``: every arrival was handed out and the last one is due."""
        self.level = level
        self.timetable = timetable
        self.began_s = perf_counter() + LEAD_S
        self._crew = crew
        self._on_end = on_end
        self._stopped = False
        self._greenlet = gevent.spawn(self._hand_out_for_ever)

    @property
    def now_s(self) -> float:
        return perf_counter() - self.began_s

    @property
    def measured_started_s(self) -> float | None:
        """When the measured time begins, on the master's clock; None before."""
        begins_s = self.began_s + self.level.warmup_s
        return begins_s if perf_counter() >= begins_s else None

    def leave(self, worker: str) -> int:
        """``worker`` is gone. Returns how many measured arrivals went with it."""
        lost = self.timetable.lost
        others = {} if self._stopped else self._crew.users
        self._send(self.timetable.take_back(worker, self.now_s + MARGIN_S, others))
        return self.timetable.lost - lost

    def stop(self) -> None:
        """No further arrivals."""
        self._stopped = True
        if self._greenlet is not gevent.getcurrent():
            self._greenlet.kill(block=False)

    def _hand_out_for_ever(self) -> None:
        while not self.timetable.exhausted:
            self._send(self.timetable.hand_out(self.now_s + WINDOW_S, self._takers()))
            gevent.sleep(HAND_OUT_S)
        rest_s = max(self.timetable.last_s, self._end_s) - self.now_s
        gevent.sleep(max(0.0, rest_s))
        self._on_end()

    @property
    def _end_s(self) -> float:
        return self.level.arrivals.length_s if self.level.arrivals is not None else 0.0

    def _takers(self) -> dict[str, int]:
        """Users of the workers that have answered what was ordered before; of all where none has."""
        users = self._crew.users
        prompt = {name: number for name, number in users.items() if self._crew.workers[name].prompt}
        return prompt if any(prompt.values()) else users

    def _send(self, dealt: dict[str, list[Arrival]]) -> None:
        for worker, arrivals in dealt.items():
            state = self._crew.workers.get(worker)
            to_theirs_s = self.began_s - (0.0 if state is None else state.offset_s)
            tickets = [self._told(arrival, to_theirs_s) for arrival in arrivals]
            self._crew.order("ts_due", {"level": self.level.index, "tickets": tickets}, [worker])

    @staticmethod
    def _told(arrival: Arrival, to_theirs_s: float) -> list[Any]:
        recorded = None if arrival.recorded is None else msgspec.to_builtins(arrival.recorded)
        return [arrival.phase, arrival.number, arrival.at_s + to_theirs_s, recorded, arrival.again]
