"""The master's side of a process: run folders, workers, levels, and how a run ends.

A process that runs alone is master and worker in one.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

import gevent
import gevent.lock
from locust import LoadTestShape

from tokenswarm import progress
from tokenswarm.controller import Controller
from tokenswarm.admission import misfit
from tokenswarm.clocks import wall_s
from tokenswarm.epochs import Epochs
from tokenswarm.errors import BAD_INPUT, NOT_CREDIBLE, TokenswarmError
from tokenswarm.itinerary import FixedLevels, Itinerary, itinerary_of
from tokenswarm.levelfacts import LevelFacts
from tokenswarm.levels import planned_levels
from tokenswarm.plan import Plan
from tokenswarm.planner import Planner
from tokenswarm.recorder import LocustStatistics
from tokenswarm.resume import Resumption
from tokenswarm.roster import Member, Roster
from tokenswarm.run_description import described
from tokenswarm.rundir import RunFolder
from tokenswarm.schedule import Level
from tokenswarm.telemetry import EngineSampler
from tokenswarm.verdict import analysed

log = logging.getLogger(__name__)

STOP_LIMIT_S = 10.0
PROGRESS_INTERVAL_S = 5.0
LOOK_INTERVAL_S = 0.5
PING_EVERY = 10  # looks


class Levels(LoadTestShape):  # type: ignore[misc]
    """Tells Locust how many users the current level wants. Stands in no locustfile, so Locust does not pick it up."""

    def __init__(self, master: RunMaster) -> None:
        super().__init__()
        self._master = master
        self._last: tuple[int, float] | None = None

    def tick(self) -> tuple[int, float] | None:
        controller = self._master.controller
        if controller is None:  # the run has not begun: Locust fires test_start after the first tick
            users = self._master.levels[0].concurrency
            return users, float(users)
        if self._last == controller.target():
            controller.wait_for_change()
        self._last = controller.target()
        return self._last


class RunMaster:
    """Owns the run folder and, for a run with levels, the controller."""

    def __init__(
        self,
        environment: Any,
        planner: Planner,
        results: Path,
        *,
        alone: bool,
        table: bool,
        resumption: Resumption | None = None,
    ) -> None:
        self.levels = planned_levels(planner.scenario)  # as far as they are known before
        if resumption is not None:
            self.levels = resumption.missing(self.levels)
        self._resumption = resumption
        self._itinerary: Itinerary | None = None
        self._epochs = Epochs()
        self._planner = planner
        self._plan: Plan | None = None  # of the run under way
        self.controller: Controller | None = None
        self.exit_code: int | None = None
        self.folder: RunFolder | None = None
        self._environment = environment
        self._runner = environment.runner
        self._results = results
        self._alone = alone
        self._table = table
        self._statistics = LocustStatistics(environment)
        self._run = ""
        self._roster = Roster(self._runner, alone=alone, on_gone=self._on_gone)
        self._stopped: set[str] = set()
        self._lost: list[str] = []  # workers that were given up in this run, and why
        self._written: dict[str, float] = {}  # worker name -> offset in workers.csv
        self._free = LevelFacts()
        self._engine: EngineSampler | None = None
        self._progress: gevent.Greenlet | None = None
        self._unable: list[str] = []  # why workers cannot take part in the run
        self._ending = gevent.lock.RLock()
        self.table_text = ""
        for message, handler in self._handlers().items():
            self._runner.register_message(message, handler)
        if self.levels:
            environment.shape_class = Levels(self)
            environment.shape_class.runner = self._runner
        if not alone:
            gevent.spawn(self._look_after_workers)
            if self.levels:
                self._deal_users_only_between_levels()

    def _deal_users_only_between_levels(self) -> None:
        """When a worker comes or goes Locust would move users, and end their sessions, in the middle of a level."""
        start = self._runner.start

        def start_for_the_shape(*arguments: Any, **options: Any) -> None:
            if gevent.getcurrent() is self._runner.shape_greenlet:
                start(*arguments, **options)

        self._runner.start = start_for_the_shape

    def _handlers(self) -> dict[str, Callable[..., None]]:
        return {
            "ts_join": self._on_join,
            "ts_pong": self._on_pong,
            "ts_report": self._on_report,
            "ts_stopped": self._on_stopped,
            "ts_unable": self._on_unable,
        }

    # workers ----------------------------------------------------------------------------

    def _on_join(self, environment: Any, msg: Any, **_: Any) -> None:
        why = misfit(msg.data, self._planner.scenario.text)
        if why:
            self._refuse(msg.node_id, why)
            return
        member = self._roster.join(msg.node_id, msg.data["clock"])
        self._roster.send("ts_welcome", {}, member.name)
        self._start_worker(member)

    def _refuse(self, client: str, why: str) -> None:
        problem = f"worker w{self._runner.get_worker_index(client)} ({client}): {why}"
        log.error("%s", problem)
        self._runner.send_message("ts_refuse", {"problem": problem}, client_id=client)
        if self._environment.parsed_options.headless:
            self._unable.append(problem)
            self._give_up()

    def _on_pong(self, environment: Any, msg: Any, **_: Any) -> None:
        data = msg.data
        member = self._roster.pong(msg.node_id, data["sent_s"], data["monotonic_s"], data["wall_s"])
        if member is None:
            return
        state = None if self.controller is None else self.controller.crew.find(member.name)
        if state is not None:
            state.offset_s = member.offset_s
        self._start_worker(member)

    def _start_worker(self, member: Member) -> None:
        """Let a worker take part in the run under way, once its clock is known."""
        if not self._run or member.run == self._run or not member.clock_known or member.gone:
            return
        assert self._plan is not None, "a run is under way"
        self._roster.begin(member, self._run)
        if self.controller is not None:
            self.controller.join(member.name, member.offset_s)
        data = {
            "run": self._run,
            "life": member.life,
            "worker": member.name,
            "index": 0 if self._alone else self._runner.get_worker_index(member.client),
            "most_users": self._most_users(),
            "to_unix_s": wall_s() - perf_counter() + member.offset_s,
            "plan": self._plan.to_message(),
        }
        self._roster.send("ts_start", data, member.name)
        self._write_clock(member)

    def _most_users(self) -> int:
        """That one worker must be able to run."""
        load = self._planner.scenario.load
        users = self._environment.parsed_options.num_users or 1 if load is None else load.most_users
        return math.ceil(users / max(1, len(self._roster.present)))

    def _on_report(self, environment: Any, msg: Any, **_: Any) -> None:
        data, member = msg.data, self._roster.find(msg.node_id)
        if member is None or self.folder is None:
            return
        if not self._alone:
            good = self._roster.accept(member, data["life"], data["number"])
            self._roster.send("ts_ack", {"life": data["life"], "number": data["number"]}, member.name)
            if not good:
                self.folder.append("late", data["rows"].get("requests", b"").decode())
                return
        for file, lines in data["rows"].items():
            self.folder.append(file, lines.decode())
        if self.controller is not None:
            self.controller.report(member.name, data["waiting"], data["done"], data["order"])
            return
        for *_rest, requests in data["done"]:
            for facts in requests:
                self._free.add(facts, member.offset_s)

    def _on_stopped(self, environment: Any, msg: Any, **_: Any) -> None:
        member = self._roster.find(msg.node_id)
        if member is not None and msg.data["run"] == self._run:
            self._stopped.add(member.name)

    def _on_gone(self, member: Member, run: str) -> None:
        """A worker does not take part any more."""
        if not run or run != self._run:
            return
        line = f"worker {member.name} {member.gone} at {datetime.now():%H:%M:%S}"
        log.error("%s", line)
        self._lost.append(line)
        if self.controller is not None:
            self.controller.leave(member.name, line)
        if not self._roster.present and self._environment.parsed_options.headless:
            gevent.spawn(self._runner.quit)  # Locust would stop, and wait for somebody to end it

    def _look_after_workers(self) -> None:
        for count in itertools.count(1):
            gevent.sleep(LOOK_INTERVAL_S)
            self._roster.look()
            if count % PING_EVERY == 0:
                for member in self._roster.present:
                    self._roster.ping(member, 1)

    def _on_unable(self, environment: Any, msg: Any, **_: Any) -> None:
        """A worker cannot take part: without it this would not be the load that was asked for."""
        if msg.data["run"] != self._run:
            return
        log.error("%s", msg.data["problem"])
        self._unable.append(msg.data["problem"])
        self._give_up()

    def _give_up(self) -> None:
        """End the run; without a page the process too."""
        headless = self._environment.parsed_options.headless
        if headless:
            self.exit_code = BAD_INPUT
        gevent.spawn(self._runner.quit if headless else self._runner.stop)

    # a run --------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new run folder, a new controller; every worker is told."""
        self._run = uuid4().hex
        self._stopped, self._written, self._unable, self._lost = set(), {}, [], []
        self._free = LevelFacts()
        try:
            plan = self._plan = self._planner.plan(self._environment.host).for_run(self._run)
            description = described(plan, planned_levels(plan.scenario))
            self.folder = RunFolder.create(self._results, plan.scenario.name)
        except TokenswarmError as error:  # from the page, or something has changed since the headless run was checked
            log.error("%s", error)
            self._run = ""
            self._give_up()
            return
        resumed = self._resume(self.folder)
        self.folder.write_once("run.json", description | {"resumed": resumed})
        log.info("results go to %s", self.folder.path)
        if plan.cache is not None:
            log.info("prefix cache: %s", plan.cache.line)
        self._engine = plan.engine_sampler(self._write_sample)
        if plan.simulated:
            self._statistics.simulated(plan.scenario.target.simulator)
        self._itinerary = FixedLevels(self.levels) if resumed else itinerary_of(plan.scenario)
        if self._itinerary is not None:
            self.controller = Controller(
                self._itinerary.first(),
                self._roster.send,
                self._level_ended,
                self._next_level,
                on_level_begin=self._level_begins,
                arrivals=plan.arrivals,
            )
            self._progress = gevent.spawn(self._tell_progress)
        else:
            self._engine.edge(None, "start")
        for member in self._roster:
            self._start_worker(member)

    def _resume(self, folder: RunFolder) -> dict[str, Any] | None:
        """What an earlier run has finished stands in this folder too."""
        resumption, self._epochs = self._resumption, Epochs()
        if resumption is None:
            return None
        self._epochs = resumption.epochs()
        resumption.take_over(folder, wall_s() - perf_counter())
        log.info("%d levels are taken over from %s", len(resumption.levels), resumption.path)
        return resumption.told()

    def _next_level(self, level: Level) -> Level | None:
        assert self._itinerary is not None, "the run has levels"
        return self._itinerary.after(level, None)

    def _level_begins(self, level: Level) -> None:
        if self._engine is not None:
            self._engine.edge(level.index, "start")

    def _level_ended(self, row: dict[str, Any], level: Level, facts: LevelFacts) -> None:
        if self.folder is not None:
            self.folder.append_row("levels", row | {"epoch": self._epochs.number})
        if self._engine is not None:
            self._engine.edge(level.index, "end")
        self._statistics.level(level.label, facts.wall_s, facts.window_tokens(level.tail))
        log.info("%s", progress.level_line(level, facts, row["state"]))

    def _tell_progress(self) -> None:
        while self.controller is not None and not self.controller.finished:
            gevent.sleep(PROGRESS_INTERVAL_S)
            if self.controller is not None and not self.controller.finished:
                log.info("%s", progress.line(self.controller, self.levels))

    def end(self, collect: Callable[[], None]) -> None:
        """Close the run folder after every worker has sent its last rows; harmless when called again.

        ``collect`` ends the worker in this process, where there is one. A signal can call this from a second
        greenlet: it waits for the first, whose exit code it needs.
        """
        with self._ending:
            if self.folder is not None:
                self._end(self.folder, collect)

    def _end(self, folder: RunFolder, collect: Callable[[], None]) -> None:
        complete = not self._unable and (self.controller is None or self.controller.finished)
        if self.controller is not None:
            self.controller.interrupt("the run was stopped")
        self._collect(collect)
        if self.controller is None:
            if self._engine is not None:
                self._engine.edge(None, "end")
            self._statistics.level("", self._free.wall_s, self._free.window_tokens("fill"))
        if self._engine is not None:
            self._engine.stop()
        for member in self._roster:
            if member.name in self._written:
                self._write_clock(member)
        folder.write_once(
            "end.json",
            {
                "state": "finished" if complete else "stopped",
                "ended": datetime.now(UTC).isoformat(timespec="seconds"),
                "reasons": [
                    *self._unable,
                    *self._lost,
                    *([] if complete or self._unable else ["stopped before all levels were done"]),
                ],
                "notes": [self._engine.note] if self._engine is not None and self._engine.note else [],
            },
        )
        folder.close()
        self.folder, self.controller, self._run = None, None, ""
        if self._progress is not None:
            self._progress.kill(block=False)
        self._analyse(folder.path)
        if self._lost and not self.exit_code:
            self.exit_code = NOT_CREDIBLE
        if self._unable:
            self.exit_code = BAD_INPUT

    def _collect(self, collect: Callable[[], None]) -> None:
        if self._alone:
            collect()
            return
        asked = {member.name for member in self._roster.present if member.run == self._run}
        for name in asked:
            self._roster.send("ts_stop", {"run": self._run}, name)
        deadline_s = perf_counter() + STOP_LIMIT_S
        while not self._stopped.issuperset(self._still_there(asked)) and perf_counter() < deadline_s:
            gevent.sleep(0.01)
        missing = asked - self._stopped
        if missing:
            log.error("the last rows of %s did not arrive", ", ".join(sorted(missing)))

    def _still_there(self, asked: set[str]) -> set[str]:
        return asked & {member.name for member in self._roster.present}

    def _write_clock(self, member: Member) -> None:
        """A row of ``workers.csv``; a later row of the same worker, after more pings, replaces it."""
        if self.folder is not None and self._written.get(member.name) != member.offset_s:
            self._written[member.name] = member.offset_s
            row = {
                "worker": member.name,
                "wall_s": wall_s(),
                "monotonic_s": perf_counter() - member.offset_s,
                "offset_s": member.offset_s,
                "wall_offset_s": member.wall_offset_s,
                "round_trip_s": None if math.isinf(member.round_trip_s) else member.round_trip_s,
            }
            self.folder.append_row("workers", row)

    def _write_sample(self, row: dict[str, Any]) -> None:
        self._epochs.look(row["engine"], row["process_start_s"])
        if self.folder is not None:
            self.folder.append_row("engine", row)

    # the verdict ----------------------------------------------------------------------------

    def _analyse(self, path: Path) -> None:
        if not self._table:
            return
        scenario = self._planner.scenario
        asked = {"prefix-cache": scenario.prefix_cache, "interference": scenario.interference}
        verdict = analysed(path, [question for question, wanted in asked.items() if wanted is not None])
        self.exit_code, self.table_text = verdict.exit_code, verdict.text
        if not self._environment.parsed_options.headless:
            log.info("table: %s", path / "table.txt")
