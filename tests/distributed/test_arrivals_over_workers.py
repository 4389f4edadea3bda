"""An open loop is the same stream of arrivals over any number of workers, and loses little with one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.cluster import Cluster
from tests.locust_process import Run, run_locust
from tests.simulated.conftest import Simulator

RATE_PER_S = 25.0  # gaps of 40 ms on average: long against what a busy machine is late by
DURATION_S = 6.0
POISSON = """\
seed: 11
traffic: [{name: chat, input_tokens: 60, output_tokens: 4}]
load: {open: {requests_per_s: %g, arrivals: poisson, duration_s: %g, warmup_s: 0}}
"""
IN_TIME_S, ATTEMPTS = 0.010, 3
CRITICAL = 1.95  # of sqrt(n) times the Kolmogorov-Smirnov distance, at a level of 0.001


def _distance(moments_s: list[float]) -> float:
    """sqrt(n) times the largest distance of the gaps' distribution from the exponential one of the rate asked for."""
    gaps = np.sort(np.diff(np.sort(np.array(moments_s))))
    fitted = 1 - np.exp(-gaps * RATE_PER_S)
    steps = np.arange(len(gaps) + 1) / len(gaps)
    return float(np.sqrt(len(gaps)) * max(np.max(steps[1:] - fitted), np.max(fitted - steps[:-1])))


@dataclass
class Stream:
    """The arrivals of one run in three records of them, seconds of the master's monotonic clock."""

    scheduled_s: dict[int, float]  # by ticket, from the beginning of the level
    moments: dict[str, list[float]]
    late_s: float  # 90 % quantile of sent - scheduled


def _played(folder: Path, server: Simulator, workers: int) -> Stream:
    folder.mkdir(parents=True)
    options = ("-H", server.url, "--no-table", "--processes", str(workers))
    run = run_locust(folder, *options, scenario=POISSON % (RATE_PER_S, DURATION_S))
    assert run.code == 0, run.output
    rows = run.measured()
    assert len(rows) > 0.7 * RATE_PER_S * DURATION_S
    assert [row["error"] for row in rows if row["error_kind"]] == []
    assert len({row["worker"] for row in rows}) == workers
    scheduled, sent = _on_the_masters_axis(run, "scheduled_s"), _on_the_masters_axis(run, "sent_s")
    arrivals = {row["id"]: row["arrival_s"] for row in server.truth()}
    arrived = [arrivals[row["request_id"]] for row in rows]
    start_s = float(run.file("levels.csv")[0]["measured_started_s"])
    return Stream(
        {ticket: moment_s - start_s for ticket, moment_s in scheduled.items()},
        {"scheduled": list(scheduled.values()), "sent": list(sent.values()), "arrived": arrived},
        float(np.quantile([sent[ticket] - scheduled[ticket] for ticket in sent], 0.9)),
    )


def _played_in_time(folder: Path, server: Simulator, workers: int) -> Stream:
    """Once more where the machine had no time for the load generator, by its own record: that says nothing of the
    schedule."""
    for attempt in range(ATTEMPTS):
        stream = _played(folder / str(attempt), server, workers)
        if stream.late_s < IN_TIME_S:
            break
    return stream


def test_poisson_arrivals_from_one_two_and_five_workers(steady: Callable[..., Simulator], tmp_path: Path) -> None:
    """The same tickets at the same times after the level's beginning; the same test of the gaps is passed by what was
    scheduled, by what was sent, and by what arrived at the server, by its own record."""
    server = steady()
    streams = [_played_in_time(tmp_path / str(workers), server, workers) for workers in (1, 2, 5)]
    for stream in streams:
        distances = {name: _distance(moments_s) for name, moments_s in stream.moments.items()}
        assert max(distances.values()) < CRITICAL, (distances, stream.late_s)
    for fewer, more in pairwise(stream.scheduled_s for stream in streams):
        assert fewer.keys() == more.keys()
        assert [more[ticket] for ticket in fewer] == pytest.approx(list(fewer.values()), abs=0.001)


def _on_the_masters_axis(run: Run, column: str) -> dict[int, float]:
    """By ticket."""
    offsets = {row["worker"]: float(row["offset_s"]) for row in run.file("workers.csv")}
    moments = {int(row["ticket"]): float(row[column]) + offsets[row["worker"]] for row in run.measured()}
    assert len(moments) == len(run.measured()), "every ticket once"
    return moments


WINDOW_S = 2.0
ARRIVALS = 240
EVERY_50_MS = """\
traffic: [{name: chat, input_tokens: 60, output_tokens: {uniform: [10, 20]}}]
load: {open: {requests_per_s: 20, arrivals: constant, duration_s: 12, warmup_s: 0}}
"""


def test_a_killed_worker_costs_one_window_of_its_arrivals(cluster: Cluster, steady: Callable[..., Simulator]) -> None:
    """Of 20 arrivals a second over three workers, those that one had been handed are lost and counted; the others come
    at their times."""
    server = steady()
    cluster.start_master(server.url, EVERY_50_MS, 3)
    for _ in range(3):
        cluster.start_worker()
    cluster.wait_for_rows(60)
    name = cluster.name_of(cluster.workers[1])
    killed_s = cluster.workers[1].kill()
    run = cluster.finish()
    assert run.code == 3, run.output
    rows = run.measured()
    assert [row["error"] for row in rows if row["error_kind"]] == []
    (level,) = run.file("levels.csv")
    assert level["state"] == "partial"
    assert name in level["reason"]
    missing = set(range(ARRIVALS)) - {int(row["ticket"]) for row in rows}
    assert len(rows) == ARRIVALS - len(missing)
    assert int(level["scheduled"]) == ARRIVALS
    assert int(level["lost"]) == len(missing)
    known = {row["request_id"] for row in run.rows}
    in_flight = [row for row in server.truth() if row["id"] not in known and row["arrival_s"] > killed_s - 2]
    assert 1 <= len(missing) <= WINDOW_S * 20 / 3 + len(in_flight) + 1
    late_s = [float(row["sent_s"]) - float(row["scheduled_s"]) for row in rows]
    assert np.quantile(late_s, 0.9) < 0.05
