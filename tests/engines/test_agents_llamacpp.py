"""Agents and the prefix-cache test with llama.cpp's real server, which ignores ``cache_salt``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engines import agents
from tests.engines import sweep as sweeps
from tests.engines.agents import TOOLS, firsts, ints, jobs_of
from tests.engines.conftest import AGENT_TEMPLATE, Engine, llamacpp_engine, wired_anew
from tests.engines.sweep import Sweep
from tests.engines.test_llamacpp import CACHED, head_tokens

pytestmark = pytest.mark.engine

COMPUTED = "llamacpp:prompt_tokens_total"  # without those from the cache
CHANCE_TOKENS = 6  # that two texts may begin alike by chance


def scenario(load: str, tools_first: bool) -> str:
    """Answers begin with no call: a short one would be cut off in it, and llama.cpp sends nothing of it then."""
    return f"""
target:
  request:
    chat_template_kwargs: {{tools_first: {str(tools_first).lower()}}}
    logit_bias: [["<tool_call>", false]]
traffic:
  - kind: agentic
    system_prompt: {{tokens: 120}}
    tools: {TOOLS}
    steps: 2
    task_tokens: 10
    argument_tokens: 2
    tool_result_tokens: 10
    tool_time_s: 0.05
    output_tokens: 12
prefix_cache: {{cold: session}}
load:
  closed: {{{load}, warmup_sessions: 2, tail: drain}}
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """With a chat template that shows tools, and short slots, so that the cache probe is quick."""
    options = ("--chat-template", str(AGENT_TEMPLATE), "--slot-tokens", "640")
    with llamacpp_engine(tmp_path_factory.mktemp("llamacpp"), *options) as one:
        yield one


@pytest.fixture(scope="module")
def paired(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Two pairs of replayed jobs with two users."""
    played = scenario("users: [2], sessions: 4", tools_first=False)
    return sweeps.play_sweep(engine, tmp_path_factory.mktemp("paired"), (COMPUTED, CACHED), played)


def test_replayed_jobs_are_done(paired: Sweep) -> None:
    """Four jobs of two model calls, none failed."""
    agents.assert_all_jobs_are_done(paired, {"2": 4})


def test_a_nonce_stands_in_for_the_salt(paired: Sweep) -> None:
    """The probe found the salt to be ignored; so all warm prompts begin with the same words and those of each cold
    session with words of its own, as many of them, and everything behind them is the same in both."""
    facts = run_facts(paired)
    assert (facts["isolation"]["by"], facts["isolation"]["cold"]) == ("nonce", "session")
    assert facts["cache_probe"]["salt"] == "ignored"
    assert facts["cache_probe"]["nonce_isolates"] is True
    agents.assert_pairs_have_the_same_text(paired, nonce=True)
    heads = defaultdict(set)
    for row in paired.run.rows:
        request = paired.exchanges[row["request_id"]].request
        assert "cache_salt" not in request
        heads[row["arm"] if row["arm"] == "warm" else row["session"]].add(request["messages"][0]["content"][:20])
    assert {len(own) for own in heads.values()} == {1}
    assert len({words for own in heads.values() for words in own}) == len(heads) >= 4


def test_cached_tokens_are_the_servers_own_count(paired: Sweep) -> None:
    """``prompt_tokens_cached_total`` and ``prompt_tokens_total`` gained just what the answers said, level by level."""
    computed, cached = paired.gained[COMPUTED], paired.gained[CACHED]
    agents.assert_totals_are_the_servers(paired, computed + cached, cached)


def test_each_request_finds_what_its_arm_may_find(paired: Sweep) -> None:
    """Cold sessions begin with nothing but the head of the chat template in the cache, warm ones with the shared
    prompt; the second step of either finds the first one's prompt."""
    assert_found(paired, shared_head(paired))


def test_every_level_is_confirmed(paired: Sweep) -> None:
    """As much came from the cache as the workload implies, the words of the nonce included."""
    agents.assert_cache_is_confirmed(paired)


def test_the_servers_durations_are_in_the_rows(paired: Sweep) -> None:
    """Prefill and decode of each request as ``timings`` told them; of a queue llama.cpp says nothing."""
    for row in paired.run.rows:
        told = paired.exchanges[row["request_id"]].last("timings")
        assert float(row["server_prefill_s"]) == pytest.approx(told["prompt_ms"] / 1e3, abs=1e-6)
        assert float(row["server_decode_s"]) == pytest.approx(told["predicted_ms"] / 1e3, abs=1e-6)
        assert row["server_queue_s"] == ""


def test_tools_before_the_system_text_stay_shared(paired: Sweep, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where a chat template writes the tools before the system text, no nonce comes before them. The run knows how many
    tokens that are, finds them shared by cold prompts too, and takes no level for contaminated."""
    played = scenario("users: [1], sessions: 2", tools_first=True)
    with wired_anew(paired.engine) as engine:
        sweep = sweeps.play_sweep(engine, tmp_path_factory.mktemp("first"), (), played)
    agents.assert_all_jobs_are_done(sweep, {"1": 2})
    head = shared_head(sweep)
    assert head > 50 > run_facts(paired)["template_prefix_tokens"]
    assert run_facts(sweep)["template_prefix_tokens"] == head
    assert min(ints(firsts(sweep.run.measured(), "cold"), "cached_tokens")) >= head
    assert_found(sweep, head)
    agents.assert_cache_is_confirmed(sweep)


def assert_found(sweep: Sweep, head: int) -> None:
    measured = sweep.run.measured()
    cold, warm = firsts(measured, "cold"), firsts(measured, "warm")
    assert len(cold) == len(warm) > 0
    assert max(ints(cold, "cached_tokens")) <= head + CHANCE_TOKENS
    for row in warm:
        assert 0 <= int(row["cached_tokens"]) - int(row["prefix_tokens"]) <= CHANCE_TOKENS
        assert int(row["prefix_tokens"]) > 120
    for job in jobs_of(measured).values():
        for row in job[1:]:
            assert abs(int(row["cached_tokens"]) - int(row["history_tokens"])) <= CHANCE_TOKENS


def run_facts(sweep: Sweep) -> dict[str, Any]:
    return dict(json.loads((sweep.run.folder / "run.json").read_text("utf-8")))


def shared_head(sweep: Sweep) -> int:
    """Leading tokens that two of the run's prompts have in common when their system texts differ."""
    request = next(iter(sweep.exchanges.values())).request
    return head_tokens(sweep.engine, "system", {name: request[name] for name in ("tools", "chat_template_kwargs")})
