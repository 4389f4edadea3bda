"""What levels are called where several have the same number of users: in tables, notes, files and Locust's CSVs."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.conftest import LEVELS_HEADER, write_run
from tokenswarm.records import RequestRecord

ARMS = ("paired", "cold", "warm", "warm", "cold")
LABELS = ["c=8 paired", "c=8 cold", "c=8 warm", "c=8 warm #2", "c=8 cold #2"]


def request(level: int, ticket: int = 0, **facts: Any) -> RequestRecord:
    """One request of 1 s with 11 tokens at ``100 × level`` seconds."""
    sent = 100.0 * level + ticket
    given: dict[str, Any] = {
        "level": level, "concurrency": 8, "phase": "measured", "ticket": ticket, "traffic": "agent",
        "session": f"{level}.measured.{ticket}", "sent_s": sent, "first_token_s": sent + 0.5,
        "last_token_s": sent + 1, "finished_s": sent + 1, "output_tokens": 11, "token_source": "usage",
    }  # fmt: skip
    return RequestRecord(**given | facts)


@pytest.fixture
def test_run(tmp_path: Path) -> Path:
    """A prefix-cache test at one number of users: a paired level, then cold, warm, warm, cold, the last unfinished."""
    rows = [
        request(level, ticket, phase=phase)
        for level in range(4)
        for ticket, phase in ((0, "measured"), (1, "measured"), (2, "warmup"))
    ]
    levels = [{"concurrency": 8, "arms": arms} for arms in ARMS]
    folder = write_run(tmp_path / "test", rows, levels=levels)
    text = (folder / "levels.csv").read_text().replace("3,8,complete,,", "3,8,timeout,limit of 60 s,")
    (folder / "levels.csv").write_text("".join(text.splitlines(keepends=True)[:5]))
    return folder


def test_tables_show_the_arms(table: Any, test_run: Path) -> None:
    """Levels and warm-up tell equal levels apart; a level that was never reached is named like the others."""
    shown = table(test_run, "--width", "100").out
    for name in ("8 paired", "8 cold", "8 warm", "8 warm #2"):
        assert sum(line.strip().startswith((f"{name}  ", f"{name}! ")) for line in shown.splitlines()) >= 2, name
    assert "Scaling" not in shown  # nothing here differs in the number of users alone
    assert "c=8 warm #2: timeout: limit of 60 s" in shown
    assert "8 warm #2!" in shown
    assert "planned but without any request: c=8 cold #2" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_files_for_programs_have_label_and_arms(table: Any, test_run: Path) -> None:
    """JSON and CSV carry both, and reasons of doubt name the level in full."""
    answer = table(test_run, "--json", "--check")
    levels = answer.json["levels"]
    assert [level["label"] for level in levels] == LABELS[:4]
    assert [level["arms"] for level in levels] == list(ARMS[:4])
    assert "not credible: c=8 warm #2: the level is timeout: limit of 60 s" in answer.err
    rows = list(csv.DictReader(io.StringIO(table(test_run, "--format", "csv").out)))
    assert [(row["label"], row["arms"]) for row in rows] == list(zip(LABELS, ARMS, strict=True))[:4]


@pytest.mark.parametrize("source", ["levels.csv", "requests.csv"])
def test_arms_without_a_plan(table: Any, tmp_path: Path, source: str) -> None:
    """Without run.json's plan the column of levels.csv tells the arms, else the rows do: both arms are pairs."""
    arms = {0: ("warm", "cold"), 1: ("cold", "cold")}
    if source == "levels.csv":
        arms = {0: (None, None), 1: (None, None)}  # type: ignore[dict-item]
    rows = [request(level, ticket, arm=arms[level][ticket]) for level in (0, 1) for ticket in (0, 1)]
    folder = write_run(tmp_path / "run", rows)
    if source == "levels.csv":
        header = LEVELS_HEADER.strip() + ",arms\n"
        (folder / "levels.csv").write_text(f"{header}0,8,complete,,,,,,,,paired\n1,8,complete,,,,,,,,cold\n")
        assert [level["label"] for level in table(folder, "--json").json["levels"]] == ["c=8 paired", "c=8 cold"]
    levels = table(folder / ("" if source == "levels.csv" else source), "--json").json["levels"]
    assert [level["label"] for level in levels] == ["c=8 paired", "c=8 cold"]


def test_equal_levels_without_arms(table: Any, tmp_path: Path) -> None:
    """c=8 twice is c=8 and c=8 #2, as Locust's statistics call them."""
    folder = write_run(tmp_path / "run", [request(0), request(1)], levels=[{"concurrency": 8}] * 2)
    assert [level["label"] for level in table(folder, "--json").json["levels"]] == ["c=8", "c=8 #2"]


def test_objectives_name_the_level(table: Any, test_run: Path) -> None:
    """A limit that only some of the equal levels miss is laid at their door and not at the others'."""
    scenario = {"traffic": [{"name": "agent", "objective": "fast"}], "objectives": {"fast": {"ttft_s": {"p50": 0.6}}}}
    slow = [request(2, ticket, first_token_s=200.7 + ticket) for ticket in (0, 1)]
    rows = [request(level, ticket) for level in (0, 1, 3) for ticket in (0, 1)] + slow
    levels = [{"concurrency": 8, "arms": arms} for arms in ARMS[:4]]
    answer = table(write_run(test_run.parent / "slow", rows, levels=levels, scenario=scenario), "--width", "100")
    assert "agent at c=8 warm: TTFT p50 700 ms > 600 ms" in answer.out
    assert "all objectives met only at c=8 paired, 8 cold, 8 warm #2" in answer.out


def test_locust_statistics_tell_the_levels_apart(table: Any, tmp_path: Path) -> None:
    """From Locust's CSVs alone: levels by users, then paired, cold, warm, each time by itself."""
    header = "Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time"
    lines = [header]
    for ticket, label in enumerate(reversed(LABELS)):
        ttft = 100 * (1 + ticket)
        lines += [
            f"POST,agent {label},4,0,1000,1000",
            f"POST,agent {label} warmup,2,0,1000,1000",
            f"LLM,agent {label} TTFT,4,0,{ttft},{ttft}",
            f"LLM,agent {label} tokens,4,0,11,11",
            f"LLM,{label} wall,1,0,2000,2000",
            f"LLM,{label} window tokens,1,0,44,44",
        ]
    lines.append("POST,agent c=8 warm up,1,0,5,5")  # no level of ours: the name of somebody else's request
    (tmp_path / "out_stats.csv").write_text("\n".join([*lines, ",Aggregated,31,0,1,1"]) + "\n")
    levels = table(tmp_path / "out", "--json").json["levels"]
    by_label = {level["label"]: level for level in levels if level["label"]}
    assert list(by_label) == ["c=8 paired", "c=8 cold", "c=8 cold #2", "c=8 warm", "c=8 warm #2"]
    assert [level["arms"] for level in by_label.values()] == ["paired", "cold", "cold", "warm", "warm"]
    means = {label: level["figures"]["ttft_mean_s"]["value"] for label, level in by_label.items()}
    assert means == {label: pytest.approx(0.1 * (1 + i)) for i, label in enumerate(reversed(LABELS))}
    assert {level["figures"]["output_tok_s"]["value"] for level in by_label.values()} == {22.0}
    shown = table(tmp_path / "out", "--width", "100").out
    assert "8 cold #2" in shown
