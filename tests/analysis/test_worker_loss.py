"""Runs in which a worker died: what is shown of it, what is not counted, and that the run cannot decide (case D05)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.clocked_run import write_levels
from tests.analysis.conftest import write_run
from tokenswarm.records import HEADER, RequestRecord, to_csv

GONE = "worker w1 gave no sign of life for 5 s and was given up at 12:00:09"


def request(ticket: int, worker: str, sent_s: float, **facts: Any) -> RequestRecord:
    """One request of 1 s with 11 tokens."""
    given: dict[str, Any] = {
        "level": 0, "concurrency": 2, "phase": "measured", "ticket": ticket, "worker": worker, "traffic": "chat",
        "session": f"0.measured.{ticket}", "session_end": "done", "sent_s": sent_s, "first_token_s": sent_s + 0.5,
        "last_token_s": sent_s + 1, "finished_s": sent_s + 1, "output_tokens": 11, "token_source": "usage",
        "finish_reason": "length",
    }  # fmt: skip
    return RequestRecord(**given | facts)


@pytest.fixture
def halved(tmp_path: Path) -> Path:
    """Worker w1 dies after one of its requests and half a row of another; w0 plays the rest, six requests in all."""
    rows = [request(0, "w0", 0.0), request(1, "w1", 0.0), *(request(i, "w0", i - 1.0) for i in range(2, 7))]
    folder = write_run(tmp_path / "halved", rows, levels=[{"concurrency": 2}])
    with (folder / "requests.csv").open("a") as file:
        file.write(to_csv([request(7, "w1", 1.0)])[:40])
    level = {"concurrency": 2, "state": "partial", "reason": GONE, "planned_sessions": 7, "measured_sessions": 7}
    write_levels(folder, [level])
    (folder / "end.json").write_text(json.dumps({"state": "finished", "reasons": [GONE]}))
    return folder


def test_the_report_names_worker_and_time(table: Any, halved: Path) -> None:
    """Case D05: partial with the reason, once; requests of both are counted whole, half a row does no harm."""
    answer = table(halved, "--check", "--width", "200")
    assert answer.code == 3
    lines = answer.out.splitlines()
    assert [line for line in lines if GONE in line] == [f"c=2: partial: {GONE}"]
    assert "2!" in answer.out
    assert f"not credible: c=2: the level is partial: {GONE}" in answer.err
    assert "requests.csv: the last line is cut off and was left out" in lines
    level = table(halved, "--json").json["levels"][0]
    assert (level["requests"], level["ok"], level["failed"]) == (7, 7, 0)
    assert level["figures"]["tokens"]["value"] == 77


def test_late_rows_are_told_and_not_counted(table: Any, halved: Path) -> None:
    """Two whole rows and half of one came after w1 had been given up."""
    late = to_csv([request(8, "w1", 20.0), request(9, "w1", 21.0)])
    (halved / "late.csv").write_text(HEADER + late + late[:30])
    answer = table(halved, "--json")
    assert answer.json["levels"][0]["requests"] == 7
    assert answer.json["levels"][0]["figures"]["wall_s"]["value"] == pytest.approx(6.0)  # not to 22 s
    note = next(note["text"] for note in answer.json["notes"] if note["key"] == "late rows")
    assert note == "late.csv: 2 rows came from a worker after it had been given up; not counted anywhere"
    (halved / "late.csv").write_text(HEADER)
    assert not any(note["key"] == "late rows" for note in table(halved, "--json").json["notes"])


def test_a_free_running_load_lost_a_worker(table: Any, tmp_path: Path) -> None:
    """Without levels the end of the run tells it, and the run cannot decide."""
    rows = [request(i, "w0", float(i), level=None, concurrency=2, session=f".measured.{i}") for i in range(4)]
    folder = write_run(tmp_path / "free", rows)
    assert table(folder, "--check").code == 0
    (folder / "end.json").write_text(json.dumps({"state": "finished", "reasons": [GONE]}))
    answer = table(folder, "--check", "--width", "200")
    assert answer.code == 3
    assert GONE in answer.out.splitlines()
    assert f"not credible: {GONE}" in answer.err


def test_a_session_that_was_played_again_is_two(table: Any, tmp_path: Path) -> None:
    """w1 died after the first of two turns, w0 played both: one job of 3 s is done, no job spans the two."""
    rows = [
        request(0, "w1", 0.0, session_end=None),
        request(0, "w0", 10.0, session_end=None),
        request(0, "w0", 12.0, turn=1),
    ]
    folder = write_run(
        tmp_path / "again", rows, levels=[{"concurrency": 2}], scenario={"traffic": [{"name": "chat", "turns": 2}]}
    )
    level = table(folder, "--json").json["levels"][0]
    assert level["jobs"]["states"] == {"done": 1, "cut": 1}
    assert level["figures"]["job_mean_s"]["value"] == pytest.approx(3.0)


def test_a_level_without_requests_says_why(table: Any, halved: Path) -> None:
    """The second level got no users in time: its reason is shown although it has no row."""
    facts = json.loads((halved / "run.json").read_text())
    facts["levels"].append({"level": 1, "concurrency": 4, "label": "c=4"})
    (halved / "run.json").write_text(json.dumps(facts))
    first = {"concurrency": 2, "state": "partial", "reason": GONE}
    write_levels(halved, [first, {"concurrency": 4, "state": "partial", "reason": "only 2 of 4 users were ready"}])
    lines = table(halved, "--width", "200").out.splitlines()
    assert "planned but without any request: c=4" in lines
    assert "c=4: partial: only 2 of 4 users were ready" in lines


@pytest.mark.parametrize("state", ["partial", "timeout", "interrupted", "saturated"])
def test_no_such_state_lets_a_run_decide(table: Any, halved: Path, state: str) -> None:
    """Levels that did not run to their end have a mark and their reason, and --check says 3."""
    write_levels(halved, [{"concurrency": 2, "state": state, "reason": "why"}])
    answer = table(halved, "--check", "--width", "200")
    assert answer.code == 3
    assert f"c=2: {state}: why" in answer.out
    assert "2!" in answer.out
