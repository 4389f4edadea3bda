"""The load generator beside the levels: figures by hand, what limits a level, how many more workers it takes."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.health import LevelHealth, Process, Sends
from analysis.health_verdict import judge_generator, more_workers
from tests.analysis.clocked_run import arrival, clocked_run
from tests.analysis.conftest import write_run
from tokenswarm.health import COLUMNS
from tokenswarm.records import Phase, RequestRecord
from tokenswarm.rundir import csv_lines

# Buckets of 2 %: 1.02 ** -349 s is 1.0 ms, 1.02 ** -116 s is 100 ms.
ONE_MS, HUNDRED_MS = -349, -116


def request(number: int, delay_s: float, **changes: Any) -> RequestRecord:
    """Of user 0, a request every 0.4 s from 100 s on; TTFT 200 ms, 10 more tokens every 20 ms."""
    due = 100.0 + 0.4 * number
    sent = due + delay_s
    record = RequestRecord(
        level=0,
        concurrency=1,
        phase=Phase.MEASURED,
        ticket=number,
        worker="w1",
        user=0,
        traffic="chat",
        session=f"0.measured.{number}",
        scheduled_s=due,
        sent_s=sent,
        first_token_s=sent + 0.2,
        last_token_s=sent + 0.4,
        finished_s=sent + 0.4,
        output_tokens=11,
        token_source="usage",
        clock="kernel",
        reads=11,
        merged_reads=0,
        lag_max_s=0.002,
    )
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def requests(late_s: tuple[float, float] = (0.001, 0.001), **changes: Any) -> list[RequestRecord]:
    """One that sets out 300 ms late, as users do who begin together, one that waits 50 ms to see whether its connection
    is kept, then 19 that are 1 ms late and the two given."""
    delays = [0.3, 0.05, *[0.001] * 19, *late_s]
    return [request(i, delay_s, **changes) for i, delay_s in enumerate(delays)]


def second(worker: str, number: int, **changes: Any) -> dict[str, Any]:
    """From 100 s + ``number`` on: half a core, 1,000 events, all timers 1 ms late."""
    known = {"worker": worker, "level": 0, "begin_s": 100.0 + number, "length_s": 1.0, "cpu_share": 0.5}
    known |= {"loop_lags": f"{ONE_MS}:50", "loop_lag_max_s": 0.001, "events": 1000, "in_session": 1, "waiting": 0}
    return known | {"rss_bytes": 50_000_000} | changes


def health_csv(rows: list[dict[str, Any]]) -> str:
    return ",".join(COLUMNS) + "\n" + csv_lines([row.get(name) for name in COLUMNS] for row in rows)


def run_with(folder: Path, rows: list[dict[str, Any]], records: list[RequestRecord] | None = None) -> Path:
    scenario = {"traffic": [{"name": "chat", "objective": "fast"}], "objectives": {"fast": {"ttft_s": {"p95": 1.0}}}}
    level = {"concurrency": 1}
    write_run(folder, requests() if records is None else records, levels=[level], scenario=scenario)
    (folder / "health.csv").write_text(health_csv(rows))
    return folder


EASY = [second("w1", i) for i in range(9)]


def test_figures_of_a_level_by_hand(table: Any, tmp_path: Path) -> None:
    """Of the busiest process: CPU (8 x 0.5 + 0.9) / 9, lag of all its timers, events a second. Seconds outside the
    measured time and those of other levels do not count."""
    busier = [second("w2", i, cpu_share=0.9 if i == 4 else 0.5, events=1900 if i == 4 else 1000) for i in range(9)]
    busier[3] |= {"loop_lags": f"{HUNDRED_MS}:100"}  # 100 of 500 timers: more than 5 %
    outside = [
        second("w1", -5, cpu_share=1.0),
        second("w1", 60, cpu_share=1.0),
        second("w1", 3, level=1, cpu_share=1.0),
    ]
    run = run_with(tmp_path / "run", [*EASY, *busier, *outside], requests((0.008, 0.009)))
    level = table(run, "--json").json["levels"][0]
    figures = {name: figure["value"] for name, figure in level["figures"].items()}
    assert figures["load_processes"] == 2
    assert figures["cpu_share"] == pytest.approx(4.9 / 9)
    assert figures["cpu_share_max"] == pytest.approx(0.9)
    assert figures["loop_lag_p95_s"] == pytest.approx(0.1, rel=0.02)
    assert figures["process_events_per_s"] == pytest.approx(9900 / 9)
    assert figures["send_delay_p50_s"] == pytest.approx(0.001, abs=1e-6)
    assert figures["send_delay_p95_s"] == pytest.approx(0.008, abs=1e-6)  # the 20th of 21: the first two are left out
    assert figures["read_lag_p95_s"] == pytest.approx(0.002)
    assert figures["merged_reads_share"] == 0
    assert level["generator"]["processes"][0] | {"loop_lag_p95_s": 0} == {
        "worker": "w1",
        "seconds": 9.0,
        "cpu_share": 0.5,
        "cpu_share_max": 0.5,
        "loop_lag_p95_s": 0,
        "loop_lag_max_s": 0.001,
        "events_per_s": 1000.0,
        "rss_bytes": 50_000_000.0,
        "backlog_bytes": None,
        "held_s": None,
    }


def test_rows_of_a_worker_are_laid_on_the_masters_axis(table: Any, tmp_path: Path) -> None:
    """A worker whose clock is 1,000 s behind is still asked about the measured time."""
    run = run_with(tmp_path / "run", [second("w1", i - 1000, cpu_share=0.25 if i < 9 else 1.0) for i in range(20)], [])
    (run / "workers.csv").write_text("worker,wall_s,monotonic_s,offset_s\nw1,0,0,1000\n")
    records = requests()
    for record in records:
        for name in ("scheduled_s", "sent_s", "first_token_s", "last_token_s", "finished_s"):
            setattr(record, name, getattr(record, name) - 1000.0)
    write_run(run, records, levels=[{"concurrency": 1}])
    assert table(run, "--json").json["levels"][0]["figures"]["cpu_share"]["value"] == pytest.approx(0.25)


def test_a_generator_in_time_is_shown_and_decides_nothing(table: Any, tmp_path: Path) -> None:
    """One row a level with the verdict ok; the objective is met and the exit code 0."""
    answer = table(run_with(tmp_path / "run", EASY), "--check", "--width", "160")
    assert answer.code == 0
    assert "Load generator" in answer.out
    row = next(line for line in answer.out.split("Load generator")[1].splitlines() if line.strip().startswith("1 "))
    assert row.split()[0] == "1"
    assert row.split()[-1] == "ok"
    assert "¶" not in answer.out


def test_a_limited_level_meets_no_objective(table: Any, tmp_path: Path) -> None:
    """Sends 30 ms late at a TTFT of 200 ms: marked, undecided, exit code 3, with the reason and the next step."""
    run = run_with(tmp_path / "run", EASY, requests((0.03, 0.05)))
    answer = table(run, "--check", "--width", "250")
    assert answer.code == 3
    told = "c=1: limited by the load generator: send delay p95 30 ms, above 10 ms: 15% of TTFT p50 200 ms; next step: "
    assert f"not credible: {told}1 more worker (--processes 2): the least" in answer.err
    assert told in answer.out
    assert "undecided" in answer.out
    assert any(line.startswith("¶  limited by the load generator") for line in answer.out.splitlines())
    document = table(run, "--json").json
    assert document["objectives"][0]["met"] is True
    assert document["objectives"][0]["proves"] is False
    assert document["levels"][0]["generator"]["further_workers"] == 1
    row = next(csv.DictReader(io.StringIO(table(run, "--format", "csv").out)))
    assert (row["generator_verdict"], row["loop_lag_p95_ms"][:3]) == ("generator-limited", "0.9")
    assert row["generator_reason"].startswith("send delay p95 30 ms")
    assert row["next_step"].startswith("1 more worker")


def test_what_else_explains_a_wait_is_no_send_delay(table: Any, tmp_path: Path) -> None:
    """Opening a connection (20 ms) and waiting for pictures (9 ms) are taken off the 30 and 50 ms."""
    records = requests((0.03, 0.05), connect_s=0.02, prepare_s=0.009)
    level = table(run_with(tmp_path / "run", EASY, records), "--json").json["levels"][0]
    assert level["figures"]["send_delay_p95_s"]["value"] == pytest.approx(0.001, abs=1e-6)
    assert level["generator"]["verdict"] == "ok"


def test_merged_reads_of_late_requests_by_hand(table: Any, tmp_path: Path) -> None:
    """Reads are 20 ms apart. Of 23 x 11 reads 33 are merged, 21 of them in requests that were read 12 ms late."""
    records = requests()
    for record in records[:11]:
        record.merged_reads = 3
    for record in records[:7]:
        record.lag_max_s = 0.012
    generator = table(run_with(tmp_path / "run", EASY, records), "--json").json["levels"][0]["generator"]
    sends = generator["sends"]
    assert sends["read_gap_s"] == pytest.approx(0.02)
    assert sends["merged_share"] == pytest.approx(33 / 253)
    assert sends["late_merged_share"] == pytest.approx(21 / 253)
    assert generator["verdict"] == "generator-limited"


@pytest.mark.parametrize(("when_full", "verdict"), [("refuse", "generator-limited"), ("wait", "ok")])
def test_late_sends_of_an_open_loop(table: Any, tmp_path: Path, when_full: str, verdict: str) -> None:
    """9 ms late at a TTFT of 20 ms is part of what a user feels; where arrivals may wait for a free user, it may be
    that wait, and is not held against the generator."""
    records = [arrival(i, i * 0.5, i * 0.5 + 0.009, i * 0.5 + 0.029, level=0, clock="kernel") for i in range(25)]
    level = {"label": "2/s", "rate_per_s": 2.0, "duration_s": 12.5, "measured_started_s": 0.0}
    run = clocked_run(tmp_path / "run", records, [level])
    facts = json.loads((run / "run.json").read_text())
    facts["levels"][0]["when_full"] = when_full
    (run / "run.json").write_text(json.dumps(facts))
    (run / "health.csv").write_text(health_csv([second("w0", i - 100) for i in range(12)]))
    generator = table(run, "--json").json["levels"][0]["generator"]
    assert generator["sends"]["delay_p95_s"] == pytest.approx(0.009)
    assert generator["verdict"] == verdict


def test_runs_without_health_are_not_judged(table: Any, small: Path, tmp_path: Path) -> None:
    """Earlier run folders give their tables; a late send alone is no verdict where nobody watched the process."""
    answer = table(small, "--json").json
    assert [level["generator"]["verdict"] for level in answer["levels"]] == ["unknown", "unknown"]
    assert answer["levels"][0]["figures"]["cpu_share"]["value"] is None
    assert "Load generator" not in table(small).out
    run = run_with(tmp_path / "run", [], requests((0.03, 0.05)))
    assert table(run, "--check").code == 0
    assert "Load generator" not in table(run).out


def test_damaged_health_is_passed_over(table: Any, tmp_path: Path) -> None:
    """A line that was being written as the run died, and lags that are none, do no harm."""
    run = run_with(tmp_path / "run", [*EASY, second("w1", 3, loop_lags="x:1 7: 99999:1 -349:2")])
    with (run / "health.csv").open("a") as file:
        file.write("w1,0,104.0")
    answer = table(run, "--json").json
    assert answer["levels"][0]["generator"]["verdict"] == "ok"
    assert "health.csv: the last line is cut off and was left out" in [note["text"] for note in answer["notes"]]


# Two processes, sends and reads in time, TTFT 200 ms, TPOT 20 ms.
CALM = Process("w1", 30.0, 0.5, 0.6, 0.001, 0.002, 10_000.0, None, None, None)
TIMELY = Sends(
    sends=100,
    delay_p50_s=0.0005,
    delay_p95_s=0.002,
    read_lag_p95_s=0.003,
    streams=100,
    merged_share=0.0,
    late_merged_share=0.0,
    read_gap_s=0.020,
    ttft_s=0.200,
    tpot_s=0.020,
    e2e_s=0.400,
    kernel=True,
)

MERGED = (
    "{} of the reads carried several token events, in requests that were read late by more than half of the 20 ms "
    "between two"
)


def health(process: dict[str, Any] | None = None, sends: dict[str, Any] | None = None, **level: Any) -> LevelHealth:
    worst = replace(CALM, worker="w2", **(process or {}))
    return LevelHealth((CALM, worst), replace(TIMELY, **(sends or {})), **level)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (health(), None),
        (health({"cpu_share": 0.9}), None),
        (health({"cpu_share": 0.93}), "CPU 93% of a core in w2, above 90%"),
        (
            health({"cpu_share": 1.0, "loop_lag_p95_s": 1.0, "seconds": 4.9}),
            None,
        ),  # too short for a standstill to decide
        (health(sends={"delay_p95_s": 0.0101}), "send delay p95 10.1 ms, above 10 ms: 5% of TTFT p50 200 ms"),
        (health(sends={"delay_p95_s": 0.05, "ttft_s": 1.0}), None),  # 5 % of it
        (
            health(sends={"delay_p95_s": 0.051, "ttft_s": 1.0}),
            "send delay p95 51 ms, above 50 ms: 5% of TTFT p50 1000 ms",
        ),
        (health(sends={"delay_p95_s": 0.0099, "ttft_s": 0.02}), None),  # in no latency, and less than 10 ms
        (
            health(sends={"delay_p95_s": 0.0099, "ttft_s": 0.02}, by_clock=True),
            "send delay p95 9.9 ms, above 5 ms: 50% of TTFT p50 20 ms",
        ),
        (health(sends={"delay_p95_s": 3.0}, by_clock=True, waits=True), None),  # they had to wait for a user
        (health(sends={"delay_p95_s": 3.0, "sends": 19}), None),  # that is a single one
        (health(sends={"delay_p95_s": 3.0, "ttft_s": None}), None),  # nothing to hold it against
        (health({"loop_lag_p95_s": 0.03}), "loop lag p95 30 ms, above 20 ms: 8% of E2E p50 400 ms"),
        (health({"loop_lag_p95_s": 0.019}), None),  # 10 % of TTFT, which the kernel stamps
        (health({"loop_lag_p95_s": 0.009}, {"e2e_s": 0.01}), None),
        (health({"loop_lag_p95_s": 0.018}, by_clock=True), "loop lag p95 18 ms, above 10 ms: 9% of TTFT p50 200 ms"),
        (
            health({"loop_lag_p95_s": 0.03}, {"kernel": False}),
            "loop lag p95 30 ms, above 10 ms: 15% of TTFT p50 200 ms",
        ),
        (
            health({"loop_lag_p95_s": 0.008}, {"kernel": False}),  # 4 % of TTFT, but the times are those of reading
            "loop lag p95 8 ms, above 5 ms: 40% of TPOT p50 20 ms",
        ),
        (health(sends={"merged_share": 0.3}), None),  # read in time: the server sends them together
        (health(sends={"merged_share": 0.3, "late_merged_share": 0.05}), None),
        (health(sends={"merged_share": 0.3, "late_merged_share": 0.06}), MERGED.format("6%")),
        (health(sends={"merged_share": 0.3, "late_merged_share": 0.06, "streams": 19}), None),
        (health({"loop_lag_p95_s": 0.011}, {"merged_share": 0.3}), None),  # whatever timers do
        (health({"loop_lag_p95_s": 0.0099}, {"merged_share": 0.3, "late_merged_share": None}), None),
        (health({"loop_lag_p95_s": 0.0101}, {"merged_share": 0.3, "late_merged_share": None}), MERGED.format("30%")),
        (
            health({"held_s": 3.5}),
            "for 3.5 s no new session began, because rows had not reached the master",
        ),
        (health({"held_s": 0.0}), None),
    ],
)
def test_what_limits_a_level(given: LevelHealth, reason: str | None) -> None:
    """Each limit at its edge, with what is told."""
    verdict = judge_generator(given)
    assert verdict.reasons == (() if reason is None else (reason,))
    assert verdict.limited == (reason is not None)


@pytest.mark.parametrize(
    ("workers", "events_per_s", "cores", "further", "advice"),
    [
        (2, 92_000.0, 1.9, 3, "3 more workers: 92,000 events/s at 20,000 each"),  # 4.6 -> 5; 2.375 -> 3
        (4, 40_000.0, 3.6, 1, "1 more worker: 3.6 cores at 80% each"),  # 2; 4.5 -> 5
        (1, 5_000.0, 0.96, 1, "1 more worker (--processes 2): 1.0 cores at 80% each"),  # 1; 1.2 -> 2
        (
            1,
            55_000.0,
            2.2,
            2,
            "2 more workers (--processes 3): 55,000 events/s at 20,000 each and 2.2 cores at 80% each",
        ),
        (2, 40_000.0, 1.6, 1, "1 more worker: the least, "),  # exactly 2 each
        (3, None, None, 1, "1 more worker: the least, "),
    ],
)
def test_arithmetic_of_the_next_step(
    workers: int, events_per_s: float | None, cores: float | None, further: int, advice: str
) -> None:
    """Enough for 20,000 events/s and 0.8 of a core each, and always one more than there are."""
    number, text = more_workers(workers, events_per_s, cores)
    assert number == further
    assert text.startswith(advice)


def test_rows_that_do_not_get_through_ask_for_no_worker() -> None:
    """Where only the way to the master is too slow, more load processes would make it worse."""
    verdict = judge_generator(health({"held_s": 3.5}))
    assert verdict.further_workers == 0
    assert "more worker" not in verdict.next_step
    assert "master" in verdict.next_step
