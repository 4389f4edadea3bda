"""Levels by the clock: counts that close, latency from the schedule, and levels that have no number of users."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.clocked_run import arrival, clocked_run, write_levels
from tokenswarm.records import RequestRecord

CASE = Path(__file__).parent / "cases" / "B23"


def figures(answer: Any, level: int = 0) -> dict[str, Any]:
    return {name: figure["value"] for name, figure in answer.json["levels"][level]["figures"].items()}


@pytest.fixture
def stalled(tmp_path: Path) -> Path:
    """Case B23 as a run: one request a second is due, and the server stalls for the first 4 s."""
    case = json.loads((CASE / "schedule.json").read_text())
    times = zip(case["intended_start_s"], case["actual_start_s"], case["end_s"], strict=True)
    rows = [arrival(i, 100.0 + due, 100.0 + sent, 100.0 + end) for i, (due, sent, end) in enumerate(times)]
    level = {"label": "1/s", "rate_per_s": 1.0, "duration_s": 6.0, "measured_started_s": 100.0, "scheduled": 6}
    return clocked_run(tmp_path / "stalled", rows, [level])


def test_a_stall_is_in_the_latency_from_the_schedule(table: Any, stalled: Path) -> None:
    """Case B23: mean 1.85 s and p50 1.75 s from the intended starts, 0.75 s and 0.1 s from the sends beside it."""
    expected = json.loads((CASE / "expected.json").read_text())
    found = figures(table(stalled, "--json"))
    for name in ("scheduled_e2e", "scheduled_ttft"):
        assert found[f"{name}_mean_s"] == pytest.approx(expected["mean_intended_s"])
        assert found[f"{name}_p50_s"] == pytest.approx(expected["p50_intended_s_linear"])
    for name in ("e2e", "ttft"):
        assert found[f"{name}_mean_s"] == pytest.approx(expected["mean_send_s"])
        assert found[f"{name}_p50_s"] == pytest.approx(expected["p50_send_s"])
    # sent 0, 3, 2.1, 1.2, 0.3 and 0 s late: p50 halfway from 0.3 to 1.2, p95 three quarters from 2.1 to 3
    assert found["send_delay_p50_s"] == pytest.approx(0.75)
    assert found["send_delay_p95_s"] == pytest.approx(2.775)
    assert found["send_delay_max_s"] == pytest.approx(3.0)


def test_rates_over_the_scheduled_time(table: Any, stalled: Path) -> None:
    """Six sessions in 6 s are scheduled, sent and done; one at a time, 4.5 s in all, so 0.75 in flight."""
    found = figures(table(stalled, "--json"))
    for name in ("scheduled_per_s", "sent_per_s", "done_per_s"):
        assert found[name] == pytest.approx(1.0)
    assert found["sessions_mean"] == pytest.approx(0.75)
    assert found["sessions_max"] == 1
    assert found["steady_tok_s"] is None  # nobody asked for a concurrency


def test_the_table_shows_the_schedule_first(table: Any, stalled: Path) -> None:
    """The column is headed load, latency from the schedule stands before that from the send, and nothing scales."""
    shown = table(stalled, "--width", "400").out
    row = next(line for line in shown.splitlines() if line.strip().startswith("1/s")).split()
    assert row[:4] == ["1/s", "6", "0", "1750"]
    assert "Scaling" not in shown
    assert "closed loop" not in shown
    assert "c=" not in shown
    assert "Arrivals" in shown
    pipes = table(stalled, "--format", "markdown").out
    assert "| load | requests | failed | scheduled TTFT p50 ms |" in pipes
    assert pipes.index("| scheduled E2E p99 s |") < pipes.index("| TTFT p50 ms |")


def test_objectives_are_judged_from_the_schedule(table: Any, stalled: Path) -> None:
    """0.1 s from the send would meet 1 s; the 1.75 s from the schedule do not, and the miss names the figure."""
    facts = json.loads((stalled / "run.json").read_text())
    facts["scenario"] = {
        "traffic": [{"name": "chat", "objective": "quick"}],
        "objectives": {"quick": {"ttft_s": {"p50": 1.0}}},
    }
    (stalled / "run.json").write_text(json.dumps(facts))
    answer = table(stalled, "--check", "--width", "200")
    assert answer.code == 1
    assert "chat at 1/s: scheduled TTFT p50 1750 ms > 1000 ms" in answer.out
    facts["scenario"]["objectives"]["quick"]["ttft_s"]["p50"] = 1.8
    (stalled / "run.json").write_text(json.dumps(facts))
    answer = table(stalled, "--check", "--width", "200")
    assert answer.code == 0
    assert "all objectives met up to 1/s" in answer.out


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two levels of 10 s. Of ten arrivals of the first four went well, one failed, two were not admitted, two were cut
    when the level ended at 30 s, and one went with a worker; the second is without trouble."""
    rows = [arrival(i, float(i), i + 0.5, i + 1.0) for i in range(4)]
    rows += [arrival(4, 4.0, 4.0, 4.5, error_kind="http_5xx"), arrival(5, 5.0, None, None), arrival(6, 6.0, None, None)]
    cut = {"error_kind": "cancelled", "level": 0}
    rows += [arrival(7, 7.0, 8.0, 30.0, **cut), arrival(8, 8.0, 8.0, 30.0, first_token_s=9.0, last_token_s=29.0, **cut)]
    rows += [arrival(i, 100.0 + i, 100.0 + i, 101.0 + i, level=1) for i in range(10)]
    first = {"label": "1/s", "rate_per_s": 1.0, "duration_s": 10.0, "measured_started_s": 0.0, "scheduled": 10}
    first |= {"not_admitted": 2, "lost": 1, "ended_s": 30.0}
    first |= {"state": "partial", "reason": "worker w1 gave no sign of life for 5 s and was given up at 12:00:09"}
    second = first | {"label": "1/s #2", "measured_started_s": 100.0, "ended_s": 112.0, "lost": 0, "not_admitted": 0}
    return clocked_run(tmp_path / "mixed", rows, [first, second | {"state": "complete", "reason": ""}])


