"""Which footnotes a reader sees, and that they name what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.figures import quantile_figure
from tokenswarm.quantiles import order_statistic_interval


def change_facts(folder: Path, **facts: Any) -> None:
    known = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(known | facts))


def with_load(folder: Path, load: Any) -> None:
    scenario = json.loads((folder / "run.json").read_text())["scenario"]
    change_facts(folder, scenario=scenario | {"load": load})


def test_definitions_are_a_line_unless_asked_for(table: Any, small: Path) -> None:
    """The table points to the document, --notes prints the definitions, JSON has them always."""
    definition = "linear interpolation"
    short, long = (table(small, "--width", "160", *options).out for options in ((), ("--notes",)))
    assert "definitions: docs/metrics.md" in short
    assert definition not in short
    assert definition in long
    assert "not in counts and latencies: 1 warm-up, 1 fill requests" in long
    assert any(definition in note["text"] for note in table(small, "--json").json["notes"])
    assert {frozenset(note) for note in table(small, "--json").json["notes"]} == {frozenset({"key", "text"})}


def test_what_this_run_is_about_is_always_shown(table: Any, small: Path) -> None:
    """Simulated, failures, early stops, clock, basis of tok/s, and the meaning of c, each in one line."""
    lines = table(small, "--width", "200").out.splitlines()
    for begin in (
        "SIMULATED",
        "failures: 1 x http_429",
        "c=2: 1 of 3 answers",
        "clock: the kernel",
        "output tok/s: all",
    ):
        assert sum(line.startswith(begin) for line in lines) == 1, begin
    assert sum("closed loop" in line for line in lines if line.startswith("c: users at the same time")) == 1


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"notes": ["shortage of prompts"]}, "shortage of prompts"),
        (
            {"notes": ["prompt lengths are not exact (server): why"], "input_tokens_exact": False},
            "prompt lengths are not exact (server): why",
        ),
        (
            {"notes": [], "input_tokens_exact": False, "input_tokens_note": "no tokenizer"},
            "prompt lengths are not exact: no tokenizer",
        ),
    ],
)
def test_what_the_run_says_of_its_prompts(table: Any, small: Path, facts: dict[str, Any], text: str) -> None:
    """Notes of run.json are shown, and inexact prompt lengths once, whoever wrote them down."""
    change_facts(small, **facts)
    lines = table(small, "--width", "200").out.splitlines()
    assert [line for line in lines if "prompt" in line] == [text]


def test_merged_reads_are_one_line_that_names_the_levels(table: Any, small: Path) -> None:
    """21 of the 43 reads of c=2 held several events: named with the advice; 2 of 40 at c=1 are no news."""
    assert "--processes" not in table(small).out
    text = (small / "requests.csv").read_text().replace(",kernel,11,0,0.000400", ",kernel,11,11,0.000400")
    text = text.replace(
        ",kernel,21,0,0.000100,length,200,,\n1,2,measured,2", ",kernel,21,10,0.000100,length,200,,\n1,2,measured,2"
    )
    (small / "requests.csv").write_text(text)
    lines = [line for line in table(small, "--width", "300").out.splitlines() if "reads" in line]
    # 11 + 10 of 11 + 21 + 11 reads
    assert len(lines) == 1
    assert lines[0].startswith("merged reads: c=2 (49%) of the reads")
    assert "use more load processes (--processes)" in lines[0]


@pytest.mark.parametrize(
    ("load", "advice"),
    [
        ({"closed": {"sessions": {"per_user": 1, "at_least": 4}}}, "set load.closed.sessions.at_least: 72"),
        ({"closed": {"sessions": 4}}, "set load.closed.sessions: 72"),
        ({"closed": {"sessions": None, "duration_s": 60.0}}, "make load.closed.duration_s long enough for 72 requests"),
        (None, "take 72 requests"),
    ],
)
def test_the_star_says_which_key_to_change(table: Any, small: Path, load: Any, advice: str) -> None:
    """Where quantiles have no bound, the legend names the key of this scenario that gives p95 one."""
    with_load(small, load)
    assert f"for p95 {advice}" in table(small, "--width", "200").out


@pytest.mark.parametrize(("q", "n"), [(0.5, 6), (0.95, 72), (0.99, 368)])
def test_numbers_of_the_legend_are_the_smallest_that_bound(q: float, n: int) -> None:
    """One request fewer has no interval."""
    import numpy as np

    assert order_statistic_interval(n, q) is not None
    assert quantile_figure(np.arange(float(n - 1)), q).marks == ("no bound",)


def test_a_lone_requests_file_cannot_tell_whether_it_is_whole(table: Any, small: Path) -> None:
    """An interrupted run looks complete without the files around it: the table says that it does not know."""
    assert "completeness unknown: only requests.csv was read" in table(small / "requests.csv", "--width", "200").out
    assert "completeness unknown" not in table(small).out


def test_by_class_says_what_stays_common(table: Any, small: Path) -> None:
    """Scaling and warm-up are of all classes together, and only --by-class has to say so."""
    shown = table(small, "--by-class").out
    assert "Scaling (all classes together, relative to c=1)" in shown
    assert "Warm-up (all classes together, not in the levels)" in shown
    assert "all classes" not in table(small).out
