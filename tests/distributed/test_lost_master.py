"""The master is killed in the middle of a level."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.distributed.cluster import Cluster
from tests.simulated.conftest import Simulator

# By time: workers start sessions by themselves and need no further word from the master.
SCENARIO = """\
traffic: [{name: chat, input_tokens: 60, output_tokens: {uniform: [20, 40]}}]
load: {closed: {users: 4, duration_s: 120}}
"""
STILL_LOADING_S = 15.0
QUIET_S = 4.0  # a session takes less than one second


def test_workers_stop_when_their_master_is_killed(cluster: Cluster, steady: Callable[..., Simulator]) -> None:
    """The run folder is a table marked as interrupted, and the server is left alone within 15 s. (Forked workers:
    test_forked_workers_end_with_their_master.)"""
    server = steady()
    cluster.start_master(server.url, SCENARIO, 2)
    for _ in range(2):
        cluster.start_worker()
    cluster.wait_for_rows(10)
    kept = cluster.lines()
    assert cluster.master is not None
    cluster.master.kill()
    killed_s = time.perf_counter()
    cluster.master.wait()
    run = cluster.left(-9)
    assert {row["request_id"] for row in kept} <= {row["request_id"] for row in run.rows}
    assert not (run.folder / "end.json").exists()
    table = run.table()
    assert table["levels"][0]["requests"] >= 10
    assert "interrupted" in {note["key"] for note in table["notes"]}
    assert _last_arrival_s(server, killed_s) < killed_s + STILL_LOADING_S


def _last_arrival_s(server: Simulator, killed_s: float) -> float:
    """Of a request at the server, once none has come for a while."""
    while True:
        last_s = max(row["arrival_s"] for row in server.truth())
        now_s = time.perf_counter()
        if now_s - max(last_s, killed_s) > QUIET_S or now_s > killed_s + STILL_LOADING_S + QUIET_S:
            return float(last_s)
        time.sleep(0.5)
