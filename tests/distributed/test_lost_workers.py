"""A worker is killed, freezes, or is cut off in the middle of a level; and all of them are."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.distributed.cluster import Cluster, Worker
from tests.distributed.network import Machine, Network
from tests.locust_process import Run
from tests.simulated.conftest import Simulator

USERS, SESSIONS = (9, 3), (90, 30)  # of the two levels
SCENARIO = """\
traffic: [{name: chat, input_tokens: 60, output_tokens: {uniform: [20, 40]}}]
load: {closed: {users: [9, 3], sessions: {per_user: 10}, warmup_sessions: 2, tail: drain}}
"""
NOTICED_WITHIN_S = 8.0


@pytest.fixture
def running(cluster: Cluster, steady: Callable[..., Simulator]) -> Cluster:
    """Three workers in the middle of the first of two levels."""
    cluster.start_master(steady().url, SCENARIO, 3, "--no-table")
    for _ in range(3):
        cluster.start_worker()
    cluster.wait_for_rows(9)
    return cluster


def _noticed(cluster: Cluster, worker: Worker, hurt_s: float) -> None:
    """The master has said so, soon enough."""
    name = cluster.name_of(worker)
    said = re.compile(rf"\b{name}\b.*\b(no sign of life|has quit)\b")
    noticed_s = cluster.wait(lambda: said.search(cluster.log()) is not None, f"{name} is missed", 30)
    assert noticed_s - hurt_s < NOTICED_WITHIN_S


def _assert_went_on_without(run: Run, name: str, kept: list[dict[str, str]]) -> None:
    """The level is partial and says whom it lost and when; every planned ticket is there once, or said to be lost; the
    rows of before are still there; the next level is whole, at full concurrency."""
    assert run.code == 3, run.output
    rows = run.measured()
    assert [row["error"] for row in rows if row["error_kind"]] == []
    first, second = run.file("levels.csv")
    assert first["state"] == "partial", run.output
    assert re.search(rf"\b{name}\b", first["reason"]), first["reason"]
    assert re.search(r"\d\d:\d\d:\d\d|\d s\b", first["reason"]), "the reason says when"
    tickets = Counter(int(row["ticket"]) for row in rows if row["level"] == "0")
    assert set(tickets.values()) == {1}
    assert tickets.keys() <= set(range(SESSIONS[0]))
    assert len(tickets) == SESSIONS[0] - int(first["lost"] or 0) == int(first["measured_sessions"])
    requests = {row["request_id"] for row in run.rows}
    assert {row["request_id"] for row in kept} <= requests
    assert any(row["worker"] == name for row in kept)
    assert second["state"] == "complete"
    whole = [row for row in rows if row["level"] == "1"]
    assert sorted(int(row["ticket"]) for row in whole) == list(range(SESSIONS[1]))
    assert len({(row["worker"], row["user"]) for row in whole}) == USERS[1]
    notes = [note["text"] for note in run.table()["notes"]]
    assert any(first["reason"] in note for note in notes), notes


def _assert_used_again(run: Run, name: str) -> None:
    """From the next level on; what it finished after it had been given up is apart, and counted nowhere else."""
    assert name in {row["worker"] for row in run.measured() if row["level"] == "1"}
    late = run.file("late.csv")
    assert {row["worker"] for row in late} == {name}
    assert {row["level"] for row in late} == {"0"}
    assert not {row["request_id"] for row in late} & {row["request_id"] for row in run.rows}


def test_a_worker_is_killed(running: Cluster) -> None:
    """kill -9 in the middle of a level: noticed within seconds, its tickets played by the others."""
    victim = running.workers[1]
    name, kept = running.name_of(victim), running.lines()
    _noticed(running, victim, victim.kill())
    run = running.finish()
    _assert_went_on_without(run, name, kept)
    assert name not in {row["worker"] for row in run.rows if row["level"] == "1"}


def test_a_worker_freezes_and_comes_back(running: Cluster) -> None:
    """SIGSTOP, and SIGCONT once it has been given up: its late rows count nowhere, and the next level uses it."""
    victim = running.workers[1]
    name, kept = running.name_of(victim), running.lines()
    _noticed(running, victim, victim.freeze())
    victim.thaw()
    run = running.finish()
    _assert_went_on_without(run, name, kept)
    _assert_used_again(run, name)


@pytest.mark.parametrize("loss", ["orders", "both ways"])
def test_a_connection_that_is_reset_costs_nothing_or_is_told(running: Cluster, loss: str) -> None:
    """RST between a worker and its master, who meet again at once; what was under way for a second is lost, to the
    worker alone or both ways. Either the level is whole, or the worker was given up; no ticket is missing or counted
    twice, and nobody waits for a message that will never come."""
    victim, relay = running.workers[1], running.relay
    name, kept = running.name_of(victim), running.lines()
    relay.deafen(victim.number) if loss == "orders" else relay.cut(victim.number)
    time.sleep(1.0)  # how much is lost, and no wait for anything
    relay.kill(victim.number)
    relay.heal(victim.number)
    run = running.finish()
    if run.file("levels.csv")[0]["state"] == "complete":
        assert run.code == 0, run.output
        tickets = [int(row["ticket"]) for row in run.measured() if row["level"] == "0"]
        assert sorted(tickets) == list(range(SESSIONS[0]))
    else:
        _assert_went_on_without(run, name, kept)
    assert name in {row["worker"] for row in run.measured() if row["level"] == "1"}


@pytest.fixture
def far_away(
    network: Network, steady: Callable[..., Simulator], tmp_path: Path
) -> Iterator[tuple[Cluster, list[Machine]]]:
    """Three workers in namespaces of their own, in the middle of the first of two levels."""
    machines = [network.machine() for _ in range(3)]
    with Cluster(tmp_path / "cluster", network.address) as cluster:
        cluster.start_master(steady("--host", network.address).url, SCENARIO, 3, "--no-table")
        for machine in machines:
            cluster.start_worker(machine.enter)
        cluster.wait_for_rows(9)
        yield cluster, machines


def test_the_network_of_a_worker_is_cut_and_heals(network: Network, far_away: tuple[Cluster, list[Machine]]) -> None:
    """Neither master nor server hear of it, and no connection is closed; later the cable is put in again."""
    cluster, machines = far_away
    victim = cluster.workers[1]
    name, kept = cluster.name_of(victim), cluster.lines()
    network.cut(machines[1])
    _noticed(cluster, victim, time.perf_counter())
    network.heal(machines[1])
    run = cluster.finish()
    _assert_went_on_without(run, name, kept)
    _assert_used_again(run, name)


def test_all_workers_are_killed(cluster: Cluster, steady: Callable[..., Simulator]) -> None:
    """The run ends within seconds, and what was measured so far is a table that says so."""
    cluster.start_master(steady().url, SCENARIO, 2)
    for _ in range(2):
        cluster.start_worker()
    cluster.wait_for_rows(9)
    kept = cluster.lines()
    killed_s = max(worker.kill() for worker in cluster.workers)
    run = cluster.finish(30)
    assert time.perf_counter() - killed_s < 20
    assert run.code == 3, run.output
    assert len(run.measured()) >= 9
    assert {row["request_id"] for row in kept} <= {row["request_id"] for row in run.rows}
    (level,) = run.file("levels.csv")
    assert level["state"] in ("partial", "interrupted")
    assert all(re.search(rf"\b{name}\b", level["reason"]) for name in ("w0", "w1")), level["reason"]
    assert run.table()["levels"][0]["requests"] == len(run.measured())
