"""Interference of a run folder whose every figure can be worked out by hand, and what is said of it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from block_run import BLOCK_S, request, whole_run, write_blocks
from syrupy.assertion import SnapshotAssertion

from analysis.__main__ import main
from analysis.figures import Figure
from analysis.interference_test import LEAST_SHARE, MEASURES, NONE_SHARE, Answer, Cell
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Phase

Report = Callable[..., str]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """``python -m analysis interference RUN …``, what it prints."""

    def call(run: Path, *options: str) -> str:
        assert main(["interference", str(run), *options]) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture
def classes(report: Report) -> Callable[[Path], dict[str, Any]]:
    """The classes of the only group, as JSON, by name."""

    def read(run: Path) -> dict[str, Any]:
        (group,) = json.loads(report(run, "--json"))["groups"]
        return {one["class"]: one for one in group["classes"]}

    return read


def texts(result: dict[str, Any]) -> dict[str, str]:
    return {finding["key"]: finding["text"] for finding in result["findings"]}


def test_a_class_alone_and_beside_the_other(classes: Any, tmp_path: Path) -> None:
    """Chat's TTFT is 100 to 190 ms alone and 500 to 590 ms together: medians 145 and 545 ms, of 20 values the 6th and
    15th around them (120 and 170 ms), the ratio's ends 520/170 and 570/120."""
    found = classes(write_blocks(tmp_path / "run", whole_run()))
    chat = found["chat"]
    assert (chat["users"], chat["beside"]) == (2, {"documents": 1})
    cell = chat["figures"]["ttft_p50"]
    for side, value, low, high in (("alone", 0.145, 0.12, 0.17), ("together", 0.545, 0.52, 0.57)):
        assert [cell[side][key] for key in ("value", "low", "high")] == pytest.approx([value, low, high], abs=1e-6)
        assert cell[side]["n"] == 20
    ratio = [cell["ratio"][key] for key in ("value", "low", "high")]
    assert ratio == pytest.approx([545 / 145, 520 / 170, 570 / 120], abs=1e-4)
    assert cell["verdict"] == "worse"
    assert chat["figures"]["e2e_p50"]["alone"]["value"] == pytest.approx(0.345, abs=1e-6)
    assert chat["findings"] == []
    documents = found["documents"]["figures"]
    assert documents["ttft_p50"]["ratio"]["value"] == pytest.approx(1.0, abs=1e-6)
    assert documents["ttft_p50"]["verdict"] == "no effect"  # 1,020 to 1,070 ms in both


def test_a_rate_is_of_all_tokens_that_arrived_in_the_measured_time(classes: Any, tmp_path: Path) -> None:
    """Ten requests of 11 tokens in 10 s; the last is sent at 9 s and has its first token at 9.16 s, all by 9.36 s."""
    chat = classes(write_blocks(tmp_path / "run", whole_run()))["chat"]
    assert chat["figures"]["tok_s"]["alone"]["value"] == pytest.approx(11.0, abs=1e-4)
    late = [request(level, "chat", 9.9, 0.2) for level in (0, 5)]  # its tokens come after the measured time
    chat = classes(write_blocks(tmp_path / "late", whole_run() + late))["chat"]
    assert chat["figures"]["tok_s"]["alone"]["value"] == pytest.approx(11.0, abs=1e-4)
    assert chat["alone"]["requests"] == 22


def test_a_request_belongs_to_the_time_in_which_it_was_sent(classes: Any, tmp_path: Path) -> None:
    """Of a warm-up session sent in the measured time: counted; drain: counted when sent in it; others are not."""
    more = [
        request(0, "chat", 0.5, 7.0, phase=Phase.WARMUP),
        request(0, "chat", 9.5, 7.0, phase=Phase.DRAIN),
        request(0, "chat", -0.5, 7.0, phase=Phase.WARMUP),
        request(0, "chat", BLOCK_S + 0.5, 7.0, phase=Phase.DRAIN),
    ]
    chat = classes(write_blocks(tmp_path / "run", whole_run() + more))["chat"]
    assert chat["alone"]["requests"] == 22
    assert chat["figures"]["ttft_p95"]["alone"]["value"] > 0.2


