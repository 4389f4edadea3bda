"""One load on the reference server: a whole Locust process, started as a user starts it, or the bare client."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from benchmarks import figures
from benchmarks.build import BenchmarkError
from benchmarks.figures import Row
from benchmarks.process import PinnedProcess, cores, machine_cpu_s
from benchmarks.server import ReferenceServer, TruthRow

READY_LIMIT_S = 60.0
END_LIMIT_S = 180.0
RECORDS = 500_000  # requests that the server remembers


@dataclass(frozen=True)
class Shape:
    """What each user does, over and over: one request of ``tokens`` tokens, served on the plan of the other fields."""

    streams: int
    tokens: int = 128
    ttft_us: int = 50_000
    itl_us: int = 10_000
    in_step: bool = False
    jitter_us: int = 10_000
    input_tokens: int = 32
    locustfile: ClassVar[str] = "locustfiles/chat.py"

    @property
    def asked_tokens_per_s(self) -> float:
        """What a client without any delay of its own would drive.

        In step, a request that is sent at one tick gets its first token at the tick after TTFT has passed. 0 where
        nothing is paced.
        """
        if not self.itl_us:
            return 0.0
        ttft_us = self.ttft_us + self.jitter_us / 2
        if self.in_step:
            ttft_us = (self.ttft_us // self.itl_us + 1) * self.itl_us
        return self.streams * self.tokens * 1e6 / (ttft_us + (self.tokens - 1) * self.itl_us)

    def reference(self) -> dict[str, Any]:
        return {
            "ttft_us": self.ttft_us,
            "itl_us": self.itl_us,
            "in_step": self.in_step,
            "jitter_us": 0 if self.in_step else self.jitter_us,
        }

    def load(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """How the users are driven; ``more`` says how long."""
        return {"closed": {"users": self.streams, **more}}

    def scenario(self, url: str, more: Mapping[str, Any]) -> str:
        """A scenario file with this traffic; ``more`` is added to its load."""
        content = {
            "name": "bench",
            "target": {"url": url, "request": {"reference": self.reference()}},
            "traffic": self.traffic(),
            "load": self.load(more),
        }
        return yaml.safe_dump(content, sort_keys=False)

    def traffic(self) -> list[dict[str, Any]]:
        return [
            {"name": "chat", "kind": "chat", "input_tokens": self.input_tokens, "output_tokens": self.tokens},
        ]


@dataclass(frozen=True)
class Bench:
    """Where a benchmark runs: its output folder, the two cores, and what runs before the two commands."""

    folder: Path
    server_core: int
    client_core: int
    host: str = "127.0.0.1"
    server_prefix: tuple[str, ...] = ()
    client_prefix: tuple[str, ...] = ()
    urgent: bool = False

    @classmethod
    def at(cls, folder: Path, *, urgent: bool = False) -> Bench:
        server_core, client_core = cores()
        return cls(folder, server_core, client_core, urgent=urgent)

    def part(self, name: str) -> Bench:
        """The same bench with a folder of its own, numbered where that exists."""
        for number in range(1, 1000):
            folder = self.folder / (name if number == 1 else f"{name}-{number}")
            if not folder.exists():
                folder.mkdir(parents=True)
                return replace(self, folder=folder)
        raise BenchmarkError(f"{self.folder}: a thousand parts named {name}")

    def server(self, *options: str) -> ReferenceServer:
        return ReferenceServer(
            self.server_core,
            self.folder / "server.log",
            host=self.host,
            options=options,
            prefix=self.server_prefix,
            urgent=self.urgent,
        )

    def locust(
        self, url: str, shape: Shape, more: Mapping[str, Any], *, environment: Mapping[str, str] | None = None
    ) -> PinnedProcess:
        """A whole Locust process on the shape's locustfile; its run folder appears under ``folder/runs``."""
        return self.client(self.command(url, shape, more), environment)

    def command(self, url: str, shape: Shape, more: Mapping[str, Any]) -> list[str]:
        """Writes the scenario; what starts Locust with it."""
        scenario = self.folder / "scenario.yaml"
        scenario.write_text(shape.scenario(url, more), encoding="utf-8")
        command = [sys.executable, "-m", "locust", "-f", shape.locustfile, "--headless", "--no-table"]
        return [*command, "--scenario", str(scenario), "--results", str(self.folder / "runs")]

    def bare_client(self, url: str, shape: Shape, seconds: float) -> PinnedProcess:
        """The streaming client in plain greenlets, without Locust; writes ``folder/runs/client/requests.csv``."""
        output = self.folder / "runs" / "client"
        output.mkdir(parents=True)
        command = [sys.executable, "-m", "benchmarks.bare_client", url, str(shape.streams), str(shape.tokens)]
        command += [json.dumps(shape.reference()), str(seconds), str(output)]
        return self.client(command)

    def client(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, log: str = "client.log"
    ) -> PinnedProcess:
        """``command`` on the client's core."""
        return PinnedProcess(
            [*self.client_prefix, *command],
            core=self.client_core,
            log=self.folder / log,
            environment=environment,
            # In a namespace of its own the network stack's threads work for it and must not wait for it.
            urgent=self.urgent and not self.client_prefix,
        )

    def run_folder(self) -> Path:
        """The one run folder that the load has written."""
        found = sorted((self.folder / "runs").iterdir()) if (self.folder / "runs").exists() else []
        if len(found) != 1:
            last = (self.folder / "client.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise BenchmarkError(f"{self.folder}: one run folder was expected, {len(found)} are there: {''.join(last)}")
        return found[0]

    def requests(self) -> list[dict[str, str]]:
        with open(self.run_folder() / "requests.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


def wait_until(condition: Callable[[], bool], process: PinnedProcess, limit_s: float, what: str) -> None:
    """Polls ``condition``; ``BenchmarkError`` when the process ends first or the time is up."""
    give_up = time.monotonic() + limit_s
    while not condition():
        if not process.running:
            raise BenchmarkError(f"the load ended before {what}: {process.last_line()}")
        if time.monotonic() > give_up:
            raise BenchmarkError(f"not within {limit_s:g} s: {what}")
        time.sleep(0.05)


def watch(server: ReferenceServer, process: PinnedProcess, seconds: float) -> Row:
    """What the client costs and drives in a window of steady load: counted by the server, CPU by the kernel."""
    machine_s, cpu_s, server_cpu_s, before = machine_cpu_s(), process.cpu_s(), server.process.cpu_s(), server.stats()
    time.sleep(seconds)
    after = server.stats()
    cpu_s, server_cpu_s = process.cpu_s() - cpu_s, server.process.cpu_s() - server_cpu_s
    others_s = machine_cpu_s() - machine_s - cpu_s - server_cpu_s
    wall_s = (after["now_ns"] - before["now_ns"]) * 1e-9
    tokens = after["tokens"] - before["tokens"]
    requests = after["finished"] - before["finished"]
    return {
        "tokens_per_s": tokens / wall_s,
        "requests_per_s": requests / wall_s,
        "cpu_us_per_token": cpu_s * 1e6 / tokens if tokens else None,
        "cpu_us_per_request": cpu_s * 1e6 / requests if requests else None,
        "client_cpu": cpu_s / wall_s,
        "server_cpu": server_cpu_s / wall_s,
        "others_cpu": max(0.0, others_s / wall_s),
        "peak_rss_mb": process.peak_rss_mb(),
    }


def steady_run(
    bench: Bench,
    shape: Shape,
    seconds: float,
    *,
    client: str = "locust",
    steady_after: int | None = None,
    spare_s: float = 3.0,
) -> tuple[Row, list[TruthRow]]:
    """One level at steady load for ``seconds``: cost in that window, truthfulness over all its measured requests.

    The load is steady once ``steady_after`` requests have come, by default the second wave; the level is so much longer
    than the window as ``spare_s`` says, and the window must lie in it.
    """
    steady = 2 * shape.streams if steady_after is None else steady_after
    with bench.server("--records", str(RECORDS)) as server:
        if client == "locust":
            process = bench.locust(server.url, shape, {"duration_s": seconds + spare_s, "drain_limit_s": 10})
        else:
            process = bench.bare_client(server.url, shape, seconds + spare_s)
        with process:
            wait_until(lambda: server.stats()["requests"] >= steady, process, READY_LIMIT_S, "a steady load")
            row = watch(server, process, seconds)
            code = process.wait(END_LIMIT_S)
        truth = server.truth()
    rows = bench.requests()
    failed = sum(1 for row_ in rows if row_["error_kind"] not in ("", "cancelled"))
    asked = shape.asked_tokens_per_s
    row |= {
        "exit_code": code,
        "failed": failed,
        "driven": row["tokens_per_s"] / asked if asked else None,
        **figures.compare(figures.seen(rows), truth),
    }
    return row, truth
