"""One run, as the master sees it: its folder, its levels, the engine's own figures, and how it ended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import gevent

from tokenswarm import progress
from tokenswarm.clocks import wall_s
from tokenswarm.controller import Controller
from tokenswarm.epochs import Epochs
from tokenswarm.errors import RunFolderError
from tokenswarm.itinerary import FixedLevels, Itinerary, itinerary_of
from tokenswarm.levelfacts import LevelFacts
from tokenswarm.levels import planned_levels
from tokenswarm.plan import Plan
from tokenswarm.recorder import LocustStatistics
from tokenswarm.resume import Resumption
from tokenswarm.roster import Member
from tokenswarm.run_description import described
from tokenswarm.rundir import RunFolder
from tokenswarm.saturation import SaturationWatch, Second, watch_of
from tokenswarm.schedule import Level
from tokenswarm.verdict import judged_level

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 5.0
WATCH_INTERVAL_S = 1.0


class LoadRun:
    """From the first level to ``end.json``. Without levels it is free-running: Locust decides users and time."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        send: Callable[[str, dict[str, Any], str], None],
        statistics: LocustStatistics,
        resumption: Resumption | None = None,
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.controller: Controller | None = None
        self.unable: list[str] = []  # why workers cannot take part
        self.lost: list[str] = []  # workers that were given up, and why
        self._statistics = statistics
        self._resumption = resumption
        self._epochs = Epochs() if resumption is None else resumption.epochs()
        self._itinerary = self._levels_to_run()
        self._free = LevelFacts()
        self._clocks: dict[str, float] = {}  # worker name -> offset in workers.csv
        self._engine = plan.engine_sampler(self._write_sample)
        self._waiting: int | None = None  # requests in the engines' queues, as last heard
        self._progress: gevent.Greenlet | None = None
        self._watcher: gevent.Greenlet | None = None
        if self._itinerary is not None:
            self.controller = Controller(
                self._itinerary.first(),
                send,
                self._level_ended,
                self._next_level,
                on_level_begin=self._level_begins,
                arrivals=plan.arrivals,
                goes_up=not self._itinerary.judging,
            )

    def _levels_to_run(self) -> Itinerary | None:
        if self._resumption is None:
            return itinerary_of(self.plan.scenario)
        return FixedLevels(self._resumption.missing(planned_levels(self.plan.scenario)))

    def start(self, processes: int | None) -> None:
        """Write what is asked for, and what an earlier run has finished of it.

        ``processes``: how many make the load, where all of them run on this machine; a calibration is looked up then.
        """
        resumption, plan = self._resumption, self.plan
        if resumption is not None:
            resumption.take_over(self.folder, wall_s() - perf_counter())
            log.info("%d of the levels are taken over from %s", len(resumption.levels), resumption.path)
        description = described(
            plan, planned_levels(plan.scenario), results=self.folder.path.parent, processes=processes
        )
        told = None if resumption is None else resumption.told()
        self.folder.write_once("run.json", description | {"resumed": told})
        log.info("results go to %s", self.folder.path)
        if plan.cache is not None:
            log.info("prefix cache: %s", plan.cache.line)
        if plan.simulated:
            self._statistics.simulated(plan.scenario.target.simulator)
        if self.controller is None:
            self._engine.edge(None, "start")
        else:
            self._progress = gevent.spawn(self._tell_progress, self.controller)

    # workers ------------------------------------------------------------------------------

    def join(self, member: Member, *, dealt: bool) -> None:
        """``dealt``: it has its part of the users already."""
        if self.controller is not None:
            self.controller.join(member.name, member.offset_s, dealt=dealt)
        self.write_clock(member)

    def leave(self, member: Member, line: str) -> None:
        self.lost.append(line)
        if self.controller is not None:
            self.controller.leave(member.name, line)

    def report(self, member: Member, data: dict[str, Any]) -> None:
        """Rows and ended sessions of a worker; see ``LoadWorker._report``."""
        for file, lines in data["rows"].items():
            self.folder.append(file, lines.decode())
        if self.controller is not None:
            self.controller.report(member.name, data["waiting"], data["done"], data["order"])
            return
        for *_rest, requests in data["done"]:
            for facts in requests:
                self._free.add(facts, member.offset_s)

    def late_report(self, data: dict[str, Any]) -> None:
        """Of a worker that has been given up: kept, and counted nowhere."""
        self.folder.append("late", data["rows"].get("requests", b"").decode())

    def write_clock(self, member: Member) -> None:
        """A row of ``workers.csv``; a later row of the same worker, after more pings, replaces it."""
        if self._clocks.get(member.name) == member.offset_s:
            return
        self._clocks[member.name] = member.offset_s
        now_s = perf_counter() - member.offset_s
        clock = {"wall_s": wall_s(), "monotonic_s": now_s, "offset_s": member.offset_s}
        wall = {"wall_offset_s": member.wall_offset_s, "round_trip_s": member.shortest_round_trip_s}
        self.folder.append_row("workers", {"worker": member.name, **clock, **wall})

    # levels -------------------------------------------------------------------------------

    def _next_level(self, level: Level) -> Level | None:
        assert self._itinerary is not None, "the run has levels"
        if not self._itinerary.judging:
            return self._itinerary.after(level, None)
        verdict = judged_level(self.folder.path, level.index)
        log.info("%s: %s: %s", level.label, verdict.judgement, verdict.why)
        return self._itinerary.after(level, verdict)

    def _level_begins(self, level: Level) -> None:
        self._engine.edge(level.index, "start")
        watch = watch_of(level) if self._itinerary is not None and self._itinerary.judging else None
        if watch is not None:
            self._watcher = gevent.spawn(self._watch_queue, watch)

    def _watch_queue(self, watch: SaturationWatch) -> None:
        """End a level of a search whose queue only grows: it will not become better."""
        controller = self.controller
        while controller is not None:
            gevent.sleep(WATCH_INTERVAL_S)
            clockwork = controller.account.clockwork
            if clockwork is None or controller.stage not in ("measure", "tail"):
                continue
            now_s, timetable = clockwork.now_s, clockwork.timetable
            flight = timetable.under_way(now_s)
            arrived = timetable.finished + flight
            reason = watch.second(Second(now_s, flight, timetable.finished, arrived, self._waiting))
            if reason is not None:
                controller.stop_level("saturated", reason)
                return

    def _level_ended(self, row: dict[str, Any], level: Level, facts: LevelFacts) -> None:
        if self._watcher is not None:
            self._watcher.kill(block=False)
        self.folder.append_row("levels", row | {"epoch": self._epochs.number})
        self._engine.edge(level.index, "end")
        self._statistics.level(level.label, facts.wall_s, facts.window_tokens(level.tail))
        log.info("%s", progress.level_line(level, facts, row["state"]))

    def _tell_progress(self, controller: Controller) -> None:
        planned = planned_levels(self.plan.scenario)
        while not controller.finished:
            gevent.sleep(PROGRESS_INTERVAL_S)
            if not controller.finished:
                log.info("%s", progress.line(controller, planned))

    def _write_sample(self, row: dict[str, Any]) -> None:
        self._epochs.look(row["engine"], row["process_start_s"])
        self._waiting = row["waiting"]
        self.folder.append_row("engine", row)

    # the end ------------------------------------------------------------------------------

    def interrupt(self) -> bool:
        """Nothing further begins. True where the run had come to its end by itself."""
        controller = self.controller
        if controller is None:
            return not self.unable
        complete = controller.finished and not controller.abandoned and not self.unable
        controller.interrupt("the run was stopped")
        return complete

    def close(self, members: list[Member], *, complete: bool) -> None:
        """Every record is in."""
        if self.controller is None:
            self._engine.edge(None, "end")
            self._statistics.level("", self._free.wall_s, self._free.window_tokens("fill"))
        else:
            self.controller.conclude()
        self._engine.stop()
        for member in members:
            if member.name in self._clocks:
                self.write_clock(member)
        stopped = [] if complete or self.unable else ["stopped before all levels were done"]
        end = {
            "state": "finished" if complete else "stopped",
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "reasons": [*self.unable, *self.lost, *stopped],
            "notes": [self._engine.note] if self._engine.note else [],
        }
        found = None if self._itinerary is None else self._itinerary.document()
        try:
            if found is not None:
                self.folder.write_once("search.json", found)
            self.folder.write_once("end.json", end)
        except RunFolderError as error:  # the rows that are there are still worth a table
            log.error("%s", error)
        self.folder.close()
        if self._progress is not None:
            self._progress.kill(block=False)
