"""Open loops through a whole Locust: sessions arrive by the clock, whatever the server does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from threading import Timer
from typing import Any

import numpy as np
import pytest

from tests.simulated.conftest import Run, Simulator, assert_as_served, sessions_of


def scenario(load: str, traffic: str = "", kind: str = "open") -> str:
    return (
        f"traffic:\n  - {{name: chat, input_tokens: 40, output_tokens: 8{traffic}}}\n"
        f"load:\n  {kind}: {{{load}}}\ncache_probe: never\n"
    )


def seconds(rows: list[dict[str, str]], end: str, start: str) -> Any:
    return np.array([float(row[end]) - float(row[start]) for row in rows])


def freeze(server: Simulator, locust: subprocess.Popen[str], after_s: float, for_s: float) -> None:
    """Stops the server for a while, so long after the first request has reached it."""
    while locust.poll() is None and not server.truth():
        time.sleep(0.02)
    process = server.process.pid
    Timer(after_s, os.kill, (process, signal.SIGSTOP)).start()
    Timer(after_s + for_s, os.kill, (process, signal.SIGCONT)).start()


def test_a_server_that_stands_still_shows_from_the_schedule_and_hides_in_a_closed_loop(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """Frozen for 2 of 10 s: at 20 arrivals a second 40 of 200 wait up to 2 s. Ten users who think for half a second
    send as much, but the ten requests that wait are 5 % of theirs, and nobody else is there to be kept waiting."""
    server = simulator()
    found = {}
    for kind, load in (
        ("open", "requests_per_s: 20, arrivals: constant, duration_s: 10"),
        ("closed", "users: 10, duration_s: 10, drain_limit_s: 1"),
    ):
        think = ", turns: 1000, think_time_s: 0.44" if kind == "closed" else ""
        run = locust(
            "--host", server.url, "--no-table", scenario=scenario(load, think, kind),
            watch=lambda process: freeze(server, process, 4.0, 2.0),
        )  # fmt: skip
        rows = [row for row in run.measured() if not row["error_kind"]]
        assert len(rows) > 150, run.output
        assert len(rows) == len([row for row in run.measured() if row["error_kind"] != "cancelled"]), run.output
        since = "scheduled_s" if kind == "open" else "sent_s"
        found[kind] = seconds(rows, "last_token_s", since)
    assert len(found["open"]) == 200
    assert 0.9 <= np.quantile(found["open"], 0.9) <= 1.3
    assert np.quantile(found["open"], 0.99) >= 1.8
    assert np.quantile(found["closed"], 0.9) < 0.2


def test_arrivals_keep_their_times_and_the_server_has_seen_them(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """Ten a second for three seconds after one of warm-up: 10 and 30 sessions, a tenth of a second apart, and so they
    reached the server."""
    server = simulator()
    load = "requests_per_s: 10, arrivals: constant, duration_s: 3, warmup_s: 1"
    run = locust("--host", server.url, scenario=scenario(load))
    truth = assert_as_served(run, server)
    rows = sorted(run.rows, key=lambda row: float(row["scheduled_s"]))
    assert Counter(row["phase"] for row in rows) == {"warmup": 10, "measured": 30}
    assert [int(row["ticket"]) for row in rows] == list(range(40))
    due_s = np.array([float(row["scheduled_s"]) for row in rows])
    assert due_s - due_s[0] == pytest.approx(np.arange(40) / 10, abs=1e-5)
    arrived_s = np.array([truth[row["request_id"]]["arrival_s"] for row in rows])
    late_s = (arrived_s - arrived_s[0]) - (due_s - due_s[0])
    assert np.median(np.abs(late_s)) < 0.02
    (level,) = run.file("levels.csv")
    assert (level["concurrency"], float(level["rate_per_s"]), level["scheduled"]) == ("", 10.0, "30")
    assert (level["not_admitted"], level["lost"], level["state"]) == ("0", "0", "complete")


def test_what_exceeds_the_cap_is_refused_and_counted(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """Two places, answers of half a second, ten arrivals a second: about four of ten get in, every other one is a row
    that was never sent, and nothing is missing."""
    server = simulator()
    text = scenario("requests_per_s: 10, arrivals: constant, duration_s: 4, max_users: 2", ", ignore_eos: true")
    run = locust("--host", server.url, scenario=text.replace("output_tokens: 8", "output_tokens: 120"))
    kinds = Counter(row["error_kind"] for row in run.measured())
    assert set(kinds) == {"", "not_admitted"}, run.output
    assert sorted(int(row["ticket"]) for row in run.measured()) == list(range(40))
    assert 12 <= kinds[""] <= 20
    assert len(server.truth()) == kinds[""]
    refused = [row for row in run.measured() if row["error_kind"]]
    assert {(row["sent_s"], row["output_tokens"], row["traffic"]) for row in refused} == {("", "", "chat")}
    (level,) = run.file("levels.csv")
    assert (int(level["scheduled"]), int(level["not_admitted"])) == (40, kinds["not_admitted"])
    assert run.ended(1)  # more than one in a hundred was turned away


def test_what_may_wait_is_late_and_says_so(simulator: Callable[..., Simulator], locust: Callable[..., Run]) -> None:
    """One place and answers that take longer than the time between two arrivals: each waits for the one before, the
    service times stay the same, and the time from the schedule grows."""
    server = simulator()
    text = scenario("requests_per_s: 5, arrivals: constant, duration_s: 2, max_users: 1, when_full: wait")
    run = locust("--host", server.url, "--no-table", scenario=text.replace("output_tokens: 8", "output_tokens: 90"))
    assert_as_served(run, server)
    rows = sorted(run.measured(), key=lambda row: int(row["ticket"]))
    assert len(rows) == 10
    service_s, felt_s = seconds(rows, "last_token_s", "sent_s"), seconds(rows, "last_token_s", "scheduled_s")
    assert np.all(service_s > 0.3)
    # the n-th is due after n fifths of a second and begins when those before it are done
    expected_s = np.cumsum(service_s) - 0.2 * np.arange(10)
    assert felt_s == pytest.approx(expected_s, abs=0.15)


def test_later_turns_follow_the_answers(simulator: Callable[..., Simulator], locust: Callable[..., Run]) -> None:
    """The arrival has a time of its own; a second turn is due when the first was answered and the user has thought."""
    server = simulator()
    load = "sessions_per_s: 5, arrivals: constant, duration_s: 2"
    run = locust("--host", server.url, "--no-table", scenario=scenario(load, ", turns: 2, think_time_s: 0.3"))
    assert_as_served(run, server)
    sessions = sessions_of(run.measured())
    assert len(sessions) == 10
    for first, second in sessions.values():
        assert float(second["scheduled_s"]) == pytest.approx(float(first["finished_s"]) + 0.3, abs=0.02)


def test_a_ramp_and_bursts_bring_what_was_asked_for(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """From 2 to 22 a second over 4 s there are 48 constant arrivals, the last half of the time has 34 of them."""
    server = simulator()
    load = "requests_per_s: [{ramp: [2, 22]}, {steps: [5, 15]}], arrivals: constant, duration_s: 4"
    run = locust("--host", server.url, "--no-table", scenario=scenario(load))
    assert_as_served(run, server)
    counts = []
    for level, expected in (("0", (14, 34)), ("1", (10, 30))):
        due_s = np.array([float(row["scheduled_s"]) for row in run.measured() if row["level"] == level])
        halves = due_s < due_s.min() + 2.0
        counts.append((int(halves.sum()), int((~halves).sum())))
        assert counts[-1] == pytest.approx(expected, abs=1)


def test_a_level_that_nobody_would_come_to_is_refused(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """One session in a thousand seconds, and a level of two: told in one line before any load."""
    server = simulator()
    run = locust("--host", server.url, scenario=scenario("requests_per_s: 0.001, duration_s: 2"))
    assert run.code == 2, run.output
    assert "load.open: 0.001/s for 2 s brings no session at all with this seed" in run.errors
    assert server.truth() == []


def test_what_is_counted_of_a_stopped_level_closes(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """Stopped in the middle: as many sessions were scheduled as have rows, sent, cut or waiting for their time."""
    server = simulator()
    run = locust(
        "--host", server.url, "--no-table", "--processes", "2", scenario=scenario("requests_per_s: 20, duration_s: 30"),
        stop_after_s=7.0,
    )  # fmt: skip
    assert run.code == 3, run.output
    (level,) = run.file("levels.csv")
    assert level["state"] == "interrupted"
    assert len(run.measured()) > 20
    assert int(level["scheduled"]) == len(run.measured())
