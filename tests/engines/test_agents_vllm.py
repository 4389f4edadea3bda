"""Agents and the prefix-cache test with real vLLM on the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.engines import agents
from tests.engines import sweep as sweeps
from tests.engines.agents import AGENTIC, TOOLS, firsts, ints, jobs_of
from tests.engines.conftest import Engine, wired_anew
from tests.engines.sweep import Sweep
from tests.engines.wire import Exchange
from tests.locust_process import Run

pytestmark = pytest.mark.engine

BLOCK = 32
QUERIES = "vllm:prefix_cache_queries_total"
HITS = "vllm:prefix_cache_hits_total"
SCENARIO = f"""
traffic:
  - kind: agentic
    system_prompt: {{tokens: 800}}
    tools: {TOOLS}
    steps: {{uniform: [2, 4]}}
    task_tokens: 20
    argument_tokens: 4
    tool_result_tokens: 20
    tool_time_s: 0.05
    output_tokens: 8
prefix_cache: {{cold: session}}
load:
  closed: {{users: [1, 4], sessions: 12, warmup_sessions: 2, tail: drain}}
"""


@pytest.fixture(scope="module")
def paired(vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """Six pairs of replayed jobs with one user and with four."""
    with wired_anew(vllm) as engine:
        yield sweeps.play_sweep(engine, tmp_path_factory.mktemp("paired"), (QUERIES, HITS), SCENARIO)


def test_replayed_jobs_are_done(paired: Sweep) -> None:
    """Twelve jobs of two to four model calls a level, none failed."""
    agents.assert_all_jobs_are_done(paired, {"1": 12, "4": 12})
    assert {len(job) for job in jobs_of(paired.run.measured()).values()} == {2, 3, 4}


def test_arms_differ_in_the_salt_alone(paired: Sweep) -> None:
    """All warm requests have one salt, each cold session one of its own; the words are the same in both."""
    agents.assert_pairs_have_the_same_text(paired, nonce=False)
    facts = json.loads((paired.run.folder / "run.json").read_text("utf-8"))
    assert (facts["isolation"]["by"], facts["isolation"]["cold"]) == ("salt", "session")
    probe = facts["cache_probe"]
    assert (probe["state"], probe["block_tokens"], probe["salt"]) == ("on", BLOCK, "isolates")
    salts = {
        session: {paired.exchanges[row["request_id"]].request["cache_salt"] for row in job}
        for session, job in jobs_of(paired.run.rows).items()
    }
    assert all(len(used) == 1 for used in salts.values())
    cold = {row["session"] for row in paired.run.rows if row["arm"] == "cold"}
    (warm,) = {salt for session, used in salts.items() if session not in cold for salt in used}
    assert len({salt for session in cold for salt in salts[session]} - {warm}) == len(cold)


def test_cached_tokens_are_the_servers_own_count(paired: Sweep) -> None:
    """``prefix_cache_queries_total`` and ``prefix_cache_hits_total`` gained what the answers said, level by level."""
    agents.assert_totals_are_the_servers(paired, paired.gained[QUERIES], paired.gained[HITS])


def test_each_request_finds_the_blocks_that_its_arm_may_find(paired: Sweep) -> None:
    """A cold session's first request finds nothing, a warm one's the whole blocks of the shared prompt, to the token;
    every further step of either finds its own session's last prompt."""
    measured = paired.run.measured()
    cold, warm = firsts(measured, "cold"), firsts(measured, "warm")
    assert len(cold) == len(warm) == 12
    assert set(ints(cold, "cached_tokens")) == {0}
    assert ints(warm, "cached_tokens") == [tokens // BLOCK * BLOCK for tokens in ints(warm, "prefix_tokens")]
    assert min(ints(warm, "prefix_tokens")) > 800
    for job in jobs_of(measured).values():
        for before, row in pairwise(job):
            missing = int(before["prompt_tokens"]) - int(row["cached_tokens"])
            # whole blocks; one more where the model's own answer begins as the replayed one does, and one less where
            # the end of the prompt was read as another token with the text behind it
            assert -BLOCK < missing <= BLOCK


def test_every_level_is_confirmed(paired: Sweep) -> None:
    """As much came from the cache as the workload implies; no mark, no failed objective."""
    agents.assert_cache_is_confirmed(paired)


def test_the_servers_durations_are_in_the_rows(paired: Sweep) -> None:
    """Queue, prefill and decode of each request as vLLM told them; together they fit into what the client saw."""
    for row in paired.run.rows:
        told = paired.exchanges[row["request_id"]].last("metrics")
        names = ("queue_time_ms", "time_to_first_token_ms", "generation_time_ms")
        theirs_s = [told[name] / 1e3 for name in names]
        ours_s = [float(row[column]) for column in ("server_queue_s", "server_prefill_s", "server_decode_s")]
        assert ours_s == pytest.approx(theirs_s, abs=1e-6)
        assert sum(theirs_s[:2]) < sweeps.seconds(row, "sent_s", "first_token_s") + 0.002
        assert sum(theirs_s) < sweeps.seconds(row, "sent_s", "last_token_s") + 0.002


# live -------------------------------------------------------------------------------------


def live_scenario(folder: Path, choice: str, strict: bool) -> str:
    tools = folder / "tools.yaml"
    text = TOOLS.read_text("utf-8")
    tools.write_text(text if strict else text.replace("strict: true", "strict: false"), encoding="utf-8")
    return f"""
traffic:
  - kind: agentic
    mode: live
    system_prompt: {{tokens: 200}}
    tools: {tools}
    tool_choice: {choice}
    steps: 3
    task_tokens: 20
    tool_result_tokens: 20
    tool_time_s: 0.02
    output_tokens: 400
load:
  closed: {{users: [2], sessions: 4, tail: drain}}
"""


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "free"])
@pytest.mark.parametrize("choice", ["required", "look_up"])
def test_live_jobs_with_forced_calls_are_done(
    vllm: Engine, locust: Callable[..., Run], tmp_path: Path, choice: str, strict: bool
) -> None:
    """Each step but the last calls the tool, as put together here from the wire, and the model gets back its own calls
    and a result for each. Calls that no tool could run are counted and told to the model, and the job goes on; the
    engine lets none of them pass whole where the tool is ``strict``."""
    with wired_anew(vllm) as engine:
        run = locust("-H", engine.wire.url, scenario=live_scenario(tmp_path, choice, strict), locustfile=AGENTIC)
        exchanges = {one.id: one for one in engine.wire.exchanges()}
    assert run.good, run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    jobs = jobs_of(run.measured())
    assert [len(job) for job in jobs.values()] == [3] * 4
    good, bad = 0, 0
    for job in jobs.values():
        assert [row["session_end"] for row in job] == ["", "", "done"]
        assert job[-1]["tool_calls"] == "0"
        for row, after in pairwise(job):
            calls = assembled(exchanges[row["request_id"]])
            wrong = [not valid(call) for call in calls]
            assert int(row["tool_calls"]) == len(calls) > 0
            assert int(row["malformed_calls"]) == sum(wrong)
            if strict and row["finish_reason"] != "length":
                assert not any(wrong)
            good, bad = good + wrong.count(False), bad + wrong.count(True)
            messages = exchanges[after["request_id"]].request["messages"]
            assert_told(messages[-1 - len(calls) :], calls, wrong)
    assert good > 0 if strict else bad > 0


