"""The load-generating side of a process: obeys the master's orders and reports what has ended.

A process that runs alone is master and worker in one; the same messages then arrive by direct call.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter, time
from typing import Any

import gevent
import gevent.event
import msgspec
from locust.exception import RPCError

from tokenswarm.admission import introduction
from tokenswarm.clocks import wall_s
from tokenswarm.errors import InputError
from tokenswarm.gallery import Gallery
from tokenswarm.gate import Gate
from tokenswarm.health import Counts
from tokenswarm.health_probe import HealthProbe
from tokenswarm.level_message import level_of
from tokenswarm.open_files import require_open_files
from tokenswarm.outbox import Outbox
from tokenswarm.plan import Plan
from tokenswarm.reception import tally
from tokenswarm.recorder import LocustStatistics, Recorder
from tokenswarm.records import Phase
from tokenswarm.schedule import Ticket
from tokenswarm.trace import TraceSession
from tokenswarm.users import Instrument

log = logging.getLogger(__name__)

JOIN_INTERVAL_S = 1.0
QUICK_REPORT_S = 0.01  # where users wait for tickets; sessions that end within this time are told together
REPORT_INTERVAL_S = 0.05  # elsewhere: every message costs the master as much as ten rows
STOP_LIMIT_S = 5.0
MASTER_SILENCE_S = 10.0  # without a word from the master the load ends: nobody would know of it
MASTER_GONE_EXIT, REFUSED_EXIT = 1, 2


class LoadWorker:
    """Owns the instrument of this process, one for each run."""

    def __init__(self, environment: Any, *, alone: bool) -> None:
        self._environment = environment
        self._runner = environment.runner
        self._alone = alone
        self._welcomed = False
        self._ready = gevent.event.Event()
        self._dirty = gevent.event.Event()
        self._urgent = gevent.event.Event()  # users wait, and only the master can help them
        self._instrument: Instrument | None = None
        self._probe: HealthProbe | None = None
        self._outbox = Outbox(0, self._runner.send_message, lambda held: None)
        self._rows: dict[str, list[str]] = defaultdict(list)  # for the next report
        self._spawned_users: int | None = None  # all users of the run, once they all run
        for message, order in self._orders().items():
            concurrent = message in ("ts_stop", "ts_dismiss")
            self._runner.register_message(message, order, concurrent=concurrent)
        gevent.spawn(self._report_for_ever)
        if not alone:
            gevent.spawn(self._join)
            gevent.spawn(self._watch_master)

    def _orders(self) -> dict[str, Callable[..., None]]:
        return {
            "ts_welcome": self._on_welcome,
            "ts_refuse": self._on_refuse,
            "ts_ping": self._on_ping,
            "ts_start": self._on_start,
            "ts_level": self._on_level,
            "ts_grant": self._on_grant,
            "ts_due": self._on_due,
            "ts_open": self._on_open,
            "ts_close": self._on_close,
            "ts_cut": self._on_cut,
            "ts_ack": self._on_ack,
            "ts_dismiss": self._on_dismiss,
            "ts_stop": self._on_stop,
        }

    def ready(self) -> Instrument:
        """The instrument of the current run; blocks until the master has sent what it needs."""
        self._ready.wait()
        assert self._instrument is not None
        return self._instrument

    # joining ------------------------------------------------------------------------

    def _join(self) -> None:
        """Ask until the master answers: it may still be checking the target."""
        self._welcomed = False
        about = introduction(self._environment.parsed_options.scenario)
        while not self._welcomed:
            self._runner.send_message("ts_join", about)
            gevent.sleep(JOIN_INTERVAL_S)

    def _on_welcome(self, environment: Any, msg: Any, **_: Any) -> None:
        self._welcomed = True

    def _on_refuse(self, environment: Any, msg: Any, **_: Any) -> None:
        """The master has told why."""
        self._welcomed = True
        self._environment.process_exit_code = REFUSED_EXIT
        gevent.spawn(self._runner.quit)

    def _on_ping(self, environment: Any, msg: Any, **_: Any) -> None:
        pong = {"sent_s": msg.data["sent_s"], "monotonic_s": perf_counter(), "wall_s": wall_s()}
        self._runner.send_message("ts_pong", pong)

    def _watch_master(self) -> None:
        """A worker that nobody hears must not go on loading the server."""
        while True:
            gevent.sleep(1.0)
            heard_s = self._runner.last_heartbeat_timestamp
            instrument = self._instrument
            silent = bool(heard_s) and time() - heard_s > MASTER_SILENCE_S
            self._mind_the_exit_code(silent=silent)
            if instrument is not None and silent:
                instrument.gate.close(late_is_drain=True)
                instrument.gate.cut()

    def _mind_the_exit_code(self, *, silent: bool) -> None:
        """Locust ends a worker after a minute of silence: a failure, so that whoever watches over it starts it anew."""
        code = self._environment.process_exit_code
        if silent and code is None:
            self._environment.process_exit_code = MASTER_GONE_EXIT
        elif not silent and code == MASTER_GONE_EXIT:
            self._environment.process_exit_code = None

    # a run ----------------------------------------------------------------------------

    def _on_start(self, environment: Any, msg: Any, **_: Any) -> None:
        data = msg.data
        instrument = self._instrument
        if instrument is not None and instrument.run == data["run"]:
            if data["life"] != self._outbox.life:
                self._live_again(data["life"], instrument)
            return
        try:
            require_open_files(data["most_users"])
            self._outbox = Outbox(data["life"], self._runner.send_message, self._hold)
            self.begin(Plan.from_message(data["plan"]), data["worker"], data["index"], data["run"], data["to_unix_s"])
        except InputError as error:  # files or a key are not on this machine, or not any more
            self._close_probe()
            self._instrument = None
            self._runner.send_message("ts_unable", {"run": data["run"], "problem": f"{data['worker']}: {error}"})

    def _live_again(self, life: int, instrument: Instrument) -> None:
        """The master counts our messages anew; what was ordered before is forgotten on both sides."""
        gate = instrument.gate
        self._outbox = Outbox(life, self._runner.send_message, self._hold)
        gate.take_done()
        gate.orders = 0
        if not instrument.plan.levels:
            gate.open(None, Phase.MEASURED)
        self._dirty.set()

    def _hold(self, held: bool) -> None:
        if self._instrument is not None:
            self._instrument.gate.hold(held)

    def begin(self, plan: Plan, worker: str, index: int, run: str, to_unix_s: float) -> None:
        """Set up everything a user needs for one run, and let the users in.

        ``to_unix_s``: to add to this process' monotonic seconds to get the master's unix time. Raises ``InputError``
        where something that the scenario names is not to be had here.
        """
        plan.client().close()
        plan.casting.notes()  # reads the files
        gate = Gate(plan.levels, index)
        gate.on_change, gate.on_idle = self._dirty.set, self._urgent.set
        gallery = Gallery(plan.casting) if plan.casting.image_sources else None
        if gallery is not None:
            gate.on_expect, gate.on_forget = gallery.expect, gallery.forget
        recorder = Recorder(worker, self._collect, to_unix_s)
        recorder.start()
        statistics = LocustStatistics(self._environment)
        self._instrument = Instrument(run, worker, plan, gate, recorder, statistics, gallery)
        gate.on_refuse = self._instrument.refuse
        self._probe = HealthProbe(worker, self._collect, gate.level_index, self._counts)
        self._probe.start()
        if not plan.levels:
            self._instrument.running_users = self._spawned_users
            gate.open(None, Phase.MEASURED if self._spawned_users else Phase.WARMUP)
        self._ready.set()

    def _counts(self) -> Counts:
        assert self._instrument is not None, "the probe is of a run"
        gate, outbox = self._instrument.gate, self._outbox
        backlog = (None, None) if self._alone else (outbox.backlog_bytes, outbox.held_s)
        return Counts(tally.token_events, gate.in_session, gate.waiting, *backlog)

    def spawned(self, users: int) -> None:
        """All users run: a free-running process measures from now on."""
        self._spawned_users = users
        if self._instrument is not None and not self._instrument.plan.levels:
            self._instrument.running_users = users
            self._instrument.gate.open(None, Phase.MEASURED)

    def _obey(self, msg: Any) -> Gate | None:
        """The gate that an order is for. None where one before it was lost: the master must give us up, since nobody
        knows what we were to do."""
        assert self._instrument is not None, "an order before the run has begun"
        gate, number = self._instrument.gate, msg.data["order"]
        if number != gate.orders + 1:
            self._runner.send_message("ts_gap", {"life": self._outbox.life})
            return None
        gate.orders = number
        self._dirty.set()
        return gate

    def _on_level(self, environment: Any, msg: Any, **_: Any) -> None:
        if (gate := self._obey(msg)) is not None and self._instrument is not None:
            level = level_of(msg.data["plan"])
            self._instrument.plan.casting.learn(level)
            gate.learn(level)

    def _on_grant(self, environment: Any, msg: Any, **_: Any) -> None:
        order = msg.data
        if (gate := self._obey(msg)) is not None:
            gate.grant(order["level"], Phase(order["phase"]), [(number, again) for number, again in order["tickets"]])

    def _on_due(self, environment: Any, msg: Any, **_: Any) -> None:
        order = msg.data
        if (gate := self._obey(msg)) is not None:
            gate.schedule(order["level"], [_arriving(*ticket) for ticket in order["tickets"]])

    def _on_open(self, environment: Any, msg: Any, **_: Any) -> None:
        order = msg.data
        if (gate := self._obey(msg)) is not None:
            gate.open(order["level"], Phase(order["phase"]), order["quotas"])

    def _on_close(self, environment: Any, msg: Any, **_: Any) -> None:
        if (gate := self._obey(msg)) is not None:
            gate.close(late_is_drain=msg.data["late_is_drain"])

    def _on_cut(self, environment: Any, msg: Any, **_: Any) -> None:
        if (gate := self._obey(msg)) is not None:
            gate.cut()

    def _on_ack(self, environment: Any, msg: Any, **_: Any) -> None:
        self._outbox.acknowledged(msg.data["life"], msg.data["number"])

    def _on_dismiss(self, environment: Any, msg: Any, **_: Any) -> None:
        """The master had given us up. What we did since does not count; it is sent all the same, then we join anew."""
        instrument = self._instrument
        if instrument is None or msg.data["life"] != self._outbox.life or not self._welcomed:
            return
        self._welcomed = False  # it is told until we have joined
        self._cut_all(instrument)
        instrument.recorder.flush(gaps=True)
        self._report()
        self._join()

    def _on_stop(self, environment: Any, msg: Any, **_: Any) -> None:
        self.end()
        if not self._alone:
            self._runner._send_stats()  # Locust's own last report may come after the master has stopped listening
        self._runner.send_message("ts_stopped", {"run": msg.data["run"]})

    def end(self) -> None:
        """Cut what is in flight and send every record on. Harmless when called again."""
        instrument = self._instrument
        if instrument is None:
            return
        self._cut_all(instrument)
        self._close_probe()
        instrument.recorder.close()
        if instrument.gallery is not None:
            instrument.gallery.close()
        self._report()
        instrument.gate.leave()
        self._ready.clear()
        self._spawned_users = None

    def _close_probe(self) -> None:
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    @staticmethod
    def _cut_all(instrument: Instrument) -> None:
        instrument.gate.close(late_is_drain=True)
        instrument.gate.cut()
        deadline_s = perf_counter() + STOP_LIMIT_S
        while instrument.gate.in_session and perf_counter() < deadline_s:
            gevent.sleep(0.005)

    # reporting --------------------------------------------------------------------------

    def _collect(self, file: str, text: str) -> None:
        """Rows wait for the next report, so that they and the sessions they tell of arrive together or not at all."""
        self._rows[file].append(text)
        self._dirty.set()

    def _report(self) -> None:
        instrument = self._instrument
        if instrument is None:
            return
        gate = instrument.gate
        rows, self._rows = self._rows, defaultdict(list)
        encoded = {file: "".join(texts).encode() for file, texts in rows.items()}
        report = {"waiting": gate.waiting, "done": gate.take_done(), "order": gate.orders, "rows": encoded}
        report["behind"] = self._outbox.behind
        if self._alone:
            self._runner.send_message("ts_report", report)
        else:
            self._outbox.post("ts_report", report, sum(map(len, encoded.values())))

    def _report_for_ever(self) -> None:
        """Alone there is nothing to lose on the way, and while sessions go on rows are written in larger batches."""
        while True:
            self._dirty.wait()
            if not self._alone:
                self._urgent.wait(timeout=REPORT_INTERVAL_S - QUICK_REPORT_S)
            gevent.sleep(0 if self._alone else QUICK_REPORT_S)
            self._dirty.clear()
            self._urgent.clear()
            instrument = self._instrument
            if instrument is not None and not (self._alone and instrument.gate.in_session):
                instrument.recorder.flush()
                self._dirty.clear()
            try:
                self._report()
            except RPCError as error:  # the master will miss it, and this worker with it
                log.error("a report was not sent: %s", error)


def _arriving(phase: str, number: int, due_s: float, recorded: Any, again: int) -> Ticket:
    session = None if recorded is None else msgspec.convert(recorded, TraceSession)
    return Ticket(None, Phase(phase), number, 0.0, due_s=due_s, recorded=session, again=again)
