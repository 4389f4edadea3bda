"""The one place that knows everybody: Locust's options, the wiring at ``init``, the closing and the exit code."""

from __future__ import annotations

import csv
import ctypes
import gc
import io
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gevent
import locust.stats
from locust import events
from locust.runners import STATE_STOPPED, STATE_STOPPING, MasterRunner, WorkerRunner

from tokenswarm.errors import BAD_INPUT, NOT_CREDIBLE, InputError, TokenswarmError
from tokenswarm.master import RunMaster
from tokenswarm.open_files import require_open_files
from tokenswarm.planner import Planner
from tokenswarm.resume import Resumption
from tokenswarm.rundir import require_results_folder
from tokenswarm.scenario import Scenario, default_scenario, load_scenario
from tokenswarm.simulated import SimulatedTarget
from tokenswarm.worker import LoadWorker

log = logging.getLogger(__name__)

PARENT_INTERVAL_S = 0.5
PR_SET_PDEATHSIG = 1  # of prctl(2)


class FinalStatsCSV(locust.stats.StatsCSVFileWriter):  # type: ignore[misc]
    """Locust rewrites its CSV files once a second and closes them without a last look; this writer looks again.

    It has to be before Locust's own end: writing ``--json-file`` sets every statistic to zero.
    """

    newest: ClassVar[FinalStatsCSV | None] = None
    requests_csv_filehandle: Any
    requests_csv_writer: Any
    failures_csv_filehandle: Any
    failures_csv_writer: Any

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        FinalStatsCSV.newest = self

    def last_look(self) -> None:
        """Write statistics and failures for good; what Locust still writes goes nowhere."""
        stats, failures = self.requests_csv_filehandle, self.failures_csv_filehandle
        for handle in (stats, failures):
            handle.seek(0)
        self.requests_csv_writer.writerow(self.requests_csv_columns)
        self._requests_data_rows(self.requests_csv_writer)
        self.failures_csv_writer.writerow(self.failures_columns)
        self._failures_data_rows(self.failures_csv_writer)
        for handle in (stats, failures):
            handle.truncate()
            handle.close()
        self._divert("requests", "failures")

    def close_files(self) -> None:
        """Locust's greenlet may write once more after that, and would fail."""
        super().close_files()
        self._divert("requests", "failures", "exceptions", "stats_history")

    def _divert(self, *files: str) -> None:
        for file in files:
            nowhere = io.StringIO()
            setattr(self, f"{file}_csv_filehandle", nowhere)
            setattr(self, f"{file}_csv_writer", csv.writer(nowhere))


class Session:
    """What this process is in the run; stands at ``environment.tokenswarm``."""

    def __init__(self, environment: Any, kind: str | None) -> None:
        runner = environment.runner
        self.alone = not isinstance(runner, MasterRunner | WorkerRunner)
        self.master: RunMaster | None = None
        self.worker: LoadWorker | None = None
        self._simulator: SimulatedTarget | None = None
        if not isinstance(runner, WorkerRunner):
            self.master = self._master(environment, kind)
        if not isinstance(runner, MasterRunner):
            self.worker = LoadWorker(environment, alone=self.alone)
        self.ready = self.worker.ready if self.worker else None

    def _master(self, environment: Any, kind: str | None) -> RunMaster:
        options = environment.parsed_options
        scenario = load_scenario(options.scenario) if options.scenario else default_scenario(kind or "chat")
        scenario = _overridden(scenario.with_target(model=options.model or None), options)
        _check_options(scenario, options, alone=self.alone)
        results = Path(options.results)
        require_results_folder(results)
        if scenario.target.simulator is not None and not environment.host:
            self._simulator = SimulatedTarget(scenario.target.simulator, scenario.seed)
        planner = Planner(scenario, kind, self._simulator.url if self._simulator else None)
        try:
            planner.plan(environment.host)
        except TokenswarmError as error:
            self.close()
            if options.headless or options.autostart:
                raise
            log.warning("%s", error)  # the page can name another host; it is checked when a run starts
        resumption = Resumption.of(Path(options.resume), scenario) if options.resume else None
        return RunMaster(
            environment,
            planner,
            results,
            alone=self.alone,
            table=not options.no_table,
            leave=_into_main(),
            resumption=resumption,
        )

    def listen(self, events: Any) -> None:
        """Follow Locust through the beginning and the end of each run."""
        master, worker = self.master, self.worker
        if master is not None:
            events.test_start.add_listener(lambda **_: master.begin())
            events.test_stop.add_listener(lambda **_: self.finish())
        if worker is not None:
            events.spawning_complete.add_listener(lambda user_count, **_: worker.spawned(user_count))

    def finish(self) -> None:
        if self.master is not None:
            self.master.end(self.worker.end if self.worker else lambda: None)
        elif self.worker is not None:
            self.worker.end()

    def close(self) -> None:
        if self._simulator is not None:
            self._simulator.stop()