def test_what_was_cut_is_later_than_all_others(classes: Any, tmp_path: Path) -> None:
    """Of 24 requests four were cut, three of them before their first token: the 95 % quantile is beyond measure."""
    cut = {"error_kind": ErrorKind.CANCELLED, "output_tokens": None, "phase": Phase.DRAIN}
    early = {"first_token_s": None, "first_output_s": None, "last_token_s": None}
    more = [request(level, "chat", 9.8, 0.1, **cut, **early) for level in (2, 3, 3)]
    more.append(request(2, "chat", 9.7, 0.5, **cut))
    chat = classes(write_blocks(tmp_path / "run", whole_run() + more))["chat"]
    assert (chat["together"]["requests"], chat["together"]["cut"], chat["together"]["failed"]) == (24, 4, 0)
    together = {name: figure["together"] for name, figure in chat["figures"].items()}
    assert (together["ttft_p95"]["value"], together["ttft_p95"]["n"]) == (None, 24)
    assert (together["e2e_p50"]["n"], together["tpot_p50"]["n"]) == (24, 20)
    assert "4 of 24 requests were cut" in texts(chat)["cut"]
    assert "drain_limit_s" in texts(chat)["cut"]


def test_failures_are_told_and_not_timed(classes: Any, tmp_path: Path) -> None:
    """A request that failed has no latency and is counted beside those that succeeded."""
    failed = [request(2, "documents", 5.5, 0.001, error_kind=ErrorKind.HTTP_5XX, http_status=503)]
    documents = classes(write_blocks(tmp_path / "run", whole_run() + failed))["documents"]
    assert (documents["together"]["requests"], documents["together"]["failed"]) == (21, 1)
    assert documents["figures"]["ttft_p50"]["together"]["n"] == 20
    assert texts(documents)["failures"].startswith("together: 1 of 21 requests failed")


def test_a_block_that_did_not_end_well_is_left_out(classes: Any, report: Report, tmp_path: Path) -> None:
    """One was interrupted, one never ran: what is left has no interval, and nothing is concluded."""
    run = write_blocks(tmp_path / "run", whole_run(), {3: "partial", 5: ""})
    chat = classes(run)["chat"]
    assert (chat["alone"]["blocks"], chat["together"]["blocks"]) == (1, 1)
    cell = chat["figures"]["ttft_p50"]
    assert (cell["alone"]["low"], cell["alone"]["value"]) == (None, pytest.approx(0.145))
    assert {figure["verdict"] for figure in chat["figures"].values()} == {"cannot tell"}
    text = report(run)
    assert "left out: c=3 together #2: partial" in text
    assert "left out: c=2 chat alone #2" in text


def test_missing_users_are_told(classes: Any, tmp_path: Path) -> None:
    """In one block only one of chat's two users sent anything."""
    rows = [row for row in whole_run() if not (row.level == 2 and row.user == 1)]
    found = texts(classes(write_blocks(tmp_path / "run", rows))["chat"])
    assert found["users missing"] == "together: in 1 of 2 blocks not all 2 users sent a request (in one of them 1)"


def test_requests_that_were_not_alike_are_told(classes: Any, tmp_path: Path) -> None:
    """Prompts are a fifth longer together, all of them: latencies differ for that reason too."""
    rows = whole_run()
    for row in rows:
        row.prompt_tokens = 360 if row.traffic == "chat" and row.level in (2, 3) else 300 + row.ticket % 7
    found = texts(classes(write_blocks(tmp_path / "run", rows))["chat"])
    assert found["not alike"].startswith(
        "the requests were not alike: 303 prompt tokens on average alone, 360 together"
    )
    documents = classes(write_blocks(tmp_path / "again", rows))["documents"]
    assert documents["findings"] == []


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"late": 0.09}, "generator late"),
        ({"clock": "watcher", "lag_max_s": 0.08}, "generator late"),
        ({"clock": "kernel", "lag_max_s": 0.08}, None),  # the kernel's stamps are right however late they are read
        ({"reads": 10, "merged_reads": 4}, "merged reads"),
        ({"late": 0.004}, None),
    ],
)
def test_a_late_load_generator_is_told(classes: Any, tmp_path: Path, changes: dict[str, Any], key: str | None) -> None:
    """Half of the together block's requests were sent or read late by more than a tenth of the median TTFT, 54 ms."""
    rows = whole_run()
    for row in rows:
        if row.traffic == "chat" and row.level == 2:
            for name, value in changes.items():
                if name == "late":
                    row.scheduled_s = (row.sent_s or 0.0) - value
                else:
                    setattr(row, name, value)
    found = texts(classes(write_blocks(tmp_path / "run", rows))["chat"])
    assert list(found) == ([key] if key else [])
    assert all(text.startswith("together: ") for text in found.values())