def test_counts_close(table: Any, mixed: Path) -> None:
    """10 scheduled = 4 ok + 1 failed + 2 not admitted + 2 unfinished + 1 lost; no note complains."""
    answer = table(mixed, "--json")
    first = answer.json["levels"][0]
    assert first["arrivals"] == {
        "rate_per_s": 1.0, "scheduled": 10, "ok": 4, "failed": 1, "not_admitted": 2, "unfinished": 2, "lost": 1,
        "missing": 0,
    }  # fmt: skip
    assert (first["ok"], first["failed"], first["cancelled"]) == (4, 3, 2)  # not admitted is failed
    assert not any(note["key"] == "arrivals" for note in answer.json["notes"])
    text = "1/s: 1 arrival was handed to a worker that was lost; what became of that is unknown"
    assert [note["text"] for note in answer.json["notes"] if note["key"] == "lost"] == [text]
    found = figures(answer)
    assert found["sent_per_s"] == pytest.approx(0.7)
    assert found["done_per_s"] == pytest.approx(0.4)
    # 4 x 0.5 s + 0.5 s + from 8 to 10 s two: 6.5 s; the two beside each other are the most
    assert found["sessions_mean"] == pytest.approx(0.65)
    assert found["sessions_max"] == 2


def test_counts_that_do_not_close_are_told(table: Any, mixed: Path) -> None:
    """Where the generator says that two more were scheduled, a note says what is known of the rest."""
    text = (mixed / "levels.csv").read_text()
    (mixed / "levels.csv").write_text(text.replace("1.0,10,2,1,", "1.0,12,2,1,"))
    notes = {note["key"]: note["text"] for note in table(mixed, "--json").json["notes"]}
    assert notes["arrivals"] == (
        "1/s: the arrivals do not add up: 12 were scheduled, known are 4 ok + 1 failed + 2 not admitted + 2 unfinished "
        "+ 1 lost; 2 are missing"
    )


def test_what_was_cut_took_at_least_so_long(table: Any, mixed: Path) -> None:
    """E2E from the schedule 1, 1, 1, 1, at least 23 and at least 22 s: the median is sure, p90 and mean are not.
    The TTFT of the cut one that had begun to answer is known: 1 s."""
    level = table(mixed, "--json").json["levels"][0]["figures"]
    assert level["scheduled_e2e_p50_s"]["value"] == pytest.approx(1.0)
    assert "marks" not in level["scheduled_e2e_p50_s"]
    assert level["scheduled_e2e_p90_s"]["value"] == pytest.approx(22.5)
    assert "lower bound" in level["scheduled_e2e_p90_s"]["marks"]
    assert level["scheduled_e2e_mean_s"]["value"] == pytest.approx(49 / 6)
    assert level["scheduled_ttft_p50_s"]["value"] == pytest.approx(1.0)
    assert level["scheduled_ttft_mean_s"]["value"] == pytest.approx((5 + 23) / 6)
    assert level["e2e_p99_s"]["value"] == pytest.approx(22.0)  # both were sent at 8 s
    shown = table(mixed, "--width", "400").out
    assert " 22.50*+ " in shown
    assert "1/s: 2 sessions were unfinished at the end of the level" in shown
    assert "+  lower bound" in shown


