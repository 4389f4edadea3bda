"""Three machines far away, whose clocks disagree, make one run: the same as that of a single process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.distributed.cluster import DELAY_S, Cluster
from tests.distributed.network import Network
from tests.locust_process import Run, run_locust
from tests.simulated.conftest import Simulator

CLOCKS_WRONG_BY_S = (3.2, -1.7, 0.0)
SCENARIO = """\
seed: 7
traffic: [{name: chat, input_tokens: {uniform: [40, 80]}, output_tokens: {uniform: [20, 40]}}]
load: {closed: {users: [3, 8], sessions: {per_user: 4, at_least: 15}, warmup_sessions: 3, tail: drain}}
"""


@dataclass
class Both:
    """The run of three machines, that of one process, and what is known of the first."""

    shared: Run
    alone: Run
    server: Simulator
    wrong_by_s: dict[str, float]  # by the name of the worker


@pytest.fixture
def both(network: Network, steady: Callable[..., Simulator], tmp_path: Path) -> Both:
    servers = [steady("--host", network.address) for _ in range(2)]
    with Cluster(tmp_path / "cluster", network.address) as cluster:
        cluster.start_master(servers[0].url, SCENARIO, 3)
        for wrong_by_s in CLOCKS_WRONG_BY_S:
            cluster.start_worker(network.machine().enter, {"TOKENSWARM_CLOCK_OFFSET_S": str(wrong_by_s)})
        names = [cluster.name_of(worker) for worker in cluster.workers]
        (tmp_path / "alone").mkdir()
        alone = run_locust(
            tmp_path / "alone", "-H", servers[1].url, scenario=SCENARIO
        )  # meanwhile, for the sake of time
        shared = cluster.finish()
    for run in (shared, alone):
        assert run.good, run.output
        assert run.measured()
        assert [row["error"] for row in run.rows if row["error_kind"]] == []
    return Both(shared, alone, servers[0], dict(zip(names, CLOCKS_WRONG_BY_S, strict=True)))


def test_three_machines_with_wrong_clocks_are_one_run(both: Both) -> None:
    """The same tickets with the same work, each once; clock offsets within 5 ms; rows on the master's time axis; and a
    table that is that of the single process."""
    assert {row["worker"] for row in both.shared.rows} == {"w0", "w1", "w2"}
    _assert_the_same_work(both.shared, both.alone)
    _assert_the_same_table(both.shared, both.alone)
    _assert_clocks_found(both.shared, both.wrong_by_s)
    _assert_on_the_masters_axis(both.shared, both.server)


def _assert_the_same_work(shared: Run, alone: Run) -> None:
    def work(run: Run) -> Counter[tuple[str, ...]]:
        facts = ("level", "phase", "ticket", "asked_input_tokens", "asked_output_tokens", "output_tokens")
        return Counter(tuple(row[fact] for fact in facts) for row in run.rows)

    assert work(shared) == work(alone)
    assert set(work(shared).values()) == {1}
    assert len(list((shared.folder.parent).glob("*/"))) == 1, "one merged run folder"
    for level, concurrency, sessions in (("0", 3, 15), ("1", 8, 32)):
        rows = [row for row in shared.measured() if row["level"] == level]
        assert sorted(int(row["ticket"]) for row in rows) == list(range(sessions))
        assert len({(row["worker"], row["user"]) for row in rows}) == concurrency


def _assert_clocks_found(run: Run, wrong_by: dict[str, float]) -> None:
    clocks = {row["worker"]: row for row in run.file("workers.csv")}  # a later row of a worker replaces the first
    for name, wrong_by_s in wrong_by.items():
        assert float(clocks[name]["offset_s"]) == pytest.approx(0.0, abs=0.005), "one kernel has one monotonic clock"
        assert float(clocks[name]["wall_offset_s"]) == pytest.approx(wrong_by_s, abs=0.005)
        if wrong_by_s:
            assert float(clocks[name]["round_trip_s"]) >= 2 * DELAY_S


def _assert_on_the_masters_axis(run: Run, server: Simulator) -> None:
    """Rows against the server's stamps on the same monotonic clock; seconds of the timeline on one wall clock."""
    truth = {row["id"]: row for row in server.truth()}
    offsets = {row["worker"]: float(row["offset_s"]) for row in run.file("workers.csv")}
    late_s = [
        float(row["first_token_s"]) + offsets[row["worker"]] - truth[row["request_id"]]["first_token_s"]
        for row in run.rows
    ]
    assert np.quantile(np.abs(late_s), 0.95) < 0.010
    seconds = {worker: {int(row["second"]) for row in run.file("timeline.csv") if row["worker"] == worker}
               for worker in offsets}  # fmt: skip
    first, last = ({function(each) for each in seconds.values()} for function in (min, max))
    assert max(first) - min(first) <= 1
    assert max(last) - min(last) <= 1


def _assert_the_same_table(shared: Run, alone: Run) -> None:
    tables = [run.table()["levels"] for run in (shared, alone)]
    assert [len(table) for table in tables] == [2, 2]
    for ours, theirs in zip(*tables, strict=True):
        for count in ("requests", "ok", "failed", "concurrency"):
            assert ours[count] == theirs[count], count
        for figure, tolerance in (("tpot_p50_s", 0.03), ("ttft_p50_s", 0.10), ("e2e_p50_s", 0.05)):
            assert _value(ours, figure) == pytest.approx(_value(theirs, figure), rel=tolerance), figure


def _value(level: dict[str, Any], figure: str) -> float:
    return float(level["figures"][figure]["value"])
