"""The audit on published tables: it finds by rule what is known not to close in them, and nothing else."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
SPARK, DERIVED, TWO_SPARK = (
    PUBLISHED / f"{name}.csv" for name in ("spark_qwen3.6_35b", "spark_qwen3.6_35b_derived", "two_spark_qwen3.5_122b")
)
# What the write-ups are known to have wrong: rule, configuration, concurrency.
KNOWN = {
    ("two figures for one configuration", "fp8", 1),
    ("throughput against TPOT", "fp8", 8),
    ("throughput against TPOT", "fp8+mtp1", 8),
    ("throughput against TPOT", "fp8+mtp2", 4),
    *(("small sample", "fp8", users) for users in (1, 2, 4, 8)),
}
# Each of the columns under other names; in the last set no title says which column is the configuration.
COLUMNS = (
    *("table", "configuration", "concurrency", "requests", "failed", "output_tok_s", "peak_tok_s", "ttft_p50_ms"),
    *("ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms", "e2e_p50_s", "e2e_p95_s"),
)
NAMES = [
    [
        *("Section", "Model", "Parallel users", "N", "Errors", "Throughput (tok/s)", "Max tok/s"),
        *("Time to first token, median [ms]", "TTFT 95th percentile (ms)", "ms per output token (p50)"),
        *("p95 TPOT, ms", "Latency p50 (s)", "End-to-end p95 (s)"),
    ],
    [
        *("experiment", "variant", "c", "reqs", "errors", "tps", "peak_tps", "ttft_med_ms", "ttft_95_ms"),
        *("tpot_med_ms", "tpot_95_ms", "lat_med_s", "lat_95_s"),
    ],
    [
        *("group", "label", "streams", "samples", "failures", "gen_tok_per_s", "burst_tok_per_s"),
        *("first_token_p50_ms", "first_token_p95_ms", "per_token_p50_ms", "per_token_p95_ms", "total_p50_s"),
        "total_p95_s",
    ],
]
TWO_SPARK_NAMES = {
    "configuration": "Setup",
    "concurrency": "users",
    "output_tok_s": "tokens/s",
    "per_request_tok_s": "tok/s/user",
    "ttft_mean_s": "Mean TTFT (s)",
    "tokens": "Output tokens",
    "wall_s": "Duration (s)",
    "ok": "Successful requests",
}

Audit = Callable[..., Any]


@pytest.fixture
def audit(capsys: pytest.CaptureFixture[str]) -> Audit:
    """``python -m analysis audit …``: the concerns, as JSON has them."""

    def call(*paths: Path | str, code: int = 0) -> Any:
        assert main(["audit", *map(str, paths), "--json"]) == code
        return json.loads(capsys.readouterr().out)["concerns"]

    return call


def found(concerns: list[dict[str, Any]]) -> set[tuple[str, str, int]]:
    """Rule, configuration and concurrency of each row that a concern names."""
    places = set()
    for concern in concerns:
        for row in concern["rows"]:
            configuration, users = row.split(" (")[0].rsplit(" c=", 1)
            places.add((concern["kind"], configuration, int(users)))
    return places


def rewritten(source: Path, target: Path, change: Callable[[list[dict[str, str]]], None], seed: int = 0) -> Path:
    """A copy with other column names, in another order of rows and columns, after ``change`` of its rows."""
    other_names = TWO_SPARK_NAMES | dict(zip(COLUMNS, NAMES[seed % 3], strict=True) if source == SPARK else ())
    with source.open() as file:
        rows = list(csv.DictReader(file))
    change(rows)
    names = list(rows[0])
    shuffle = random.Random(seed).shuffle
    shuffle(names)
    shuffle(rows)
    with target.open("w", newline="") as file:
        write = csv.writer(file).writerow
        write([other_names[name] for name in names])
        for row in rows:
            write([row[name] for name in names])
    return target


def keep(rows: list[dict[str, str]]) -> None:
    """Changes nothing."""


def test_published_tables(audit: Audit) -> None:
    """Exactly the rows that are known not to close are named, over all three files of the folder."""
    assert found(audit(SPARK, DERIVED, TWO_SPARK)) == KNOWN


def test_a_folder_is_read_file_by_file(audit: Audit) -> None:
    """Named as one folder, with the values quoted beside the tables, it adds the two that stand in no table."""
    concerns = audit(PUBLISHED)
    tables = [one for one in concerns if one["kind"] not in ("one quantity, two values", "cache enabled but inert")]
    assert found(tables) == KNOWN
    beside = {one["kind"]: one for one in concerns if one not in tables}
    quoted, cache = beside["one quantity, two values"], beside["cache enabled but inert"]
    assert (quoted["told"], quoted["wanted"]) == (12.56, 12.73)
    assert "maximum_concurrency" in quoted["text"]
    assert cache["rows"] == ["nvfp4 captioning 30"]
    assert len(concerns) == len(tables) + 2


@pytest.mark.parametrize("seed", range(6))
def test_other_names_and_orders(audit: Audit, tmp_path: Path, seed: int) -> None:
    """Files and columns renamed, rows and columns in another order: the same findings."""
    a = rewritten(SPARK, tmp_path / "table1.csv", keep, seed)
    b = rewritten(TWO_SPARK, tmp_path / "x.csv", keep, seed)
    assert found(audit(a, b)) == KNOWN


def test_values_of_the_findings(audit: Audit) -> None:
    """Both values, as worked out by hand from the printed figures."""
    tpot = {one["rows"][0].split(" (")[0]: one for one in audit(SPARK) if one["kind"] == "throughput against TPOT"}
    # n = (26.3 - 0.617) / 0.098 + 1 = 263.07; 8 n / 26.3 s = 80.0 tok/s, 12 % above the 70.2 told.
    assert tpot["fp8 c=8"]["told"] == 70.2
    assert tpot["fp8 c=8"]["wanted"] == pytest.approx(80.0, abs=0.05)
    assert "12% below" in tpot["fp8 c=8"]["text"]
    assert "a stall of about 11.6 s" in tpot["fp8 c=8"]["cause"]  # 12.266 - 0.617
    # The table of drafts gives no TTFT; about 102 and 52 tok/s with those that FP8 has at the same concurrency.
    assert tpot["fp8+mtp1 c=8"]["wanted"] == pytest.approx(102, abs=1)
    assert tpot["fp8+mtp2 c=4"]["wanted"] == pytest.approx(52, abs=1)
    (two,) = [one for one in audit(SPARK) if one["kind"] == "two figures for one configuration"]
    assert sorted((two["told"], two["wanted"])) == [21.0, 28.7]
    assert "0.048" in two["text"]
    assert "0.03" in two["text"]


def test_every_concern_is_complete(audit: Audit) -> None:
    """Each names rows, a rule with its reason, a likely cause and what to do."""
    for one in audit(PUBLISHED):
        for part in ("kind", "rows", "text", "reason", "cause", "next_step"):
            assert one[part], (part, one)


def test_without_lengths_only_what_is_too_fast(audit: Audit, tmp_path: Path) -> None:
    """Where nothing tells how long answers are, a slow row may have a long TTFT; more than 1 token a TPOT cannot be."""
    table = tmp_path / "t.csv"
    table.write_text("users,tok/s,tpot p50 ms\n8,60.0,100\n8,95.0,100\n")
    found_too_fast = [one for one in audit(table) if one["kind"] == "throughput against TPOT"]
    assert [(one["told"], one["wanted"]) for one in found_too_fast] == [(95.0, pytest.approx(80.0))]


def set_cell(configuration: str, users: str, name: str, value: str) -> Callable[[list[dict[str, str]]], None]:
    def change(rows: list[dict[str, str]]) -> None:
        for row in rows:
            if (row.get("configuration"), row["concurrency"]) == (configuration, users) and row.get(name):
                row[name] = value

    return change


@pytest.mark.parametrize(
    ("source", "change", "kind", "place"),
    [
        (SPARK, ("fp8", "16", "peak_tok_s", "110"), "peak below mean", ("fp8", 16)),
        (SPARK, ("fp8", "16", "ttft_p95_ms", "800"), "quantiles out of order", ("fp8", 16)),
        (SPARK, ("fp8", "32", "e2e_p50_s", "40.0"), "E2E against TTFT and TPOT", ("fp8", 32)),
        (SPARK, ("fp8", "32", "output_tok_s", "190.0"), "throughput against TPOT", ("fp8", 32)),
        (SPARK, ("awq-int4", "32", "output_tok_s", "150.0"), "throughput against TPOT", ("awq-int4", 32)),
        (TWO_SPARK, ("fp8-tp2", "2", "wall_s", "60.0"), "tokens and time", ("fp8-tp2", 2)),
        (TWO_SPARK, ("fp8-tp2", "4", "per_request_tok_s", "25.0"), "throughput against TPOT", ("fp8-tp2", 4)),
    ],
)
def test_one_changed_cell(
    audit: Audit, tmp_path: Path, source: Path, change: tuple[str, str, str, str], kind: str, place: tuple[str, int]
) -> None:
    """A cell that no longer fits the others is found by the rule that it breaks, in its row and no other."""
    new = found(audit(rewritten(source, tmp_path / "t.csv", set_cell(*change)))) - KNOWN
    assert (kind, *place) in new
    assert {(configuration, users) for _, configuration, users in new} == {place}


def test_counts_that_do_not_close(audit: Audit, tmp_path: Path) -> None:
    """60 ok and 3 failed of 64 sent leave one request without an end; without a count of failures nothing is said."""
    table = tmp_path / "t.csv"
    table.write_text("concurrency,requests,ok,failed,output_tok_s\n4,64,60,3,100.0\n8,64,62,,180.0\n")
    (one,) = audit(table)
    assert (one["kind"], one["told"], one["wanted"]) == ("counts", 63.0, 64.0)


def test_littles_law_on_a_table(audit: Audit, tmp_path: Path) -> None:
    """2 requests/s of 6 s each are 12 in flight, which 4 users cannot have; 0.66 of 6 s fit."""
    table = tmp_path / "t.csv"
    table.write_text("users,req/s,mean latency (s)\n4,2.00,6.00\n4,0.66,6.00\n")
    (one,) = [one for one in audit(table) if one["kind"] == "Little's law"]
    assert one["told"] == pytest.approx(12.0)
    assert one["wanted"] == 4.0


def test_a_derived_value_that_does_not_follow(audit: Audit, tmp_path: Path) -> None:
    """Every printed ratio follows from its rows; 92.2 over 70.2 is +31 %, not +41 %."""
    wrong = tmp_path / "derived.csv"
    wrong.write_text(
        DERIVED.read_text().replace("awq-int4,fp8,8,delta_throughput_pct,31", "awq-int4,fp8,8,delta_throughput_pct,41")
    )
    new = [one for one in audit(SPARK, wrong) if one["kind"] == "derived value"]
    assert [(one["rows"], one["told"]) for one in new] == [(["awq-int4 c=8 delta_throughput_pct"], 41.0)]
    assert new[0]["wanted"] == pytest.approx(31.3, abs=0.1)


def test_check_and_formats(capsys: pytest.CaptureFixture[str]) -> None:
    """With --check the exit code says that something does not close; each format names the row."""
    assert main(["audit", str(SPARK), "--check"]) == 1
    assert main(["audit", str(TWO_SPARK), "--check"]) == 0
    assert "Everything that could be checked closes." in capsys.readouterr().out
    for form in ("terminal", "markdown", "csv", "json"):
        assert main(["audit", str(SPARK), "--format", form]) == 0
        assert "mtp2 c=4" in capsys.readouterr().out.replace("\\", "")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "quantity,value\nx,many\n"])
def test_foreign_files_get_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    """Empty, foreign and broken tables end with code 2 and one line that names the file."""
    table = tmp_path / "t.csv"
    table.write_text(text)
    assert main(["audit", str(table)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert str(table) in captured.err
