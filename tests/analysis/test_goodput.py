"""Goodput, quantiles over more than the successes, the steady part and intervals, in runs worked out by hand."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.clocked_run import arrival, clocked_run
from tests.analysis.conftest import write_run
from tokenswarm.records import Phase, RequestRecord

OBJECTIVE = {
    "traffic": [{"name": "chat", "objective": "quick"}],
    "objectives": {"quick": {"ttft_s": {"p50": 0.3, "p95": 0.5}, "tpot_s": {"p95": 0.05}}},
}


def request(number: int, sent_s: float, ttft_s: float, tokens: int = 11, tpot_s: float = 0.02, **facts: Any) -> Any:
    """One request of a user of its own, answered as fast as told."""
    first = sent_s + ttft_s
    last = first + tpot_s * (tokens - 1)
    known: dict[str, Any] = {
        "level": 0, "concurrency": 2, "phase": Phase.MEASURED, "ticket": number, "worker": "w0", "user": number % 2,
        "traffic": "chat", "session": f"s{number}", "turn": 0, "scheduled_s": sent_s, "sent_s": sent_s,
        "first_token_s": first, "first_output_s": first, "last_token_s": last, "finished_s": last,
        "asked_output_tokens": tokens, "output_tokens": tokens, "token_source": "usage",
    }  # fmt: skip
    return RequestRecord(**(known | facts))


def failed(number: int, sent_s: float) -> Any:
    blank = dict.fromkeys(("first_token_s", "first_output_s", "last_token_s", "output_tokens", "token_source"))
    return request(number, sent_s, 0.1, error_kind="http_5xx", finished_s=sent_s + 0.1, **blank)


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """10 s: four requests keep to all limits (one token has no TPOT), one is late to begin, one too slow, one fails."""
    rows = [
        request(0, 0.0, 0.5),
        request(1, 1.0, 0.4),
        request(2, 2.0, 0.1, tokens=1),
        request(3, 3.0, 0.501),
        request(4, 4.0, 0.1, tpot_s=0.06),
        failed(5, 5.0),
        request(6, 9.0, 0.4, tokens=31),
    ]
    return write_run(tmp_path / "run", rows, levels=[{"concurrency": 2}], scenario=OBJECTIVE)


def test_goodput_counts_what_keeps_to_every_limit(table: Any, judged: Path) -> None:
    """Of several quantiles of TTFT the largest limit is that of a single request: 4 of 7 in 10 s."""
    level = table(judged, "--json").json["levels"][0]["figures"]
    assert level["goodput_per_s"]["value"] == pytest.approx(0.4)
    assert level["good_share"]["value"] == pytest.approx(4 / 7)
    assert level["failed_share"]["value"] == pytest.approx(1 / 7)
    assert level["requests_per_s"]["value"] == pytest.approx(0.6)
    # Wilson's interval of 4 in 7.
    assert level["good_share"]["low"] == pytest.approx(0.2505, abs=1e-3)
    assert level["good_share"]["high"] == pytest.approx(0.8418, abs=1e-3)


def test_goodput_is_blank_without_limits(table: Any, tmp_path: Path) -> None:
    """Where nobody said what is good, nothing is known to be; also where one of two classes has no limit."""
    rows = [request(0, 0.0, 0.5), request(1, 1.0, 0.4, traffic="batch")]
    for scenario in ({}, OBJECTIVE):
        folder = write_run(tmp_path / str(len(scenario)), rows, levels=[{"concurrency": 2}], scenario=scenario)
        assert table(folder, "--json").json["levels"][0]["figures"]["goodput_per_s"]["value"] is None
    chat = next(row for row in table(folder, "--json").json["classes"] if row["traffic"] == "chat")
    assert chat["figures"]["goodput_per_s"]["value"] is not None


def test_both_kinds_of_quantiles_stand_side_by_side(table: Any, judged: Path) -> None:
    """TTFT p50 of six successes is 0.4 s, with the failure it is the fourth of seven, and p95 is infinite; the option
    changes the shown one only."""
    for options, shown in (((), 0.4), (("--failures-infinite",), 0.4)):
        level = table(judged, "--json", *options).json["levels"][0]["figures"]
        assert level["ttft_p50_s"]["value"] == pytest.approx(shown)
        assert level["with_failures_ttft_p50_s"]["value"] == pytest.approx(0.4)
        assert level["with_failures_ttft_p95_s"]["infinite"]
        assert level["with_failures_ttft_p95_s"]["n"] == 7
        assert ("infinite" in level["ttft_p95_s"]) == bool(options)


def test_asked_and_got_lengths(table: Any, judged: Path) -> None:
    """Lengths 1, 11, 11, 11, 11 and 31: p5 lies a quarter of the way from 1 to 11, p95 three quarters to 31."""
    level = table(judged, "--json").json["levels"][0]["figures"]
    for name in ("output_tokens", "asked_output_tokens"):
        assert level[f"{name}_p5"]["value"] == pytest.approx(3.5)
        assert level[f"{name}_p50"]["value"] == 11
        assert level[f"{name}_p95"]["value"] == pytest.approx(26.0)


def test_requests_under_way_when_the_time_was_up(table: Any, tmp_path: Path) -> None:
    """20 requests of 1 s ended in time. Of 10 others, which took 8 s at least until then, it is only known that they
    took longer: p50 stays 1 s for sure, p95 is at least 8 s. TTFT is known where the first token had come."""
    rows = [request(i, i * 0.5, 0.2, tokens=41) for i in range(20)]
    rows += [request(20 + i, 2.5, 0.3, tokens=500, phase=Phase.DRAIN) for i in range(10)]
    folder = write_run(tmp_path / "run", rows, levels=[{"concurrency": 12}])
    level = table(folder, "--json").json["levels"][0]["figures"]
    assert level["e2e_p95_s"]["value"] == pytest.approx(1.0)
    assert level["with_unfinished_e2e_p50_s"]["value"] == pytest.approx(1.0)
    assert "lower bound" not in level["with_unfinished_e2e_p50_s"].get("marks", [])
    assert level["with_unfinished_e2e_p95_s"]["value"] == pytest.approx(8.0)
    assert "lower bound" in level["with_unfinished_e2e_p95_s"]["marks"]
    assert level["with_unfinished_e2e_p95_s"]["n"] == 30
    assert level["with_unfinished_ttft_p95_s"]["value"] == pytest.approx(0.3)


def test_a_level_that_differs_while_it_was_steady_says_so(table: Any, tmp_path: Path) -> None:
    """Every other second both users are active with a TTFT of 0.4 s; in between one alone has four of 0.2 s. The note
    has both figures."""
    rows = []
    for i in range(100):
        rows += [request(2 * i + user, 2.0 * i, 0.4 + 0.001 * (i % 7), tokens=28) for user in (0, 1)]
        short = (request(1000 + 8 * i + 2 * j, 2.0 * i + 1 + 0.25 * j, 0.2, tokens=2) for j in range(4))
        rows += short
    folder = write_run(tmp_path / "run", rows, levels=[{"concurrency": 2}])
    document = table(folder, "--json").json
    figures = document["levels"][0]["figures"]
    assert figures["steady_ttft_p50_s"]["value"] == pytest.approx(0.403)
    assert figures["steady_ttft_p50_s"]["n"] == 200
    assert figures["ttft_p50_s"]["value"] == pytest.approx(0.2)
    texts = [note["text"] for note in document["notes"] if note["key"] == "steady"]
    assert len(texts) == 1
    assert texts[0].startswith("c=2: while all its users were active")
    assert "TTFT p50 403" in texts[0]


def test_intervals_stand_in_the_table_and_in_the_csv(table: Any, tmp_path: Path) -> None:
    """100 requests of which every value is known: p50 of TTFT lies between ranks 40 and 61 of them."""
    rows = [request(i, float(i), 0.1 + 0.001 * (i * 37 % 100)) for i in range(100)]
    folder = write_run(tmp_path / "run", rows, levels=[{"concurrency": 2}])
    text = table(folder, "--intervals", "--width", "300").out
    assert "149 [139..160]" in text
    assert "[" not in table(folder, "--width", "300").out.split("definitions")[0].split("c:")[0]
    line = next(csv.DictReader(io.StringIO(table(folder, "--format", "csv").out)))
    assert (line["ttft_p50_ms_low"], line["ttft_p50_ms_high"]) == ("139", "160")
    assert float(line["requests_per_s_low"]) < float(line["requests_per_s"]) < float(line["requests_per_s_high"])
    assert line["good_share_low"] == ""


def test_requests_that_queue_by_the_clock_count_as_fewer(table: Any, tmp_path: Path) -> None:
    """In a level by the clock whose waits rise and fall in waves of 100 arrivals, 400 requests are worth far fewer."""
    waits = [1.0 + abs(i % 100 - 50) / 50 for i in range(400)]
    rows = [arrival(i, float(i), float(i), i + wait) for i, wait in enumerate(waits)]
    level = {"label": "1/s", "rate_per_s": 1.0, "duration_s": 400.0, "measured_started_s": 0.0, "scheduled": 400}
    figures = table(clocked_run(tmp_path / "run", rows, [level]), "--json").json["levels"][0]["figures"]
    for name in ("scheduled_ttft_p50_s", "scheduled_e2e_mean_s", "job_p50_s"):
        assert figures[name]["n"] == 400
        assert figures[name]["effective_n"] < 40, name
