"""Jobs of agents, worked out by hand: their durations, where the time goes, jobs per hour, and the cache by step."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.conftest import write_run
from tokenswarm.records import COLUMNS, RequestRecord

TRAFFIC = {"name": "agent", "kind": "agentic", "objective": "quick"}
QUICK = {"quick": {"ttft_s": {"p50": 0.2, "p95": 1.0}, "job_s": {"p50": 4.0, "p95": 8.0}, "failed": 0.5}}
SCENARIO = {"traffic": [TRAFFIC], "objectives": QUICK}


def request(session: str, turn: int, sent_s: float, finished_s: float, **facts: Any) -> RequestRecord:
    """A request whose first token comes 0.5 s after it was sent, and whose stream ends 0.1 s after the last one."""
    given: dict[str, Any] = {
        "level": 0, "concurrency": 2, "phase": "measured", "ticket": 0, "worker": "w0", "traffic": "agent",
        "session": session, "turn": turn, "sent_s": sent_s, "first_token_s": sent_s + 0.5,
        "last_token_s": finished_s - 0.1, "finished_s": finished_s, "prompt_tokens": 400, "history_tokens": 0,
        "output_tokens": 11, "token_source": "usage", "cached_tokens": 0,
    }  # fmt: skip
    return RequestRecord(**given | facts)


def first_job(**facts: Any) -> list[RequestRecord]:
    """7.1 s: two requests of 2 s each and a tool of 3 s between them, and so 0.1 s in the client."""
    return [
        request("A", 0, 0.0, 2.0, pause_s=5.0, **facts),  # a pause before the first send is no part of the job
        request("A", 1, 5.1, 7.1, pause_s=3.0, session_end="done", history_tokens=400, **facts),
    ]


def second_job() -> list[RequestRecord]:
    """9.2 s: requests of 3, 2 and 1 s, tools of 2 and 1 s, and so 0.2 s in the client. The step limit ended it."""
    return [
        request("B", 0, 1.0, 4.0),
        request("B", 1, 6.0, 8.0, pause_s=2.0, history_tokens=400),
        request("B", 2, 9.2, 10.2, pause_s=1.0, session_end="step_limit", history_tokens=400),
    ]


def others() -> list[RequestRecord]:
    """A job that failed in its second step, one that the end cut in its second step, and an unmeasured one."""
    failure = {"error_kind": "http_5xx", "first_token_s": None, "last_token_s": None, "output_tokens": None}
    cut = {"error_kind": "cancelled", "phase": "drain", "output_tokens": None}
    return [
        request("C", 0, 7.2, 7.8),
        request("C", 1, 8.0, 8.1, pause_s=0.2, **failure),
        request("D", 0, 8.2, 9.2),
        request("D", 1, 9.5, 10.5, pause_s=0.3, **cut),
        request("W", 0, -3.0, -1.0, phase="warmup", session_end="done"),
    ]


def run(folder: Path, *rows: RequestRecord, tail: str = "drain", **facts: Any) -> Path:
    scenario = facts.pop("scenario", SCENARIO)
    return write_run(folder, rows, levels=[{"concurrency": 2, "tail": tail}], scenario=scenario, **facts)


def values(document: Any) -> dict[str, float | None]:
    return {name: figure["value"] for name, figure in document["classes"][0]["figures"].items()}


def test_what_became_of_the_jobs(table: Any, tmp_path: Path) -> None:
    """One done, one at its step limit, one failed and one cut; the warm-up's is none of them."""
    document = table(run(tmp_path / "run", *first_job(), *second_job(), *others()), "--json").json
    assert document["classes"][0]["jobs"] | {"divergences": {}} == {
        "count": 4, "completed": 2, "states": {"done": 1, "step_limit": 1, "failed": 1, "cut": 1},
        "tool_calls": None, "malformed_calls": None, "divergences": {},
    }  # fmt: skip


def test_where_the_time_goes(table: Any, tmp_path: Path) -> None:
    """Means of 7.1 and 9.2 s, 4 and 6 s in the model, 3 and 3 s in tools, 0.1 and 0.2 s in the client."""
    found = values(table(run(tmp_path / "run", *first_job(), *second_job(), *others()), "--json").json)
    assert found["job_mean_s"] == pytest.approx(8.15)
    assert found["job_p50_s"] == pytest.approx(8.15)
    assert found["job_model_mean_s"] == pytest.approx(5.0)
    assert found["job_tools_mean_s"] == pytest.approx(3.0)
    assert found["job_client_mean_s"] == pytest.approx(0.15)
    assert found["steps_mean"] == 2.5
    assert found["job_queue_mean_s"] is None


