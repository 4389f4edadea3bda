"""How the table looks: whole outputs kept as snapshots (their numbers are worked out by hand in test_levels)."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.columns import number_text, texts_of
from analysis.figures import Figure

SMALL = Path(__file__).parent / "runs" / "small"

PUBLISHED = [
    *("concurrency", "requests", "failed", "output_tok_s", "peak_tok_s", "ttft_p50_ms", "ttft_p95_ms"),
    *("tpot_p50_ms", "tpot_p95_ms", "e2e_p50_s", "e2e_p95_s"),
]


@pytest.mark.parametrize(
    "options",
    [
        ("--width", "160"),
        ("--width", "80"),
        ("--width", "160", "--failures-infinite"),
        ("--width", "100", "--notes", "--by-class"),
        ("--format", "markdown"),
        ("--format", "csv"),
        ("--format", "csv", "--by-class"),
    ],
    ids=" ".join,
)
def test_output(table: Any, snapshot: SnapshotAssertion, options: tuple[str, ...]) -> None:
    """The text of each format, to the character."""
    assert table(SMALL, *options).out == snapshot


def test_json_output(table: Any, snapshot: SnapshotAssertion) -> None:
    """The whole JSON document but for the place where the run lies."""
    document = table(SMALL, "--json").json
    document["source"]["path"] = "RUN"
    assert json.dumps(document, indent=1, ensure_ascii=False) == snapshot


def test_locust_output(table: Any, snapshot: SnapshotAssertion) -> None:
    """One row a name, marked coarse, for a locustfile that is not ours."""
    assert table(Path(__file__).parent / "cases" / "C01" / "run", "--width", "120").out == snapshot


def test_csv_begins_with_the_published_columns(table: Any) -> None:
    """Names, order and units are those of published tables: milliseconds for TTFT and TPOT, seconds for E2E."""
    rows = list(csv.reader(io.StringIO(table(SMALL, "--format", "csv").out)))
    assert rows[0][: len(PUBLISHED)] == PUBLISHED
    assert rows[1][: len(PUBLISHED)] == ["1", "2", "0", "7.636364", "10", "750", "975", "100", "100", "2.75", "2.975"]
    assert len({len(row) for row in rows}) == 1


@pytest.mark.parametrize("width", [40, 60, 80, 100, 130, 200])
def test_terminal_output_keeps_to_the_width(table: Any, width: int) -> None:
    """Whatever the terminal, no line of a table is cut: columns move to a further table below."""
    out = table(SMALL, "--width", str(width)).out
    assert max(len(line) for line in out.splitlines()) <= width
    assert "…" not in out
    assert "SIMULATED" in out


def test_simulated_is_said_in_every_format(table: Any) -> None:
    """No format lets a simulated result pass for a real one."""
    assert "SIMULATED" in table(SMALL).out
    assert "SIMULATED" in table(SMALL, "--format", "markdown").out
    assert table(SMALL, "--json").json["simulated"] is True
    (first, *_) = csv.DictReader(io.StringIO(table(SMALL, "--format", "csv").out))
    assert first["simulated"] == "true"


def test_markup_in_errors_and_names_stays_text(table: Any, small: Path) -> None:
    """A class named with bars and tags, and HTML as error text, break neither Markdown nor terminal."""
    text = (small / "requests.csv").read_text()
    text = text.replace(",chat,", ",<b>a|b</b> [red]x,").replace("busy, come back later", "<script>alert(1)</script>")
    (small / "requests.csv").write_text(text)
    shown = table(small, "--format", "markdown", "--by-class").out
    assert "<b>" not in shown
    assert "<script>" not in shown
    lines = [line for line in shown.splitlines() if line.startswith("| ")]
    assert all(line.replace("\\|", "").endswith(" |") for line in lines)
    plain = table(small, "--by-class", "--width", "200").out
    assert plain.count("[red]x") > 2  # in the rows and above the verdicts


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (363.4, 0, "363"),
        (6.304, 0, "6.30"),
        (0.04567, 0, "0.0457"),
        (13.14, 1, "13.1"),
        (0.84, 1, "0.840"),
        (10.0, 1, "10.0"),
        (5.0, 0, "5"),
        (0.0, 1, "0.0"),
        (float("inf"), 0, "∞"),
    ],
)
def test_numbers_keep_three_digits(value: float, decimals: int, text: str) -> None:
    """Large numbers lose needless decimals, small ones keep three digits."""
    assert number_text(value, decimals) == text


@pytest.mark.parametrize(
    ("values", "decimals", "texts"),
    [
        ((7.02, 34.1), 0, ["7.02", "34.10"]),
        ((7.02, 434.0), 0, ["7.0", "434.0"]),
        ((7.02, 1434.0), 0, ["7", "1434"]),
        ((0.511, 1.0049), 1, ["0.511", "1.005"]),
        ((7.6, 3567.25), 1, ["7.6", "3567.2"]),
        ((5.0, 120.0), 0, ["5", "120"]),
        ((None, 0.0, 4.0, float("inf")), 1, ["", "0.00", "4.00", "∞"]),
    ],
)
def test_a_column_has_one_number_of_decimals(values: tuple[float | None, ...], decimals: int, texts: list[str]) -> None:
    """Three digits for the smallest value below 10, as long as the largest keeps to four; counts stay whole."""
    assert texts_of([Figure(value) for value in values], decimals) == texts


def test_saved_tables_are_what_would_be_printed(table: Any, small: Path) -> None:
    """--save leaves the tables beside the rows in every format, and may do so again."""
    for _ in range(2):
        assert table(small, "--save").code == 0
    assert (small / "table.csv").read_text() == table(small, "--format", "csv").out
    assert (small / "table.md").read_text() == table(small, "--format", "markdown").out
    assert (small / "table.txt").read_text() == table(small, "--width", "100").out
    assert json.loads((small / "table.json").read_text())["levels"][0]["requests"] == 2


def test_saving_needs_a_run_folder(table: Any, small: Path) -> None:
    """A lone requests.csv has no folder of its own: one line, exit code 2."""
    answer = table(small / "requests.csv", "--save")
    assert answer.code == 2
    assert "no run folder" in answer.err


def test_analysis_loads_neither_locust_nor_gevent() -> None:
    """Importing Locust patches sockets of the whole process; finished files need none of it."""
    code = (
        "import sys, analysis.__main__;"
        "print([m for m in ('locust', 'gevent', 'geventhttpclient', 'simulator', 'transformers') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.strip() == "[]"
