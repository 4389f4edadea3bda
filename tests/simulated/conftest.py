"""Real sockets: the simulator in one process, a whole Locust in others, and what both say afterwards."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.locust_process import LOCUST, ROOT, Run, free_port, run_locust, sessions_of

__all__ = ["LOCUST", "ROOT", "Run", "Simulator", "assert_as_served", "free_port", "sessions_of"]


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


def assert_as_served(run: Run, server: Simulator, *facts: str) -> dict[str, dict[str, Any]]:
    """Requests ran, none failed, and of each the rows tell the prompt and output tokens, and the further ``facts``,
    that the server has in its own record; that record, by request."""
    assert run.good, run.output
    assert run.measured(), run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    truth = {row["id"]: row for row in server.truth()}
    for row in run.rows:
        served = truth[row["request_id"]]
        for fact in ("prompt_tokens", "output_tokens", *facts):
            assert int(row[fact] or 0) == (served[fact] or 0), fact
    return truth


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
    return partial(run_locust, tmp_path)


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
