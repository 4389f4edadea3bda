"""One short benchmark from the Locust command to its figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.load import Bench, Shape, steady_run
from benchmarks.server import ReferenceServer


def test_a_whole_locust_process_is_measured(start_server: Callable[..., ReferenceServer], tmp_path: Path) -> None:
    """Every request of the run is known to the server, with its exact tokens and no time before the server's own."""
    shape = Shape(4, tokens=20, ttft_us=10_000, itl_us=5_000)
    row, truth = steady_run(Bench.at(tmp_path), shape, 1.0)
    assert (row["exit_code"], row["failed"]) == (0, 0)
    assert row["requests"] >= 20
    assert row["known_to_server"] == row["requests"] <= len(truth)
    assert row["tokens_exact"] is True
    # A stamp on the wall clock is brought to the monotonic one: a few microseconds are allowed.
    assert row["lag_p50_ms"] > -0.1
    assert row["ttft_error_p50_ms"] > -0.1
    assert row["cpu_us_per_token"] > 0
    assert 0 < row["driven"] <= 1.02
