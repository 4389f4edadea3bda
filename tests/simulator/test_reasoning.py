"""Reasoning before an answer, over real sockets: its chunks and counts beside those recorded from vLLM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from recorded import recorded, shape, usages
from sim_process import Simulator, ask, events, running_simulator

CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"properties": {"at": {"type": "string"}}}}}]


@pytest.fixture(scope="module")
def thinker(steady_preset: str) -> Iterator[Simulator]:
    """A model that thinks for 1,000 tokens unless it is told a budget."""
    keys = ("--set", "reasoning={median: 1000, sigma: 0}", "--set", "parallel_call_share=0")
    with running_simulator("--preset", steady_preset, "--truth", "tokens", "--speed", "10", *keys) as simulator:
        yield simulator


def stream(simulator: Simulator, tokens: int, *, running: bool = False, **more: Any) -> list[Any]:
    options = {"include_usage": True, "continuous_usage_stats": running}
    status, _, raw = simulator.call("POST", CHAT, ask(tokens, stream_options=options, **more))
    assert status == 200, raw
    return events(raw)


def text(chunks: list[Any], field: str) -> str:
    return "".join(chunk["choices"][0]["delta"].get(field) or "" for chunk in chunks[:-2])


OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    ("name", "tokens", "more"),
    [
        ("d_reasoning_then_content", 16, {"thinking_token_budget": 6}),
        ("d_include_reasoning_false", 16, {"thinking_token_budget": 6, "include_reasoning": False}),
        ("d_reasoning_only", 16, {}),
        ("d_thinking_off", 16, OFF),
        ("d_reasoning_continuous_usage", 12, {"thinking_token_budget": 4, "running": True}),
    ],
)
def test_chunks_and_counts_are_those_recorded(thinker: Simulator, name: str, tokens: int, more: dict[str, Any]) -> None:
    """The same number of chunks in the same shape with the same counts: the token that ends reasoning has no chunk."""
    ours, theirs = stream(thinker, tokens, **more), recorded(name)
    assert shape(ours) == shape(theirs)
    assert len(ours) == len(theirs)
    assert usages(ours) == usages(theirs)
    row = thinker.truth()[-1]
    assert (row["output_tokens"], row["reasoning_tokens"]) == usages(theirs)[-1]
    assert row["chunks"] == len(theirs) - 3
    assert len(row["token_s"]) == tokens


def test_the_silence_of_hidden_reasoning_is_in_the_record(thinker: Simulator) -> None:
    """The role comes with the engine's first token, the first visible one 10 tokens of 10 ms later."""
    stream(thinker, 16, thinking_token_budget=10, include_reasoning=False)
    row = thinker.truth()[-1]
    assert (row["planned_first_token_s"] - row["arrival_s"]) * 10 == pytest.approx(0.110, abs=1e-5)
    assert row["role_s"] < row["first_token_begun_s"]
    assert row["token_s"][:11] == [row["first_token_s"]] * 11


def test_thoughts_are_words_of_their_own(thinker: Simulator) -> None:
    """Five words of reasoning, ten of content, neither beginning with a space; effort none switches them off."""
    chunks = stream(thinker, 16, thinking_token_budget=6)
    thoughts, content = text(chunks, "reasoning"), text(chunks, "content")
    assert (len(thoughts.split()), len(content.split())) == (5, 10)
    assert (thoughts, content) == (" ".join(thoughts.split()), " ".join(content.split()))
    assert text(stream(thinker, 10, reasoning_effort="none"), "content") == content


def test_without_streaming_the_message_has_both(thinker: Simulator) -> None:
    """As recorded: content, reasoning, and the count in completion_tokens_details; hidden reasoning is null."""
    chunks = stream(thinker, 16, thinking_token_budget=6)
    body = ask(16, stream=False, thinking_token_budget=6)
    answer = json.loads(thinker.call("POST", CHAT, body)[2])
    message = answer["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == (text(chunks, "reasoning"), text(chunks, "content"))
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}
    hidden = json.loads(thinker.call("POST", CHAT, {**body, "include_reasoning": False})[2])
    assert hidden["choices"][0]["message"] == {**message, "reasoning": None}


def test_a_call_can_follow_the_reasoning(thinker: Simulator) -> None:
    """As recorded from vLLM; the recorded call was cut off in white space that showed only with the next token."""
    chunks = stream(thinker, 200, thinking_token_budget=6, tools=TOOLS, tool_choice="required", ignore_eos=False)
    *ours, ours_end = shape(chunks)
    *theirs, theirs_end = shape(recorded("c_tool_after_reasoning"))
    assert ours == theirs
    assert (ours_end, theirs_end) == (({}, "tool_calls", True), ({}, "length", True))
    tokens, reasoning = usages(chunks)[-1]
    assert (tokens, reasoning) == (len(chunks) - 3 + 1, 5)


def test_reasoning_is_not_part_of_the_next_prompt(thinker: Simulator) -> None:
    """As in most chat templates: a history with it is as long as one without."""
    answer = {"role": "assistant", "content": "yes"}
    counts = []
    for reply in (answer, {**answer, "reasoning": "let me see"}):
        messages = [{"role": "user", "content": "hm"}, reply, {"role": "user", "content": "why"}]
        counts.append(json.loads(thinker.call("POST", "/tokenize", {"messages": messages})[2])["count"])
    assert counts[0] == counts[1] == 3 * (4 + 1) + 3


def test_the_field_can_have_the_name_of_other_servers(start: Callable[..., Any]) -> None:
    """``reasoning_content``; and where a preset has no reasoning, no usage speaks of it."""
    keys = ("--set", "reasoning={}", "--set", "reasoning_field=reasoning_content")
    with start("--speed", "10", *keys) as simulator:
        chunks = stream(simulator, 16, thinking_token_budget=6)
        assert text(chunks, "reasoning") == ""
        assert len(text(chunks, "reasoning_content").split()) == 5
    with start("--speed", "10") as simulator:
        chunks = stream(simulator, 16, thinking_token_budget=6)
        assert len(text(chunks, "content").split()) == 16
        assert "completion_tokens_details" not in chunks[-2]["usage"]


def test_natural_ends_count_reasoning_and_answer(thinker: Simulator) -> None:
    """Thinking off and on by 10 tokens: the same answer, 9 words of reasoning and their end longer."""
    off = stream(thinker, 3000, ignore_eos=False, **OFF)
    on = stream(thinker, 3000, ignore_eos=False, thinking_token_budget=10)
    assert text(on, "content") == text(off, "content")
    assert usages(on)[-1] == (usages(off)[-1][0] + 10, 9)
    assert on[-3]["choices"][0]["finish_reason"] == "stop"
