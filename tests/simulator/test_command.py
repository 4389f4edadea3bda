"""The command line: start, stop, mistakes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from sim_process import ROOT, ask


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "simulator", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_in_the_middle_of_a_stream(start: Callable[..., Any], number: int) -> None:
    """Exit code 0 within seconds; the client's connection ends."""
    with start() as simulator:
        connection = simulator.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps(ask(4000)))
        answer = connection.getresponse()
        assert answer.read(5)
        simulator.process.send_signal(number)
        assert simulator.process.wait(5) == 0
        connection.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--preset", "nothing"), "no preset 'nothing'"),
        (("--fault", "explode"), "explode"),
        (("--tokens-per-chunk", "0"), "tokens_per_chunk"),
        (("--api-key-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"),
        (("--cold-start",), "cold_start_s"),
        (("--speed", "0"), "greater than 0"),
        (("--set", "salt"), "--set salt: KEY=VALUE is wanted"),
        (("--set", "salt=[broken"), "--set salt=[broken: KEY=VALUE is wanted"),
        (("--set", "salt=sometimes"), "sometimes"),
        (("--set", "colour=red"), "colour"),
    ],
)
def test_a_mistake_is_told_and_ends_with_2(arguments: tuple[str, ...], message: str) -> None:
    """No traceback."""
    result = run(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_taken_port_is_told(start: Callable[..., Any]) -> None:
    """The second server on a port does not start."""
    with start() as simulator:
        result = run("--port", str(simulator.port))
        assert (result.returncode, "Traceback" in result.stderr) == (2, False)
        assert "address already in use" in result.stderr


def test_it_imports_nothing_of_the_instrument() -> None:
    """Neither the code it exists to expose nor Locust comes with it."""
    code = "import sys, simulator.__main__; print([m for m in sys.modules if m.split('.')[0] in "
    code += "('tokenswarm', 'analysis', 'locust', 'gevent')])"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True
    )
    assert result.stdout.strip() == "[]"
