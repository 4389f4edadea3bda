"""A whole calibration, from the command to what a run takes from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.process import ROOT
from tests.benchmarks.conftest import StartServer
from tokenswarm.calibration import calibration_for, machine
from tokenswarm.scenario import load_scenario

SCENARIO = """
name: two levels
traffic: [{name: chat, input_tokens: 20, output_tokens: 10}]
load: {closed: {users: [1, 4], sessions: 8}}
"""


@pytest.mark.parametrize(
    ("server", "options", "processes"), [("reference server", ["--processes", "2"], 2), ("simulator", [], 1)]
)
def test_a_calibration_is_kept_for_later_runs(
    start_server: StartServer, tmp_path: Path, server: str, options: list[str], processes: int
) -> None:
    """Every request of both levels is compared with the server's record, and a run with as many processes finds it."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    command = [sys.executable, "-m", "benchmarks.calibrate", str(path), "--results", str(tmp_path / "results")]
    command += ["--seconds", "2", *options, *(["--simulator"] if server == "simulator" else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr  # 1: not even one user is truthful on a machine this busy
    (entry,) = json.loads((tmp_path / "results" / "calibration.json").read_text())["calibrations"]
    assert (entry["server"], entry["processes"], entry["machine"]) == (server, processes, machine())
    assert [level["load"] for level in entry["levels"]] == [1, 4]
    for level in entry["levels"]:
        assert 1 <= level["requests"] == level["compared"]
        assert (level["failed"], level["tokens_exact"]) == (0, True)
        assert 0 < level["busiest_cpu"] < 1
        assert (level["master_cpu"] is None) == (processes == 1)
        assert len(level["cpus"]) == processes
        assert 0 <= level["ttft_error_p50_ms"] <= level["ttft_error_p95_ms"] <= level["ttft_error_max_ms"]
    digest = load_scenario(path).digest
    told = calibration_for(tmp_path / "results", processes=processes, axis="users", digest=digest)
    assert told is not None
    assert (told["same_scenario"], told["highest"], len(told["levels"])) == (True, 4, 2)
    assert ("truthful up to" in done.stdout) == (done.returncode == 0)


def test_a_scenario_without_levels_is_refused(tmp_path: Path) -> None:
    """One line that says what is wanted, before any load."""
    path = tmp_path / "scenario.yaml"
    path.write_text("traffic: [{name: chat}]\n")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.calibrate", str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "has no load" in done.stderr