def test_failures_are_infinitely_late(table: Any, mixed: Path) -> None:
    """Nine requests, of which one failed, two were not admitted and two were cut: p50 is the fifth, ∞."""
    level = table(mixed, "--json", "--failures-infinite").json["levels"][0]["figures"]
    for name in ("scheduled_ttft", "scheduled_e2e", "ttft", "e2e"):
        assert level[f"{name}_p50_s"] == {
            "value": None, "infinite": True, "n": 9, "low": pytest.approx(1.0 if "sch" in name else 0.5), "high": None,
        }, name  # fmt: skip


def test_a_lower_bound_meets_no_limit(table: Any, mixed: Path) -> None:
    """p90 of at least 22.5 s misses 10 s for sure; whether it keeps to 30 s is unknown, and so not met."""
    facts = json.loads((mixed / "run.json").read_text())
    values = {}
    for limit in (10.0, 30.0):
        facts["scenario"] = {
            "traffic": [{"name": "chat", "objective": "quick"}],
            "objectives": {"quick": {"e2e_s": {"p90": limit}, "failed": 1.0}},
        }
        (mixed / "run.json").write_text(json.dumps(facts))
        first, second = table(mixed, "--json").json["objectives"]
        check = next(check for check in first["checks"] if check["metric"] == "scheduled_e2e_p90_s")
        assert not check["met"]
        assert second["met"]
        values[limit] = check["value"]
    assert values == {10.0: pytest.approx(22.5), 30.0: None}


def test_csv_has_the_counts(table: Any, mixed: Path) -> None:
    """One line a level: rate and counts in columns of their own, no concurrency, and the columns that are bounds."""
    first, second = csv.DictReader(io.StringIO(table(mixed, "--format", "csv").out))
    names = ("concurrency", "label", "rate_per_s", "scheduled", "not_admitted", "unfinished", "lost")
    assert [first[name] for name in names] == ["", "1/s", "1", "10", "2", "2", "1"]
    assert [second[name] for name in names] == ["", "1/s #2", "1", "10", "0", "0", "0"]
    assert first["throughput_ratio"] == ""
    assert "scheduled_e2e_p90_s" in first["lower_bound"].split()
    assert second["scheduled_ttft_p50_ms"] == "1000"


def test_classes_have_rows_of_their_own(table: Any, tmp_path: Path) -> None:
    """Two classes: each with its own arrivals; what was lost cannot be told by class."""
    rows = [arrival(i, float(i), i + 0.0, i + 1.0, traffic="chat" if i % 2 else "batch") for i in range(9)]
    level = {"label": "1/s", "rate_per_s": 1.0, "duration_s": 10.0, "measured_started_s": 0.0, "scheduled": 10}
    folder = clocked_run(tmp_path / "run", rows, [level | {"lost": 1}])
    batch, chat = table(folder, "--json").json["classes"]
    assert (batch["arrivals"]["ok"], chat["arrivals"]["ok"]) == (5, 4)
    assert (batch["arrivals"]["scheduled"], batch["arrivals"]["lost"]) == (None, None)
    shown = table(folder, "--by-class", "--width", "400").out
    assert "load  class" in shown


def test_requests_alone_are_levels_by_number(table: Any, tmp_path: Path) -> None:
    """Without a plan there is neither rate nor users: "level 0", and the time is that of so many gaps as arrivals."""
    from tokenswarm.records import HEADER, to_csv

    rows = [arrival(i, 2.0 * i, 2.0 * i, 2.0 * i + 1) for i in range(5)]
    path = tmp_path / "requests.csv"
    path.write_text(HEADER + to_csv(rows))
    answer = table(path, "--json")
    assert [level["label"] for level in answer.json["levels"]] == ["level 0"]
    assert answer.json["levels"][0]["by_clock"]
    assert figures(answer)["scheduled_per_s"] == pytest.approx(0.5)  # 5 arrivals, one every 2 s
    shown = table(path, "--width", "400").out
    assert "level 0" in shown
    assert "c=" not in shown


