"""Workers that come late, and workers that are not the same program."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.distributed.cluster import Cluster
from tests.locust_process import ROOT
from tests.simulated.conftest import Simulator

LEVELS, USERS, SESSIONS = 5, 6, 24
SCENARIO = """\
traffic: [{name: chat, input_tokens: 60, output_tokens: {uniform: [15, 30]}}]
load: {closed: {users: [6, 6, 6, 6, 6], sessions: 24, tail: drain}}
"""


def test_a_worker_that_joins_in_the_middle_is_used_from_the_next_level(
    cluster: Cluster, steady: Callable[..., Simulator]
) -> None:
    """No session of the level under way is lost or played by the newcomer; every level after it has all three."""
    cluster.start_master(steady().url, SCENARIO, 2)
    for _ in range(2):
        cluster.start_worker()
    cluster.wait_for_rows(6)
    cluster.start_worker()
    run = cluster.finish()
    assert run.good, run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    levels = run.file("levels.csv")
    assert [row["state"] for row in levels] == ["complete"] * LEVELS, run.output
    joined_s = min(float(row["monotonic_s"]) for row in run.file("workers.csv") if row["worker"] == "w2")
    assert float(levels[0]["started_s"]) < joined_s < float(levels[-1]["started_s"])
    for level in levels:
        rows = [row for row in run.measured() if row["level"] == level["level"]]
        assert sorted(int(row["ticket"]) for row in rows) == list(range(SESSIONS))
        assert len({(row["worker"], row["user"]) for row in rows}) == USERS
        later = float(level["started_s"]) > joined_s
        assert {row["worker"] for row in rows} == ({"w0", "w1", "w2"} if later else {"w0", "w1"})


@pytest.mark.parametrize("others", [0, 1], ids=["before the run", "as the run begins"])
def test_a_worker_with_other_code_is_refused(
    cluster: Cluster, steady: Callable[..., Simulator], tmp_path: Path, others: int
) -> None:
    """One changed byte in a comment: one line that names the worker, exit code 2 of both, and no load; whether or not
    the expected number of workers has come."""
    other = tmp_path / "other"
    shutil.copytree(ROOT / "tokenswarm", other / "tokenswarm", ignore=shutil.ignore_patterns("__pycache__"))
    module = other / "tokenswarm" / "chunks.py"
    module.write_text(module.read_text(encoding="utf-8") + "# !\n", encoding="utf-8")
    server = steady()
    before = len(server.truth())
    cluster.start_master(server.url, SCENARIO, 2)
    for _ in range(others):
        cluster.start_worker()
    changed = cluster.start_worker(env={"PYTHONPATH": str(other)})
    run = cluster.finish(40)
    assert run.code == 2, run.output
    lines = [line for line in run.output.splitlines() if "another version" in line]
    assert len(lines) == 1, run.output
    assert re.search(r"\bworker w[01]\b", lines[0])
    assert changed.process.wait(timeout=20) == 2
    assert "Traceback" not in run.output
    assert run.measured() == []
    assert len(server.truth()) - before <= 40, "questions about tokens before the load, but no load"
