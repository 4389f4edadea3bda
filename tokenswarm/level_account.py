"""What has come of the level under way: its sessions, its state with the reasons, and its row of ``levels.csv``."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from tokenswarm.clockwork import Clockwork
from tokenswarm.levelfacts import LevelFacts
from tokenswarm.records import Phase
from tokenswarm.schedule import Ending, Ledger, Level


@dataclass
class LevelAccount:
    """Times are seconds of the master's monotonic clock."""

    level: Level
    facts: LevelFacts = field(default_factory=LevelFacts)
    ledger: Ledger = field(default_factory=lambda: Ledger(0))  # of the phase under way
    clockwork: Clockwork | None = None  # of a level by the clock
    phase: Phase = Phase.WARMUP
    started_s: float | None = None
    state: str = "complete"
    reasons: list[str] = field(default_factory=list)
    not_admitted: int = 0
    _measured_started_s: float | None = None
    _cut_short: int = 0  # sessions that were stopped, and not by us

    def measure(self) -> None:
        """The measured sessions of a closed loop begin."""
        self.phase, self._measured_started_s = Phase.MEASURED, perf_counter()

    @property
    def measured_started_s(self) -> float | None:
        """None before."""
        return self._measured_started_s if self.clockwork is None else self.clockwork.measured_started_s

    def session_ended(self, worker: str, phase: str, number: int, how: str, *, running: bool) -> None:
        """``how``: an ``Ending``. ``running``: before the level drains, when nobody should cut a session."""
        if self.clockwork is not None:
            self.not_admitted += how == Ending.REFUSED and phase == Phase.MEASURED
            self.clockwork.timetable.finish(worker, number, withdrawn=how == Ending.WITHDRAWN)
            return
        if phase != self.phase or self.level.duration_s is not None:
            return
        if how == Ending.CUT and running:
            self._cut_short += phase == Phase.MEASURED
            self.ledger.put_back(worker, number)
        else:
            self.ledger.finish(worker, number)

    def worker_gone(self, worker: str, why: str) -> None:
        """Its sessions are others' from now on, or lost."""
        what = ""
        if self.clockwork is not None:
            lost = self.clockwork.leave(worker)
            what = f"{lost} arrivals lost" if lost else ""
        elif self.level.duration_s is None:
            again = len(self.ledger.take_back(worker))
            what = f"its {again} sessions were given to others" if again else ""
        self.doubt(f"{why}, {perf_counter() - (self.started_s or 0.0):.1f} s into the level", what)

    def doubt(self, *reasons: str) -> None:
        """The level is partial, unless something else has ended it."""
        if self.state == "complete":
            self.state = "partial"
        self.reasons += [reason for reason in reasons if reason]

    def end_as(self, state: str, reason: str) -> None:
        self.state = state
        self.reasons.append(reason)

    def row(self) -> dict[str, Any]:
        """As ``levels.csv`` has it."""
        level, state, reasons = self.level, self.state, self.reasons
        if self._cut_short:
            state = "partial" if state == "complete" else state
            reasons = [*reasons, f"{self._cut_short} sessions were cut with their users, and played again by others"]
        return {
            "level": level.index,
            "concurrency": None if level.by_clock else level.concurrency,
            "label": level.label,
            "arms": level.arms,
            "state": state,
            "reason": "; ".join(reasons),
            "started_s": self.started_s,
            "measured_started_s": self.measured_started_s,
            "measured_ended_s": self.facts.measured_to_s if self.facts.measured_requests else None,
            "ended_s": perf_counter(),
            "planned_sessions": level.sessions,
            "measured_sessions": self._measured_sessions(),
            **self._by_clock(),
        }

    def _measured_sessions(self) -> int | None:
        if self.level.sessions is None:
            return None
        return self.ledger.done if self.phase == Phase.MEASURED else 0

    def _by_clock(self) -> dict[str, Any]:
        if self.clockwork is None:
            return {}
        timetable, rate_per_s = self.clockwork.timetable, self.level.rate_per_s
        if rate_per_s is None and timetable.last_s:
            rate_per_s = timetable.scheduled / timetable.last_s
        return {
            "rate_per_s": rate_per_s,
            "scheduled": timetable.arrived(self.clockwork.now_s),
            "not_admitted": self.not_admitted,
            "lost": timetable.lost,
        }
