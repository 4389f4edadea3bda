"""A chat sweep at 1, 2, 4 and 8 users against a real engine, and what must hold whichever engine it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.engines.conftest import Engine
from tests.engines.wire import Exchange
from tests.locust_process import ROOT, Run, run_locust

LOCUSTFILE = ROOT / "locustfiles" / "mixed.py"
SCENARIO = """
traffic:
  - {name: chat, input_tokens: {uniform: [60, 90]}, output_tokens: {uniform: [16, 24]}}
load:
  closed: {users: [1, 2, 4, 8], sessions: {per_user: 2, at_least: 4}, warmup_sessions: 1, tail: fill}
"""
MEASURED = {1: 4, 2: 4, 4: 8, 8: 16}  # sessions at each level: two a user, at least four


@dataclass
class Sweep:
    """A finished run with the engine's own account of it."""

    engine: Engine
    run: Run
    exchanges: dict[str, Exchange]  # by the server's id of the request
    gained: dict[str, float]  # what the run added to each counter of the engine


def play_sweep(engine: Engine, folder: Path, counters: tuple[str, ...], scenario: str = SCENARIO) -> Sweep:
    """One run through the wire; ``counters`` are read before and after it."""
    before = {name: engine.counter(name) for name in counters}
    run = run_locust(folder, "-H", engine.wire.url, scenario=scenario, timeout=300, locustfile=LOCUSTFILE)
    gained = {name: engine.counter(name) - count for name, count in before.items()}
    return Sweep(engine, run, {one.id: one for one in engine.wire.exchanges()}, gained)


def seconds(row: dict[str, str], start: str, end: str) -> float:
    return float(row[end]) - float(row[start])


def assert_table_without_failures(sweep: Sweep) -> None:
    """Every level has its exact number of requests, all good, and figures in every main column."""
    run = sweep.run
    assert run.good, run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    levels = run.table()["levels"]
    assert {level["concurrency"]: level["requests"] for level in levels} == MEASURED
    for level in levels:
        assert level["failed"] == 0
        for figure in ("output_tok_s", "ttft_p50_s", "ttft_p95_s", "tpot_p50_s", "e2e_p50_s"):
            assert level["figures"][figure]["value"] > 0, f"{figure} at {level['concurrency']}"


def assert_output_tokens_are_the_servers(sweep: Sweep, counter: str) -> None:
    """All rows together make the engine's own counter; each row has its stream's usage, and what was asked for."""
    rows = sweep.run.rows
    assert len(rows) == len(sweep.exchanges) > sum(MEASURED.values())
    assert sum(int(row["output_tokens"]) for row in rows) == sweep.gained[counter]
    for row in rows:
        usage = sweep.exchanges[row["request_id"]].last("usage")
        assert row["token_source"] == "usage"
        assert int(row["output_tokens"]) == usage["completion_tokens"] == int(row["asked_output_tokens"])


def assert_input_lengths_are_exact(sweep: Sweep) -> None:
    """Each prompt has the asked length in the server's tokens, chat template included."""
    measured = sweep.run.measured()
    assert len(measured) == sum(MEASURED.values())
    for row in measured:
        usage = sweep.exchanges[row["request_id"]].last("usage")
        assert int(row["prompt_tokens"]) == usage["prompt_tokens"] == int(row["asked_input_tokens"])
        assert 60 <= usage["prompt_tokens"] <= 90


def assert_prompts_are_fresh(sweep: Sweep) -> None:
    """No prompt of any level or phase was sent twice."""
    prompts = [json.dumps(one.request["messages"]) for one in sweep.exchanges.values()]
    assert len(prompts) > sum(MEASURED.values())
    assert len(set(prompts)) == len(prompts)