def _overridden(scenario: Scenario, options: Any) -> Scenario:
    """The scenario with what the command line says of key and certificates."""
    tls: dict[str, Any] = ({"verify": False} if options.insecure else {}) | (
        {"ca_file": str(Path(options.ca_file).resolve())} if options.ca_file else {}
    )
    changes: dict[str, Any] = {"tls": scenario.target.tls.model_copy(update=tls)}
    if options.api_key_file:
        changes |= {"api_key": None, "api_key_file": str(Path(options.api_key_file).resolve())}
    return scenario.model_copy(update={"target": scenario.target.model_copy(update=changes)})


def _check_options(scenario: Scenario, options: Any, *, alone: bool) -> None:
    """Refuse options that would be ignored, and more users than this process may open connections for."""
    levels = scenario.load is not None
    ignored = (("-u", options.num_users), ("-r", options.spawn_rate), ("-t", options.run_time))
    given = [name for name, value in ignored if value]
    if levels and given:
        raise InputError(
            f"{' '.join(given)}: the load of {scenario.source} decides users and time; "
            "leave the option out, or the scenario's load"
        )
    users = scenario.load.most_users if scenario.load else options.num_users or 1
    if alone:
        require_open_files(users)


class _Expected(logging.Filter):
    """Warnings of Locust about what is meant so. Workers ask to join until the master, still busy checking the target,
    can answer; and all users of a level begin at once."""

    def filter(self, record: logging.LogRecord) -> bool:
        early = record.msg.startswith("Unknown message type") and "ts_join" in record.getMessage()
        return not (early or record.msg.startswith("Your selected spawn rate is very high"))


def _use_private_port(arguments: Sequence[str], environ: MutableMapping[str, str]) -> None:
    """With ``--processes`` alone, master and workers meet on a free port of the loopback interface: on Locust's usual
    one, workers of another run on this machine would join this one."""
    words = {argument.partition("=")[0] for argument in arguments}
    forks = "--processes" in words or "LOCUST_PROCESSES" in environ
    chosen = words & {"--worker", "--master-port", "--master-bind-port", "--master-host", "--master-bind-host"}
    if not forks or chosen or {"LOCUST_MASTER_NODE_PORT", "LOCUST_MASTER_BIND_PORT"} & environ.keys():
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environ["LOCUST_MASTER_NODE_PORT"] = environ["LOCUST_MASTER_BIND_PORT"] = port
    environ["LOCUST_MASTER_BIND_HOST"] = "127.0.0.1"


def install(kind: str | None = None) -> None:
    """Call once in a locustfile. ``kind`` limits the scenario's traffic to what its user classes play."""
    locust.stats.StatsCSVFileWriter = FinalStatsCSV
    _use_private_port(sys.argv, os.environ)
    logging.getLogger("locust.runners").addFilter(_Expected())
    started_as = os.getpid()  # Locust forks the workers of --processes later
    os.register_at_fork(after_in_child=_end_with_parent)
    events.init_command_line_parser.add_listener(_add_options)
    events.init.add_listener(lambda environment, **_: _init(environment, kind))
    events.init.add_listener(lambda environment, **_: _follow_parent(environment, started_as))
    events.quitting.add_listener(_quitting)
    events.quit.add_listener(_quit)


