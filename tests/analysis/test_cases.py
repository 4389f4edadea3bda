"""Cases in which other tools got a statistic wrong; the right answers stand in cases/*/expected.json."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.report_timeline import seconds_of
from analysis.run_folder import run_of_requests
from tokenswarm.quantiles import LogHistogram

CASES = Path(__file__).parent / "cases"


def expected(case: str) -> Any:
    return json.loads((CASES / case / "expected.json").read_text())


@pytest.fixture
def level(table: Any) -> Any:
    """The single level of a case, as JSON."""

    def read(case: str, *options: str) -> Any:
        answer = table(CASES / case / "requests.csv", "--json", *options)
        assert answer.code == 0
        (found,) = answer.json["levels"]
        return found

    return read


def test_b01_tpot_of_one_token_is_blank(level: Any) -> None:
    """TPOT exists for two of four rows, TTFT for three, and neither is pulled down by zeros."""
    figures, right = level("B01")["figures"], expected("B01")
    assert figures["tpot_mean_s"]["n"] == right["tpot_n"]
    assert figures["tpot_mean_s"]["value"] * 1000 == pytest.approx(right["tpot_mean_ms"])
    assert figures["ttft_mean_s"]["n"] == right["ttft_n"]
    assert figures["ttft_mean_s"]["value"] * 1000 == pytest.approx(right["ttft_mean_ms"])


def test_b02_all_failed(table: Any, level: Any) -> None:
    """Five failures of five: a report with blanks, no NaN, no traceback, and an exit code that says not credible."""
    found = level("B02")
    assert (found["ok"], found["failed"], found["failed_share"]) == (0, 5, 1.0)
    assert found["figures"]["output_tok_s"]["value"] is expected("B02")["output_tokens_per_s"] is None
    assert found["figures"]["requests_per_s"]["value"] == 0.0
    for name in ("ttft_p50_s", "ttft_mean_s", "tpot_p50_s", "e2e_p95_s", "per_request_tok_s"):
        assert found["figures"][name]["value"] is None, name
    for form in ("terminal", "markdown", "csv", "json"):
        answer = table(CASES / "B02" / "requests.csv", "--format", form, "--check")
        assert answer.code == 3
        assert not re.search(r"\bnan\b", answer.out, re.IGNORECASE)
        assert "0.0 tok/s" not in answer.out
        assert "no request succeeded" in answer.err


def test_b02_all_failed_counted_as_infinitely_late(level: Any) -> None:
    """With failures infinitely late every quantile is infinite and none is no number."""
    figure = level("B02", "--failures-infinite")["figures"]["ttft_p50_s"]
    assert (figure["value"], figure["infinite"], figure["n"]) == (None, True, 5)


def test_b04_exact_from_requests(level: Any) -> None:
    """From the per-request file the median is exact, where Locust's own table shows 580 and 59000 ms."""
    figures, right = level("B04")["figures"], expected("B04")["exact_ms"]
    assert figures["e2e_p50_s"]["value"] * 1000 == pytest.approx(right["p50"])
    assert figures["e2e_p99_s"]["value"] * 1000 == pytest.approx(right["p99_linear"])
    assert figures["e2e_mean_s"]["value"] * 1000 == pytest.approx(right["mean"])


def test_b04_locusts_numbers_stand_as_they_are(table: Any) -> None:
    """A 100 % quantile above the maximum is Locust's rounding, no error, and is marked as such."""
    answer = table(CASES / "B04" / "locust_stats.csv", "--json")
    assert answer.code == 0
    figures, right = answer.json["names"][0]["figures"], expected("B04")["locust_ms"]
    assert figures["p50_s"]["value"] * 1000 == pytest.approx(right["50%"])
    assert figures["p99_s"]["value"] * 1000 == pytest.approx(right["99%"])
    assert figures["p100_s"]["value"] * 1000 == pytest.approx(right["100%"])
    assert figures["max_s"]["value"] * 1000 == pytest.approx(right["max"])
    assert figures["p99_s"]["marks"] == ["coarse"]
    assert "marks" not in figures["max_s"]
    assert "Locust rounded" in table(CASES / "B04" / "locust_stats.csv").out