def test_time_in_the_model_as_far_as_the_server_tells(table: Any, tmp_path: Path) -> None:
    """Sums over the requests of a job; a request that does not tell leaves its job blank, and half of them the mean."""
    told = {"server_queue_s": 0.1, "server_prefill_s": 0.3, "server_decode_s": 1.4}
    found = values(table(run(tmp_path / "told", *first_job(**told)), "--json").json)
    assert found["job_queue_mean_s"] == pytest.approx(0.2)
    assert found["job_prefill_mean_s"] == pytest.approx(0.6)
    assert found["job_decode_mean_s"] == pytest.approx(2.8)
    half = values(table(run(tmp_path / "half", *first_job(**told), *second_job()), "--json").json)
    assert half["job_queue_mean_s"] is None


def test_jobs_per_hour_with_a_drain(table: Any, tmp_path: Path) -> None:
    """Two measured jobs completed within 10.2 s; of them one kept to 8 s and TTFTs of 1 s."""
    found = values(table(run(tmp_path / "run", *first_job(), *second_job(), *others()), "--json").json)
    assert found["wall_s"] == pytest.approx(10.2)
    assert found["jobs_per_h"] == pytest.approx(2 * 3600 / 10.2)
    assert found["good_jobs_per_h"] == pytest.approx(1 * 3600 / 10.2)


def test_jobs_per_hour_with_fill(table: Any, tmp_path: Path) -> None:
    """A fill job from 8.2 to 12.2 s lies half in the window, as half of its tokens would; a cut one counts nothing."""
    fill = {"phase": "fill", "session_end": "done"}
    rows = [*first_job(), *second_job(), *others(), request("F", 0, 8.2, 12.2, **fill)]
    found = values(table(run(tmp_path / "run", *rows, tail="fill"), "--json").json)
    assert found["jobs_per_h"] == pytest.approx(2.5 * 3600 / 10.2)
    assert found["good_jobs_per_h"] == pytest.approx(1.5 * 3600 / 10.2)
    assert found["job_mean_s"] == pytest.approx(8.15)  # of the measured jobs


def test_a_job_that_ends_in_the_drain_is_measured_but_not_in_the_window(table: Any, tmp_path: Path) -> None:
    """It began in the measured time, so its duration counts; it was not completed in that time."""
    late = [request("E", 0, 9.0, 10.0), request("E", 1, 11.0, 12.0, pause_s=1.0, phase="drain", session_end="done")]
    found = values(table(run(tmp_path / "run", *first_job(), *second_job(), *late), "--json").json)
    assert found["job_mean_s"] == pytest.approx((7.1 + 9.2 + 3.0) / 3)
    assert found["jobs_per_h"] == pytest.approx(2 * 3600 / 10.2)


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, 1),
        ({"first_token_s": 1.01}, 0),  # TTFT of 1.01 s: over the largest of its limits
        ({"first_token_s": 0.99}, 1),  # over the median's limit of 0.2 s, as half of the requests may be
    ],
)
def test_a_job_meets_its_objective_with_all_requests(
    table: Any, tmp_path: Path, change: dict[str, Any], good: int
) -> None:
    """Every request and the job itself, each against the largest of the limits."""
    rows = first_job()
    for name, value in change.items():
        setattr(rows[0], name, value)
    found = values(table(run(tmp_path / "run", *rows), "--json").json)
    assert found["good_jobs_per_h"] == pytest.approx(good * 3600 / 7.1)


def test_without_limits_no_job_meets_them(table: Any, tmp_path: Path) -> None:
    """No objective, or one that only limits failures: blank, not all of them."""
    only_failed = {"traffic": [TRAFFIC], "objectives": {"quick": {"failed": 0.1}}}
    for name, scenario in (("failed", only_failed), ("none", {"traffic": [{"name": "agent", "kind": "agentic"}]})):
        found = values(table(run(tmp_path / name, *first_job(), scenario=scenario), "--json").json)
        assert found["good_jobs_per_h"] is None
        assert found["jobs_per_h"] == pytest.approx(3600 / 7.1)


def test_nothing_completed_is_no_rate(table: Any, tmp_path: Path) -> None:
    """Where every job failed, jobs per hour are blank, as tok/s are."""
    found = values(table(run(tmp_path / "run", *others()), "--json").json)
    assert (found["jobs_per_h"], found["job_mean_s"]) == (None, None)


