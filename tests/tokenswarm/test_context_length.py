"""A server whose context is too short for a scenario is told before any load, and one that may do is not refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from word_server import WordServer

from tokenswarm.cached_tokens import Prober, Reply
from tokenswarm.context_length import require_room, require_room_for_trace
from tokenswarm.counting import Server
from tokenswarm.errors import TargetError
from tokenswarm.prompts import survey_scenario
from tokenswarm.scenario import parse_scenario
from tokenswarm.trace import TraceSession, TraceTurn

AGENT = {"kind": "agentic", "name": "a", "system_prompt": {"tokens": 900}, "task_tokens": {"uniform": [50, 5000]}}
CHAT = {"name": "c", "input_tokens": {"uniform": [300, 9000]}, "output_tokens": {"uniform": [40, 90]}}


def sent_to(traffic: dict[str, Any], listed: dict[str, Any], reply: Reply | None = None) -> list[dict[str, Any]]:
    """The requests that a check of one class makes; raises where it is refused."""
    scenario = parse_scenario(json.dumps({"traffic": [traffic]}))
    words = WordServer("vllm", "usage")
    counter = survey_scenario(scenario, Server(words.post, "m"))
    sent: list[dict[str, Any]] = []

    def post(body: dict[str, Any]) -> Reply:
        sent.append(body)
        if reply is None:
            raise TargetError("http://h: no answer in time")
        return reply

    require_room(scenario.traffic, counter, listed, Prober(post, lambda url: (404, b""), "m"))
    return sent


def least(traffic: dict[str, Any]) -> int:
    """Tokens of the shortest first prompt and answer, by the smallest context that is not refused."""
    low, high = 1, 100_000
    while low < high:
        middle = (low + high) // 2
        try:
            sent_to(traffic, {"max_model_len": middle})
            high = middle
        except TargetError:
            low = middle + 1
    return low


def test_the_shortest_first_prompt_decides() -> None:
    """300 tokens in and 40 out for the chat; for the agent template, tools, 900 tokens, a task of 50 and an answer."""
    assert least(CHAT) == 300 + 40
    bare = least(AGENT | {"system_prompt": {"tokens": 1}, "task_tokens": 1, "output_tokens": 1})
    assert least(AGENT | {"output_tokens": 7}) == bare + 899 + 49 + 6


def test_the_line_tells_class_lengths_and_context() -> None:
    """One line with all that is needed to put it right."""
    with pytest.raises(TargetError) as told:
        sent_to(CHAT, {"max_model_len": 256})
    assert str(told.value) == (
        "traffic 'c': a first prompt has at least 300 tokens, its answer 40, but the server's context has 256 tokens; "
        "ask for less, or serve the model with a longer context"
    )


def test_an_answer_that_llamacpp_would_cut_is_not_refused() -> None:
    """Its context is told as n_ctx, and an answer ends there; a prompt that does not fit is refused all the same."""
    assert sent_to(CHAT, {"meta": {"n_ctx": 301}}) == []
    with pytest.raises(TargetError, match="300 tokens, its answer 1"):
        sent_to(CHAT, {"meta": {"n_ctx": 300}})


def test_prompts_of_unknown_length_are_left_to_the_load(tmp_path: Path) -> None:
    """Prompts of a file, and pictures."""
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "hello"}\n')
    for traffic in ({"prompts": {"file": str(file)}}, {"kind": "captioning"}):
        assert sent_to(traffic, {"max_model_len": 5}) == []


def test_a_context_that_is_not_told_is_tried_out() -> None:
    """One request of full length for one token, with tools; only a refusal of it ends the run before the load."""
    (body,) = sent_to(AGENT, {}, Reply(200, {}))
    system = body["messages"][0]["content"]
    assert WordServer().count(system) == 900
    assert (body["max_tokens"], body["stream"], body["tool_choice"], len(body["tools"]) > 0) == (1, False, "auto", True)
    for busy in (None, Reply(503, words="busy"), Reply(404, words="no such route")):
        assert len(sent_to(AGENT, {}, busy)) == 1
    with pytest.raises(TargetError, match=r"'a': .* system prompt of 900 tokens: it answered 400: too long"):
        sent_to(AGENT, {}, Reply(400, words="too long"))
    assert sent_to(CHAT, {}, Reply(400, words="too long")) == []


def test_sessions_of_a_trace_that_have_no_room_are_told() -> None:
    """By their last prompt and answer: 90 + 10, and 50 + 20 + 30 + 10; only where all are too long the run ends."""
    sessions = [
        TraceSession(0.0, (TraceTurn(90, 10),)),
        TraceSession(1.0, (TraceTurn(50, 20), TraceTurn(30, 11))),
    ]
    assert require_room_for_trace(sessions, {}) is None
    assert require_room_for_trace(sessions, {"max_model_len": 111}) is None
    for context in (110, 100):
        assert require_room_for_trace(sessions, {"max_model_len": context}) == (
            f"1 of 2 sessions of the trace are longer than the server's context of {context} tokens"
        )
    with pytest.raises(TargetError) as told:
        require_room_for_trace(sessions, {"max_model_len": 99})
    assert str(told.value) == (
        "load.replay: all 2 sessions are longer than the server's context of 99 tokens, the shortest has 100; filter "
        "by input_tokens, or serve the model with a longer context"
    )
