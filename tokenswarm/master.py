"""The master's side of a process: run folders, workers, levels, and how a run ends.

A process that runs alone is master and worker in one.
"""

from __future__ import annotations

import logging
import time
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
from tokenswarm.errors import BAD_INPUT, TokenswarmError
from tokenswarm.levelfacts import LevelFacts
from tokenswarm.levels import planned_levels
from tokenswarm.plan import Plan
from tokenswarm.planner import Planner
from tokenswarm.provenance import clock_identity
from tokenswarm.recorder import LocustStatistics
from tokenswarm.run_description import described
from tokenswarm.rundir import RunFolder
from tokenswarm.schedule import Level
from tokenswarm.telemetry import EngineSampler
from tokenswarm.verdict import analysed

log = logging.getLogger(__name__)

PINGS = 5
STOP_LIMIT_S = 10.0
PROGRESS_INTERVAL_S = 5.0
ALONE = "local"


class Levels(LoadTestShape):  # type: ignore[misc]
    """Tells Locust how many users the current level wants. Stands in no locustfile, so Locust does not pick it up."""

    def __init__(self, master: RunMaster) -> None:
        super().__init__()
        self._master = master
        self._last: tuple[int, float] | None = None

    def tick(self) -> tuple[int, float] | None:
        controller = self._master.controller
        if controller is None:  # the run has not begun: Locust fires test_start after the first tick
            first = self._master.levels[0]
            return first.concurrency, float(first.concurrency)
        if self._last == controller.target():
            controller.wait_for_change()
        self._last = controller.target()
        return self._last


