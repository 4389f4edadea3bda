"""What the table says of a search: its levels in order, each with what decided, the answer, and the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.figures import Figure, Mark
from analysis.levels import LevelRow
from analysis.objectives import judge
from analysis.outcome import Outcome
from tests.analysis.searched_run import SCENARIO, searched_run, write_search

CROSSING = [(1.0, 0.2), (2.0, 0.5), (4.0, 3.0), (2.83, 1.34), (2.38, 0.9)]


def test_the_answer_from_the_rows(table: Any, tmp_path: Path) -> None:
    """Levels are called by their rates although run.json knows the first only; the answer names the figure that the
    first bad level misses."""
    folder = searched_run(tmp_path / "run", CROSSING)
    write_search(folder, "within", "2.83/s is at most 20 % above the best")
    answer = table(folder, "--check", "--width", "160")
    assert answer.code == 0
    shown = answer.out[answer.out.index("\nSearch\n") :].splitlines()
    steps = [line.split() for line in shown if "/s " in line and "chat" in line][:5]
    assert [(words[0], words[1]) for words in steps] == [
        ("1/s", "met"), ("2/s", "met"), ("4/s", "missed"), ("2.83/s", "missed"), ("2.38/s", "met"),
    ]  # fmt: skip
    sentence = (
        "highest rate that meets all objectives: 2.38/s (2.83/s misses chat scheduled TTFT p95 1340 ms > 1000 ms)"
    )
    assert sentence in shown
    document = table(folder, "--json").json
    assert document["search"]["best"]["label"] == "2.38/s"
    assert document["search"]["first_bad"]["why"] == "chat scheduled TTFT p95 1340 ms > 1000 ms"
    assert [one["judgement"] for one in document["verdicts"]] == ["met", "met", "missed", "missed", "met"]


def test_no_rate_is_good(table: Any, tmp_path: Path) -> None:
    """The objective is missed, and the run is credible: exit code 1."""
    folder = searched_run(tmp_path / "run", [(1.0, 3.0), (0.5, 2.0)])
    write_search(folder, "lowest", "even 0.5/s misses an objective, and nothing lower is tried")
    answer = table(folder, "--check", "--width", "160")
    assert answer.code == 1
    assert "no rate was found that meets all objectives (0.5/s misses chat scheduled TTFT p95 2000 ms" in answer.out
    assert "even 0.5/s misses an objective, and nothing lower is tried" in answer.out


def test_a_limit_that_is_good_is_no_highest_rate(table: Any, tmp_path: Path) -> None:
    """The answer says that nothing higher was tried."""
    folder = searched_run(tmp_path / "run", [(4.0, 0.2), (8.0, 0.3)])
    write_search(folder, "limit", "8/s is the limit that was asked for")
    answer = table(folder, "--check", "--width", "160")
    assert answer.code == 0
    assert "highest rate that meets all objectives: 8/s\n" in answer.out
    assert "nothing higher was tried: 8/s is the limit that was asked for" in answer.out


def test_a_search_without_an_end_is_not_credible(table: Any, tmp_path: Path) -> None:
    """A run that was killed on the way still says how far it came."""
    answer = table(searched_run(tmp_path / "run", CROSSING[:2]), "--check", "--width", "160")
    assert answer.code == 3
    assert "highest rate that meets all objectives: 2/s\n" in answer.out
    assert "not credible: the search is undecided: the run ended before the search" in answer.err


def test_a_damaged_search_file_is_told(table: Any, tmp_path: Path) -> None:
    """One line, and the rows still speak."""
    folder = searched_run(tmp_path / "run", CROSSING[:2])
    (folder / "search.json").write_text('{"format": 1, "ended"')
    answer = table(folder, "--check", "--notes", "--width", "200")
    assert answer.code == 3
    assert "search.json: wanted JSON" in answer.out
    assert "highest rate that meets all objectives: 2/s" in answer.out


def test_a_saturated_level_is_missed_whatever_its_figures(table: Any, tmp_path: Path) -> None:
    """It ran too short to have bad figures; the run stays credible, and the figures are marked."""
    why = {"state": "saturated", "reason": "the queue grows: in 9 s 70 sessions arrived and 35 ended"}
    folder = searched_run(tmp_path / "run", [(1.0, 0.2), (2.0, 0.4), (1.41, 0.3)], levels={1: why})
    write_search(folder, "within", "2/s is at most 50 % above the best")
    answer = table(folder, "--check", "--width", "160")
    assert answer.code == 0
    assert f"highest rate that meets all objectives: 1.41/s (2/s is saturated: {why['reason']})" in answer.out
    assert "saturated levels were stopped before a steady state" in answer.out
    assert "chat at 2/s: saturated" in answer.out


def judged(*rows: LevelRow, classes: tuple[str, ...] = ("chat",)) -> list[tuple[str, str]]:
    traffic = [{"name": name, "objective": "quick"} for name in classes]
    run = Outcome("run", "run folder", "run", scenario=SCENARIO | {"traffic": traffic}, levels=[rows[0]])
    run.classes = list(rows)
    return [(one.judgement.value, one.why) for one in judge(run).levels]


def row(ttft_p95_s: float | None, *marks: Mark, traffic: str = "chat", **facts: Any) -> LevelRow:
    given: dict[str, Any] = {"level": 0, "concurrency": 8, "state": "complete", "requests": 100, "ok": 100}
    n = facts.pop("n", 100)
    return LevelRow(traffic=traffic, figures={"ttft_p95_s": Figure(ttft_p95_s, n=n, marks=marks)}, **given | facts)


@pytest.mark.parametrize(
    ("rows", "judgement", "why"),
    [
        ([row(0.9)], "met", "chat TTFT p95 900 ms ≤ 1000 ms"),
        ([row(1.2)], "missed", "chat TTFT p95 1200 ms > 1000 ms"),
        ([row(0.9, failed=5, ok=95)], "missed", "chat failed 5.00 % > 1 %"),
        ([row(0.9, Mark.NO_BOUND, n=72)], "met", "chat TTFT p95 900 ms ≤ 1000 ms"),  # alike, and worth fewer
        (
            [row(0.9, Mark.NO_BOUND, n=71)],
            "undecided",
            "chat TTFT p95 900 ms ≤ 1000 ms, but of too few requests to bound it",
        ),
        (
            [row(1.2, Mark.NO_BOUND, n=71)],
            "undecided",
            "chat TTFT p95 1200 ms > 1000 ms, but of too few requests to bound it",
        ),
        ([row(None)], "undecided", "chat TTFT p95 unknown, limit 1000 ms"),
        ([row(0.9, state="partial", reason="w2 is gone")], "undecided", "the level is partial: w2 is gone"),
        ([row(1.2, state="timeout", reason="late")], "undecided", "the level is timeout: late"),
        ([row(0.9, ok=0, failed=100)], "undecided", "no request succeeded"),
        ([row(0.9, errors={"client": 3})], "undecided", "failures inside the load generator (3 client)"),
    ],
)
def test_one_level(rows: list[LevelRow], judgement: str, why: str) -> None:
    """What decides; nothing is decided by a level that proves nothing, or by a quantile without a bound."""
    assert judged(*rows) == [(judgement, why)]


def test_every_class_has_to_be_there_and_good() -> None:
    """The worst figure of all classes decides; a class with an objective and without a request proves nothing."""
    both = ("chat", "batch")
    assert judged(row(0.4), row(0.7, traffic="batch"), classes=both) == [("met", "batch TTFT p95 700 ms ≤ 1000 ms")]
    assert judged(row(0.4), row(1.7, traffic="batch"), classes=both) == [("missed", "batch TTFT p95 1700 ms > 1000 ms")]
    assert judged(row(0.4), classes=both) == [("undecided", "no request of batch")]


def test_a_miss_for_sure_decides_beside_a_doubt() -> None:
    """One class has too few requests, another misses its limit for sure."""
    rows = [row(0.4, Mark.NO_BOUND), row(1.7, traffic="batch")]
    assert judged(*rows, classes=("chat", "batch")) == [("missed", "batch TTFT p95 1700 ms > 1000 ms")]