def test_objective_on_the_time_of_a_job(table: Any, tmp_path: Path) -> None:
    """p50 of 8.15 s is over 4 s; the miss is told in seconds, with the exit code of a missed objective."""
    folder = run(tmp_path / "run", *first_job(), *second_job())
    answer = table(folder, "--check", "--width", "160")
    assert answer.code == 1
    assert "job time p50 8.15 s > 4 s" in answer.out
    assert "job time p95 ≤ 8 s" in answer.out
    checks = {check["metric"]: check for check in table(folder, "--json").json["objectives"][0]["checks"]}
    assert (checks["job_p50_s"]["value"], checks["job_p50_s"]["met"]) == (pytest.approx(8.15), False)
    assert checks["job_p95_s"]["no_bound"] is True


def test_failed_jobs_as_infinitely_late(table: Any, tmp_path: Path) -> None:
    """Two completed jobs and one failed: the median is the longer of the two, p95 infinite."""
    folder = run(tmp_path / "run", *first_job(), *second_job(), *others())
    figures = table(folder, "--json", "--failures-infinite").json["classes"][0]["figures"]
    assert figures["job_p50_s"]["value"] == pytest.approx(9.2)
    assert figures["job_p95_s"]["infinite"] is True


def test_tables_of_jobs_fit_a_terminal(table: Any, tmp_path: Path) -> None:
    """Counts, durations and parts of time within 100 columns, with a line for the jobs at their limit."""
    shown = table(run(tmp_path / "run", *first_job(), *second_job(), *others()), "--width", "100").out
    assert max(map(len, shown.splitlines())) <= 100
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "Jobs" in lines
    assert "2 4 1 1 1 1 8.15* 9.09* 8.15 2.50 705.9 352.9" in lines
    assert "2 8.15 5.00 3.00 0.150" in lines
    assert "agent: 1 of 4 jobs ended at their step limit, with tools still called" in lines
    text = table(run(tmp_path / "again", *first_job()), "--format", "markdown").out
    assert "### Where the time of a job goes" in text


def test_csv_has_the_jobs(table: Any, tmp_path: Path) -> None:
    """Columns for programs, with units in their names."""
    folder = run(tmp_path / "run", *first_job(), *second_job())
    (row,) = csv.DictReader(io.StringIO(table(folder, "--format", "csv").out))
    assert float(row["job_p50_s"]) == pytest.approx(8.15)
    assert float(row["jobs_per_h"]) == pytest.approx(2 * 3600 / 10.2, rel=1e-6)
    assert row["job_n"] == "2"
    assert "job_p50_s" in row["no_bound"].split()


def test_chats_of_several_turns_are_sessions(table: Any, tmp_path: Path) -> None:
    """A person thinks where an agent runs tools; chats of one turn have no such tables."""
    chat = {"traffic": [{"name": "agent", "kind": "chat"}]}
    shown = table(run(tmp_path / "chat", *first_job(), scenario=chat)).out
    assert "Sessions" in shown
    assert "thinking" in shown
    assert "Jobs" not in shown
    single = table(run(tmp_path / "one", request("A", 0, 0.0, 1.0, session_end="done"), scenario=chat)).out
    assert "Sessions" not in single


def test_runs_that_did_not_write_how_sessions_end(table: Any, tmp_path: Path) -> None:
    """An earlier run: what neither failed nor was cut was played to its end; its pauses are unknown."""
    folder = run(tmp_path / "run", *first_job(), *others(), scenario={"traffic": [{"name": "agent", "kind": "chat"}]})
    rows = list(csv.reader(io.StringIO((folder / "requests.csv").read_text())))
    new = ("session_end", "pause_s", "history_tokens", "tool_calls", "malformed_calls", "divergence")
    keep = [i for i, name in enumerate(COLUMNS) if name not in new]
    (folder / "requests.csv").write_text("\n".join(",".join(row[i] for i in keep) for row in rows) + "\n")
    document = table(folder, "--json").json
    assert document["classes"][0]["jobs"]["states"] == {"done": 1, "failed": 1, "cut": 1}
    found = values(document)
    assert found["job_model_mean_s"] == pytest.approx(4.0)
    assert found["job_tools_mean_s"] is None
    assert found["job_client_mean_s"] is None


@pytest.mark.parametrize(("ended", "state"), [(False, "unfinished"), (True, "cut")])
def test_a_job_that_the_run_left_between_two_steps(table: Any, tmp_path: Path, ended: bool, state: str) -> None:
    """Neither completed nor failed: the run died while a tool ran, or came to its end."""
    rows = [*first_job(), request("Z", 0, 3.0, 4.0)]
    document = table(run(tmp_path / "run", *rows, ended=ended), "--json").json
    assert document["classes"][0]["jobs"]["states"] == {"done": 1, state: 1}


