"""A master and workers as processes of their own, what they have written so far, and ways to hurt them."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.distributed.relay import Relay
from tests.locust_process import LOCUST, ROOT, Run, free_port

DELAY_S = 0.02  # one way
FULL_MASTER_WAIT_S = 60.0


@dataclass
class Worker:
    """A load-generating process behind port ``number`` of the relay."""

    number: int
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> float:
        """SIGKILL; the moment on the clock that all processes of this machine share."""
        self.process.kill()
        return time.perf_counter()

    def freeze(self) -> float:
        self.process.send_signal(signal.SIGSTOP)
        return time.perf_counter()

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@dataclass
class Cluster:
    """Master in this network, workers anywhere, between them a relay that delays every byte by 20 ms each way."""

    folder: Path
    host: str = "127.0.0.1"  # of the relay
    most_workers: int = 4
    workers: list[Worker] = field(default_factory=list)
    master: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._port = free_port()
        self._stack = contextlib.ExitStack()
        self.relay = Relay(self.host, self._port, self.most_workers, DELAY_S)
        self.folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Cluster:
        self._stack.enter_context(self.relay)
        return self

    def __exit__(self, *_: object) -> None:
        for process in [self.master, *(worker.process for worker in self.workers)]:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        self._stack.close()

    # processes ------------------------------------------------------------------------

    def start_master(
        self, url: str, scenario: str | None, workers: int, *options: str, how: Sequence[str] = ("--headless",)
    ) -> None:
        """``scenario`` None: Locust's own options drive the load."""
        if scenario is not None:
            (self.folder / "scenario.yaml").write_text(scenario, encoding="utf-8")
            options = ("--scenario", str(self.folder / "scenario.yaml"), *options)
        self.master = self._start(
            "master",
            [
                *how, "--only-summary", "--master", "--master-bind-host", "127.0.0.1",
                "--master-bind-port", str(self._port), "--expect-workers", str(workers),
                "--results", str(self.folder / "results"), "-H", url, *options,
            ],
        )  # fmt: skip

    def start_worker(self, enter: Sequence[str] = (), env: dict[str, str] | None = None) -> Worker:
        """``enter``: a command that runs the worker elsewhere."""
        number = len(self.workers)
        options = ["--worker", "--master-host", self.host, "--master-port", str(self.relay.ports[number])]
        process = self._start(f"worker{number}", options, enter, env)
        self.workers.append(Worker(number, process, self.folder / f"worker{number}.log"))
        return self.workers[-1]

    def _start(
        self, name: str, options: Sequence[str], enter: Sequence[str] = (), env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.log", "wb") as log:
            return subprocess.Popen(
                [*enter, str(LOCUST), "-f", str(ROOT / "locustfiles" / "chat.py"), *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **(env or {})},
            )

    # what has happened so far --------------------------------------------------------------

    def log(self, name: str = "master") -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def name_of(self, worker: Worker) -> str:
        """As the master calls it: ``w0``."""
        self.wait(lambda: bool(self.relay.name(worker.number)), f"worker {worker.number} takes part in the run")
        return self.relay.name(worker.number)

    def lines(self, file: str = "requests.csv") -> list[dict[str, str]]:
        """The rows of a file of the run folder as far as they have been written; whole lines only."""
        found = sorted((self.folder / "results").glob(f"*/{file}"))
        if not found:
            return []
        text = found[-1].read_text(encoding="utf-8")
        return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))

    def wait(self, reached: Callable[[], bool], what: str, seconds: float = 40.0) -> float:
        """The moment at which ``reached``; fails with the master's log where that takes too long."""
        deadline_s = time.perf_counter() + seconds
        while not reached():
            assert time.perf_counter() < deadline_s, f"not within {seconds:g} s: {what}\n{self.log()}"
            assert self.master is None or self.master.poll() is None, f"ended before: {what}\n{self.log()}"
            time.sleep(0.05)
        return time.perf_counter()

    def wait_for_rows(self, count: int) -> None:
        """Until so many measured rows, and some of every worker, stand in the run folder."""

        def reached() -> bool:
            rows = [row for row in self.lines() if row["phase"] == "measured"]
            return len(rows) >= count and len({row["worker"] for row in rows}) == len(self.workers)

        self.wait(reached, f"{count} rows, and some of every worker")

    def finish(self, timeout_s: float = FULL_MASTER_WAIT_S) -> Run:
        """Wait for the master's end and read what it left."""
        assert self.master is not None
        try:
            code = self.master.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the master did not end within {timeout_s:g} s:\n{self.log()}") from None
        return self.left(code)

    def left(self, code: int) -> Run:
        """The run folder as it is."""
        folders = sorted((self.folder / "results").glob("*/"))
        found = Run(code, self.log(), folders[-1] if folders else self.folder, self.folder / "out", self.log())
        if folders:
            found.rows = found.file("requests.csv")
        return found