def test_sessions_of_several_turns_are_counted_once(table: Any, tmp_path: Path) -> None:
    """Three sessions of two turns: three arrivals, six requests; one whose second turn failed is failed, one without
    its end was cut between its turns."""
    rows: list[RequestRecord] = []
    for i in range(3):
        rows.append(arrival(i, float(i), float(i), i + 0.5, session_end=None))
        if i < 2:
            kind = "http_5xx" if i else None
            end = None if i else "done"
            rows.append(arrival(i, i + 1.0, i + 1.0, i + 2.0, turn=1, session_end=end, error_kind=kind))
    level = {"label": "1/s", "rate_per_s": 1.0, "duration_s": 3.0, "measured_started_s": 0.0, "scheduled": 3}
    folder = clocked_run(tmp_path / "run", rows, [level])
    answer = table(folder, "--json")
    assert answer.json["levels"][0]["requests"] == 5
    counts = answer.json["levels"][0]["arrivals"]
    assert (counts["ok"], counts["failed"], counts["unfinished"], counts["missing"]) == (1, 1, 1, 0)
    assert figures(answer)["sent_per_s"] == pytest.approx(1.0)
    assert figures(answer)["done_per_s"] == pytest.approx(1 / 3)


def test_what_waits_until_the_end_waited_at_least_so_long(table: Any, tmp_path: Path) -> None:
    """With when_full: wait, two of four still waited when the level ended at 20 s, after 18 and 17 s: the p50 from
    the schedule is halfway from 1 to at least 17 s. Refused ones are in no latency of successes: p50 of 1 s."""
    rows = [
        arrival(0, 0.0, 0.0, 1.0),
        arrival(1, 1.0, 1.0, 2.0),
        arrival(2, 2.0, None, None),
        arrival(3, 3.0, None, None),
    ]
    level = {"label": "1/s", "rate_per_s": 1.0, "duration_s": 4.0, "measured_started_s": 0.0, "scheduled": 4}
    level |= {"not_admitted": 2, "ended_s": 20.0}
    found = {}
    for when_full in ("wait", "refuse"):
        scenario = {"load": {"open": {"requests_per_s": 1, "when_full": when_full}}}
        folder = clocked_run(tmp_path / when_full, rows, [level], scenario=scenario)
        found[when_full] = table(folder, "--json").json["levels"][0]["figures"]["scheduled_e2e_p50_s"]
    assert found["wait"]["value"] == pytest.approx(9.0)
    assert "lower bound" in found["wait"]["marks"]
    assert found["refuse"]["value"] == pytest.approx(1.0)
    assert found["refuse"]["n"] == 2


def test_sessions_that_were_cut_are_in_the_times_of_jobs(table: Any, tmp_path: Path) -> None:
    """Two sessions of two turns took 3 s each, one was cut after 12 s: p50 3 s for sure, p90 at least 10.2 s, and the
    mean is that of the completed ones; a session that was sent 5 s late keeps to no limit of 2 s on E2E."""
    rows = []
    for i, late in enumerate((0.0, 5.0)):
        rows.append(arrival(i, 10.0 * i, 10.0 * i + late, 10.0 * i + late + 1, session_end=None))
        rows.append(arrival(i, 10.0 * i + late + 2, 10.0 * i + late + 2, 10.0 * i + late + 3, turn=1))
    rows.append(arrival(2, 12.0, 12.0, 13.0, session_end=None))
    rows.append(arrival(2, 14.0, 14.0, 24.0, turn=1, error_kind="cancelled"))
    scenario = {
        "traffic": [{"name": "chat", "turns": 2, "objective": "quick"}],
        "objectives": {"quick": {"e2e_s": {"p95": 2.0}}},
    }
    level = {"label": "1/s", "rate_per_s": 0.15, "duration_s": 20.0, "measured_started_s": 0.0, "scheduled": 3}
    found = table(clocked_run(tmp_path / "run", rows, [level], scenario=scenario), "--json").json["levels"][0][
        "figures"
    ]
    assert found["job_p50_s"]["value"] == pytest.approx(3.0)
    assert "lower bound" not in found["job_p50_s"]["marks"]
    assert found["job_p90_s"]["value"] == pytest.approx(3 + 0.8 * 9)
    assert "lower bound" in found["job_p90_s"]["marks"]
    assert found["job_mean_s"]["value"] == pytest.approx(3.0)
    assert found["good_jobs_per_h"]["value"] == pytest.approx(found["jobs_per_h"]["value"] / 2)


