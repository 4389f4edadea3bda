"""One run, two tables: from the run folder's rows, and from the CSV files that Locust itself wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.conftest import Run, Simulator

COUNTS = ("requests", "ok", "failed", "cancelled")
MEANS = ("ttft_mean_s", "tpot_mean_s", "e2e_mean_s", "output_tok_s", "wall_s", "tokens", "per_request_tok_s")
PERCENTILES = ("ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "e2e_p50_s", "e2e_p95_s", "tpot_p50_s", "tpot_p95_s")
PROCESSES = pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "forked"])


def _by_level(table: Any, rows: str = "levels") -> dict[tuple[Any, ...], Any]:
    """By class, users and which level with so many users it is."""
    seen: Counter[Any] = Counter()
    found = {}
    for row in table[rows]:
        key = (row["traffic"] or "", row["concurrency"])
        found[(*key, seen[key])] = row
        seen[key] += 1
    return found


def _assert_close(exact: Any, coarse: Any, names: tuple[str, ...]) -> None:
    for name in names:
        one, other = exact["figures"].get(name, {}).get("value"), coarse["figures"].get(name, {}).get("value")
        assert (one is None) == (other is None), (name, one, other)
        assert one is None or other == pytest.approx(one, rel=1e-3), name


def _locust_rounded_s(seconds: float) -> float:
    """Half of the last digit that Locust keeps of so many milliseconds; rounding may go either way."""
    ms = seconds * 1e3
    return (0.5 if ms < 100 else 5.0 if ms < 1000 else 50.0 if ms < 10_000 else 500.0) / 1e3


def _assert_percentiles(run: Run, level: int | None, name: str, coarse: Any) -> None:
    """Locust's percentile is the value at a rank, rounded: it lies between the neighbours of the exact quantile."""
    figure = coarse["figures"][name]
    if figure["value"] is None:
        return
    assert "coarse" in figure["marks"]
    metric, share = name.split("_")[0], int(name.split("_p")[1].split("_")[0]) / 100
    values = sorted(_values(run, level, metric))
    rank = share * (len(values) - 1)
    low, high = values[max(0, int(rank) - 1)], values[min(len(values) - 1, int(rank) + 2)]
    assert low - _locust_rounded_s(low) * 1.01 <= figure["value"] <= high + _locust_rounded_s(high) * 1.01, name


def _values(run: Run, level: int | None, metric: str) -> list[float]:
    rows = [
        row for row in run.measured() if not row["error_kind"] and row["level"] == ("" if level is None else str(level))
    ]
    last, first, sent = (
        [float(row[f"{name}_s"]) for row in rows] for name in ("last_token", "first_token", "sent")
    )  # fmt: skip
    match metric:
        case "ttft":
            return [one - other for one, other in zip(first, sent, strict=True)]
        case "e2e":
            return [one - other for one, other in zip(last, sent, strict=True)]
        case _:
            counts = [int(row["output_tokens"]) for row in rows]
            return [(b - a) / (n - 1) for a, b, n in zip(first, last, counts, strict=True) if n > 1 and b > a]


def assert_same_table(run: Run, *, percentiles: bool = True) -> tuple[Any, Any]:
    exact, coarse = run.table(), run.table(target=run.csv_prefix)
    assert exact["levels"], run.output
    for rows in ("levels", "classes"):
        one, other = _by_level(exact, rows), _by_level(coarse, rows)
        assert one.keys() == other.keys()
        for key, row in one.items():
            assert {name: row[name] for name in COUNTS} == {name: other[key][name] for name in COUNTS}, key
            assert row["errors"] == other[key]["errors"], key
            names = MEANS if len(exact["classes"]) == len(exact["levels"]) else MEANS[:-1]
            _assert_close(
                row, other[key], names if rows == "levels" else tuple(n for n in names if n != "output_tok_s")
            )
            if percentiles and rows == "levels":
                for name in PERCENTILES:
                    _assert_percentiles(run, row["level"], name, other[key])
    assert sum(group["count"] for group in exact["failures"]) == sum(group["count"] for group in coarse["failures"])
    return exact, coarse


