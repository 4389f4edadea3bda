"""docs/distributed.md: its figures by hand, its commands by the real parser, and its two terminals for real."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator import __main__ as simulator
from tests.deploy.deployment import DEPLOY, ROOT, compose, locust_options, manifests
from tests.locust_process import LOCUST, free_port
from tokenswarm.open_files import SPARE_FILES
from tokenswarm.outbox import MOST_BYTES

PAGE = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
LOCUSTS = [shlex.split(line)[1:] for line in COMMANDS if line.startswith("locust ")]


def _master_and_worker() -> tuple[list[str], list[str]]:
    (master,) = [words for words in LOCUSTS if "--master" in words]
    (worker,) = [words for words in LOCUSTS if "--worker" in words]
    return master, worker


def test_sizes_are_what_the_formula_says() -> None:
    """Streams, ITL, events a second and processes of each example."""
    rows = re.findall(r"^\| ([\d,]+) streams, ITL (\d+) ms \| ([\d,]+) \| (\d+) \|$", PAGE, re.MULTILINE)
    by_hand = {(128, 10): (12_800, 1), (500, 20): (25_000, 2), (1000, 25): (40_000, 2), (2000, 10): (200_000, 10)}
    told = {(_int(a), _int(b)): (_int(c), _int(d)) for a, b, c, d in rows}
    assert told == by_hand
    for (streams, itl_ms), (events, processes) in told.items():
        assert events == streams * 1000 / itl_ms
        assert processes == math.ceil(events / 20_000)


def _int(text: str) -> int:
    return int(text.replace(",", ""))


def test_limits_are_those_of_the_code() -> None:
    """Files beside the users, bytes that wait, the master's silence, and the compose file's limit."""
    assert f"a process {SPARE_FILES} files beside them" in PAGE
    assert f"up to {MOST_BYTES // 1_000_000} MB of rows" in PAGE
    worker = (ROOT / "tokenswarm" / "worker.py").read_text(encoding="utf-8")  # importing it would bring in Locust
    (silence_s,) = re.findall(r"^MASTER_SILENCE_S = (\d+)\.0\b", worker, re.MULTILINE)
    assert f"has not heard its master for {silence_s} s" in PAGE
    assert "1024 lets about 960 users" in PAGE
    assert 1024 - SPARE_FILES == 960
    assert "sets 65,536" in PAGE
    assert compose()["services"]["worker"]["ulimits"]["nofile"] == {"soft": 65536, "hard": 65536}


def test_every_locust_command_is_one_that_locust_takes() -> None:
    """So do those that run in the image, and the simulator its own."""
    in_image = [shlex.split(line) for line in COMMANDS if line.startswith("docker run") and "--headless" in line]
    commands = [*LOCUSTS, *(words[words.index("tokenswarm") + 1 :] for words in in_image)]
    assert len(commands) == 5
    parsed, _ = locust_options(*commands)
    assert [options["processes"] for options in parsed] == [4, None, 4, None, None]
    assert [options["resume"] for options in parsed] == ["", "", "", "results/RUN", ""]
    assert parsed[1]["expect_workers"] == 2 * parsed[2]["processes"]
    assert parsed[1]["master_bind_host"] == parsed[2]["master_host"]
    for options in parsed[:4]:
        assert (ROOT / options["locustfile"]).exists()
    (words,) = [shlex.split(line) for line in COMMANDS if "-m simulator" in line]
    assert simulator._arguments().parse_args(words[words.index("simulator") + 1 :]).preset == "demo"


def test_files_and_names_of_the_commands_exist() -> None:
    """Compose files, manifests, Jobs, the Secret and the volume."""
    text = "\n".join(COMMANDS)
    for path in re.findall(r"deploy/[\w./-]+", text):
        assert (ROOT / path).exists(), path
    names = {name for _, name in manifests()}
    assert {"tokenswarm-master", "tokenswarm-worker", "tokenswarm-results"} <= names
    assert set(re.findall(r"tokenswarm-\w+", text)) - names == {"tokenswarm-keys"}
    document = compose()
    assert f"{document['name']}_results:/results" in text
    for variable in ("WORKERS", "URL", "SCENARIO", "SCENARIOS", "API_KEY_FILE"):
        assert variable in PAGE
        assert f"${{{variable}:" in (DEPLOY / "compose.yaml").read_text(encoding="utf-8")


@pytest.fixture
def engine() -> Iterator[str]:
    """URL of a simulated engine."""
    command = [sys.executable, "-m", "simulator", "--preset", "demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


@pytest.mark.slow
def test_two_terminals(tmp_path: Path, engine: str) -> None:
    """The page's commands for several machines, on the loopback interface with one worker process each, give a run of
    exactly the sessions that were asked for, in which both workers took part."""
    scenario, port = tmp_path / "scenario.yaml", str(free_port())
    scenario.write_text(
        "traffic:\n  - {name: chat, input_tokens: {uniform: [40, 80]}, output_tokens: {uniform: [8, 24]}}\n"
        "load:\n  closed: {users: [2, 4], sessions: 12, tail: drain}\n",
        encoding="utf-8",
    )
    master, worker = _master_and_worker()
    changes = {"10.0.0.1": "127.0.0.1", "http://host:8000": engine, "scenarios/chat-sweep.yaml": str(scenario)}
    master = [changes.get(word, word) for word in master] + ["--master-bind-port", port, "--results", str(tmp_path)]
    worker = [changes.get(word, word) for word in worker] + ["--master-port", port]
    master[master.index("--expect-workers") + 1] = "2"
    del worker[worker.index("--processes") : worker.index("--processes") + 2]
    terminals = [_terminal(master), _terminal(worker), _terminal(worker)]
    try:
        outputs = [terminal.communicate(timeout=90)[0] for terminal in terminals]
    finally:
        for terminal in terminals:
            terminal.kill()
    assert [terminal.returncode for terminal in terminals] == [0, 0, 0], outputs
    (folder,) = tmp_path.glob("*/")
    rows = list(csv.DictReader((folder / "requests.csv").open(encoding="utf-8")))
    assert [row["error"] for row in rows if row["error_kind"]] == []
    sessions = {row["session"] for row in rows if row["phase"] == "measured"}
    assert len(sessions) == 2 * 12
    assert len({row["worker"] for row in rows}) == 2
    assert json.loads((folder / "end.json").read_text(encoding="utf-8"))["state"] == "finished"


def _terminal(words: list[str]) -> subprocess.Popen[str]:
    command = [str(LOCUST), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