def test_b06_failures_do_not_make_a_server_fast(level: Any) -> None:
    """Refusals enter neither throughput nor latency."""
    found, right = level("B06"), expected("B06")
    figures = found["figures"]
    assert figures["wall_s"]["value"] == pytest.approx(right["window_s"])
    assert found["failed_share"] == pytest.approx(right["error_rate"])
    assert figures["requests_per_s"]["value"] == pytest.approx(right["success_rps"])
    assert figures["e2e_mean_s"]["value"] == pytest.approx(right["e2e_mean_s"])
    assert figures["e2e_p50_s"]["value"] == pytest.approx(right["e2e_p50_s"])
    assert figures["tokens"]["value"] == right["output_tokens"]
    assert figures["output_tok_s"]["value"] == pytest.approx(right["output_tokens_per_s"])


def test_b07_first_token_is_no_gap() -> None:
    """Three gaps for four chunks, the time to the first one is not among them."""
    times = json.loads((CASES / "B07" / "token_times_s.json").read_text())["chunks"]
    right = expected("B07")
    histogram = LogHistogram()
    for earlier, later in pairwise(times):
        histogram.add(later - earlier)
    assert histogram.total == len(right["itl_ms"])
    mean, largest = histogram.mean(), histogram.quantile(1.0)
    assert mean is not None
    assert largest is not None
    assert mean * 1000 == pytest.approx(right["itl_mean_ms"], rel=0.01)
    assert largest * 1000 == pytest.approx(right["itl_max_ms"], rel=0.01)


def test_b09_mean_tpot_and_mean_gap_are_two_figures(table: Any, small: Path) -> None:
    """Each request weighs the same in TPOT, each gap in the chunk gap; both come from one run and keep their names."""
    right = expected("B09")
    header = (small / "chunk_gaps.csv").read_text().splitlines()[0]
    counts = LogHistogram()
    for gaps in json.loads((CASES / "B09" / "gaps_s.json").read_text()):
        for gap in gaps:
            counts.add(gap)
    rows = [f"0,chat,measured,{bucket},{count}" for bucket, count in counts.counts.items()]
    (small / "chunk_gaps.csv").write_text("\n".join([header, *rows]) + "\n")
    (small / "requests.csv").write_text((CASES / "B09" / "requests.csv").read_text())
    figures = table(small, "--json").json["levels"][0]["figures"]
    assert figures["tpot_mean_s"]["value"] * 1000 == pytest.approx(right["tpot_mean_ms"])
    assert figures["chunk_gap_mean_s"]["n"] == right["itl_n"]
    assert figures["chunk_gap_mean_s"]["value"] * 1000 == pytest.approx(right["itl_mean_ms"], rel=0.01)
    assert figures["chunk_gap_p50_s"]["value"] * 1000 == pytest.approx(right["itl_p50_ms"], rel=0.01)


def test_b13_warm_up_is_left_out_and_said(table: Any) -> None:
    """Four cold requests of 10 and 12 s stay out of the 16 measured ones, and the table says how many were left out."""
    answer = table(CASES / "B13" / "requests.csv", "--json").json
    right = expected("B13")["with_warmup_cut"]
    (found,) = answer["levels"]
    assert found["requests"] == right["n"]
    for name in ("mean", "p50", "p95"):
        assert found["figures"][f"ttft_{name}_s"]["value"] == pytest.approx(right[f"ttft_{name}_s"]), name
    assert answer["cold_start"]["ttft_s"] == pytest.approx(10.0)
    assert answer["warmup"][0]["ttft_max_s"] == pytest.approx(12.0)
    assert answer["warmup"][0]["requests"] == right["excluded"]
    shown = table(CASES / "B13" / "requests.csv", "--notes").out
    assert f"{right['excluded']} warm-up requests" in shown


