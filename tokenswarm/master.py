"""The master's side of a process: runs, the workers that take part in them, and the exit code.

A process that runs alone is master and worker in one.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

import gevent
from locust import LoadTestShape

from tokenswarm.admission import misfit
from tokenswarm.clocks import wall_s
from tokenswarm.controller import Controller
from tokenswarm.errors import BAD_INPUT, NOT_CREDIBLE, RunFolderError, TokenswarmError
from tokenswarm.levels import planned_levels
from tokenswarm.load_run import LoadRun
from tokenswarm.planner import Planner
from tokenswarm.recorder import LocustStatistics
from tokenswarm.resume import Resumption
from tokenswarm.roster import Member, Roster
from tokenswarm.rundir import RunFolder
from tokenswarm.verdict import analysed

log = logging.getLogger(__name__)

ACK_EVERY = 16  # messages of a worker, of which it may have 64 under way; a large one at once
ACK_BYTES = 100_000
STOP_LIMIT_S = 10.0
ANSWER_LIMIT_S = 5.0
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
    """Owns the run under way, if there is one, and knows the workers."""

    def __init__(
        self,
        environment: Any,
        planner: Planner,
        results: Path,
        *,
        alone: bool,
        table: bool,
        leave: Callable[[BaseException], None],
        resumption: Resumption | None = None,
    ) -> None:
        """``leave`` raises in Locust's main greenlet, which may still be waiting for workers."""
        levels = planned_levels(planner.scenario)  # of a search the first
        self.levels = levels if resumption is None else resumption.missing(levels)
        self.exit_code: int | None = None
        self.table_text = ""
        self._run: LoadRun | None = None
        self._leave = leave
        self._resumption = resumption
        self._planner = planner
        self._environment = environment
        self._runner = environment.runner
        self._results = results
        self._alone = alone
        self._table = table
        self._statistics = LocustStatistics(environment)
        self._roster = Roster(self._runner, alone=alone, on_gone=self._on_gone)
        self._dealt_to: set[str] = set()  # Locust's ids of the workers among which it has dealt the users
        self._stopped: set[str] = set()
        self._ending: gevent.Greenlet | None = None
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

        def start_for_the_shape(user_count: int, spawn_rate: float, *arguments: Any, **options: Any) -> None:
            if gevent.getcurrent() is not self._runner.shape_greenlet:
                return
            clients = self._runner.clients
            self._dealt_to = {client.id for client in (*clients.ready, *clients.running, *clients.spawning)}
            start(user_count, spawn_rate, *arguments, **options)
            if self.controller is not None:
                self.controller.deal_done((user_count, spawn_rate))

        self._runner.start = start_for_the_shape

    def _handlers(self) -> dict[str, Callable[..., None]]:
        return {
            "ts_join": self._on_join,
            "ts_pong": self._on_pong,
            "ts_report": self._on_report,
            "ts_stopped": self._on_stopped,
            "ts_unable": self._on_unable,
            "ts_gap": self._on_gap,
        }

    @property
    def controller(self) -> Controller | None:
        """Of the run under way, where it has levels."""
        return None if self._run is None else self._run.controller

    @property
    def _headless(self) -> bool:
        return bool(self._environment.parsed_options.headless)

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
        needed = self._run is None or client in self._dealt_to
        if self._headless and needed:  # one that comes on top is left out, and the run goes on
            self._give_up(problem)

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
        run = self._run
        if run is None or member.run == run.plan.run or not member.clock_known or member.gone:
            return
        self._roster.begin(member, run.plan.run)
        run.join(member, dealt=self._alone or member.client in self._dealt_to)
        data = {
            "run": run.plan.run,
            "life": member.life,
            "worker": member.name,
            "index": 0 if self._alone else self._runner.get_worker_index(member.client),
            "most_users": self._most_users(),
            "to_unix_s": wall_s() - perf_counter() + member.offset_s,
            "plan": run.plan.to_message(),
        }
        self._roster.send("ts_start", data, member.name)

    def _most_users(self) -> int:
        """That one worker must be able to run."""
        load = self._planner.scenario.load
        users = self._environment.parsed_options.num_users or 1 if load is None else load.most_users
        return math.ceil(users / max(1, len(self._roster.present)))

    def _on_report(self, environment: Any, msg: Any, **_: Any) -> None:
        run, data, member = self._run, msg.data, self._roster.find(msg.node_id)
        if member is None or run is None:
            return
        if self._alone:
            run.report(member, data)
            return
        good = self._roster.accept(member, data["life"], data["number"])
        member.behind = data["behind"]
        if not good or data["number"] % ACK_EVERY == 0 or sum(map(len, data["rows"].values())) > ACK_BYTES:
            self._roster.send("ts_ack", {"life": data["life"], "number": data["number"]}, member.name)
        if good:
            run.report(member, data)
        else:
            run.late_report(data)

    def _on_stopped(self, environment: Any, msg: Any, **_: Any) -> None:
        member = self._roster.find(msg.node_id)
        if member is not None and self._run is not None and msg.data["run"] == self._run.plan.run:
            self._stopped.add(member.name)

    def _on_gone(self, member: Member, run_id: str) -> None:
        """A worker does not take part any more."""
        run = self._run
        if run is None or run_id != run.plan.run or run.unable:  # it is ending, and why has been told
            return
        line = f"worker {member.name} {member.gone} at {datetime.now():%H:%M:%S}"
        log.error("%s", line)
        self._dealt_to.discard(member.client)
        run.leave(member, line)
        if not self._roster.present and self._headless:
            gevent.spawn(self._runner.quit)  # Locust would stop, and wait for somebody to end it

    def _look_after_workers(self) -> None:
        for count in itertools.count(1):
            gevent.sleep(LOOK_INTERVAL_S)
            self._roster.look()
            silent = [] if self.controller is None else self.controller.crew.silent(ANSWER_LIMIT_S)
            for member in map(self._roster.named, silent):
                if not member.behind:
                    self._roster.give_up(member, f"did not answer for {ANSWER_LIMIT_S:g} s")
            if count % PING_EVERY == 0:
                for member in self._roster.present:
                    self._roster.ping(member, 1)

    def _on_gap(self, environment: Any, msg: Any, **_: Any) -> None:
        member = self._roster.find(msg.node_id)
        if member is not None and msg.data["life"] == member.life:
            self._roster.give_up(member, "did not get all orders")

    def _on_unable(self, environment: Any, msg: Any, **_: Any) -> None:
        """A worker cannot take part: without it this would not be the load that was asked for."""
        if self._run is not None and msg.data["run"] == self._run.plan.run:
            log.error("%s", msg.data["problem"])
            self._give_up(msg.data["problem"])

    def _give_up(self, problem: str) -> None:
        """End the run; without a page the process too."""
        if self._run is not None:
            self._run.unable.append(problem)
        if self._headless:
            self.exit_code = BAD_INPUT
        if self._headless and self._runner.state == "ready":
            self._leave(SystemExit(BAD_INPUT))
        else:
            gevent.spawn(self._runner.quit if self._headless else self._runner.stop)

    def _cannot_write(self, line: str) -> None:
        """Load whose rows are lost is worth nothing: the run ends with what it has."""
        log.error("%s", line)
        if self._run is not None:
            self._run.lost.append(line)
        gevent.spawn(self._runner.quit if self._headless else self._runner.stop)

    # a run --------------------------------------------------------------------------------

    def begin(self) -> None:
        """A new run folder; every worker is told."""
        self._stopped, self._ending = set(), None
        try:
            plan = self._planner.plan(self._environment.host).for_run(uuid4().hex)
            folder = RunFolder.create(self._results, plan.scenario.name)
        except TokenswarmError as error:  # from the page, or something has changed since the headless run was checked
            log.error("%s", error)
            self._give_up(str(error))
            return
        folder.on_failure = self._cannot_write
        self._run = LoadRun(plan, folder, self._roster.send, self._statistics, self._resumption)
        try:
            self._run.start(self._processes_here())
        except RunFolderError as error:
            log.error("%s", error)
            self._run = None
            self._give_up(str(error))
            return
        for member in self._roster:
            self._start_worker(member)

    def _processes_here(self) -> int | None:
        """How many processes make the load, where all of them run on this machine."""
        if self._alone:
            return 1
        count = len(self._runner.clients)
        joined = [member.same_clock for member in self._roster.present]
        forked = bool(self._environment.parsed_options.processes)
        return count if forked or (len(joined) == count and all(joined)) else None

    def end(self, collect: Callable[[], None]) -> None:
        """Close the run folder after every worker has sent its last rows; harmless when called again.

        ``collect`` ends the worker in this process, where there is one. Whoever calls this may be killed by Locust
        while it waits, or come second: the work is done by a greenlet of its own.
        """
        if self._run is not None and self._ending is None:
            self._ending = gevent.spawn(self._end, self._run, collect)
        if self._ending is not None:
            self._ending.join()

    def _end(self, run: LoadRun, collect: Callable[[], None]) -> None:
        if not self._alone:
            self._roster.look()  # those that are missing are named
        complete = run.interrupt()
        if self._alone:
            collect()
        else:
            self._collect(run.plan.run)
        run.close(list(self._roster), complete=complete)
        self._run = None
        if run.lost or not complete:
            self.exit_code = NOT_CREDIBLE
        self._analyse(run.folder.path)
        if run.lost and not self.exit_code:
            self.exit_code = NOT_CREDIBLE
        if run.unable:
            self.exit_code = BAD_INPUT

    def _collect(self, run_id: str) -> None:
        asked = {member.name for member in self._roster.present if member.run == run_id}
        for name in asked:
            self._roster.send("ts_stop", {"run": run_id}, name)
        deadline_s = perf_counter() + STOP_LIMIT_S
        while not self._stopped.issuperset(self._still_there(asked)) and perf_counter() < deadline_s:
            gevent.sleep(0.01)
        missing = asked - self._stopped
        for name in sorted(missing):
            self._roster.give_up(self._roster.named(name), "did not send its last rows")

    def _still_there(self, asked: set[str]) -> set[str]:
        return asked & {member.name for member in self._roster.present}

    # the verdict ----------------------------------------------------------------------------

    def _analyse(self, path: Path) -> None:
        if not self._table:
            return
        if not (path / "run.json").exists():
            log.warning("stopped before the load began; %s holds nothing", path)
            self.exit_code = NOT_CREDIBLE
            return
        scenario = self._planner.scenario
        asked = {"prefix-cache": scenario.prefix_cache, "interference": scenario.interference}
        verdict = analysed(path, [question for question, wanted in asked.items() if wanted is not None])
        self.exit_code, self.table_text = verdict.exit_code, verdict.text
        if not self._headless:
            log.info("table: %s", path / "table.txt")
