"""Locust's plain options, with our locustfiles.

Others are tested elsewhere: ``-u -r -t`` alone in test_free_running_measures_only_at_full_load, over two processes in
test_free_running_over_processes; ``--config``, ``--csv``, ``--csv-full-history``, ``--html`` and ``--json-file`` with
levels in test_locusts_own_outputs_and_configuration_file; ``--expect-workers`` with levels in
test_exact_levels_with_a_master_and_workers; the page in test_web_page.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from tests.distributed.cluster import Cluster
from tests.locust_process import Run, free_port, run_locust
from tests.simulated.conftest import Simulator


def _assert_free_load(run: Run, users: int, workers: int) -> None:
    """All users sent, from all workers, nothing failed, and nobody is counted twice."""
    assert run.good, run.output
    assert run.measured(), run.output
    assert [row["error"] for row in run.measured() if row["error_kind"]] == []
    assert {row["concurrency"] for row in run.measured()} == {str(users)}
    assert len({(row["worker"], row["user"]) for row in run.rows}) == users
    assert {row["worker"] for row in run.rows} == {f"w{number}" for number in range(workers)}


def test_four_processes_configured_by_pyproject(simulator: Callable[..., Simulator], tmp_path: Path) -> None:
    """[tool.locust] of a pyproject.toml names host, users, processes and files; the command line only the time."""
    server = simulator("--speed", "4")
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.locust]\nhost = "{server.url}"\nusers = 8\nspawn-rate = 8\nprocesses = 4\n'
        'csv = "out"\ncsv-full-history = true\nhtml = "out.html"\n'
    )
    run = run_locust(tmp_path, "-t", "4s")
    _assert_free_load(run, 8, 4)
    with open(tmp_path / "out_stats_history.csv", newline="", encoding="utf-8") as lines:
        history = list(csv.DictReader(lines))
    assert {"Aggregated", "chat"} <= {row["Name"] for row in history}
    assert max(int(row["User Count"]) for row in history) == 8
    with open(tmp_path / "out_stats.csv", newline="", encoding="utf-8") as lines:
        stats = {row["Name"]: row for row in csv.DictReader(lines)}
    assert int(stats["Aggregated"]["Request Count"]) == len(run.rows) == len(server.truth())
    assert "chat TTFT" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_autostart_waits_for_the_expected_workers(cluster: Cluster, simulator: Callable[..., Simulator]) -> None:
    """--autostart with a page, --autoquit, and options from a locust.conf in the working directory."""
    server = simulator("--speed", "4")
    cluster.folder.joinpath("locust.conf").write_text("users = 4\nspawn-rate = 4\nrun-time = 3s\n", encoding="utf-8")
    how = ("--autostart", "--autoquit", "0", "--web-host", "127.0.0.1", "--web-port", str(free_port()))
    cluster.start_master(server.url, None, 2, how=how)
    for _ in range(2):
        cluster.start_worker()
    _assert_free_load(cluster.finish(), 4, 2)
