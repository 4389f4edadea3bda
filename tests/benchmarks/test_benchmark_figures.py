"""The figures the benchmarks print, against hand-computed values."""

from __future__ import annotations

import pytest

from benchmarks import figures, peers, report
from benchmarks.figures import Row, Seen
from benchmarks.load import Shape
from benchmarks.server import TruthRow


def _seen(request_id: str, sent_s: float, first_s: float, last_s: float) -> Seen:
    return Seen(request_id, sent_s, first_s, last_s, 11, 10, 1, 0.002)


def _true(request_id: str, received_s: float, first_s: float, last_s: float) -> TruthRow:
    return TruthRow(request_id, round(received_s * 1e9), round(first_s * 1e9), round(last_s * 1e9), 1_000_000, 11, 11)


def test_errors_are_client_minus_server() -> None:
    """Two requests: 50 ms and 60 ms at the server, 51 ms and 63 ms at the client."""
    client = [_seen("a", 1.0, 1.051, 1.151), _seen("b", 2.0, 2.063, 2.173)]
    server = [_true("a", 1.0, 1.05, 1.15), _true("b", 2.0, 2.06, 2.16), _true("other", 3.0, 3.1, 3.2)]
    row = figures.compare(client, server)
    assert (row["requests"], row["known_to_server"], row["tokens_exact"]) == (2, 2, True)
    assert row["ttft_error_p50_ms"] == pytest.approx(2.0)  # of 1 and 3
    assert row["ttft_p95_error_ms"] == pytest.approx(62.4 - 59.5)  # 51 + 0.95 * 12 and 50 + 0.95 * 10
    assert row["lag_p50_ms"] == pytest.approx(2.0)  # of 1, 1, 3 and 13
    assert row["tpot_error_p95"] == pytest.approx(0.095)  # of 0 and 110/100 - 1
    assert row["merged_reads"] == pytest.approx(0.1)
    assert row["server_late_p95_ms"] == pytest.approx(1.0)


def test_no_requests_give_blanks_not_zeros() -> None:
    """Without a single request every figure but the counts is unknown."""
    row = figures.compare([], [])
    assert {name for name, value in row.items() if value is not None} == {"requests", "known_to_server"}


def test_a_run_is_the_median_of_its_repetitions() -> None:
    """Numbers get their median; words and a figure that one run lacks are the first run's."""
    rows = [{"n": 1, "x": 3.0, "name": "a"}, {"n": 5, "x": None, "name": "b"}, {"n": 2, "x": 1.0, "name": "c"}]
    assert figures.medians(rows) == {"n": 2, "x": 3.0, "name": "a"}


def test_failed_and_unmeasured_rows_are_left_out() -> None:
    """Only measured successes enter the comparison; blanks stay unknown."""
    good = {
        "phase": "measured", "error_kind": "", "request_id": "a", "sent_s": "1.0", "first_token_s": "1.1",
        "last_token_s": "1.2", "output_tokens": "", "reads": "3", "merged_reads": "0", "lag_max_s": "",
    }  # fmt: skip
    rows = [good, {**good, "phase": "fill"}, {**good, "error_kind": "reset", "first_token_s": ""}]
    assert figures.seen(rows) == [Seen("a", 1.0, 1.1, 1.2, None, 3, 0, None)]


def test_the_other_tools_figures_load() -> None:
    """Thirteen rows of numbers, with the best CPU per token at 512 streams that the targets are taken from."""
    rows = {row["tool"]: row for row in peers.load()}
    assert len(rows) == 13
    assert rows["SGLang bench, Rust reader"]["cpu_us_at_512"] == 12.4
    assert rows["SGLang bench, Rust reader"]["tokens_per_s"] == 352_000
    assert rows["vLLM bench serve"]["ttft_p95_error_ms_256"] == 152
    assert rows["llm-locust"]["ttft_p95_error_ms_512"] is None


def test_the_asked_load_is_what_a_client_without_delay_drives() -> None:
    """128 tokens: 55 ms + 127 × 10 ms; in step 60 + 1270 ms, for the tick at 50 ms is just missed."""
    assert Shape(512).asked_tokens_per_s == pytest.approx(512 * 128 / 1.325)
    assert Shape(512, in_step=True, jitter_us=0).asked_tokens_per_s == pytest.approx(512 * 128 / 1.33)
    assert Shape(64, itl_us=0).asked_tokens_per_s == 0


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([{"streams": 512, "error_ms": -0.4}], "reached      paced streams=512 error_ms ≤ 1: -0.4"),
        ([{"streams": 512, "error_ms": -1.5}], "NOT REACHED  paced streams=512 error_ms ≤ 1: -1.5"),
        ([{"streams": 32, "error_ms": 0.1}], "UNKNOWN      paced streams=512 error_ms ≤ 1: not measured"),
        ([], None),
    ],
)
def test_a_target_is_told_as_it_is(rows: list[Row], line: str | None) -> None:
    """An error counts in both directions; what was not measured is not reached; what was not run is not mentioned."""
    target = report.Target("paced", {"streams": 512}, "error_ms", 1.0)
    assert target.line({"paced": rows}) == line


def test_a_table_leaves_out_columns_without_values() -> None:
    """Blank stays blank, and a column that is blank everywhere is not shown."""
    rows: list[Row] = [{"a": 1234.5, "b": None, "c": None}, {"a": 0.01234, "b": True, "c": None}]
    assert report.table(rows, ("a", "b", "c")).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| 1,234 |  |",
        "| 0.0123 | yes |",
    ]