def test_warm_up_is_named_by_its_level(table: Any, tmp_path: Path) -> None:
    """Warm-up sessions have rows under the level's name and are in no count but done and sent per second."""
    rows = [arrival(0, -1.0, -1.0, 0.5, phase="warmup", session="0.warmup.0")]
    rows += [arrival(i, float(i), float(i), i + 0.5) for i in range(4)]
    level = {"label": "1/s", "rate_per_s": 1.0, "duration_s": 4.0, "measured_started_s": 0.0, "scheduled": 4}
    folder = clocked_run(tmp_path / "run", rows, [level])
    answer = table(folder, "--json")
    assert answer.json["levels"][0]["arrivals"]["ok"] == 4
    assert figures(answer)["done_per_s"] == pytest.approx(5 / 4)
    assert figures(answer)["sent_per_s"] == pytest.approx(1.0)
    assert [row["label"] for row in answer.json["warmup"]] == ["1/s"]
    shown = table(folder, "--width", "400").out
    assert "First request of the run (warm-up, chat, 1/s)" in shown


def test_saturated_levels(table: Any, tmp_path: Path) -> None:
    """The run cannot decide by a level that was given up because its queue grew, except in a search for the most."""
    rows = [arrival(i, float(i), float(i), i + 0.5) for i in range(4)]
    level = {"label": "1/s", "rate_per_s": 1.0, "duration_s": 4.0, "measured_started_s": 0.0, "scheduled": 4}
    level |= {"state": "saturated", "reason": "the queue grew"}
    folder = clocked_run(tmp_path / "run", rows, [level])
    answer = table(folder, "--check", "--width", "200")
    assert answer.code == 3
    assert "1/s: saturated: the queue grew" in answer.out
    search = {"load": {"open": {"requests_per_s": {"search": {"start": 1, "limit": 8}}}}}
    folder = clocked_run(tmp_path / "search", rows, [level], scenario=search)
    reasons = table(folder, "--json").json["credible"]["reasons"]
    assert not any("the level is saturated" in reason for reason in reasons)


def test_replayed_levels_have_no_rate_to_name(table: Any, tmp_path: Path) -> None:
    """A replay is called as the plan calls it; its scheduled time follows from its arrivals and their mean rate."""
    rows = [arrival(i, float(i), float(i), i + 0.5) for i in range(4)]
    level = {"label": "replay x2", "arrivals": None, "replayed": True, "measured_started_s": 0.0, "scheduled": 4}
    folder = clocked_run(tmp_path / "run", rows, [level | {"rate_per_s": 0.8}])
    answer = table(folder, "--json")
    assert [row["label"] for row in answer.json["levels"]] == ["replay x2"]
    assert figures(answer)["done_per_s"] == pytest.approx(0.8)  # 4 in 5 s


def test_levels_by_the_clock_in_locusts_statistics(table: Any) -> None:
    """Files of a real run at 2/s and 5/s for 8 s: 16 and 40 requests of 16 tokens, levels by their names."""
    prefix = Path(__file__).parent / "runs" / "open_loop" / "run"
    levels = table(prefix, "--json").json["levels"]
    assert [(row["label"], row["concurrency"], row["by_clock"]) for row in levels] == [
        ("2/s", None, True), ("5/s", None, True),
    ]  # fmt: skip
    assert [(row["requests"], row["failed"]) for row in levels] == [(16, 0), (40, 0)]
    assert [row["figures"]["tokens"]["value"] for row in levels] == [256, 640]
    document = table(prefix, "--json").json
    assert [(row["label"], row["requests"]) for row in document["warmup"]] == [("2/s", 4), ("5/s", 10)]
    shown = table(prefix, "--width", "200").out
    assert "closed loop" not in shown
    assert "Scaling" not in shown


@pytest.mark.parametrize(
    ("name", "level", "traffic", "what"),
    [
        ("long chat 1 to 2/s TTFT", "1 to 2/s", "long chat", "TTFT"),
        ("chat 2/s", "2/s", "chat", "requests"),
        ("chat 2/s #2 tokens", "2/s #2", "chat", "tokens"),
        ("1, 2.5/s window tokens", "1, 2.5/s", "", "window tokens"),
        ("chat replay x0.5 E2E", "replay x0.5", "chat", "E2E"),
        ("chat c=8 TTFT", "c=8", "chat", "TTFT"),
        ("a/s TTFT", None, "a/s", "TTFT"),
    ],
)
def test_names_in_locusts_statistics(name: str, level: str | None, traffic: str, what: str) -> None:
    """Level and class are told apart also where one level's name ends like another's."""
    from analysis.locust_csv import StatsRow
    from analysis.locust_names import RowNames

    def row(called: str) -> StatsRow:
        return StatsRow("LLM", called, 1, 0, is_total=False, cells={})

    walls = [row(f"{one} wall") for one in ("2/s", "1 to 2/s", "2/s #2", "1, 2.5/s", "replay x0.5", "c=8")]
    key, of_class, counted = RowNames([*walls, row(name)]).meaning(row(name))
    assert (None if key is None else key.label, of_class, counted) == (level, traffic, what)


