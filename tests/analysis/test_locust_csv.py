"""Locust's statistics files: of our own runs (two tables from one run), of others, of old versions, broken."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.locust_csv import read_locust
from tokenswarm.metrics import METRICS
from tokenswarm.records import HEADER, RequestRecord, to_csv

CASES = Path(__file__).parent / "cases"

# Locust's own classes write the file; in a child process, because importing locust patches sockets.
WRITE_STATS = """
import csv, json, sys
from locust.env import Environment
from locust.stats import StatsCSV, PERCENTILES_TO_REPORT
env = Environment()
for kind, name, value, failure in json.load(sys.stdin):
    if failure is None:
        env.stats.log_request(kind, name, value, 0) if kind != "LLM" else env.stats.get(name, kind).log(value, 0)
    else:
        env.stats.log_request(kind, name, value, 0)
        env.stats.log_error(kind, name, failure)
writer = StatsCSV(env, PERCENTILES_TO_REPORT)
for part, write in (("stats", writer.requests_csv), ("failures", writer.failures_csv)):
    with open(f"{sys.argv[1]}_{part}.csv", "w") as file:
        write(csv.writer(file))
"""


def write_with_locust(prefix: Path, events: list[tuple[str, str, float, str | None]]) -> None:
    subprocess.run(
        [sys.executable, "-c", WRITE_STATS, str(prefix)], input=json.dumps(events), text=True, check=True, timeout=120
    )


def record(rng: random.Random, level: int, users: int, ticket: int, sent: float, failed: bool) -> RequestRecord:
    first = None if failed else round(sent + rng.uniform(0.2, 0.9), 6)
    tokens = None if failed else rng.randint(40, 90)
    last = None if first is None or tokens is None else round(first + tokens * rng.uniform(0.0402, 0.0604), 6)
    return RequestRecord(
        level=level,
        concurrency=users,
        phase="measured",
        ticket=ticket,
        user=ticket % users,
        traffic="chat",
        session=f"{level}-{ticket}",
        sent_s=round(sent, 6),
        first_token_s=first,
        last_token_s=last,
        finished_s=sent + 0.02 if last is None else last,
        output_tokens=tokens,
        token_source=None if failed else "usage",
        error_kind="http_5xx" if failed else None,
    )


def events_of(records: list[RequestRecord]) -> list[tuple[str, str, float, str | None]]:
    """What a run tells Locust, worked out here from the definitions: rows a request, and two rows a level."""
    events: list[tuple[str, str, float, str | None]] = []
    for users in sorted({r.concurrency for r in records if r.concurrency}):
        level = [r for r in records if r.concurrency == users]
        good = [r for r in level if r.ok]
        for r in level:
            assert r.sent_s is not None
            assert r.finished_s is not None
            failure = None if r.ok else "http_5xx: overloaded"
            events.append(("POST", f"chat c={users}", 1000 * (r.finished_s - r.sent_s), failure))
        for r in good:
            for part in ("TTFT", "TPOT", "E2E"):
                value = METRICS[f"{part.lower()}_s"].of(r)
                assert value is not None
                events.append(("LLM", f"chat c={users} {part}", 1000 * value, None))
            events.append(("LLM", f"chat c={users} tokens", r.output_tokens or 0, None))
        wall = max(r.finished_s or 0 for r in level) - min(r.sent_s or 0 for r in level)
        events.append(("LLM", f"c={users} wall", 1000 * wall, None))
        events.append(("LLM", f"c={users} window tokens", sum(r.output_tokens or 0 for r in good), None))
        events.append(("POST", f"chat c={users} warmup", 9999.0, None))
    return events


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three levels as requests.csv and as out_stats.csv."""
    folder = tmp_path_factory.mktemp("run")
    rng = random.Random(5)
    records = [
        record(rng, level, users, ticket, 500.0 * level + 3.1 * (ticket // users), ticket % 7 == 3)
        for level, users in enumerate((1, 4, 16))
        for ticket in range(max(8, 4 * users))
    ]
    (folder / "requests.csv").write_text(HEADER + to_csv(records))
    write_with_locust(folder / "out", events_of(records))
    return folder


@pytest.fixture
def two_tables(table: Any, one_run: Path) -> tuple[Any, Any]:
    """The table from requests.csv and the table from the Locust CSVs alone."""
    return table(one_run / "requests.csv", "--json").json, table(one_run / "out", "--json").json


def test_two_tables_have_the_same_levels_and_counts(two_tables: tuple[Any, Any]) -> None:
    """Levels, requests, successes and failures agree exactly; warm-up rows enter neither."""
    exact, coarse = two_tables
    keys = ("concurrency", "requests", "ok", "failed")
    assert [[level[key] for key in keys] for level in coarse["levels"]] == [
        [level[key] for key in keys] for level in exact["levels"]
    ]
    assert sum(level["failed"] for level in exact["levels"]) > 3
    assert coarse["warmup"][0]["requests"] == 1


def test_tables_of_statistics_show_only_what_is_in_them(table: Any, one_run: Path) -> None:
    """Warm-up is only counted there: no block of blanks, one line; early stops are unknown: no column."""
    shown = table(one_run / "out", "--width", "160").out
    assert "Warm-up" not in shown
    assert "not in counts and latencies: 3 warm-up requests" in shown
    assert "early" not in shown
    assert "http_5xx" in shown


@pytest.mark.parametrize(
    "name",
    [
        "ttft_mean_s",
        "tpot_mean_s",
        "e2e_mean_s",
        "output_tok_s",
        "per_request_tok_s",
        "tokens",
        "wall_s",
        "requests_per_s",
    ],
)
def test_two_tables_agree_on_means_and_rates(two_tables: tuple[Any, Any], name: str) -> None:
    """Means, tokens, wall time and tok/s from Locust's statistics are within 0.1 % of those from requests.csv."""
    exact, coarse = two_tables
    for ours, theirs in zip(exact["levels"], coarse["levels"], strict=True):
        assert theirs["figures"][name]["value"] == pytest.approx(ours["figures"][name]["value"], rel=1e-3)
        assert "marks" not in theirs["figures"][name]


def test_two_tables_differ_in_percentiles_only_by_locusts_rounding(two_tables: tuple[Any, Any]) -> None:
    """Medians are within two digits of rounding and the step between neighbours, and each carries the coarse mark."""
    exact, coarse = two_tables
    ours, theirs = exact["levels"][2]["figures"], coarse["levels"][2]["figures"]
    for name in ("ttft_p50_s", "tpot_p50_s", "e2e_p50_s"):
        assert theirs[name]["marks"] == ["coarse"]
        assert theirs[name]["value"] == pytest.approx(ours[name]["value"], rel=0.06)


def test_several_classes_have_no_common_percentile(table: Any, tmp_path: Path) -> None:
    """Counts and means of two classes pool exactly; their percentiles cannot, so the cells are blank."""
    events: list[tuple[str, str, float, str | None]] = [
        ("LLM", "c=2 wall", 10_000.0, None),
        ("LLM", "c=2 window tokens", 500.0, None),
    ]
    for traffic, ttft, count in (("chat", 100.0, 3), ("agent c=1 style", 500.0, 1)):
        for _ in range(count):
            events += [
                ("POST", f"{traffic} c=2", 2000.0, None),
                ("LLM", f"{traffic} c=2 TTFT", ttft, None),
                ("LLM", f"{traffic} c=2 E2E", 2000.0, None),
                ("LLM", f"{traffic} c=2 tokens", 125.0, None),
            ]
    write_with_locust(tmp_path / "out", events)
    document = table(tmp_path / "out_stats.csv", "--json").json
    (level,) = document["levels"]
    assert level["requests"] == 4
    assert level["figures"]["ttft_mean_s"]["value"] == pytest.approx(0.2)
    assert level["figures"]["output_tok_s"]["value"] == pytest.approx(50.0)
    assert "ttft_p95_s" not in level["figures"]
    assert [row["traffic"] for row in document["classes"]] == ["agent c=1 style", "chat"]
    assert document["classes"][1]["figures"]["ttft_p95_s"]["value"] == pytest.approx(0.1)


def test_free_running_rows_have_no_level(table: Any, tmp_path: Path) -> None:
    """Names without c= are one row at the largest user count of the history."""
    events: list[tuple[str, str, float, str | None]] = [
        ("POST", "chat", 2000.0, None),
        ("LLM", "chat TTFT", 300.0, None),
        ("LLM", "chat E2E", 1900.0, None),
        ("LLM", "chat tokens", 80.0, None),
        ("POST", "chat cut", 100.0, None),
        ("POST", "chat warmup", 100.0, None),
        ("LLM", "SIMULATED demo", 0.0, None),
        ("LLM", "wall", 4000.0, None),
        ("LLM", "window tokens", 100.0, None),
    ]
    write_with_locust(tmp_path / "out", events)
    (tmp_path / "out_stats_history.csv").write_text(
        "Timestamp,User Count,Type,Name\n1,2,,Aggregated\n2,8,,Aggregated\n"
    )
    document = table(tmp_path / "out", "--json").json
    (level,) = document["levels"]
    assert (level["level"], level["concurrency"], level["state"]) == (None, 8, "free-running")
    assert level["requests"] == 1
    assert document["simulated"] is True
    assert [row["traffic"] for row in document["classes"]] == ["chat"]
    assert "not in counts and latencies: 1 warm-up, 1 cut requests" in [note["text"] for note in document["notes"]]
    assert level["figures"]["output_tok_s"]["value"] == pytest.approx(25.0)
    assert level["figures"]["ttft_mean_s"]["value"] == pytest.approx(0.3)


def test_cancelled_requests_are_told_by_their_failure_text(table: Any, tmp_path: Path) -> None:
    """A request that the end of the run cut is a failure for Locust and none in the table."""
    events: list[tuple[str, str, float, str | None]] = [
        ("POST", "chat c=1", 2000.0, None),
        ("LLM", "chat c=1 TTFT", 300.0, None),
        ("POST", "chat c=1", 900.0, "cancelled: the run ended"),
        ("POST", "chat c=1", 10.0, "http_429: slow down"),
    ]
    write_with_locust(tmp_path / "out", events)
    (level,) = table(tmp_path / "out", "--json").json["levels"]
    assert (level["requests"], level["ok"], level["failed"], level["cancelled"]) == (3, 1, 1, 1)


def test_level_in_which_everything_failed(table: Any, tmp_path: Path) -> None:
    """Without a single success there is no TTFT row, and still a level: 0 ok, no throughput, not credible."""
    events: list[tuple[str, str, float, str | None]] = [("POST", "chat c=4", 10.0, "refused: nobody listens")] * 5
    events += [("LLM", "c=4 wall", 50.0, None), ("LLM", "c=4 window tokens", 0.0, None)]
    write_with_locust(tmp_path / "out", events)
    answer = table(tmp_path / "out", "--json", "--check")
    (level,) = answer.json["levels"]
    assert (level["concurrency"], level["requests"], level["ok"], level["failed"]) == (4, 5, 0, 5)
    assert level["figures"]["output_tok_s"]["value"] is None
    assert answer.code == 3
    assert answer.json["failures"][0]["kind"] == "refused"


def test_b05_shows_what_locust_rounded(table: Any, tmp_path: Path) -> None:
    """Our reading of a median is Locust's own bucket, half-even rounding included; a bucket of 0 ms says nothing."""
    values = json.loads((CASES / "B05" / "response_times_ms.json").read_text())
    buckets = json.loads((CASES / "B05" / "expected.json").read_text())["buckets_ms"]
    write_with_locust(tmp_path / "out", [("GET", f"{value}", value, None) for value in values])
    rows = {row["name"]: row for row in table(tmp_path / "out", "--json").json["names"]}
    for value, bucket in zip(values, buckets, strict=True):
        shown = rows[f"{value}"]["figures"]["p50_s"]["value"]
        assert shown == (pytest.approx(bucket / 1000) if bucket else None), value
        assert rows[f"{value}"]["figures"]["mean_s"]["value"] == pytest.approx(value / 1000)


def names(table: Any, run: str) -> dict[tuple[str, str], Any]:
    answer = table(CASES / run, "--json")
    assert answer.code == 0
    return {(row["type"], row["name"]): row for row in answer.json["names"]}


def test_c01_todays_files(table: Any) -> None:
    """One row a name and the total once; failures are joined from their own file."""
    answer = table(CASES / "C01" / "run", "--json").json
    right = json.loads((CASES / "C01" / "expected.json").read_text())
    assert len(answer["names"]) == right["rows"]
    for row in answer["names"]:
        want = right["by_name"][row["name"]]
        figures = row["figures"]
        assert (row["requests"], row["failed"]) == (want["count"], want["failures"])
        assert figures["mean_s"]["value"] * 1000 == pytest.approx(want["mean_ms"])
        assert figures["p95_s"]["value"] * 1000 == pytest.approx(want["p95"])
        for name, key in (("p50_s", "p50"), ("p99_s", "p99"), ("min_s", "min"), ("max_s", "max")):
            assert figures[name]["value"] * 1000 == pytest.approx(want[key]), name
    assert [row["total"] for row in answer["names"]] == [False, False, False, True]
    assert [(group["kind"], group["count"]) for group in answer["failures"]] == [("http_429", 2)]
    files = read_locust(str(CASES / "C01" / "run"))
    assert [(failure.kind, failure.name) for failure in files.failures] == [("POST", "caption")]
    assert len(files.exceptions) == right["exceptions"]


def test_c02_locust_before_0_13(table: Any) -> None:
    """Counts and percentiles come from two files with quoted lower-case headers and no last line end."""
    rows = names(table, "C02/old")
    chat, total = rows["POST", "/v1/chat/completions"], rows["", "Aggregated"]
    assert (chat["requests"], chat["failed"]) == (120, 3)
    assert chat["figures"]["p95_s"]["value"] == pytest.approx(6.1)
    assert chat["figures"]["requests_per_s"]["value"] == pytest.approx(1.98)
    assert rows["GET", "/v1/models"]["figures"]["p95_s"]["value"] == pytest.approx(0.015)
    assert (total["requests"], total["failed"]) == (130, 3)
    assert total["figures"]["p95_s"]["value"] == pytest.approx(6.0)
    older = names(table, "C02/old08_requests.csv")
    assert older["", "Aggregated"]["requests"] == 120
    assert older["", "Aggregated"]["figures"]["p95_s"]["value"] is None


def test_c03_locust_0_13(table: Any) -> None:
    """Columns are found by name, whatever their order and however the total is marked."""
    chat = names(table, "C03/run")["POST", "chat"]
    assert (chat["requests"], chat["failed"]) == (400, 8)
    assert chat["figures"]["p50_s"]["value"] == pytest.approx(1.5)
    assert chat["figures"]["p99_s"]["value"] == pytest.approx(8.2)
    assert chat["figures"]["requests_per_s"]["value"] == pytest.approx(3.33)
    right = json.loads((CASES / "C03" / "expected.json").read_text())["stats"]
    cells = read_locust(str(CASES / "C03" / "run")).rows[0].cells
    assert (cells["95%"], cells["99.9%"], cells["99.999%"]) == (right["p95"], right["p99.9"], right["p99.999"])
    assert cells["Max Response Time"] == right["max"]


def test_c07_any_name_stays_in_its_cell(table: Any) -> None:
    """Names with commas, quotes, line breaks, markup and formulas are read exactly and shown harmlessly."""
    right = json.loads((CASES / "C07" / "expected.json").read_text())
    answer = table(CASES / "C07" / "run", "--json").json
    rows = [row for row in answer["names"] if not row["total"]]
    assert [row["name"] for row in rows] == right["names"]
    assert [row["requests"] for row in rows] == right["counts"]
    (total,) = [row for row in answer["names"] if row["total"]]
    assert (total["requests"], total["failed"]) == (right["aggregated"], right["failures"])
    lines = [
        line for line in table(CASES / "C07" / "run", "--format", "markdown").out.splitlines() if line.startswith("|")
    ]
    assert len(lines) == 2 + len(right["names"]) + 1
    assert {line.replace("\\|", "").count("|") for line in lines} == {lines[0].count("|")}
    assert not any("<b>" in line for line in lines)
    written = list(csv.reader(io.StringIO(table(CASES / "C07" / "run", "--format", "csv").out)))
    assert len(written) == 1 + 10
    assert "'=1+2" in {row[1] for row in written}


def test_c10_no_request_at_all(table: Any) -> None:
    """Only a total of 0 requests: no percentile, no share of failures, and the run is not credible."""
    answer = table(CASES / "C10" / "run", "--check")
    assert answer.code == 3
    assert "no request was made" in answer.err
    total = names(table, "C10/run")["", "Aggregated"]
    assert total["requests"] == 0
    assert total["figures"]["requests_per_s"]["value"] == 0
    (row,) = [
        line for line in table(CASES / "C10" / "run", "--format", "markdown").out.splitlines() if "Aggregated" in line
    ]
    assert [cell.strip() for cell in row.split("|")[3:6]] == ["0", "0", ""]
    assert total["figures"]["p95_s"]["value"] is None


def test_c13_edited_columns(table: Any) -> None:
    """Missing columns are blank, an unknown one is ignored, the order does not matter."""
    chat = names(table, "C13/run")["POST", "chat"]
    assert (chat["requests"], chat["failed"]) == (80, 2)
    assert chat["figures"]["p50_s"]["value"] == pytest.approx(1.2)
    assert chat["figures"]["p95_s"]["value"] == pytest.approx(2.6)
    assert chat["figures"]["requests_per_s"]["value"] == pytest.approx(1.6)
    for name in ("mean_s", "p99_s", "max_s"):
        assert chat["figures"][name]["value"] is None, name


def test_c15_a_request_called_aggregated(table: Any) -> None:
    """The total is the row without a method (or, edited, with its own name as one), not the request of that name."""
    rows = names(table, "C15/run")
    assert (rows["", "Aggregated"]["requests"], rows["", "Aggregated"]["total"]) == (100, True)
    assert rows["", "Aggregated"]["failed"] == 1
    assert rows["", "Aggregated"]["figures"]["p95_s"]["value"] == pytest.approx(1.8)
    assert rows["POST", "chat"]["requests"] == 95
    assert (rows["GET", "Aggregated"]["requests"], rows["GET", "Aggregated"]["total"]) == (5, False)
    (variant,) = names(table, "C15/variant").values()
    assert (variant["requests"], variant["total"]) == (10, True)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ("C09/zero_bytes", "is empty"),
        ("C09/header_only", "no requests"),
        ("C09/not_csv", "no column Name"),
        ("C09/missing_stats.csv", "no such file"),
        ("C09/missing", "nothing is there"),
        ("C09", "several Locust results"),
    ],
)
def test_c09_unusable_files_get_one_line(table: Any, run: str, reason: str) -> None:
    """Empty, header-only, foreign and missing files: one line that names the file and the reason, exit code 2."""
    answer = table(CASES / run)
    assert (answer.code, answer.out) == (2, "")
    assert len(answer.err.splitlines()) == 1
    assert str(CASES / run) in answer.err
    assert reason in answer.err