def test_a_model_that_calls_no_tool_is_told(table: Any, tmp_path: Path) -> None:
    """Answers that were looked at and had no call; nothing is said where nobody looked."""
    looked = [request("A", 0, 0.0, 1.0, tool_calls=0, malformed_calls=0, session_end="done")]
    assert "agent: no answer called a tool" in table(run(tmp_path / "none", *looked)).out
    assert "called a tool" not in table(run(tmp_path / "unknown", *first_job())).out


def test_divergences_and_malformed_calls_are_counted(table: Any, tmp_path: Path) -> None:
    """3 of 5 answers differ from the recording, 1 of 4 calls was malformed; warm-up counts nothing."""
    kinds = ("same", "no_call", "other_tools", "same", "no_call")
    rows = first_job() + second_job()
    for row, kind in zip(rows, kinds, strict=True):
        row.divergence, row.tool_calls, row.malformed_calls = kind, 1 if kind != "no_call" else 0, 0
    rows[2].tool_calls, rows[2].malformed_calls = 2, 1
    rows.append(request("W", 0, -3.0, -1.0, phase="warmup", divergence="called", tool_calls=3, malformed_calls=3))
    folder = run(tmp_path / "run", *rows)
    jobs = table(folder, "--json").json["classes"][0]["jobs"]
    assert (jobs["tool_calls"], jobs["malformed_calls"]) == (4, 1)
    assert jobs["divergences"] == {"same": 2, "no_call": 2, "other_tools": 1}
    shown = " ".join(table(folder, "--width", "160").out.split())
    assert "agent: 1 of 4 tool calls were malformed" in shown
    assert (
        "agent: 3 of 5 answers differ from the recording that went on "
        "(2 without the recorded call, 1 with other tools)" in shown
    )


@pytest.mark.parametrize(
    ("traffic", "early"),
    [({"mode": "live"}, 0), ({"mode": "live", "ignore_eos": True}, 2), ({"mode": "replay"}, 2), ({}, 2)],
)
def test_live_agents_may_stop_when_they_like(table: Any, tmp_path: Path, traffic: dict[str, Any], early: int) -> None:
    """An answer shorter than the largest length is an early stop only where an exact length was asked for."""
    rows = first_job(finish_reason="stop", asked_output_tokens=100)
    scenario = {"traffic": [TRAFFIC | traffic]}
    level = table(run(tmp_path / "run", *rows, scenario=scenario), "--json").json["levels"][0]
    assert level["early_stopped"] == early


# by step and by length


def growing(folder: Path, users: tuple[int, ...] = (1,), **facts: Any) -> Path:
    """Jobs of 6 steps, one a level: the prompt grows by 100 tokens a step; of what was said before, the cache lacks 10
    tokens at the first level and 20 at the second."""
    rows = []
    for level, _ in enumerate(users):
        for step in range(6):
            sent = 100.0 * level + 10 * step
            cached = (100 * step - 10 * (level + 1)) if step else 0
            facts_of_step: dict[str, Any] = {
                "level": level, "concurrency": users[level], "prompt_tokens": 100 * (step + 1),
                "history_tokens": 100 * step, "cached_tokens": cached, "first_token_s": sent + 0.1 * (step + 1),
                "session_end": "done" if step == 5 else None,
            }  # fmt: skip
            rows.append(request(f"{level}", step, sent, sent + 2, **facts_of_step))
    levels = [{"concurrency": count} for count in users]
    return write_run(folder, rows, levels=levels, scenario={"traffic": [TRAFFIC]}, **facts)


def test_cached_against_eligible_tokens_by_step(table: Any, tmp_path: Path) -> None:
    """At step 3 of 300 tokens 200 were said before, of which 190 came from the cache."""
    steps = table(growing(tmp_path / "run"), "--json").json["steps"]
    assert [row["step"] for row in steps] == [1, 2, 3, 4, 5, 6]
    assert steps[2] == {
        "traffic": "agent", "level": 0, "label": "c=1", "step": 3, "requests": 1, "prompt_tokens_mean": 300.0,
        "eligible_tokens_mean": 200.0, "cached_tokens_mean": 190.0, "cached_share_of_eligible": 0.95,
    }  # fmt: skip
    assert steps[0]["cached_share_of_eligible"] is None  # nothing was eligible


