"""Case D05: one of two workers dies while Locust's own options drive the load."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.contract.replay import Replay, plain, recorded
from tests.distributed.cluster import Cluster
from tests.locust_process import ROOT

CASE = ROOT / "tests" / "data" / "cases" / "D05" / "expected.json"
ANSWER = ROOT / "tests" / "contract" / "cases" / "A01"
USERS, RUN_S = 10, 10  # the case has 30 s, and kills after 10 s


def test_d05_a_worker_dies_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    """The exit code is not 0, the report names the worker and the time, and what the other one did is there, whole."""
    assert json.loads(CASE.read_text())["expect"] == [
        "exit code not 0 or level invalid",
        "worker name and time in the report",
        "requests of the living worker complete",
    ]
    (tmp_path / "server").mkdir()
    with Replay(
        tmp_path / "server", {"/v1/chat/completions": recorded(ANSWER), "*": plain(404, "not found")}
    ) as server:
        cluster.start_master(
            server.url, None, 2, "--model", "acc-model", "-u", str(USERS), "-r", str(USERS), "-t", f"{RUN_S}s"
        )
        for _ in range(2):
            cluster.start_worker()
        cluster.wait_for_rows(4 * USERS)
        victim, other = (cluster.name_of(worker) for worker in cluster.workers)
        cluster.workers[0].kill()
        run = cluster.finish()
    assert run.code not in (0, 1, 2), run.output
    report = (run.folder / "table.txt").read_text(encoding="utf-8")
    said = [line for line in report.splitlines() if re.search(rf"\b{victim}\b", line)]
    assert any(re.search(r"\d\d:\d\d:\d\d|\d s\b", line) for line in said), report
    rows = run.rows
    assert {row["worker"] for row in rows} == {victim, other}
    living = [row for row in rows if row["worker"] == other and row["error_kind"] != "cancelled"]
    assert len(living) > 5 * (RUN_S - 4)  # five users, less than one second a request
    assert [row["error"] for row in living if row["error_kind"]] == []
    assert {row["output_tokens"] for row in living} == {"5"}
