"""The master's side of a run: levels, tickets, completion.

A level goes through ``spawn`` (until exactly its users wait) → ``begin`` → ``warmup`` → ``measure`` → ``drain`` (until
every session has ended) → ``end`` and is then closed. What completes a level is that all its sessions and their
records are in; a timer only ends a level that cannot finish.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import gevent
import gevent.event

from tokenswarm.levelfacts import LevelFacts
from tokenswarm.quotas import shares_of
from tokenswarm.records import Phase
from tokenswarm.schedule import Ledger, Level

log = logging.getLogger(__name__)

SPAWN_LIMIT_S = 120.0

Send = Callable[[str, dict[str, Any], str], None]  # (message, data, worker)


@dataclass
class WorkerState:
    """What the master knows of one load-generating process."""

    name: str
    waiting: int = 0  # users without a session, as far as known since the last order
    orders: int = 0  # sent to it; a report that has not seen them all tells nothing of who waits now
    offset_s: float = 0.0  # to add to its monotonic seconds to get the master's


class Controller:
    """Drives the levels of one closed-loop run over any number of workers."""

    def __init__(
        self,
        levels: Sequence[Level],
        send: Send,
        on_level_end: Callable[[dict[str, Any], Level, LevelFacts], None],
        on_level_begin: Callable[[Level], None] = lambda level: None,
    ) -> None:
        """Both callbacks may take their time: nothing is in flight, and the level waits for them."""
        self.levels = levels
        self.position = 0
        self.stage = "spawn"
        self.workers: dict[str, WorkerState] = {}
        self.facts = LevelFacts()
        self.ledger = Ledger(0)
        self.finished = False
        self._send = send
        self._on_level_end = on_level_end
        self._on_level_begin = on_level_begin
        self._changed = gevent.event.Event()
        self._timers: list[gevent.Greenlet] = []
        self._started_s: float | None = None
        self.measured_started_s: float | None = None
        self._state, self._reason = "complete", ""
        self._phase = Phase.WARMUP
        self._users: dict[str, int] = {}
        self._filling = False
        self._lost = 0
        self._expect_users()

    # what Locust's shape asks for -------------------------------------------------

    @property
    def level(self) -> Level:
        return self.levels[self.position]

    def target(self) -> tuple[int, float] | None:
        """Users and spawn rate wanted now; ``None`` when the run is over."""
        return None if self.finished else (self.level.concurrency, float(self.level.concurrency))

    def wait_for_change(self) -> None:
        """Block until the level has changed or the run is over."""
        self._changed.wait()
        self._changed.clear()

    # what workers report ----------------------------------------------------------

    def join(self, worker: str, offset_s: float = 0.0) -> None:
        self.workers[worker] = WorkerState(worker, offset_s=offset_s)

    def report(
        self, worker: str, waiting: int, done: Sequence[tuple[int, str, bool, Sequence[Sequence[Any]]]], order: int
    ) -> None:
        """``worker`` has ``waiting`` idle users after obeying ``order`` orders; ``done`` lists the sessions that
        have ended since its last report: level, phase of the ticket, whether it was played to its end, facts of
        its requests. Their records must be in already."""
        state = self.workers[worker]
        if order == state.orders:
            state.waiting = waiting
        for level, phase, played, requests in done:
            if level != self.position:
                continue
            if not played and self.stage in ("warmup", "measure"):
                self._lose(phase)
            for facts in requests:
                self.facts.add(facts, state.offset_s)
            if phase == self._phase and self.level.duration_s is None:
                self.ledger.finish(worker, 1)
        self._advance()

    def _lose(self, phase: str) -> None:
        """A session was stopped, and not by us: Locust moves users when a worker joins or leaves."""
        if phase == Phase.MEASURED:
            self._lost += 1
            self._state = "partial"
            self._reason = f"{self._lost} sessions lost: their users were stopped by Locust (a worker joined or left)"

    def _advance(self) -> None:
        if self.finished:
            return
        match self.stage:
            case "spawn" if self._all_idle():
                self._begin_level()
            case "warmup" | "measure" if self.level.duration_s is None:
                if self.ledger.complete:
                    self._next_phase()
                else:
                    self._hand_out()
            case "drain" if self._all_idle():
                self._end_level()
            case _:
                pass

    def _all_idle(self) -> bool:
        return sum(worker.waiting for worker in self.workers.values()) == self.level.concurrency

    def _order(self, message: str, data: dict[str, Any], workers: Iterable[str] | None = None) -> None:
        """Send to some workers, or to all. Who waits there is unknown until they have answered."""
        for name in self.workers if workers is None else workers:
            state = self.workers[name]
            state.orders += 1
            state.waiting = 0
            self._send(message, {**data, "order": state.orders}, name)

    # a level ----------------------------------------------------------------------

    def _begin_level(self) -> None:
        level = self.level
        self._cancel_timers()
        self.stage = "begin"  # reports that arrive meanwhile must not begin it again
        self._on_level_begin(level)
        if self.finished:  # stopped meanwhile
            return
        self.facts = LevelFacts()
        self._users = {worker.name: worker.waiting for worker in self.workers.values()}
        self._filling = False
        self._lost = 0
        self._started_s = perf_counter()
        self.measured_started_s = None
        self._state, self._reason = "complete", ""
        self.stage, self._phase = "warmup", Phase.WARMUP
        if level.duration_s is None:
            self._after(level.time_limit_s, self._out_of_time)
            self.ledger = Ledger(level.warmup_sessions)
            self._advance()
        elif level.warmup_s:
            self._open(Phase.WARMUP)
            self._after(level.warmup_s, self._next_phase)
        else:
            self._next_phase()

    def _next_phase(self) -> None:
        if self.stage != "warmup":
            self._drain()
            return
        self.stage, self._phase = "measure", Phase.MEASURED
        self.measured_started_s = perf_counter()
        if self.level.duration_s is None:
            self.ledger = Ledger(self.level.sessions or 0, spares=True)
            self._advance()
        else:
            self._open(Phase.MEASURED)
            self._after(self.level.duration_s, self._drain)

    def _hand_out(self) -> None:
        """Give every worker the tickets it may have now; when none are left, let fill sessions begin."""
        for name, users in self._users.items():
            tickets = self.ledger.grant(name, users, self.level.concurrency)
            if tickets:
                self._order(
                    "ts_grant",
                    {"level": self.level.index, "phase": self._phase, "first": tickets.start, "stop": tickets.stop},
                    [name],
                )
        fill = self._phase == Phase.MEASURED and self.level.tail == "fill"
        if fill and self.ledger.exhausted and not self._filling:
            self._filling = True
            self._open(Phase.FILL)

    def _open(self, phase: Phase) -> None:
        """Endless sessions from now on; where users belong to classes, each worker has its part of them."""
        quotas = self.level.quotas
        shares = shares_of(quotas, self._users) if quotas else {}
        for name in self.workers:
            share = shares.get(name, (0,) * len(quotas))
            self._order("ts_open", {"level": self.level.index, "phase": phase, "quotas": share}, [name])

    def _drain(self) -> None:
        self.stage = "drain"
        by_time = self.level.duration_s is not None
        self._cancel_timers()
        self._order("ts_close", {"level": self.level.index, "late_is_drain": by_time})
        self._after(self.level.drain_limit_s if by_time else self.level.time_limit_s, self._cut)

    def _out_of_time(self) -> None:
        self._state = "timeout"
        self._reason = f"not finished within time_limit_s = {self.level.time_limit_s:g}"
        self._drain()
        self._cut()

    def _cut(self) -> None:
        self._order("ts_cut", {"level": self.level.index})

    def _end_level(self) -> None:
        self._cancel_timers()
        level = self.level
        self.stage = "end"  # as above
        self._on_level_end(self.level_row(), level, self.facts)
        if self.finished:
            return
        self.stage = "spawn"
        self.finished = self.position + 1 >= len(self.levels) or self._nothing_succeeded()
        if not self.finished:
            self.position += 1
            self._expect_users()
        self._changed.set()
        if not self.finished and self.level.concurrency == level.concurrency:
            gevent.spawn(self._advance)  # the same users stay: no spawning will wake us

    def _nothing_succeeded(self) -> bool:
        """Every request failed: higher levels would only repeat it."""
        facts = self.facts
        hopeless = 0 < facts.measured_requests == facts.failed_requests
        if hopeless and self.position + 1 < len(self.levels):
            log.error(
                "%s: all %d requests failed; the levels after it are left out", self.level.label, facts.failed_requests
            )
        return hopeless

    def level_row(self) -> dict[str, Any]:
        """The current level as a row of ``levels.csv``."""
        measured = bool(self.facts.measured_requests)
        return {
            "level": self.level.index,
            "concurrency": self.level.concurrency,
            "arms": self.level.arms,
            "state": self._state,
            "reason": self._reason,
            "started_s": self._started_s,
            "measured_started_s": self.measured_started_s,
            "measured_ended_s": self.facts.measured_to_s if measured else None,
            "ended_s": perf_counter(),
            "planned_sessions": self.level.sessions,
            "measured_sessions": self.ledger.done - self._lost if self.level.sessions else None,
        }

    def interrupt(self, reason: str) -> None:
        """The run ends before its time: the level under way, if any, is written as interrupted."""
        self._cancel_timers()
        if not self.finished and self.stage in ("warmup", "measure", "drain"):
            self._state, self._reason = "interrupted", reason
            self._on_level_end(self.level_row(), self.level, self.facts)
        self.finished = True
        self._changed.set()

    def _expect_users(self) -> None:
        self._after(SPAWN_LIMIT_S, self._no_users)

    def _no_users(self) -> None:
        """The users of a level did not all start: nothing can be measured from here on."""
        waiting = sum(worker.waiting for worker in self.workers.values())
        self._state = "partial"
        self._reason = f"only {waiting} of {self.level.concurrency} users were ready after {SPAWN_LIMIT_S:g} s"
        log.error("level %s: %s", self.level.label, self._reason)
        self._on_level_end(self.level_row(), self.level, LevelFacts())
        self.finished = True
        self._changed.set()

    # timers -----------------------------------------------------------------------

    def _after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        self._timers.append(gevent.spawn_later(seconds, action, *arguments))

    def _cancel_timers(self) -> None:
        current = gevent.getcurrent()
        for timer in self._timers:
            if timer is not current:
                timer.kill(block=False)
        self._timers.clear()
