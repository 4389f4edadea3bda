"""Locust's histories and sweeps of several results: what each row says, and which levels they make."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.locust_history import read_history

CASES = Path(__file__).parent / "cases"


def expected(case: str) -> Any:
    return json.loads((CASES / case / "expected.json").read_text())


def test_c05_full_history() -> None:
    """N/A and the 0 of an empty window are no data; rows of names and of all together stay apart."""
    right = expected("C05")
    moments = read_history(CASES / "C05" / "run_stats_history.csv")
    totals = [one for one in moments if one.is_total]
    assert (len(moments), len(totals)) == (right["rows"], right["aggregated_rows"])
    assert sum(one.requests == 0 for one in moments) == right["na_rows"]
    unknown = [one for one in moments if one.percentiles["p95"] is None]
    assert sum(one.requests > 0 for one in unknown) == right["zero_but_counted_rows"]
    assert len(unknown) == right["na_rows"] + right["zero_but_counted_rows"]
    assert list(dict.fromkeys(one.users for one in moments)) == right["users"]
    assert totals[-1].requests == right["final_total"]
    assert max(one.percentiles["p95"] or 0 for one in totals) == right["max_p95_aggregated"]


def test_c03_history_without_users() -> None:
    """Columns are found by name; a version that wrote no number of users leaves it unknown."""
    rows = read_history(CASES / "C03" / "run_stats_history.csv")
    assert [
        {"t": one.time_s, "count": one.requests, "p95": one.percentiles["p95"], "users": one.users} for one in rows
    ] == expected("C03")["history"]


def test_history_under_another_name(table: Any, tmp_path: Path) -> None:
    """It is known by what it holds."""
    shutil.copy(CASES / "C17" / "run_stats_history.csv", tmp_path / "steps.csv")
    assert [level["concurrency"] for level in table(tmp_path / "steps.csv", "--json").json["levels"]] == [4, 8, 16]


@pytest.mark.parametrize("run", ["C17", "C17/run", "C17/run_stats_history.csv"])
def test_c17_levels_of_a_load_in_steps(table: Any, run: str) -> None:
    """Numbers of users that were held are levels, those in between are ramp and named as such."""
    right = expected("C17")
    answer = table(CASES / run, "--json").json
    levels = answer["levels"]
    assert [level["concurrency"] for level in levels] == right["levels"]
    assert [level["requests"] for level in levels] == right["requests_between_first_and_last_row"]
    assert [level["figures"]["all_requests_per_s"]["value"] for level in levels] == right["rps"]
    assert [level["figures"]["response_10s_p95_s"]["value"] * 1000 for level in levels] == right["p95"]
    assert not any("e2e_p95_s" in level["figures"] for level in levels)
    ramp = ", ".join(map(str, right["ramp_user_counts"]))
    assert f"not levels: {ramp} users, with fewer than 5 rows" in [note["text"] for note in answer["notes"]]


def test_a_number_of_users_that_comes_again_is_a_level_of_its_own(table: Any, tmp_path: Path) -> None:
    """Up and down again: the second time has its own counts."""
    rows = [(10 * i, users, 20 * i) for i, users in enumerate([2] * 5 + [4] * 6 + [2] * 7)]
    header = "Timestamp,User Count,Type,Name,95%,Total Request Count,Total Failure Count,Total Min Response Time\n"
    lines = [f"{time},{users},,Aggregated,500,{count},{count // 10},100\n" for time, users, count in rows]
    (tmp_path / "run_stats_history.csv").write_text(header + "".join(lines))
    levels = table(tmp_path, "--json").json["levels"]
    assert [(level["label"], level["requests"], level["failed"]) for level in levels] == [
        ("c=2", 80, 8),
        ("c=4", 100, 10),
        ("c=2 #2", 120, 12),
    ]


@pytest.mark.parametrize(
    ("run", "reason"), [("C03/run_stats_history.csv", "names no number of users"), ("short", "was held for 5 rows")]
)
def test_history_without_levels_gets_one_line(table: Any, tmp_path: Path, run: str, reason: str) -> None:
    """Nothing is made up where users are unknown or never stay the same."""
    path = CASES / run
    if run == "short":
        path = tmp_path / "run_stats_history.csv"
        rows = "".join(f"{i},{i},,Aggregated,{i}\n" for i in range(8))
        path.write_text("Timestamp,User Count,Type,Name,Total Request Count\n" + rows)
    answer = table(path)
    assert (answer.code, answer.out) == (2, "")
    assert len(answer.err.splitlines()) == 1
    assert reason in answer.err


def test_c16_several_results_are_levels_in_order_of_users(table: Any) -> None:
    """2, 8, 16, 128 and not 128, 16, 2, 8; response times with failures in them keep a name of their own."""
    right = expected("C16")
    answer = table(CASES / "C16", "--json")
    levels = answer.json["levels"]
    assert [level["concurrency"] for level in levels] == right["levels"]
    for label in ("p50", "p95"):
        assert [level["figures"][f"response_{label}_s"]["value"] * 1000 for level in levels] == right[label]
    assert [level["figures"]["all_requests_per_s"]["value"] for level in levels] == right["rps"]
    assert [level["failed_share"] for level in levels] == right["error_rate"]
    assert not any("e2e_p95_s" in level["figures"] for level in levels)
    shown = table(CASES / "C16", "--width", "120").out
    assert "one Locust result for each level: users_2, users_8, users_16, users_128" in shown
    assert "failed ones too" in shown


@pytest.mark.parametrize("names", [("100_users", "20_users"), ("run-u100", "run-u20"), ("c=100", "c=20")])
def test_numbers_of_users_stand_in_names(table: Any, tmp_path: Path, names: tuple[str, str]) -> None:
    """Before or after the word, in people's own ways to write it."""
    for name, case in zip(names, ("users_128", "users_8"), strict=True):
        shutil.copy(CASES / "C16" / f"{case}_stats.csv", tmp_path / f"{name}_stats.csv")
    levels = table(tmp_path, "--json").json["levels"]
    assert [(level["concurrency"], level["requests"]) for level in levels] == [(20, 80), (100, 640)]


