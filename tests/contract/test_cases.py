"""Recorded habits of servers, through a real socket; each value is compared with what was worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gevent import joinall, spawn

from tests.contract.clients import send
from tests.contract.replay import Replay, recorded
from tokenswarm.client import Exchange
from tokenswarm.metrics import METRICS

CASES = Path(__file__).parent / "cases"
NAMES = sorted(folder.name for folder in CASES.glob("A*"))
KINDS = {"timeout": "idle_timeout", "connection": "reset", "http_503": "http_5xx"}  # names of the cases -> ours


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Exchange, dict[str, Any]]]:
    """All cases at once, each with the server's own record of it; the slowest takes 1.3 s."""
    answers = {f"/{name}/v1/chat/completions": recorded(CASES / name) for name in NAMES}
    with Replay(tmp_path_factory.mktemp("replay"), answers) as server:
        jobs = {name: spawn(send, f"{server.url}/{name}", idle_s=1.0) for name in NAMES}
        joinall(jobs.values(), timeout=30)
        log = {entry["path"].split("/")[1]: entry for entry in server.log()}
    assert sorted(log) == NAMES
    return {name: (job.value, log[name]) for name, job in jobs.items()}


def expected(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((CASES / name / "expected.json").read_text())
    return facts


def agrees(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and "any_of" in wanted:
        return any(agrees(got, choice) for choice in wanted["any_of"])
    return bool(got == wanted)


def test_there_are_all_27_cases() -> None:
    """None of the cases is lost on the way."""
    assert len(NAMES) == 27


@pytest.mark.parametrize("name", NAMES)
def test_outcome(name: str, results: dict[str, tuple[Exchange, dict[str, Any]]]) -> None:
    """Success or the right kind of failure, with the server's words."""
    exchange, facts = results[name][0], expected(name)
    kinds = facts["error_class"]
    choices = kinds["any_of"] if isinstance(kinds, dict) else [kinds]
    assert exchange.error_kind in [KINDS.get(kind, kind) for kind in choices]
    assert exchange.http_status == facts["http_status"]
    assert facts.get("error_message_contains", "") in (exchange.error or "")
    assert exchange.killed is None


@pytest.mark.parametrize("name", NAMES)
def test_content(name: str, results: dict[str, tuple[Exchange, dict[str, Any]]]) -> None:
    """Text, reasoning, tool calls, counts and finish as worked out; none of the values that real tools got wrong."""
    exchange, facts = results[name][0], expected(name)
    assert exchange.finish_reason == facts["finish_reason"]
    assert agrees(exchange.output_tokens, facts["output_tokens"])
    for fact in {"prompt_tokens", "reasoning_tokens", "text", "reasoning"} & facts.keys():
        assert getattr(exchange, fact) == facts[fact], fact
    if "tokens_source" in facts:
        assert agrees(exchange.token_source, facts["tokens_source"])
    if "tool_calls" in facts:
        calls = [{"id": c.id, "name": c.name, "arguments": json.loads(c.arguments)} for c in exchange.calls]
        assert calls == facts["tool_calls"]
        assert exchange.tool_calls == len(calls)
    if "tokens_per_chunk" in facts:
        assert exchange.per_event_tokens == facts["tokens_per_chunk"]
    for fact in {"output_tokens", "text", "reasoning"} & facts.get("wrong_values", {}).keys():
        wrong = facts["wrong_values"][fact]
        assert getattr(exchange, fact) not in (wrong if isinstance(wrong, list) else [wrong])


@pytest.mark.parametrize("name", NAMES)
def test_times(name: str, results: dict[str, tuple[Exchange, dict[str, Any]]]) -> None:
    """First and last token have the time at which the server wrote the event that holds them."""
    exchange, log = results[name]
    facts = expected(name)
    allowed_s = facts["tolerance_ms"] / 1000
    for fact, ms in (("first_token_s", facts["ttft_ms"]), ("last_token_s", facts["last_token_ms"])):
        stamp = getattr(exchange, fact)
        if ms is None:
            assert stamp is None, fact
            continue
        due_s = log["at_s"] + ms / 1000
        written_s = min((end_s for start_s, end_s in log["writes"] if end_s >= due_s), default=due_s)
        assert due_s - 0.001 <= stamp <= written_s + allowed_s, fact
    if "first_answer_token_ms" in facts:
        assert exchange.first_output_s is not None
        assert exchange.first_output_s - log["at_s"] >= facts["first_answer_token_ms"] / 1000 - 0.001
    if "retry_after_s" in facts:
        assert exchange.retry_after_s == facts["retry_after_s"]
    if "fails_at_ms" in facts:
        assert facts["fails_at_ms"] / 1000 <= exchange.finished_s - log["at_s"] + 0.01 < facts["fails_at_ms"] / 1000 + 2


@pytest.mark.parametrize("name", [name for name in NAMES if expected(name).get("tpot_ms") is not None])
def test_time_per_token(name: str, results: dict[str, tuple[Exchange, dict[str, Any]]]) -> None:
    """TPOT follows from the facts, within what the server's own writing was off."""
    exchange, log = results[name]
    facts = expected(name)
    tpot_s = METRICS["tpot_s"].of(exchange)
    assert tpot_s is not None
    late_s = max(
        end_s - log["at_s"] - segment["at_ms"] / 1000
        for (_, end_s), segment in zip(log["writes"], recorded(CASES / name)["segments"], strict=False)
    )
    allowed_s = (late_s + 0.01) / (exchange.output_tokens - 1)
    assert abs(tpot_s - facts["tpot_ms"] / 1000) <= allowed_s
    wrong = facts.get("wrong_values", {}).get("tpot_ms", [])
    for ms in wrong if isinstance(wrong, list) else [wrong]:
        assert abs(tpot_s * 1000 - ms) > 1


def test_single_arrival_has_no_time_per_token(results: dict[str, tuple[Exchange, dict[str, Any]]]) -> None:
    """Two tokens in one event came at one instant: TPOT is blank, not zero."""
    assert METRICS["tpot_s"].of(results["A36"][0]) is None
    assert results["A36"][0].reads == 1


def test_answer_without_usage_is_an_estimate(results: dict[str, tuple[Exchange, dict[str, Any]]]) -> None:
    """Chunks are counted and the count is marked as such."""
    assert results["A43"][0].token_source == "chunks"
    assert results["A43"][0].output_tokens == results["A43"][0].chunks == 3
