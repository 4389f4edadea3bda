"""What a calibration says of one level, against hand-computed values."""

from __future__ import annotations

import pytest

from benchmarks.calibrate import sentence
from benchmarks.calibration_level import measured_level
from benchmarks.cpu_samples import share_of
from benchmarks.figures import Row
from benchmarks.master import held_against
from benchmarks.server import TruthRow


def _row(request_id: str, sent_s: float, first_s: float, last_s: float, **more: str) -> dict[str, str]:
    return {
        "phase": "measured", "error_kind": "", "request_id": request_id, "scheduled_s": str(sent_s - 0.02),
        "sent_s": str(sent_s), "first_token_s": str(first_s), "last_token_s": str(last_s), "output_tokens": "11",
        "chunks": "11", "reads": "10", "merged_reads": "1", "lag_max_s": "",
    } | more  # fmt: skip


def _true(request_id: str, received_s: float, first_s: float, last_s: float) -> TruthRow:
    return TruthRow(request_id, round(received_s * 1e9), round(first_s * 1e9), round(last_s * 1e9), 1_000_000, 11, 11)


ROWS = [_row("a", 1.0, 1.051, 1.151), _row("b", 2.0, 2.063, 2.173)]
TRUTH = {"a": _true("a", 1.0, 1.05, 1.15), "b": _true("b", 2.0, 2.06, 2.16)}


def _level(rows: list[dict[str, str]], *, by_clock: bool = False) -> Row:
    return measured_level(4, rows, TRUTH, (1.0, 3.0), by_clock=by_clock)


def test_errors_are_of_each_request_without_sign() -> None:
    """TTFT 51 and 63 ms for 50 and 60; TPOT 10 and 11 ms for 10 and 10; E2E 151 and 173 ms for 150 and 160."""
    level = _level(ROWS)
    assert (level["requests"], level["compared"], level["failed"], level["tokens_exact"]) == (2, 2, 0, True)
    for name, p50, p95, largest, true in (
        ("ttft", 2.0, 2.9, 3.0, 55.0),
        ("tpot", 0.5, 0.95, 1.0, 10.0),
        ("e2e", 7.0, 12.4, 13.0, 155.0),
    ):
        found = [level[f"{name}_error_{part}_ms"] for part in ("p50", "p95", "max")] + [level[f"true_{name}_p50_ms"]]
        assert found == pytest.approx([p50, p95, largest, true]), name
    assert level["send_delay_p95_ms"] == pytest.approx(20.0)
    assert level["events_per_s"] == pytest.approx(11.0)  # 22 in two seconds
    assert level["merged_reads"] == pytest.approx(0.1)
    assert level["doubts"] == [
        "TTFT error p95 2.9 ms is 5% of the true median",
        "TPOT error p95 0.95 ms is 9% of the true median",
        "E2E error p95 12 ms is 8% of the true median",
    ]


def test_a_level_is_truthful_only_without_any_doubt() -> None:
    """Failures, requests that the server does not know, other token counts and, by the clock, late sends."""
    good = [_row("a", 1.0, 1.05, 1.15), _row("b", 2.0, 2.06, 2.16)]
    assert _level(good)["truthful"] is True
    for rows, doubt in (
        ([*good, _row("", 2.0, 0, 0, error_kind="reset", first_token_s="", last_token_s="")], "1 requests failed"),
        ([*good, _row("c", 2.0, 2.06, 2.16)], "1 requests are not in the server's record"),
        ([good[0], good[1] | {"output_tokens": "12"}], "token counts differ from the server's"),
        ([], "no request could be compared"),
    ):
        level = _level(rows)
        assert (level["doubts"], level["truthful"]) == ([doubt], False)
    assert _level(good, by_clock=True)["doubts"] == ["requests were sent 20 ms late at p95"]


def test_cut_requests_are_no_failures_and_events_outside_the_time_do_not_count() -> None:
    """Ten gaps of 0.1 s that end in the middle of the window: half of the eleven events."""
    rows = [_row("a", 0.4, 0.5, 1.5, phase="drain"), _row("b", 2.0, 2.06, 2.16, error_kind="cancelled")]
    level = measured_level(4, rows, TRUTH, (1.0, 2.0), by_clock=False)
    assert (level["failed"], level["requests"]) == (0, 0)
    assert level["events_per_s"] == pytest.approx(5.5)


def test_cpu_between_two_moments_is_interpolated() -> None:
    """0 to 1 s of CPU in the first two seconds, then idle; unknown where no sample reaches."""
    samples = [(10.0, 5.0), (12.0, 6.0), (14.0, 6.0)]
    assert share_of(samples, 10.0, 12.0) == pytest.approx(0.5)
    assert share_of(samples, 11.0, 13.0) == pytest.approx(0.25)
    assert share_of(samples, 9.0, 12.0) is None
    assert share_of(samples, 12.0, 15.0) is None


def test_rows_are_lost_or_there_twice() -> None:
    """Four answers; one has no row, one has two."""
    found = held_against(["a", "b", "c", "d"], ["a", "b", "b", "d"])
    assert found == {"answered": 4, "rows": 4, "lost": 1, "twice": 1}


def test_the_sentence_says_how_far_and_why_no_further() -> None:
    """The errors at the highest truthful load, and the doubt at the first that is not."""
    errors = {"ttft_error_p95_ms": 0.31, "tpot_error_p95_ms": 0.0001, "e2e_error_p95_ms": 1.2, "doubts": []}
    levels = [
        {"load": 64, "truthful": True, **errors},
        {"load": 128, "truthful": False, "doubts": ["too late"], "busiest_cpu": 0.9},
    ]
    entry = {"axis": "users", "processes": 1, "truthful_up_to": 64, "highest": 128, "levels": levels}
    assert sentence(entry).splitlines() == [
        "truthful up to 64 users with 1 process: TTFT error p95 0.31 ms, TPOT error p95 below 0.001 ms, "
        "E2E error p95 1.2 ms",
        "not truthful with 1 process at 128 users: too late; use more load processes (ARGS='--processes N')",
    ]
    assert len(sentence({**entry, "highest": 64}).splitlines()) == 1
    levels[1]["busiest_cpu"] = 0.2
    assert sentence(entry).endswith(
        "too late; the load process was busy for 20% of the time only: repeat it while nothing else runs"
    )