def _add_options(parser: Any, **_: Any) -> None:
    add = parser.add_argument
    add("--scenario", metavar="PATH", default="", env_var="TOKENSWARM_SCENARIO", include_in_web_ui=False,
        help="YAML file that says what to send and how hard; without it free-running chat traffic")  # fmt: skip
    add("--results", metavar="DIR", default="results", env_var="TOKENSWARM_RESULTS", include_in_web_ui=False,
        help="where run folders are made (default: results)")  # fmt: skip
    add("--model", default="", env_var="TOKENSWARM_MODEL", help="model name to ask for, instead of the scenario's")
    add("--api-key-file", metavar="PATH", default="", env_var="TOKENSWARM_API_KEY_FILE", include_in_web_ui=False,
        help="file with the bearer key; the scenario can name an environment variable instead")  # fmt: skip
    add("--insecure", action="store_true", include_in_web_ui=False,
        help="accept any TLS certificate, for example a self-signed one")  # fmt: skip
    add("--ca-file", metavar="PATH", default="", include_in_web_ui=False,
        help="PEM file with the certificate to trust")  # fmt: skip
    add("--resume", metavar="DIR", default="", include_in_web_ui=False,
        help="run folder of a sweep that ended early: run the missing levels of the same scenario")  # fmt: skip
    add("--no-table", action="store_true", include_in_web_ui=False,
        help="no table at the end of the run; python -m analysis table RUN makes it later")  # fmt: skip


def _init(environment: Any, kind: str | None) -> None:
    try:
        session = Session(environment, kind)
    except TokenswarmError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        sys.exit(BAD_INPUT)
    environment.tokenswarm = session
    session.listen(environment.events)
    stop = _main_stopper()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # one that is ignored stays ignored
        gevent.signal_handler(signal.SIGINT, stop)
    options = environment.parsed_options
    if session.master is not None and session.master.levels and options.headless:
        gevent.signal_handler(signal.SIGTERM, _stop, environment, stop)
        if options.loglevel == "INFO":  # of a run with levels our own lines tell more than Locust's on its users
            logging.getLogger("locust.runners").setLevel(logging.WARNING)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # few cyclic objects live here; fewer pauses for the streams


def _main_stopper() -> Callable[[], None]:
    """Ends what Locust's main greenlet, the current one, waits for, as Ctrl-C does; called again it does not wait for
    last rows and the table. Left alone, Python raises a Ctrl-C in whichever greenlet runs: one that listens to workers
    or records a request would die instead."""
    throw = _into_main()
    stops = itertools.chain([KeyboardInterrupt()], itertools.repeat(SystemExit(NOT_CREDIBLE)))
    return lambda: throw(next(stops))


def _into_main() -> Callable[[BaseException], None]:
    """Raises what it is given in Locust's main greenlet, the current one, when its turn comes."""
    main, loop = gevent.getcurrent(), gevent.get_hub().loop
    return lambda error: loop.run_callback(main.throw, error)


def _end_with_parent(signal_number: int = signal.SIGTERM) -> None:
    """Until a forked worker has met its master, the kernel ends it with that: where the master has refused the input,
    Locust would leave the worker behind, asking for minutes for a master that is gone. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal_number)


def _follow_parent(environment: Any, parent: int) -> None:
    """A forked worker must not outlive its master: left to Locust it would load the server for another minute."""
    if os.getpid() != parent:
        _end_with_parent(0)  # from now on in good order
        gevent.spawn(_quit_with, environment.runner, parent)


def _quit_with(runner: Any, parent: int) -> None:
    while os.getppid() == parent:
        gevent.sleep(PARENT_INTERVAL_S)
    runner.quit()


def _stop(environment: Any, stop: Callable[[], None]) -> None:
    """SIGTERM, as containers get it: Locust's own handler stands only once a headless run with levels is over.

    The main greenlet alone ends the run. When it finds the runner stopped by another one, it sends the workers away
    before their last rows are in.
    """
    log.warning("stopped by SIGTERM; what was measured so far is kept")
    if environment.runner.state not in (STATE_STOPPING, STATE_STOPPED):
        stop()


def _quitting(environment: Any, **_: Any) -> None:
    session: Session | None = getattr(environment, "tokenswarm", None)
    if session is None:
        return
    session.finish()
    session.close()
    if FinalStatsCSV.newest is not None:
        FinalStatsCSV.newest.last_look()
    if session.master is None and environment.process_exit_code is None:
        environment.process_exit_code = 0  # failed requests are rows; the master judges them
    if session.master is not None and session.master.exit_code is not None:
        environment.process_exit_code = session.master.exit_code
        if session.master.table_text and not environment.parsed_options.json:
            _quit.table = session.master.table_text  # type: ignore[attr-defined]
            logging.getLogger("locust.stats_logger").setLevel(logging.WARNING)  # one table is enough


def _quit(**_: Any) -> None:
    """Locust prints its own statistics first; the table is the last thing a person sees."""
    table = getattr(_quit, "table", "")
    if table:
        sys.stdout.write(f"\n{table}")
        sys.stdout.flush()