def test_b11_usage_wins_and_estimates_are_marked(table: Any, level: Any) -> None:
    """7 tokens by usage and 50 by a tokenizer: each counts with its source, and the total is marked as an estimate."""
    found, right = level("B11"), expected("B11")
    figures = found["figures"]
    assert figures["tokens"]["value"] == right["total_with_estimates"]
    assert found["estimated_tokens"] == right["source"].count("estimate")
    assert "estimated" in figures["tokens"]["marks"]
    exact, estimate = right["tpot_ms"]
    assert figures["tpot_mean_s"]["value"] * 1000 == pytest.approx((exact + estimate["estimate"]) / 2)
    assert "estimated" in figures["tpot_mean_s"]["marks"]
    shown = table(CASES / "B11" / "requests.csv").out
    assert "1 of 2 answers are estimates" in shown
    assert right["must_flag"] in shown


def test_b15_ramp_and_tail_are_no_part_of_a_steady_rate(level: Any) -> None:
    """Eight answers end between 10 and 17 s: 8 / 17 a second over the whole run, 7 / 7 between the first and the last,
    each under its own name."""
    figures, right = level("B15")["figures"], expected("B15")
    assert figures["requests_per_s"]["value"] == pytest.approx(right["rps_whole_run"])
    assert figures["completions_per_s"]["value"] == pytest.approx(right["rps_between_completions"])


def test_b17_seconds_without_an_answer_count() -> None:
    """Second by second, those in which nothing ended are there with a rate of 0, and the mean is over all of them."""
    run, right = run_of_requests(CASES / "B17" / "requests.csv"), expected("B17")
    ends = run.requests["finished_s"].astype(int).value_counts().sort_index()
    run.timeline = pd.DataFrame({"second": ends.index.astype(float), "tokens": ends.to_numpy(), "in_flight_s": 0.0})
    seconds = seconds_of(run, 0.0)
    assert seconds is not None
    assert seconds.tokens_per_s.tolist() == right["rate"]
    assert seconds.tokens_per_s.mean() == pytest.approx(right["rate_mean"])
    empty = [int(second) for second, rate in zip(seconds.starts_s, seconds.tokens_per_s, strict=True) if rate == 0]
    assert empty == right["latency_null_at"]


def test_b21_answers_shorter_than_asked(table: Any, level: Any) -> None:
    """Where ignore_eos had no effect the real lengths count: 400 tokens, 80 in the mean, and a line says that 3 of 5
    answers are short."""
    found, right = level("B21"), expected("B21")
    figures = found["figures"]
    assert figures["tokens"]["value"] == right["tokens_total"]
    assert figures["output_tokens_mean"]["value"] == pytest.approx(right["tokens_mean"])
    assert 1 - found["early_stopped"] / found["ok"] == pytest.approx(right["reached_requested_share"])
    for name in ("tpot_p50_s", "tpot_p99_s", "tpot_mean_s"):
        assert figures[name]["value"] * 1000 == pytest.approx(right["tpot_ms"][0])
    assert right["must_flag"] in table(CASES / "B21" / "requests.csv").out


def test_b25_a_total_is_no_average_of_percentiles(table: Any) -> None:
    """The p95 of both classes together is taken from all requests."""
    answer = table(CASES / "B25" / "requests.csv", "--json").json
    right = expected("B25")
    p95 = {row["traffic"]: row["figures"]["ttft_p95_s"]["value"] * 1000 for row in answer["classes"]}
    p95["all"] = answer["levels"][0]["figures"]["ttft_p95_s"]["value"] * 1000
    assert p95 == pytest.approx(right["p95_ms"])
    whole = answer["levels"][0]["figures"]
    assert whole["ttft_p50_s"]["value"] * 1000 == pytest.approx(right["p50_all_ms"])
    assert whole["ttft_mean_s"]["value"] * 1000 == pytest.approx(right["mean_all_ms"])


def test_b27_concurrency_that_was_really_reached(level: Any) -> None:
    """16 request-seconds in 8 s are two requests in flight, whatever the label of the level."""
    figures, right = level("B27")["figures"], expected("B27")
    assert figures["wall_s"]["value"] == pytest.approx(right["window_s"])
    assert figures["in_flight_mean"]["value"] == pytest.approx(right["mean_concurrency"])
    assert figures["output_tok_s"]["value"] == pytest.approx(right["output_tokens_per_s"])
    assert figures["tpot_mean_s"]["value"] * 1000 == pytest.approx(right["tpot_ms"][0])