@PROCESSES
def test_levels_that_are_kept_full(
    simulator: Callable[..., Simulator],
    locust: Callable[..., Run],
    closed_scenario: Callable[..., str],
    processes: tuple[str, ...],
) -> None:
    """Levels 2, 2 and 1 with fill, warm-up and failures: the equal levels stay apart and every figure agrees."""
    server = simulator("--fault", "503:every=7")
    scenario = closed_scenario("users: [2, 2, 1], sessions: 20, warmup_sessions: 1, tail: fill")
    run = locust("-H", server.url, "--csv", "out", *processes, scenario=scenario)
    exact, coarse = assert_same_table(run)
    assert [row["requests"] for row in exact["levels"]] == [20, 20, 20]
    assert sum(row["failed"] for row in exact["levels"]) >= 6
    assert coarse["simulated"], "our simulator is known by its model list, whoever started it"
    assert len(coarse["warmup"]) == 3


@PROCESSES
def test_levels_that_drain(
    simulator: Callable[..., Simulator],
    locust: Callable[..., Run],
    closed_scenario: Callable[..., str],
    processes: tuple[str, ...],
) -> None:
    """The other definition of output tok/s: tokens of the successes over first send to last end."""
    server = simulator("--fault", "error-in-stream:every=5", "--speed", "2")
    scenario = closed_scenario("users: [3, 1], sessions: 16, tail: drain")
    run = locust("-H", server.url, "--csv", "out", *processes, scenario=scenario)
    exact, coarse = assert_same_table(run)
    assert sum(row["errors"].get("stream_error", 0) for row in exact["levels"]) == 6
    assert [group["kind"] for group in coarse["failures"]] == ["stream_error"]


@PROCESSES
def test_a_level_by_time_with_several_classes(
    simulator: Callable[..., Simulator],
    locust: Callable[..., Run],
    processes: tuple[str, ...],
) -> None:
    """Two classes in a level of 1.5 s: counts and means by class, and together."""
    server = simulator("--speed", "2")
    scenario = (
        "traffic:\n"
        "  - {name: short, weight: 2, input_tokens: 30, output_tokens: 8}\n"
        "  - {name: long, turns: 2, input_tokens: 60, output_tokens: {uniform: [20, 30]}, think_time_s: 0.02}\n"
        "load: {closed: {users: 4, duration_s: 1.5, warmup_s: 0.3}}\n"
    )
    run = locust("-H", server.url, "--csv", "out", *processes, scenario=scenario)
    exact, _ = assert_same_table(run, percentiles=False)
    assert {row["traffic"] for row in exact["classes"]} == {"short", "long"}
    assert exact["levels"][0]["requests"] > 40


@PROCESSES
def test_a_free_running_load(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], processes: tuple[str, ...]
) -> None:
    """Without levels there is one row; what was cut by the end stands in neither table."""
    server = simulator("--fault", "reset:every=9")
    run = locust("-H", server.url, "-u", "4", "-r", "4", "-t", "3s", "--csv", "out", *processes)
    assert [row for row in run.rows if row["error_kind"] == "cancelled"], "some requests were cut"
    exact, coarse = assert_same_table(run)
    assert [row["concurrency"] for row in coarse["levels"]] == [4]
    assert exact["levels"][0]["errors"].keys() == {"reset"}


def test_the_demo_is_marked_simulated_in_both(locust: Callable[..., Run], tmp_path: Path) -> None:
    """A run without a real server says so in Locust's own files, and from there in the table."""
    run = locust(
        "--csv", "out", "--html", "out.html",
        scenario="target: {simulator: demo}\nload: {closed: {users: 1, sessions: 2}}\n",
    )  # fmt: skip
    exact, coarse = assert_same_table(run, percentiles=False)
    assert exact["simulated"]
    assert coarse["simulated"]
    assert "SIMULATED" in (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "SIMULATED" in run.output
