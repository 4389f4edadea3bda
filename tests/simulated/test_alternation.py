"""Two simulated engines in turns, through whole Locusts and the comparison of their blocks."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.simulated.conftest import ROOT, Simulator

# Tokens come slowly enough for a busy machine to read them one by one.
SCENARIO = """
traffic:
  - {name: chat, input_tokens: {uniform: [40, 80]}, output_tokens: {uniform: [8, 16]}}
load:
  closed: {users: [2], sessions: 40, warmup_sessions: 2, tail: fill}
"""


def alternate(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    command = [sys.executable, "-m", "tokenswarm.alternation", "--scenario", str(path), "--results", str(folder)]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=240, cwd=ROOT, check=False)


def test_blocks_in_turns_and_their_comparison(simulator: Callable[..., Simulator], tmp_path: Path) -> None:
    """A, B, B, A, each a run of its own against its server with words of its own; the slower engine is slower in the
    comparison by as much as it is."""
    fast, slow = simulator("--speed", "0.5"), simulator("--speed", "0.25")
    done = alternate(tmp_path, "--a", fast.url, "--b", slow.url, "--rounds", "1", "--compare=--json")
    (folder,) = tmp_path.glob("ab-*")
    blocks = json.loads((folder / "alternation.json").read_text(encoding="utf-8"))["blocks"]
    assert [(block["side"], block["url"]) for block in blocks] == [
        ("A", fast.url), ("B", slow.url), ("B", slow.url), ("A", fast.url),
    ], done.stderr  # fmt: skip
    words = []
    for block in blocks:
        with open(folder / block["run"] / "requests.csv", newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row["phase"] == "measured"]
        assert len(rows) == 40, done.stderr
        assert [row["error"] for row in rows if row["error_kind"]] == []
        words.append(json.loads((folder / block["run"] / "run.json").read_text(encoding="utf-8"))["run_id"])
    assert len(set(words)) == 4
    for server in (fast, slow):
        truth = server.truth()
        assert len(truth) >= 2 * 40
        assert {row["cached_tokens"] for row in truth} == {0}, "a block sent a prompt of another one"
    (one,) = json.loads(done.stdout[done.stdout.index("{") :])["comparisons"]
    (tpot,) = [cell for cell in one["cells"] if cell["figure"] == "tpot_p50_s"]
    assert 1.8 < tpot["ratio"] < 2.2
    assert tpot["verdict"] == "worse" or one["doubts"], tpot


def test_a_server_that_is_not_there_ends_the_comparison(tmp_path: Path) -> None:
    """The first block leaves no run, or only failures, and nothing is concluded."""
    done = alternate(tmp_path, "--a", "http://127.0.0.1:9", "--b", "http://127.0.0.1:9", "--compare=--check")
    assert done.returncode == 3
    assert "left no run" in done.stderr