class RunMaster:
    """Owns the run folder and, for a run with levels, the controller."""

    def __init__(self, environment: Any, planner: Planner, results: Path, *, alone: bool, table: bool) -> None:
        self.levels = planned_levels(planner.scenario)
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
        self._clients: dict[str, str] = {}  # worker name -> Locust's id of it
        self._offsets: dict[str, tuple[float, float]] = {}  # worker name -> (round trip, offset)
        self._stopped: set[str] = set()
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

    def _handlers(self) -> dict[str, Callable[..., None]]:
        return {
            "ts_join": self._on_join,
            "ts_pong": self._on_pong,
            "ts_rows": self._on_rows,
            "ts_report": self._on_report,
            "ts_stopped": self._on_stopped,
            "ts_unable": self._on_unable,
        }

    def _send(self, message: str, data: dict[str, Any], worker: str) -> None:
        self._runner.send_message(message, data, client_id=None if self._alone else self._clients[worker])

    # workers ----------------------------------------------------------------------------

    def _on_join(self, environment: Any, msg: Any, **_: Any) -> None:
        name = self._name(msg.node_id)
        self._send("ts_welcome", {}, name)
        if msg.data["clock"] == clock_identity():
            self._offsets[name] = (0.0, 0.0)
        for _ping in range(PINGS):
            self._send("ts_ping", {"sent_s": perf_counter()}, name)
        if self._run:
            self._start_worker(name)

    def _name(self, client: str) -> str:
        if self._alone:
            return ALONE
        name = f"w{self._runner.get_worker_index(client)}"
        self._clients[name] = client
        return name

    def _on_pong(self, environment: Any, msg: Any, **_: Any) -> None:
        """Keep the offset of the shortest round trip; on the master's own kernel the clocks are one."""
        name = self._name(msg.node_id)
        now_s, sent_s, theirs_s = perf_counter(), msg.data["sent_s"], msg.data["monotonic_s"]
        round_trip_s = now_s - sent_s
        if round_trip_s < self._offsets.get(name, (float("inf"), 0.0))[0]:
            self._offsets[name] = (round_trip_s, (now_s + sent_s) / 2 - theirs_s)
            if self.controller is not None and name in self.controller.workers:
                self.controller.workers[name].offset_s = self._offsets[name][1]

    def _start_worker(self, name: str) -> None:
        if self.controller is not None:
            self.controller.join(name, self._offsets.get(name, (0.0, 0.0))[1])
        assert self._plan is not None, "a run is under way"
        index = 0 if self._alone else self._runner.get_worker_index(self._clients[name])
        data = {"run": self._run, "worker": name, "index": index, "plan": self._plan.to_message()}
        self._send("ts_start", data, name)
        self._write_clock(name)

    def _on_rows(self, environment: Any, msg: Any, **_: Any) -> None:
        if self.folder is not None:
            self.folder.append(msg.data["file"], msg.data["lines"])

    def _on_report(self, environment: Any, msg: Any, **_: Any) -> None:
        data = msg.data
        if self.controller is not None:
            self.controller.report(data["worker"], data["waiting"], data["done"], data["order"])
            return
        offset_s = self._offsets.get(data["worker"], (0.0, 0.0))[1]
        for _level, _phase, _played, requests in data["done"]:
            for facts in requests:
                self._free.add(facts, offset_s)

    def _on_stopped(self, environment: Any, msg: Any, **_: Any) -> None:
        if msg.data["run"] == self._run:
            self._stopped.add(self._name(msg.node_id))

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
        self._stopped, self._written, self._unable = set(), {}, []
        self._free = LevelFacts()
        try:
            plan = self._plan = self._planner.plan(self._environment.host).for_run(self._run)
            description = described(plan, self.levels)
            self.folder = RunFolder.create(self._results, plan.scenario.name)
        except TokenswarmError as error:  # from the page, or something has changed since the headless run was checked
            log.error("%s", error)
            self._run = ""
            self._give_up()
            return
        self.folder.write_once("run.json", description)
        log.info("results go to %s", self.folder.path)
        if plan.cache is not None:
            log.info("prefix cache: %s", plan.cache.line)
        self._engine = plan.engine_sampler(self._write_sample)
        if plan.simulated:
            self._statistics.simulated(plan.scenario.target.simulator)
        if self.levels:
            self.controller = Controller(self.levels, self._send, self._level_ended, self._level_begins)
            self._progress = gevent.spawn(self._tell_progress)
        else:
            self._engine.edge(None, "start")
        for name in [ALONE] if self._alone else list(self._clients):
            self._start_worker(name)

    def _level_begins(self, level: Level) -> None:
        if self._engine is not None:
            self._engine.edge(level.index, "start")

    def _level_ended(self, row: dict[str, Any], level: Level, facts: LevelFacts) -> None:
        if self.folder is not None:
            self.folder.append_row("levels", row)
        if self._engine is not None:
            self._engine.edge(level.index, "end")
        self._statistics.level(level.label, facts.wall_s, facts.window_tokens(level.tail))
        log.info("%s", progress.level_line(level, facts, row["state"]))

    def _tell_progress(self) -> None:
        while self.controller is not None and not self.controller.finished:
            gevent.sleep(PROGRESS_INTERVAL_S)
            if self.controller is not None and not self.controller.finished:
                log.info("%s", progress.line(self.controller))

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
        for worker in list(self._written):
            self._write_clock(worker)
        folder.write_once(
            "end.json",
            {
                "state": "finished" if complete else "stopped",
                "ended": datetime.now(UTC).isoformat(timespec="seconds"),
                "reasons": self._unable or ([] if complete else ["stopped before all levels were done"]),
                "notes": [self._engine.note] if self._engine is not None and self._engine.note else [],
            },
        )
        folder.close()
        self.folder, self.controller, self._run = None, None, ""
        if self._progress is not None:
            self._progress.kill(block=False)
        self._analyse(folder.path)
        if self._unable:
            self.exit_code = BAD_INPUT

    def _collect(self, collect: Callable[[], None]) -> None:
        if self._alone:
            collect()
            return
        for name in self._clients:
            self._send("ts_stop", {"run": self._run}, name)
        deadline_s = perf_counter() + STOP_LIMIT_S
        while not self._stopped.issuperset(self._present()) and perf_counter() < deadline_s:
            gevent.sleep(0.01)
        missing = set(self._clients) - self._stopped
        if missing:
            log.error("the last rows of %s did not arrive", ", ".join(sorted(missing)))

    def _present(self) -> set[str]:
        """Workers that Locust still hears from."""
        return {name for name, client in self._clients.items() if self._heard(client)}

    def _heard(self, client: str) -> bool:
        node = self._runner.clients.get(client)
        return node is not None and node.state != "missing"

    def _write_clock(self, worker: str) -> None:
        """A row of ``workers.csv``; a later row of the same worker, after more pings, replaces it."""
        offset_s = self._offsets.get(worker, (0.0, 0.0))[1]
        if self.folder is not None and self._written.get(worker) != offset_s:
            self._written[worker] = offset_s
            row = {
                "worker": worker,
                "wall_s": time.time(),
                "monotonic_s": perf_counter() - offset_s,
                "offset_s": offset_s,
            }
            self.folder.append_row("workers", row)

    def _write_sample(self, row: dict[str, Any]) -> None:
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