def assembled(exchange: Exchange) -> list[dict[str, str]]:
    """Calls of an answer by their index."""
    calls: dict[int, dict[str, str]] = {}
    for event in exchange.events:
        for choice in event["choices"]:
            for part in choice["delta"].get("tool_calls") or []:
                call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += part.get("id") or ""
                call["name"] += part["function"].get("name") or ""
                call["arguments"] += part["function"].get("arguments") or ""
    return [calls[index] for index in sorted(calls)]


def valid(call: dict[str, str]) -> bool:
    """Whether the tool could be run with these arguments."""
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        return False
    match arguments:
        case {"topic": "billing" | "delivery" | "returns", "newest": bool()}:
            return len(arguments) == 2 and call["name"] == "look_up"
        case _:
            return False


def assert_told(messages: list[dict[str, Any]], calls: list[dict[str, str]], wrong: list[bool]) -> None:
    """The last messages are the model's own calls and an answer to each."""
    said, *results = messages
    assert [call["function"]["name"] for call in said["tool_calls"]] == [call["name"] for call in calls]
    for call, result, sent, malformed in zip(calls, results, said["tool_calls"], wrong, strict=True):
        assert result["role"] == "tool"
        assert result["tool_call_id"] == sent["id"] == call["id"]
        assert result["content"].startswith("Error: ") == malformed
        assert isinstance(json.loads(sent["function"]["arguments"]), dict)
        assert malformed or sent["function"]["arguments"] == call["arguments"]
