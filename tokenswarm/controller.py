"""The master's side of a run: levels, tickets, completion.

A level goes through ``spawn`` (until exactly its users wait) → ``begin`` → ``warmup`` → ``measure`` → ``drain`` (until
every session has ended) → ``end`` and is then closed. One by the clock has a ``tail`` before it drains: nothing arrives
any more, and what has arrived may go on for a while. What completes a level is that all its sessions and their records
are in; a timer only ends a level that cannot finish.

A worker that is gone leaves its level ``partial``: the sessions that it had are played by the others, or counted as
lost where they had a time of their own that is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import gevent
import gevent.event

from tokenswarm.clockwork import Clockwork
from tokenswarm.crew import Crew, Send
from tokenswarm.level_account import LevelAccount
from tokenswarm.level_message import level_message
from tokenswarm.levelfacts import LevelFacts
from tokenswarm.quotas import shares_of
from tokenswarm.records import Phase
from tokenswarm.schedule import Ledger, Level
from tokenswarm.timetable import Arrival, Timetable

log = logging.getLogger(__name__)

SPAWN_LIMIT_S = 120.0

Done = Sequence[Any]  # level, phase of the ticket, its number, how the session ended, facts of its requests


class Controller:
    """Drives the levels of one run over any number of workers."""

    def __init__(
        self,
        first: Level,
        send: Send,
        on_level_end: Callable[[dict[str, Any], Level, LevelFacts], None],
        next_level: Callable[[Level], Level | None],
        *,
        on_level_begin: Callable[[Level], None] = lambda level: None,
        arrivals: Callable[[Level], Iterator[Arrival]] = lambda level: iter(()),
        goes_up: bool = True,
    ) -> None:
        """``next_level`` gives the level after one that has ended. It and the callbacks may take their time: nothing
        is in flight, and the level waits for them. ``arrivals``: of a level by the clock.
        ``goes_up``: where every request of a level failed, the ones after it would only repeat that."""
        self.level = first
        self.stage = "spawn"
        self.crew = Crew(send)
        self.account = LevelAccount(first)
        self.finished = False
        self.abandoned = False  # before all levels were done
        self._on_level_end = on_level_end
        self._next_level = next_level
        self._on_level_begin = on_level_begin
        self._arrivals = arrivals
        self._goes_up = goes_up
        self._dealt: tuple[int, float] | None = None
        self._changes = 0  # of the crew, that the users are dealt by
        self._changed = gevent.event.Event()
        self._timers: list[gevent.Greenlet] = []
        self._filling = False
        self._expect_users()

    # what Locust's shape asks for -------------------------------------------------

    def target(self) -> tuple[int, float] | None:
        """Users and spawn rate wanted now; ``None`` when the run is over. The rate, always enough for all at once,
        changes where users are to be dealt anew among other workers."""
        if self.stage == "spawn":  # in the middle of a level nobody is moved
            self._changes = self.crew.changes
        users = self.level.concurrency
        return None if self.finished else (users, float(users + self._changes))

    def wait_for_change(self) -> None:
        """Block until the level has changed, workers came or went between levels, or the run is over."""
        self._changed.wait()
        self._changed.clear()

    # what workers report ----------------------------------------------------------

    def join(self, worker: str, offset_s: float = 0.0, *, dealt: bool = True) -> None:
        """One that joins while a level is under way is used from the next. ``dealt``: Locust has given it its part of
        the users already."""
        self.crew.join(worker, offset_s, now=self.stage == "spawn", dealt=dealt)
        if self.stage == "spawn":
            self._changed.set()

    def deal_done(self, target: tuple[int, float]) -> None:
        """Locust has dealt the users of this ``target`` to all workers. Once told, a level waits for it: as many users
        as it wants may wait while some of them are still to be moved."""
        self._dealt = target
        self._advance()

    def leave(self, worker: str, why: str) -> None:
        """``worker`` is gone, or given up; ``why`` names it."""
        state = self.crew.leave(worker)
        if state is None or self.finished:
            return
        alone = not self.crew.workers
        if alone and not self.crew.admit():
            if self.account.clockwork is not None:
                self.account.clockwork.leave(worker)
            self._abandon(f"{why}; no worker is left")
        elif self.stage in ("spawn", "begin", "end"):
            self._changed.set()
        else:
            self.account.worker_gone(worker, why)
            if alone:  # those who came meanwhile have no users before the next level
                self.stop_level()
        self._advance()

    def report(self, worker: str, waiting: int, done: Sequence[Done], order: int) -> None:
        """``worker`` has ``waiting`` idle users after obeying ``order`` orders; ``done`` lists the sessions that
        have ended since its last report. Their records must be in already."""
        state = self.crew.report(worker, waiting, order)
        if state is None:
            return
        for level, phase, number, how, requests in done:
            if level == self.level.index and self.stage != "spawn":
                running = self.stage in ("warmup", "measure")
                self.account.session_ended(worker, phase, number, how, running=running)
                for facts in requests:
                    self.account.facts.add(facts, state.offset_s)
        self._advance()

    def _advance(self) -> None:
        if self.finished:
            return
        match self.stage:
            case "spawn" if self._all_users_wait():
                self._begin_level()
            case "tail" if self.account.clockwork is not None and self.account.clockwork.timetable.complete:
                self._drain()
            case "warmup" | "measure" if self.account.clockwork is None and self.level.duration_s is None:
                if self.account.ledger.complete:
                    self._next_phase()
                else:
                    self._hand_out()
            case "drain" if self.crew.waiting == sum(self.crew.users.values()):
                self._end_level()
            case _:
                pass

    def _all_users_wait(self) -> bool:
        """And where they are wanted: Locust has none of them to move any more."""
        ready = self.crew.waiting == self.level.concurrency and self.crew.settled
        return ready and self._dealt in (None, self.target())

    # a level ----------------------------------------------------------------------

    def _begin_level(self) -> None:
        level = self.level
        self._cancel_timers()
        self.stage = "begin"  # reports that arrive meanwhile must not begin it again
        self._on_level_begin(level)
        if self.finished:  # stopped meanwhile
            return
        if self.crew.waiting != level.concurrency:  # a worker has gone meanwhile: the others start its users
            self.stage = "spawn"
            self._expect_users()
            return
        self.crew.begin()
        self.crew.order("ts_level", {"plan": level_message(level)})
        self.account.started_s = perf_counter()
        self.stage = "warmup"
        if level.by_clock:
            self.stage = "measure"
            timetable = Timetable(self._arrivals(level))
            self.account.clockwork = Clockwork(level, timetable, self.crew, on_end=self._begin_tail)
        elif level.duration_s is None:
            self._after(level.time_limit_s, self._out_of_time)
            self.account.ledger = Ledger(level.warmup_sessions)
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
        self.stage = "measure"
        self.account.measure()
        if self.level.duration_s is None:
            self.account.ledger = Ledger(self.level.sessions or 0, spares=True)
            self._advance()
        else:
            self._open(Phase.MEASURED)
            self._after(self.level.duration_s, self._drain)

    def _hand_out(self) -> None:
        """Give every worker the tickets it may have now; when none are left, let fill sessions begin."""
        users = self.crew.users
        for name, number in users.items():
            granted = self.account.ledger.grant(name, number, sum(users.values()))
            if granted:
                tickets = [[ticket, self.account.ledger.again[ticket]] for ticket in granted]
                data = {"level": self.level.index, "phase": self.account.phase, "tickets": tickets}
                self.crew.order("ts_grant", data, [name])
        fill = self.account.phase == Phase.MEASURED and self.level.tail == "fill"
        if fill and self.account.ledger.exhausted and not self._filling:
            self._filling = True
            self._open(Phase.FILL)

    def _open(self, phase: Phase) -> None:
        """Endless sessions from now on; where users belong to classes, each worker has its part of them."""
        quotas, users = self.level.quotas, self.crew.users
        shares = shares_of(quotas, users) if quotas else {}
        for name in users:
            share = shares.get(name, (0,) * len(quotas))
            self.crew.order("ts_open", {"level": self.level.index, "phase": phase, "quotas": share}, [name])

    def _begin_tail(self) -> None:
        """Nothing arrives any more; what has arrived may still run for a while."""
        self.stage = "tail"
        self._after(self.level.drain_limit_s, self.stop_level)
        self._advance()

    def stop_level(self, state: str = "", reason: str = "") -> None:
        """End the level now. With ``state`` it is written so, for the ``reason``."""
        if self.stage not in ("warmup", "measure", "tail"):
            return
        if state:
            self.account.end_as(state, reason)
        self._drain()
        self._cut()

    def _drain(self) -> None:
        self.stage = "drain"
        if self.account.clockwork is not None:
            self.account.clockwork.stop()
        by_time = self.level.duration_s is not None
        self._cancel_timers()
        late_is_drain = by_time and not self.level.by_clock
        self.crew.order("ts_close", {"level": self.level.index, "late_is_drain": late_is_drain})
        self._after(self.level.drain_limit_s if by_time else self.level.time_limit_s, self._cut)

    def _out_of_time(self) -> None:
        self.stop_level("timeout", f"not finished within time_limit_s = {self.level.time_limit_s:g}")

    def _cut(self) -> None:
        self.crew.order("ts_cut", {"level": self.level.index})

    def _end_level(self) -> None:
        self._cancel_timers()
        level = self.level
        self.stage = "end"  # as above
        self._on_level_end(self.account.row(), level, self.account.facts)
        if self.finished:
            return
        hopeless = self._goes_up and self._nothing_succeeded()
        following = None if hopeless else self._next_level(level)
        if self.finished:  # stopped meanwhile
            return
        self.stage = "spawn"
        self.finished = following is None
        self.crew.admit()
        if following is not None:
            self.level = following
            self._expect_users()
        self._changed.set()
        if not self.finished and self.level.concurrency == level.concurrency:
            gevent.spawn(self._advance)  # the same users stay: no spawning will wake us

    def _nothing_succeeded(self) -> bool:
        """Every request failed: higher levels would only repeat it."""
        facts = self.account.facts
        hopeless = 0 < facts.measured_requests == facts.failed_requests
        if hopeless:
            log.error("%s: all %d requests failed; no further level", self.level.label, facts.failed_requests)
        return hopeless

    def interrupt(self, reason: str) -> None:
        """The run ends before its time, and the level under way with it; ``conclude`` writes it once all is in."""
        self._cancel_timers()
        if self.account.clockwork is not None:
            self.account.clockwork.stop()
        if not self.finished and self.stage in ("warmup", "measure", "tail", "drain"):
            self.account.end_as("interrupted", reason)
            self.stage = "interrupted"  # what workers cut from now on was cut by us
        self.finished = True
        self._changed.set()

    def conclude(self) -> None:
        """Every worker has sent its last report: a level that was interrupted is written."""
        if self.stage == "interrupted":
            self.stage = "end"
            self._on_level_end(self.account.row(), self.level, self.account.facts)

    def _expect_users(self) -> None:
        """Of a level of which nothing is known yet."""
        self.account, self._filling = LevelAccount(self.level), False
        self._after(SPAWN_LIMIT_S, self._no_users)

    def _no_users(self) -> None:
        """The users of a level did not all start: nothing can be measured from here on."""
        wanted = self.level.concurrency
        self._abandon(f"only {self.crew.waiting} of {wanted} users were ready after {SPAWN_LIMIT_S:g} s")

    def _abandon(self, reason: str) -> None:
        """Nothing can be measured from here on: the run is over."""
        self._cancel_timers()
        if self.account.clockwork is not None:
            self.account.clockwork.stop()
        self.abandoned = True
        self.account.doubt(reason)
        log.error("level %s: %s", self.level.label, reason)
        if self.stage != "end":
            self._on_level_end(self.account.row(), self.level, self.account.facts)
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
