"""A prefix-cache test with replayed agents against a real engine, and what must hold whichever engine it is."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from tests.engines.conftest import HERE
from tests.engines.sweep import Sweep
from tests.engines.wire import Exchange
from tests.locust_process import ROOT

AGENTIC = ROOT / "locustfiles" / "agentic.py"
TOOLS = HERE / "agent_tools.yaml"

Rows = list[dict[str, str]]


def jobs_of(rows: Rows) -> dict[str, Rows]:
    """Requests of each session in order."""
    jobs = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row["turn"])):
        jobs[row["session"]].append(row)
    return jobs


def firsts(rows: Rows, arm: str) -> Rows:
    return [row for row in rows if row["turn"] == "0" and row["arm"] == arm]


def ints(rows: Rows, column: str) -> list[int]:
    return [int(row[column]) for row in rows]


def assert_all_jobs_are_done(sweep: Sweep, sessions: dict[str, int]) -> None:
    """Each level has its measured sessions, by concurrency; none failed and each was played to its end."""
    run = sweep.run
    assert run.good, run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    jobs = jobs_of(run.measured())
    assert Counter(job[0]["concurrency"] for job in jobs.values()) == sessions
    for job in jobs.values():
        assert [row["session_end"] for row in job] == [""] * (len(job) - 1) + ["done"]
    assert len(sweep.exchanges) == len(run.rows)


def assert_pairs_have_the_same_text(sweep: Sweep, *, nonce: bool) -> None:
    """In each pair one session is warm and one cold; both send the same words (but for a first paragraph where there is
    a ``nonce``), take as many steps and are answered with as many tokens."""
    pairs: dict[tuple[str, str], dict[str, Rows]] = defaultdict(dict)
    for job in jobs_of(sweep.run.measured()).values():
        pairs[job[0]["level"], job[0]["pair"]][job[0]["arm"]] = job
    assert len(pairs) >= 2
    for pair in pairs.values():
        assert set(pair) == {"warm", "cold"}
        for warm, cold in zip(pair["warm"], pair["cold"], strict=True):
            assert warm["prompt_tokens"] == cold["prompt_tokens"]
            assert warm["output_tokens"] == cold["output_tokens"] == warm["asked_output_tokens"]
            texts = [_contents(sweep.exchanges[row["request_id"]]) for row in (warm, cold)]
            if nonce:
                texts = [text.partition("\n\n")[2] for text in texts]
            assert texts[0] == texts[1] != ""


def _contents(exchange: Exchange) -> str:
    """All that a request says, without the ids of calls."""
    messages = exchange.request["messages"]
    calls = [[call["function"] for call in message.get("tool_calls", [])] for message in messages]
    return "\n".join([*(str(message["content"]) for message in messages), json.dumps(calls)])


def assert_totals_are_the_servers(sweep: Sweep, prompts: float, cached: float) -> None:
    """``prompts`` and ``cached`` are what the engine's counters gained from before the command to after it.

    The answers on the wire explain all of it, those to the questions before the load among them; the rows explain what
    was streamed; and each level's edges in ``engine.csv`` enclose exactly the level's rows.
    """
    asked = sweep.engine.wire.usages()
    assert prompts == sum(usage["prompt_tokens"] for usage in asked)
    assert cached == sum(_cached(usage) for usage in asked)
    rows, streamed = sweep.run.rows, [one.last("usage") for one in sweep.exchanges.values()]
    assert sum(ints(rows, "prompt_tokens")) == sum(usage["prompt_tokens"] for usage in streamed)
    assert sum(ints(rows, "cached_tokens")) == sum(map(_cached, streamed)) > 0
    for level in {row["level"] for row in rows}:
        own = [row for row in rows if row["level"] == level]
        edges = {row["edge"]: row for row in sweep.run.file("engine.csv") if row["level"] == level and row["edge"]}
        for column, sent in (("prompt_tokens", "prompt_tokens"), ("cached_prompt_tokens", "cached_tokens")):
            assert int(edges["end"][column]) - int(edges["start"][column]) == sum(ints(own, sent))


def _cached(usage: dict[str, Any]) -> int:
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def assert_cache_is_confirmed(sweep: Sweep) -> None:
    """No level is marked, and each level's share is that of the answers on the wire."""
    for level in sweep.run.table()["levels"]:
        cache = level["cache"]
        assert (cache["state"], cache["source"]) == ("confirmed", "usage")
        own = [row for row in sweep.run.measured() if row["level"] == str(level["level"])]
        usages = [sweep.exchanges[row["request_id"]].last("usage") for row in own]
        assert cache["measured"] == sum(map(_cached, usages)) / sum(usage["prompt_tokens"] for usage in usages)
