"""Real sockets: the simulator in one process, a whole Locust in others, and what both say afterwards."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LOCUST = Path(sys.executable).with_name("locust")


@dataclass
class Simulator:
    """A running simulated engine."""

    url: str
    process: subprocess.Popen[str]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            text = answer.read().decode()
        return json.loads(text) if text[:1] in "[{" else text

    def truth(self) -> list[dict[str, Any]]:
        """What the server did for each chat request that streamed, in order of arrival."""
        rows: list[dict[str, Any]] = []
        while True:
            page = self.get(f"/truth?since={len(rows)}")
            rows += page["rows"]
            if page["next"] >= page["total"]:
                return rows


@dataclass
class Run:
    """A finished Locust command."""

    code: int
    output: str  # standard output, then standard error
    folder: Path  # of the newest run; the results folder itself where there is none
    csv_prefix: Path
    errors: str = ""  # standard error alone
    rows: list[dict[str, str]] = field(default_factory=list)

    def measured(self) -> list[dict[str, str]]:
        return [row for row in self.rows if row["phase"] == "measured"]

    def file(self, name: str) -> list[dict[str, str]]:
        with open(self.folder / name, newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))

    def table(self, *arguments: str, target: Path | None = None) -> Any:
        """The table as the analysis prints it in JSON."""
        command = [sys.executable, "-m", "analysis", "table", str(target or self.folder), "--json", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def simulator() -> Iterator[Callable[..., Simulator]]:
    """Starts simulators with command-line options; all end with the test."""
    with contextlib.ExitStack() as stack:

        def start(*options: str, preset: str = "demo") -> Simulator:
            command = [sys.executable, "-m", "simulator", "--preset", preset, "--port", "0", *options]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            stack.callback(_end, process)
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "http://" in line, f"the simulator did not start: {line}"
            return Simulator(line[line.index("http://") :].strip(), process)

        yield start


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()


@pytest.fixture
def locust(tmp_path: Path) -> Callable[..., Run]:
    """Runs a whole Locust headless and reads what it left."""

    def run(
        *options: str,
        scenario: str | None = None,
        timeout: float = 120,
        env: dict[str, str] | None = None,
        locustfile: Path = ROOT / "locustfiles" / "chat.py",
        stop_after_s: float | None = None,
        stop_signal: int = signal.SIGINT,
        open_files: int | None = None,
        watch: Callable[[subprocess.Popen[str]], None] | None = None,
    ) -> Run:
        """``open_files``: the hard limit of the process. ``watch`` is called once Locust has been started."""
        results, prefix = tmp_path / "results", tmp_path / "out"
        command = [str(LOCUST), "-f", str(locustfile), "--headless", "--only-summary", "--results", str(results)]
        if open_files is not None:
            command = ["sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh", *command]
        if scenario is not None:
            path = tmp_path / "scenario.yaml"
            path.write_text(scenario, encoding="utf-8")
            command += ["--scenario", str(path)]
        if "--processes" in options:
            port = str(free_port())
            command += ["--master-bind-port", port, "--master-port", port]
        process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        try:
            if watch is not None:
                watch(process)
            output, errors = _output(process, timeout, stop_after_s, stop_signal)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        folders = sorted(results.glob("*/")) if results.exists() else []
        found = Run(process.returncode, output + errors, folders[-1] if folders else results, prefix, errors)
        if folders:
            found.rows = found.file("requests.csv")
        return found

    return run


def _output(
    process: subprocess.Popen[str], timeout: float, stop_after_s: float | None, stop_signal: int
) -> tuple[str, str]:
    if stop_after_s is not None:
        try:
            process.communicate(timeout=stop_after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(stop_signal)
    return process.communicate(timeout=timeout)


@pytest.fixture
def closed_scenario() -> Callable[..., str]:
    """A small closed-loop scenario; ``load`` replaces the load block's inside, ``traffic`` adds to the class."""

    def text(load: str, traffic: str = "", extra: str = "") -> str:
        return (
            "traffic:\n"
            "  - {name: chat, input_tokens: {uniform: [40, 80]}, output_tokens: {uniform: [8, 24]}" + traffic + "}\n"
            f"load:\n  closed: {{{load}}}\n{extra}"
        )

    return text