def test_steps_are_read_in_groups_with_a_column_a_level(table: Any, tmp_path: Path) -> None:
    """Two levels: all together, then 90 and 80 of 100 at step 2; steps 5 and 6 are one row."""
    shown = table(growing(tmp_path / "run", (1, 4)), "--width", "100").out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    at = lines.index("Cached against eligible prompt tokens by step")
    rows = [line for line in lines[at : at + 14] if line[:1].isdigit()]
    assert rows == [
        "1 2 100 0 0",
        "2 2 200 100 85 85% 90% 80%",
        "3 2 300 200 185 92% 95% 90%",
        "4 2 400 300 285 95% 97% 93%",
        "5–8 4 550 450 435 97% 98% 96%",
    ]


def test_ttft_by_length_of_the_prompt(table: Any, tmp_path: Path) -> None:
    """Doublings of the length: 100, 200, 300 to 500, and 600 tokens; TTFT is 0.1 s for each 100."""
    folder = growing(tmp_path / "run", (1, 4))
    contexts = [row for row in table(folder, "--json").json["contexts"] if row["level"] == 0]
    found = [(row["prompt_tokens_low"], row["prompt_tokens_high"], row["ttft_p50_s"]["value"]) for row in contexts]
    assert found == [
        (64, 127, pytest.approx(0.1)), (128, 255, pytest.approx(0.2)), (256, 511, pytest.approx(0.4)),
        (512, 1023, pytest.approx(0.6)),
    ]  # fmt: skip
    assert [row["ttft_p50_s"]["n"] for row in contexts] == [1, 1, 3, 1]
    assert contexts[2]["cached_share"] == pytest.approx((190 + 290 + 390) / 1200)
    lines = [" ".join(line.split()) for line in table(folder, "--width", "100").out.splitlines()]
    assert "256–511 6 400* 490* 400* 490*" in lines


def test_lengths_that_are_alike_are_told_apart_in_round_steps(table: Any, tmp_path: Path) -> None:
    """6,600 to 9,100 tokens in steps of 500, the smallest that need six rows at most; a border belongs to the next."""
    lengths = (6600, 6999, 7000, 8400, 9100)
    rows = [request(f"{n}", 0, 10.0 * n, 10.0 * n + 1, prompt_tokens=length) for n, length in enumerate(lengths)]
    document = table(run(tmp_path / "run", *rows), "--json").json
    found = [
        (row["prompt_tokens_low"], row["prompt_tokens_high"], row["ttft_p50_s"]["n"]) for row in document["contexts"]
    ]
    assert found == [(6500, 6999, 2), (7000, 7499, 1), (8000, 8499, 1), (9000, 9499, 1)]


def test_a_server_that_tells_nothing_leaves_blanks(table: Any, tmp_path: Path) -> None:
    """Eligible tokens are the workload's; cached ones and their share are blank, never 0."""
    folder = growing(tmp_path / "run")
    text = (folder / "requests.csv").read_text()
    rows = list(csv.reader(io.StringIO(text)))
    for row in rows[1:]:
        row[COLUMNS.index("cached_tokens")] = ""
    (folder / "requests.csv").write_text("\n".join(",".join(row) for row in rows) + "\n")
    steps = table(folder, "--json").json["steps"]
    assert (steps[2]["eligible_tokens_mean"], steps[2]["cached_tokens_mean"]) == (200.0, None)
    assert steps[2]["cached_share_of_eligible"] is None
    assert "unknown: the answers do not tell their cached tokens" in table(folder, "--width", "120").out


def test_each_class_of_jobs_has_its_own(table: Any, tmp_path: Path) -> None:
    """An agent beside chats of one turn and of two: rows by class, and tables by step for the two with several."""
    rows = [*first_job(), request("Q", 0, 0.0, 1.0, traffic="single", session_end="done")]
    rows += [request("T", turn, 20.0 + turn, 20.5 + turn, traffic="talk", history_tokens=turn * 100) for turn in (0, 1)]
    rows[-1].session_end = "done"
    names = {"agent": "agentic", "single": "chat", "talk": "chat"}
    scenario = {"traffic": [{"name": name, "kind": kind} for name, kind in names.items()]}
    shown = table(run(tmp_path / "run", *rows, scenario=scenario), "--width", "100").out
    assert "by step: agent" in shown
    assert "by step: talk" in shown
    jobs = shown[shown.index("Jobs") : shown.index("Where the time")]
    assert "talk" in jobs
    assert "single" not in jobs


def test_json_stays_json(table: Any, tmp_path: Path) -> None:
    """A run without a single measured request has no jobs and no steps, and nothing that JSON lacks."""
    folder = run(tmp_path / "run", request("W", 0, -3.0, -1.0, phase="warmup"))
    document = table(folder, "--json").json
    assert document["steps"] == document["contexts"] == []
    assert json.dumps(document, allow_nan=False)