def test_results_without_a_number_of_users_are_not_mixed(table: Any, tmp_path: Path) -> None:
    """Two runs of two things are named, not shown as levels of one."""
    for name in ("before", "after_2"):
        shutil.copy(CASES / "C16" / "users_8_stats.csv", tmp_path / f"{name}_stats.csv")
    answer = table(tmp_path)
    assert answer.code == 2
    assert "holds several Locust results" in answer.err


def test_d23_names_that_are_markup(table: Any, tmp_path: Path) -> None:
    """Markdown keeps its columns and shows every name as text: no tag, no code, no pipe of theirs is live."""
    names = (CASES / "D23" / "names.txt").read_text().splitlines()
    assert len(names) == expected("D23")["texts_visible"]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    rows = "".join(f"GET,{name},10,1,100,100,50,200,1,1,0\n" for name in quoted)
    header = "Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time,Min Response Time,"
    header += "Max Response Time,Average Content Size,Requests/s,Failures/s\n"
    (tmp_path / "run_stats.csv").write_text(header + rows)
    failures = "".join(f"GET,{name},{name},1\n" for name in quoted)
    (tmp_path / "run_failures.csv").write_text("Method,Name,Error,Occurrences\n" + failures)
    text = table(tmp_path / "run", "--format", "markdown").out
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(names)
    assert {line.replace("\\|", "").count("|") for line in lines} == {lines[0].count("|")}
    assert not any(tag in text for tag in ("<script", "</script", "<img", "<userId"))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\\`code\\` \\| pipe" in text
    assert "\"quoted\" &amp; 'single'" in text
