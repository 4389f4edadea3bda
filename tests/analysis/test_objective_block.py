"""What the table says of the objectives: verdicts by level and class, the misses with their figures, and a sum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.figures import Figure, Mark
from analysis.levels import LevelRow
from analysis.objective_block import ObjectiveBlock, block_of
from analysis.objectives import judge
from analysis.outcome import Outcome

QUICK = {"quick": {"ttft_s": {"p95": 0.05}}}


def row(users: int | None, ttft_p95_s: float | None, traffic: str = "support", **facts: Any) -> LevelRow:
    given: dict[str, Any] = {"state": "complete", "requests": 80, "ok": 80}
    marks = (Mark.NO_BOUND,) if facts.pop("no_bound", False) else ()
    figures = {"ttft_p95_s": Figure(ttft_p95_s, marks=marks)}
    level = None if users is None else users
    return LevelRow(level=level, concurrency=users or 8, traffic=traffic, figures=figures, **given | facts)


def block(*rows: LevelRow, objectives: dict[str, Any] | None = None, doubts: tuple[str, ...] = ()) -> Any:
    named = next(iter(objectives), None) if objectives else None
    traffic = [{"name": "support", "objective": named}, {"name": "batch", "objective": None}]
    scenario = {"traffic": traffic, "objectives": objectives or {}}
    run = Outcome("run", "run folder", "run", scenario=scenario, levels=list(rows), classes=list(rows))
    run.doubts = list(doubts)
    return block_of(judge(run))


def test_levels_by_classes_and_the_miss_in_figures() -> None:
    """Two classes at three levels: a matrix, one line for the miss, and the level up to which all went well."""
    rows = [
        row(users, ttft, name) for users, ttft in ((2, 0.03), (4, 0.05), (8, 0.06)) for name in ("support", "batch")
    ]
    shown: ObjectiveBlock = block(*rows, objectives=QUICK)
    assert shown.table is not None
    assert shown.table.header == ["c", "batch", "support"]
    assert shown.table.rows == [["2", "met", "met"], ["4", "met", "met"], ["8", "met", "missed"]]
    assert shown.lines == [
        "support at c=8: TTFT p95 60 ms > 50 ms",
        "all objectives met up to c=4",
        "limits for batch (default): failed ≤ 1 %",
        "limits for support (quick): failed ≤ 1 %, TTFT p95 ≤ 50 ms",
    ]


@pytest.mark.parametrize(
    ("ttft", "summary"),
    [
        ((0.06, 0.07, 0.08), "objectives met at no level"),
        ((0.01, 0.02, 0.03), "all objectives met up to c=8"),
        ((0.06, 0.02, 0.03), "all objectives met only at c=4, 8"),
        ((0.01, 0.06, 0.03), "all objectives met only at c=2, 8"),
    ],
)
def test_summary(ttft: tuple[float, ...], summary: str) -> None:
    """``up to`` is said only where every level below is good too, whatever the order of the levels."""
    rows = [row(users, value) for users, value in zip((2, 4, 8), ttft, strict=True)]
    assert summary in block(*rows, objectives=QUICK).lines
    assert summary.replace("4, 8", "8, 4").replace("2, 8", "8, 2") in block(*rows[::-1], objectives=QUICK).lines


def test_few_requests_leave_a_verdict_without_bound() -> None:
    """A quantile without interval decides, but with a star and a line that says at which levels."""
    shown = block(row(2, 0.03, no_bound=True), row(4, 0.06, no_bound=True), row(8, 0.03), objectives=QUICK)
    assert [cells[1] for cells in shown.table.rows] == ["met*", "missed*", "met"]
    assert "*  too few requests to be sure at c=2, 4: the deciding quantile has no bound" in shown.lines


def test_each_class_needs_requests_of_its_own() -> None:
    """72 requests of all classes together bound no p95 of one class, and the line says so where there are several."""
    shown = block(row(2, 0.03, no_bound=True), row(2, 9.0, "batch"), objectives=QUICK)
    assert shown.table.rows == [["2", "met", "met*"]]
    assert shown.lines[-1].endswith("the deciding quantile has no bound; each class needs requests of its own")


def test_a_certain_miss_needs_no_star() -> None:
    """Failures are counted, not estimated: with 10 of 80 failed the class has missed, however few the requests."""
    shown = block(row(2, 0.06, no_bound=True, ok=70, failed=10), objectives=QUICK)
    assert shown.table.rows == [["2", "missed"]]
    assert "support at c=2: failed 12.5 % > 1 %, TTFT p95 60 ms > 50 ms" in shown.lines


def test_levels_that_are_not_complete_are_undecided() -> None:
    """A level that lost sessions meets nothing, and a run that is not credible says so beside the sum."""
    shown = block(row(2, 0.03), row(4, 0.03, state="partial", reason="2 sessions lost"), objectives=QUICK)
    assert [cells[1] for cells in shown.table.rows] == ["met", "undecided"]
    assert "all objectives met up to c=2; the run is not credible, see the notes" in shown.lines


def test_free_running_load_names_no_level() -> None:
    """One verdict for the whole run."""
    missed = block(row(None, 0.06, state="free-running"), objectives=QUICK).lines
    assert missed[:2] == ["support: TTFT p95 60 ms > 50 ms", "objectives not met"]
    met = block(row(None, 0.03, state="free-running"), objectives=QUICK).lines
    assert met[0] == "all objectives met"


def test_without_objectives_only_too_many_failures_are_worth_a_word() -> None:
    """Nobody named an objective: nothing is said, unless the default limit on failures is missed."""
    assert block(row(2, 9.0)) is None
    shown = block(row(2, 9.0), row(4, 9.0, ok=60, failed=20))
    assert shown.table is None
    assert shown.lines == [
        "support at c=4: failed 25.0 % > 1 %",
        "no objective is named; the default limit of 1 % failed requests is missed at c=4",
    ]


@pytest.mark.parametrize(
    ("limits", "value", "text"),
    [
        ({"ttft_s": {"p95": 0.05}}, 0.0500004, "TTFT p95 50.0004 ms > 50 ms"),
        ({"ttft_s": {"p95": 0.05}}, None, "TTFT p95 unknown, limit 50 ms"),
        ({"ttft_s": {"p95": 0.05}}, float("inf"), "TTFT p95 ∞ ms > 50 ms"),
        ({"ttft_s": {"p95": 0.0000005}}, 0.0123, "TTFT p95 12 ms > 0.0005 ms"),
    ],
)
def test_a_miss_shows_a_difference(limits: dict[str, Any], value: float | None, text: str) -> None:
    """Value and limit never look alike, and what is unknown is called so."""
    assert f"support at c=2: {text}" in block(row(2, value), objectives={"quick": limits}).lines


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_tables_show_the_block_and_check_does_not_repeat_it(table: Any, form: str) -> None:
    """The small run fails one of four at c=2 and decodes at 200 ms a token where 150 are allowed."""
    answer = table(Path(__file__).parent / "runs" / "small", "--format", form, "--check", "--width", "100")
    assert answer.code == 1
    assert "chat at c=2: failed 25.0 % > 1 %, TPOT p95 200 ms > 150 ms" in answer.out.replace("&gt;", ">")
    assert "all objectives met up to c=1" in answer.out
    assert answer.out.index("Objectives") < answer.out.index("Scaling")
    assert answer.err == ""


def test_csv_has_no_block_so_check_tells_it(table: Any, small: Path) -> None:
    """One line a missed limit on standard error; JSON carries them with the mark of the quantile."""
    answer = table(small, "--format", "csv", "--check")
    assert answer.err.splitlines() == [
        "objective missed: chat at c=2: failed is 0.25, at most 0.01 is allowed",
        "objective missed: chat at c=2: tpot_p95_s is 0.2, at most 0.15 is allowed",
    ]
    checks = table(small, "--json").json["objectives"][1]["checks"]
    assert {check["metric"]: check["no_bound"] for check in checks} == {
        "failed": False, "ttft_p95_s": True, "tpot_p95_s": True,
    }  # fmt: skip


def test_lost_sessions_are_shown_with_their_reason_and_are_not_credible(table: Any, small: Path) -> None:
    """A level that Locust took users from is marked, explained and no basis for a verdict."""
    reason = "2 sessions lost: their users were stopped by Locust (a worker joined or left)"
    text = (small / "levels.csv").read_text().replace("1,2,complete,,", f"1,2,partial,{reason},")
    (small / "levels.csv").write_text(text)
    facts = json.loads((small / "run.json").read_text())
    facts["scenario"]["objectives"]["interactive"] = {"tpot_s": {"p95": 0.3}, "failed": 0.3}
    (small / "run.json").write_text(json.dumps(facts))
    answer = table(small, "--check", "--width", "160")
    assert answer.code == 3
    assert f"c=2: partial: {reason}" in answer.out
    assert "undecided" in answer.out
    assert "2!" in answer.out
    assert reason in answer.err
