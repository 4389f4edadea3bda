"""Objectives met or missed, runs that are not fit to decide, and the exit codes that follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.figures import Figure
from analysis.levels import LevelRow
from analysis.objectives import judge
from analysis.outcome import Outcome


def row(**facts: Any) -> LevelRow:
    given: dict[str, Any] = {"level": 0, "concurrency": 8, "traffic": "chat", "state": "complete", "requests": 30}
    return LevelRow(**given | {"ok": 30} | facts)


def outcome(*rows: LevelRow, objectives: dict[str, Any] | None = None, named: str | None = "fast") -> Outcome:
    scenario = {"traffic": [{"name": "chat", "objective": named}], "objectives": objectives or {}}
    return Outcome("run", "run folder", "run", scenario=scenario, levels=list(rows), classes=list(rows))


FAST = {"fast": {"ttft_s": {"p95": 1.0, "mean": 0.5}, "tpot_s": {}, "e2e_s": None, "failed": 0.05}}


def test_all_limits_met() -> None:
    """A value at its limit meets it."""
    figures = {"ttft_p95_s": Figure(1.0), "ttft_mean_s": Figure(0.4)}
    verdict = judge(outcome(row(figures=figures), objectives=FAST))
    assert [check.metric for check in verdict.classes[0].checks] == ["failed", "ttft_p95_s", "ttft_mean_s"]
    assert (verdict.classes[0].met, verdict.credible, verdict.exit_code) == (True, True, 0)


def test_one_quantile_over_its_limit() -> None:
    """One missed limit misses the objective."""
    figures = {"ttft_p95_s": Figure(1.01), "ttft_mean_s": Figure(0.4)}
    assert judge(outcome(row(figures=figures), objectives=FAST)).exit_code == 1


def test_unknown_does_not_meet_a_limit() -> None:
    """A blank is no proof: no TTFT, no met objective."""
    assert judge(outcome(row(), objectives=FAST)).exit_code == 1


def test_five_refusals_of_thirty_fail_without_any_objective() -> None:
    """16.7 % failures do not pass because nobody named a limit; a named one replaces the default of 1 %."""
    refused = row(ok=25, failed=5, errors={"http_429": 5})
    assert judge(outcome(refused, named=None)).exit_code == 1
    lenient = {"fast": {"failed": 0.2}}
    assert judge(outcome(refused, objectives=lenient)).exit_code == 0


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"state": "timeout", "reason": "time limit of 60 s"}, "c=8: the level is timeout: time limit of 60 s"),
        ({"errors": {"client_limit": 2}, "ok": 28, "failed": 2}, "inside the load generator (2 client_limit)"),
        ({"ok": 0, "failed": 30, "errors": {"refused": 30}}, "no request succeeded"),
    ],
)
def test_runs_that_cannot_decide_are_not_credible(facts: dict[str, Any], reason: str) -> None:
    """Incomplete levels, failures of the generator and levels without success end with 3, whatever the objectives."""
    verdict = judge(outcome(row(**facts), named=None))
    assert verdict.exit_code == 3
    assert any(reason in doubt for doubt in verdict.doubts)


def test_check_decides_the_exit_code(table: Any, small: Path) -> None:
    """The small run misses failed share and TPOT at c=2: 1 with --check, 0 without, 0 once the limits allow it."""
    assert table(small, "--json").code == 0
    answer = table(small, "--json", "--check")
    assert answer.code == answer.json["exit_code"] == 1
    missed = [
        (one["concurrency"], check["metric"])
        for one in answer.json["objectives"]
        for check in one["checks"]
        if not check["met"]
    ]
    assert missed == [(2, "failed"), (2, "tpot_p95_s")]
    facts = json.loads((small / "run.json").read_text())
    facts["scenario"]["objectives"]["interactive"] = {"tpot_s": {"p95": 0.3}, "failed": 0.3}
    (small / "run.json").write_text(json.dumps(facts))
    assert table(small, "--check").code == 0


def test_infinitely_late_failures_miss_a_latency_limit(table: Any, small: Path) -> None:
    """Counted as infinitely late, one refusal of four breaks the p95 limit on TTFT, and the JSON stays JSON."""
    checks = table(small, "--json", "--failures-infinite").json["objectives"][1]["checks"]
    ttft = next(check for check in checks if check["metric"] == "ttft_p95_s")
    assert (ttft["value"], ttft["met"]) == (None, False)
