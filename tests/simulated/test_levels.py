"""Exact levels through a whole Locust: alone, forked, and with a master and workers of their own."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulated.conftest import LOCUST, ROOT, Run, Simulator, free_port

LOAD = "users: [1, 3, 4], sessions: {per_user: 3, at_least: 5}, warmup_sessions: 2, tail: fill"
EXPECTED = {("0", "warmup"): 2, ("0", "measured"): 5, ("1", "warmup"): 2, ("1", "measured"): 9}
EXPECTED |= {("2", "warmup"): 2, ("2", "measured"): 12}


def _counts(run: Run) -> Counter[tuple[str, str]]:
    return Counter((row["level"], row["phase"]) for row in run.rows)


def assert_exact(run: Run, server: Simulator) -> None:
    """Every planned session ran once, nothing failed, the server saw what the rows say, and levels stay apart."""
    assert run.rows, run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    counts = _counts(run)
    assert {key: counts[key] for key in EXPECTED} == EXPECTED
    for level, concurrency in (("0", 1), ("1", 3), ("2", 4)):
        numbers = [int(row["ticket"]) for row in run.measured() if row["level"] == level]
        assert sorted(numbers) == list(range(len(numbers)))
        assert counts[(level, "fill")] >= concurrency - 1
    assert [row["state"] for row in run.file("levels.csv")] == ["complete"] * 3
    truth = {row["id"]: row for row in server.truth()}
    seen = {row["request_id"]: row for row in run.rows}
    assert seen.keys() <= truth.keys()
    for request, row in seen.items():
        assert int(row["output_tokens"]) == truth[request]["output_tokens"] == int(row["asked_output_tokens"])
        assert int(row["prompt_tokens"]) == truth[request]["prompt_tokens"] == int(row["asked_input_tokens"])
        assert truth[request]["cached_tokens"] == 0, "a prompt was sent twice"
    for level in (0, 1):
        assert _last_end(run, str(level)) <= _first_start(run, str(level + 1))


def _last_end(run: Run, level: str) -> float:
    return max(float(row["finished_s"]) for row in run.rows if row["level"] == level)


def _first_start(run: Run, level: str) -> float:
    return min(float(row["sent_s"]) for row in run.rows if row["level"] == level)


def test_exact_levels_alone(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """One process: 5, 9 and 12 measured sessions, two of warm-up each, and the tail kept full."""
    server = simulator()
    run = locust("-H", server.url, scenario=closed_scenario(LOAD))
    assert run.good, run.output
    assert_exact(run, server)
    _assert_concurrency_held(run, "2", 4)


def _assert_concurrency_held(run: Run, level: str, concurrency: int) -> None:
    """From the moment all users have started until the last measured session ends, no user is ever idle for long."""
    rows = [row for row in run.rows if row["level"] == level and row["phase"] != "warmup"]
    measured = [row for row in rows if row["phase"] == "measured"]
    start = sorted(float(row["sent_s"]) for row in measured)[concurrency - 1]
    end = max(float(row["finished_s"]) for row in measured)
    busy = sum(max(0.0, min(end, float(row["finished_s"])) - max(start, float(row["sent_s"]))) for row in rows)
    assert busy / (end - start) == pytest.approx(concurrency, abs=0.15)


def test_exact_levels_in_forked_processes(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """``--processes 2``: the same counts, and both workers took part."""
    server = simulator()
    run = locust("-H", server.url, "--processes", "2", scenario=closed_scenario(LOAD))
    assert run.good, run.output
    assert_exact(run, server)
    assert {row["worker"] for row in run.rows} == {"w0", "w1"}


def test_exact_levels_with_a_master_and_workers(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str], tmp_path: Path
) -> None:
    """Workers that are started by themselves and know nothing of the scenario: the same counts."""
    server, port = simulator(), str(free_port())
    worker = [str(LOCUST), "-f", str(ROOT / "locustfiles" / "chat.py"), "--worker", "--master-port", port]
    workers = [
        subprocess.Popen(worker, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)
    ]
    try:
        run = locust(
            "-H",
            server.url,
            "--master",
            "--master-bind-port",
            port,
            "--expect-workers",
            "2",
            scenario=closed_scenario(LOAD),
        )
    finally:
        for process in workers:
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    assert run.good, run.output
    assert_exact(run, server)
    assert {row["worker"] for row in run.rows} == {"w0", "w1"}


def test_the_same_work_whatever_the_number_of_workers(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """A ticket asks for the same lengths alone and with two workers; its words differ, so no cache can help."""
    server = simulator()
    scenario = closed_scenario("users: 2, sessions: 12, tail: drain")
    runs = [locust("-H", server.url, *more, scenario=scenario) for more in ((), ("--processes", "2"))]
    asked = [
        {row["ticket"]: (row["asked_input_tokens"], row["asked_output_tokens"]) for row in run.measured()}
        for run in runs
    ]
    assert len(asked[0]) == 12
    assert asked[0] == asked[1]
    assert all(row["cached_tokens"] == 0 for row in server.truth())


def test_a_level_by_time_is_as_long_as_asked_and_starts_with_all_users(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """Measured requests fall inside the asked 2 s; what was in flight at the end is drain."""
    server = simulator()
    run = locust("-H", server.url, scenario=closed_scenario("users: 4, duration_s: 2, warmup_s: 0.5"))
    assert run.good, run.output
    (level,) = run.file("levels.csv")
    start = float(level["measured_started_s"])
    measured = run.measured()
    assert len(measured) > 8
    assert all(row["error_kind"] == "" for row in run.rows)
    assert min(float(row["sent_s"]) for row in measured) >= start
    assert max(float(row["finished_s"]) for row in measured) <= start + 2.1
    assert {row["phase"] for row in run.rows} == {"warmup", "measured", "drain"}
    assert len([row for row in run.rows if row["phase"] == "drain"]) <= 4


def test_free_running_measures_only_at_full_load(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """-u 4 -r 2 -t 4: what starts before all four users run is warm-up; what is cut at the end is no failure."""
    server = simulator()
    run = locust("-H", server.url, "-u", "4", "-r", "2", "-t", "4s", "--csv", "out")
    assert run.good, run.output
    measured, warm = run.measured(), [row for row in run.rows if row["phase"] == "warmup"]
    assert len(measured) > 4
    assert all(row["error_kind"] == "" for row in measured)
    first_sends = [min(float(row["sent_s"]) for row in run.rows if row["user"] == str(user)) for user in range(4)]
    assert min(float(row["sent_s"]) for row in measured) >= max(first_sends) - 0.05
    assert warm
    cut = [row for row in run.rows if row["error_kind"] == "cancelled"]
    assert 1 <= len(cut) <= 4
    assert {row["phase"] for row in cut} == {"drain"}


def test_a_level_that_cannot_finish_is_cut_and_the_run_goes_on(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """A stalled server: after time_limit_s the level is marked, its requests are cut, and the exit code says so."""
    server = simulator("--fault", "stall")
    started = time.monotonic()
    run = locust(
        "-H", server.url, "--model", "demo-8b",
        scenario=closed_scenario("users: [2, 1], sessions: 2, tail: drain, time_limit_s: 1"),
    )  # fmt: skip
    assert time.monotonic() - started < 30
    assert [row["state"] for row in run.file("levels.csv")] == ["timeout", "timeout"], run.output
    assert [row["error_kind"] for row in run.rows] == ["cancelled"] * 3
    assert run.code == 3


@pytest.mark.parametrize("stop_signal", [2, 15], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "forked"])
def test_a_stopped_run_stays_readable(
    simulator: Callable[..., Simulator],
    locust: Callable[..., Run],
    closed_scenario: Callable[..., str],
    stop_signal: int,
    processes: tuple[str, ...],
) -> None:
    """What was measured is kept, what was in flight becomes a cut row, and the table says that the run was stopped."""
    server = simulator()
    run = locust(
        "-H", server.url, *processes, scenario=closed_scenario("users: 2, sessions: 100000"),
        stop_after_s=6, stop_signal=stop_signal,
    )  # fmt: skip
    assert run.code == 3, run.output
    assert len(run.measured()) > 5
    assert len([row for row in run.rows if row["sent_s"]]) == len(server.truth())  # what was in flight, too
    assert run.file("levels.csv")[0]["state"] == "interrupted"
    assert (run.folder / "end.json").exists()
    level = run.table()["levels"][0]
    assert level["requests"] == len(run.measured())


def test_a_killed_run_stays_readable(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """SIGKILL in the middle of a level: the rows so far are a table, marked as interrupted."""
    server = simulator()
    run = locust(
        "-H", server.url, scenario=closed_scenario("users: 2, sessions: 100000"), stop_after_s=6, stop_signal=9
    )
    assert run.code == -9
    assert len(run.measured()) > 5
    assert not (run.folder / "end.json").exists()
    table = run.table()
    assert table["levels"][0]["requests"] >= len(run.measured()) - 1
    assert "interrupted" in {note["key"] for note in table["notes"]}