def test_two_numbers_of_users_are_two_matrices(report: Report, tmp_path: Path) -> None:
    """When rounds begin anew, the next number of users has begun."""
    run = write_blocks(tmp_path / "run", whole_run())
    facts = json.loads((run / "run.json").read_text())
    again = [level | {"level": level["level"] + 6} for level in facts["levels"]]
    (run / "run.json").write_text(json.dumps(facts | {"levels": facts["levels"] + again}))
    first, second = json.loads(report(run, "--json"))["groups"]
    assert [block["level"] for block in second["blocks"]] == [6, 7, 8, 9, 10, 11]
    assert first["classes"][0]["alone"]["requests"] == 20
    assert second["classes"][0]["alone"]["requests"] == 0
    assert second["classes"][0]["figures"]["ttft_p50"]["verdict"] == "cannot tell"
    assert "nothing is known of it" in report(run)


LATENCY, RATE = MEASURES[0], MEASURES[-1]


@pytest.mark.parametrize(
    ("measure", "alone", "together", "answer"),
    [
        (LATENCY, (0.10, 0.09, 0.11), (0.30, 0.25, 0.40), Answer.WORSE),
        (LATENCY, (0.10, 0.09, 0.11), (0.30, 0.25, None), Answer.WORSE),  # the end that is missing does not matter
        (LATENCY, (0.10, 0.09, None), (0.30, 0.25, 0.40), Answer.UNKNOWN),
        (LATENCY, (0.10, 0.09, 0.12), (0.14, 0.11, 0.20), Answer.UNKNOWN),  # they overlap
        (LATENCY, (0.30, 0.25, 0.40), (0.10, 0.09, 0.11), Answer.BETTER),
        (LATENCY, (0.100, 0.099, 0.101), (0.104, 0.102, 0.106), Answer.NONE),  # apart, but less than 5 %
        (LATENCY, (0.100, 0.099, 0.101), (0.107, 0.106, 0.108), Answer.WORSE),
        (LATENCY, (0.100, 0.099, 0.101), (0.100, 0.099, 0.101), Answer.NONE),
        (LATENCY, (0.0010, 0.0009, 0.0011), (0.0015, 0.0014, 0.0016), Answer.UNKNOWN),  # half a millisecond
        (RATE, (100.0, 99.0, 101.0), (60.0, 59.0, 61.0), Answer.WORSE),
        (RATE, (60.0, 59.0, 61.0), (100.0, 99.0, 101.0), Answer.BETTER),
        (RATE, (100.0, 0.0, 201.0), (60.0, 59.0, 61.0), Answer.UNKNOWN),
        (LATENCY, (0.1, 0.09, 0.11), (math.inf, 2.0, math.inf), Answer.WORSE),
        (LATENCY, (None, None, None), (0.1, 0.09, 0.11), Answer.UNKNOWN),
    ],
)
def test_what_is_concluded(measure: Any, alone: Any, together: Any, answer: Answer) -> None:
    """Apart and 5 % or more: worse or better; the whole ratio within 10 %: no effect; else cannot tell."""
    assert (LEAST_SHARE, NONE_SHARE) == (0.05, 0.10)

    def figure(value: float | None, low: float | None, high: float | None) -> Figure:
        return Figure(value, 20, low, high)

    assert Cell(measure, figure(*alone), figure(*together)).answer == answer


def test_a_run_without_blocks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], small: Path) -> None:
    """One line, before any table."""
    for path, wanted in ((small, "has no interference"), (small / "requests.csv", "wanted a run folder")):
        assert main(["interference", str(path)]) == 2
        assert wanted in capsys.readouterr().err


def test_as_people_read_it(report: Report, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The matrix, a sentence a class, the counts, what one must know and the rules."""
    failed = request(3, "chat", 5.5, 0.001, error_kind=ErrorKind.HTTP_5XX, http_status=503)
    run = write_blocks(tmp_path / "run", [*whole_run(), failed])
    assert report(run, "--width", "100") == snapshot
    assert report(run, "--format", "markdown") == snapshot


def test_csv_has_a_line_for_every_figure(report: Report, tmp_path: Path) -> None:
    """Two classes with six figures each, ends of intervals blank where there are none."""
    rows = list(csv.DictReader(io.StringIO(report(write_blocks(tmp_path / "run", whole_run()), "--format", "csv"))))
    assert [row["figure"] for row in rows] == [measure.key for measure in MEASURES] * 2
    chat = rows[0]
    assert (chat["class"], chat["users"], chat["concurrency"], chat["verdict"]) == ("chat", "2", "3", "worse")
    assert float(chat["alone"]) == pytest.approx(0.145)
    assert rows[1]["alone_high"] == ""  # 20 requests do not bound the 95 % quantile from above