def test_objectives_up_to_the_highest_rate(table: Any, tmp_path: Path) -> None:
    """Three rates, the last too slow: all objectives met up to the second, by its name."""
    rows = [
        arrival(i, 100.0 * level + i, 100.0 * level + i, 100.0 * level + i + wait, level=level)
        for level, wait in enumerate((0.1, 0.2, 3.0))
        for i in range(8)
    ]
    levels = [
        {"label": f"{rate}/s", "rate_per_s": rate, "duration_s": 8.0, "measured_started_s": 100.0 * i, "scheduled": 8}
        for i, rate in enumerate((1, 2, 4))
    ]
    scenario = {
        "traffic": [{"name": "chat", "objective": "quick"}],
        "objectives": {"quick": {"ttft_s": {"p50": 1.0}}},
    }
    shown = table(clocked_run(tmp_path / "run", rows, levels, scenario=scenario), "--width", "200").out
    assert "all objectives met up to 2/s" in shown
    assert "chat at 4/s: scheduled TTFT p50 3000 ms > 1000 ms" in shown


def test_levels_after_a_restart_are_named(table: Any, tmp_path: Path) -> None:
    """Levels of another epoch are in a note, and their scaling is marked as across a restart."""
    from tests.analysis.conftest import write_run

    rows = [
        RequestRecord(
            level=i, concurrency=users, phase="measured", ticket=0, session=f"{i}.measured.0", traffic="chat",
            sent_s=10.0 * i, first_token_s=10.0 * i + 0.5, last_token_s=10.0 * i + 1, finished_s=10.0 * i + 1,
            output_tokens=10 * users, token_source="usage",
        )
        for i, users in enumerate((4, 8, 16, 32))
    ]  # fmt: skip
    users = [{"concurrency": one} for one in (4, 8, 16, 32)]
    folder = write_run(tmp_path / "run", rows, levels=users)
    write_levels(folder, [one | {"epoch": epoch} for one, epoch in zip(users, (0, 0, 1, 1), strict=True)])
    shown = table(folder, "--width", "250").out
    assert "c=16 and up were measured after the server was started again: another epoch" in shown
    assert "‡  relative to a level from before the server was started again" in shown
    ratios = [line.split()[-2] for line in shown.splitlines() if "x " in line or "x‡" in line]
    assert ratios == ["1.00x", "2.00x", "4.00x‡", "8.00x‡"]
    assert [level["epoch"] for level in table(folder, "--json").json["levels"]] == [0, 0, 1, 1]
    write_levels(folder, [one | {"epoch": 2} for one in users])
    assert "epoch" not in table(folder, "--width", "250").out
    write_levels(folder, [one | {"epoch": epoch} for one, epoch in zip(users, (0, 1, 0, 0), strict=True)])
    notes = [note["text"] for note in table(folder, "--json").json["notes"] if note["key"] == "epoch"]
    assert [note.split(" measured")[0] for note in notes] == ["c=8 was"]  # a level in the middle was made up for later


def test_a_resumed_sweep_says_so(table: Any, tmp_path: Path) -> None:
    """The levels that were taken over are named, and where no engine tells, that it may have been started again."""
    from tests.analysis.conftest import write_run

    rows = [arrival(i, 0.0, 10.0 * i, 10.0 * i + 1, level=i, concurrency=i + 1) for i in range(3)]
    users = [{"concurrency": one} for one in (1, 2, 3)]
    folder = write_run(tmp_path / "run", rows, levels=users, resumed={"run": "monday", "levels": [0, 1]})
    write_levels(folder, [one | {"epoch": 0} for one in users])
    begin = "c=1, 2: taken over from the run monday, which ended early; the other levels were measured later"
    assert begin in table(folder, "--width", "250").out.splitlines()
    write_levels(folder, [one | {"epoch": epoch} for one, epoch in zip(users, (0, 0, None), strict=True)])
    assert (
        f"{begin}; whether the server was started again in between is not known" in table(folder, "--width", "400").out
    )
