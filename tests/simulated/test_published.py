"""Published sweeps against the presets fitted to them, through a whole Locust at ten times the speed.

The simulator runs at ``--speed 10``; the rows' times are scaled back here, before any table is made.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.conftest import ROOT, Run, Simulator

SPEED = 10.0
PUBLISHED = ROOT / "tests" / "data" / "published"
TIMES = [
    "scheduled_s", "sent_s", "headers_s", "first_token_s", "first_output_s", "last_token_s", "finished_s", "connect_s",
]  # fmt: skip

pytestmark = pytest.mark.slow


def published(file: str, **wanted: str) -> dict[int, dict[str, float | None]]:
    """Rows of a published table by concurrency; blank cells are None."""
    with open(PUBLISHED / file, newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if all(row[key] == value for key, value in wanted.items())]
    return {
        int(row["concurrency"]): {
            key: float(value) if value else None for key, value in row.items() if key not in ("table", "configuration")
        }
        for row in rows
    }


def scaled_back(run: Run) -> Path:
    """The run's ``requests.csv`` as if the engine had run at its own speed; all levels ended normally."""
    path = run.folder.parent / "scaled" / "requests.csv"
    path.parent.mkdir()
    rows = [
        {key: f"{float(value) * SPEED:.6f}" if key in TIMES and value else value for key, value in row.items()}
        for row in run.rows
    ]
    with open(path, "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def assert_the_simulator_kept_its_times(server: Simulator) -> None:
    """Its own record: half of all tokens were written within 1 ms of their time, and nearly all within 5."""
    truth = [row for row in server.truth() if row["ended"] == "length"]
    assert len(truth) > 20
    late_s = [row["first_token_s"] - row["planned_first_token_s"] for row in truth]
    late_s += [row["last_token_s"] - row["planned_last_token_s"] for row in truth]
    assert statistics.median(late_s) < 0.001
    assert statistics.quantiles(late_s, n=20)[-1] < 0.005


def sweep(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], preset: str, scenario: str
) -> tuple[Run, Any]:
    server = simulator("--speed", str(SPEED), preset=preset)
    run = locust("--scenario", str(ROOT / "scenarios" / "published" / scenario), "-H", server.url, timeout=300)
    assert run.rows, run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    assert {row["state"] for row in run.file("levels.csv")} == {"complete"}
    assert_the_simulator_kept_its_times(server)
    return run, run.table(target=scaled_back(run))


def within(share: float, value: float | None) -> Any:
    assert value is not None
    return pytest.approx(value, rel=share)


def test_the_spark_sweep_is_reproduced(simulator: Callable[..., Simulator], locust: Callable[..., Run]) -> None:
    """Each level of the primary sweep, the stall at concurrency 8, and the scaling table."""
    _run, table = sweep(simulator, locust, "spark-qwen3.6-35b-fp8", "spark-fp8-sweep.yaml")
    expected = published("spark_qwen3.6_35b.csv", table="primary sweep", configuration="fp8")
    levels = {level["concurrency"]: level for level in table["levels"]}
    assert levels.keys() == expected.keys() == {1, 2, 4, 8, 16, 32}
    for concurrency, cells in expected.items():
        level = levels[concurrency]
        value = {name: figure["value"] for name, figure in level["figures"].items()}
        assert level["requests"] == cells["requests"]
        assert level["failed"] == 0
        assert value["tpot_p50_s"] * 1e3 == within(0.02, cells["tpot_p50_ms"]), concurrency
        assert value["output_tok_s"] == within(0.05, cells["output_tok_s"]), concurrency
        assert value["e2e_p50_s"] == within(0.05, cells["e2e_p50_s"]), concurrency
        assert value["ttft_p50_s"] * 1e3 == within(0.15, cells["ttft_p50_ms"]), concurrency
    assert levels[8]["figures"]["ttft_p95_s"]["value"] * 1e3 == within(0.10, expected[8]["ttft_p95_ms"])
    assert_scaling(table["scaling"])


def assert_scaling(scaling: list[dict[str, Any]]) -> None:
    with open(PUBLISHED / "spark_qwen3.6_35b_derived.csv", newline="", encoding="utf-8") as lines:
        printed = {
            int(row["concurrency"]): float(row["value"])
            for row in csv.DictReader(lines)
            if row["table"] == "scaling" and row["quantity"] == "efficiency_pct"
        }
    found = {row["concurrency"]: row["efficiency"] * 100 for row in scaling}
    for concurrency, percent in printed.items():
        assert round(found[concurrency]) == pytest.approx(percent, abs=1), concurrency


def test_the_two_spark_sweep_is_reproduced(simulator: Callable[..., Simulator], locust: Callable[..., Run]) -> None:
    """Every published cell within 5 %, the mean TTFT within 20 %."""
    _run, table = sweep(simulator, locust, "two-spark-qwen3.5-122b", "two-spark-sweep.yaml")
    expected = published("two_spark_qwen3.5_122b.csv")
    levels = {level["concurrency"]: level for level in table["levels"]}
    assert levels.keys() == expected.keys() == {1, 2, 4, 8, 16}
    for concurrency, cells in expected.items():
        level = levels[concurrency]
        value = {name: figure["value"] for name, figure in level["figures"].items()}
        got = {
            "output_tok_s": value["output_tok_s"],
            "per_request_tok_s": value["per_request_tok_s"],
            "tokens": value["tokens"],
            "wall_s": value["wall_s"],
            "ok": level["ok"],
        }
        for name, figure in got.items():
            if cells[name] is not None:
                assert figure == within(0.05, cells[name]), (concurrency, name)
        assert value["ttft_mean_s"] == within(0.20, cells["ttft_mean_s"]), concurrency


def test_short_natural_prompts_run_to_their_natural_ends(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """Prompts from a file, one at a time: no lengths are forced, every answer ends by itself or at its limit."""
    server = simulator("--speed", str(SPEED), preset="spark-qwen3.6-35b-fp8")
    scenario = ROOT / "scenarios" / "published" / "real-prompt-check.yaml"
    run = locust("--scenario", str(scenario), "-H", server.url, timeout=120)
    assert run.good, run.output
    assert len(run.measured()) == 16
    assert {row["finish_reason"] for row in run.rows} <= {"stop", "length"}
    assert "stop" in {row["finish_reason"] for row in run.rows}
    assert all(0 < int(row["prompt_tokens"]) < 200 for row in run.rows)
