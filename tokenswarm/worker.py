"""The load-generating side of a process: obeys the master's orders and reports what has ended.

A process that runs alone is master and worker in one; the same messages then arrive by direct call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from time import perf_counter
from typing import Any

import gevent
import gevent.event

from tokenswarm.errors import InputError
from tokenswarm.gallery import Gallery
from tokenswarm.gate import Gate
from tokenswarm.plan import Plan
from tokenswarm.provenance import clock_identity
from tokenswarm.recorder import LocustStatistics, Recorder
from tokenswarm.records import Phase
from tokenswarm.users import Instrument

JOIN_INTERVAL_S = 1.0
REPORT_INTERVAL_S = 0.01  # sessions that end within this time are told to the master together
STOP_LIMIT_S = 5.0


class LoadWorker:
    """Owns the instrument of this process, one for each run."""

    def __init__(self, environment: Any, *, alone: bool) -> None:
        self._environment = environment
        self._runner = environment.runner
        self._alone = alone
        self._welcomed = False
        self._ready = gevent.event.Event()
        self._dirty = gevent.event.Event()
        self._instrument: Instrument | None = None
        self._spawned_users: int | None = None  # all users of the run, once they all run
        for message, order in self._orders().items():
            self._runner.register_message(message, order, concurrent=message == "ts_stop")
        gevent.spawn(self._report_for_ever)
        if not alone:
            gevent.spawn(self._join)

    def _orders(self) -> dict[str, Callable[..., None]]:
        return {
            "ts_welcome": self._on_welcome,
            "ts_ping": self._on_ping,
            "ts_start": self._on_start,
            "ts_grant": self._on_grant,
            "ts_open": self._on_open,
            "ts_close": self._on_close,
            "ts_cut": self._on_cut,
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
        while not self._welcomed:
            self._runner.send_message("ts_join", {"clock": clock_identity()})
            gevent.sleep(JOIN_INTERVAL_S)

    def _on_welcome(self, environment: Any, msg: Any, **_: Any) -> None:
        self._welcomed = True

    def _on_ping(self, environment: Any, msg: Any, **_: Any) -> None:
        self._runner.send_message(
            "ts_pong", {"sent_s": msg.data["sent_s"], "monotonic_s": perf_counter(), "wall_s": time.time()}
        )

    # a run ----------------------------------------------------------------------------

    def _on_start(self, environment: Any, msg: Any, **_: Any) -> None:
        data = msg.data
        if self._instrument is not None and self._instrument.run == data["run"]:
            return
        try:
            self.begin(Plan.from_message(data["plan"]), data["worker"], data["index"], data["run"])
        except InputError as error:  # files or a key are not on this machine, or not any more
            self._instrument = None
            self._runner.send_message("ts_unable", {"run": data["run"], "problem": f"{data['worker']}: {error}"})

    def begin(self, plan: Plan, worker: str, index: int, run: str) -> None:
        """Set up everything a user needs for one run, and let the users in.

        Raises ``InputError`` where something that the scenario names is not to be had here.
        """
        plan.client().close()
        plan.casting.notes()  # reads the files
        gate = Gate(plan.levels, index)
        gate.on_change = self._dirty.set
        gallery = Gallery(plan.casting) if plan.casting.image_sources else None
        if gallery is not None:
            gate.on_expect, gate.on_forget = gallery.expect, gallery.forget
        recorder = Recorder(worker, self._sink, time.time() - perf_counter())
        recorder.start()
        statistics = LocustStatistics(self._environment)
        self._instrument = Instrument(run, worker, plan, gate, recorder, statistics, gallery)
        if not plan.levels:
            self._instrument.running_users = self._spawned_users
            gate.open(None, Phase.MEASURED if self._spawned_users else Phase.WARMUP)
        self._ready.set()

    def spawned(self, users: int) -> None:
        """All users run: a free-running process measures from now on."""
        self._spawned_users = users
        if self._instrument is not None and not self._instrument.plan.levels:
            self._instrument.running_users = users
            self._instrument.gate.open(None, Phase.MEASURED)

    def _obey(self, msg: Any) -> Gate:
        assert self._instrument is not None, "an order before the run has begun"
        gate = self._instrument.gate
        gate.orders = msg.data["order"]
        return gate

    def _on_grant(self, environment: Any, msg: Any, **_: Any) -> None:
        order = msg.data
        self._obey(msg).grant(order["level"], Phase(order["phase"]), range(order["first"], order["stop"]))

    def _on_open(self, environment: Any, msg: Any, **_: Any) -> None:
        order = msg.data
        self._obey(msg).open(order["level"], Phase(order["phase"]), order["quotas"])

    def _on_close(self, environment: Any, msg: Any, **_: Any) -> None:
        self._obey(msg).close(late_is_drain=msg.data["late_is_drain"])

    def _on_cut(self, environment: Any, msg: Any, **_: Any) -> None:
        self._obey(msg).cut()

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
        instrument.gate.close(late_is_drain=True)
        instrument.gate.cut()
        deadline_s = perf_counter() + STOP_LIMIT_S
        while instrument.gate.in_session and perf_counter() < deadline_s:
            gevent.sleep(0.005)
        instrument.recorder.close()
        if instrument.gallery is not None:
            instrument.gallery.close()
        self._report()
        self._ready.clear()
        self._spawned_users = None

    # reporting --------------------------------------------------------------------------

    def _sink(self, file: str, text: str) -> None:
        worker = self._instrument.worker if self._instrument else ""
        self._runner.send_message("ts_rows", {"worker": worker, "file": file, "lines": text})

    def _report(self) -> None:
        instrument = self._instrument
        if instrument is not None:
            gate = instrument.gate
            report = {
                "worker": instrument.worker,
                "waiting": gate.waiting,
                "done": gate.take_done(),
                "order": gate.orders,
            }
            self._runner.send_message("ts_report", report)

    def _report_for_ever(self) -> None:
        """Rows go before the report that counts their sessions as done: what is counted is never missing.

        Alone there is nothing to lose on the way, and rows are written in larger batches.
        """
        while True:
            self._dirty.wait()
            gevent.sleep(0 if self._alone else REPORT_INTERVAL_S)
            self._dirty.clear()
            if self._instrument is not None and not self._alone:
                self._instrument.recorder.flush()
            self._report()
