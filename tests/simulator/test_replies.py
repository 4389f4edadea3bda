"""What a simulated model makes of a request, without sockets."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_process import STEADY
from test_settings_file import load

from simulator import tokenizer
from simulator.api import Ask, make_ask, read_draft
from simulator.arguments import arguments_text
from simulator.replies import Replies
from simulator.settings import Settings
from simulator.vocabulary import WORDS

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 40},
        "limit": {"type": "integer", "minimum": 1, "maximum": 9},
        "ratio": {"type": "number", "minimum": -1, "maximum": 1},
        "exact": {"type": "boolean"},
        "order": {"enum": ["up", "down"]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
        "range": {
            "type": "object",
            "properties": {"from": {"type": ["integer", "null"]}, "to": {"$ref": "#/$defs/day"}},
            "required": ["from", "to"],
        },
        "note": {"type": "string"},
        "node": {"$ref": "#/$defs/node"},
    },
    "required": ["query", "limit", "ratio", "exact", "order", "tags", "range"],
    "$defs": {
        "day": {"anyOf": [{"const": "today"}, {"type": "integer", "minimum": 100}]},
        "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "name": {"type": "string"}}},
    },
}


def fits(value: Any) -> bool:
    """SCHEMA, written out by hand."""
    assert set(SCHEMA["required"]) <= set(value) <= set(SCHEMA["properties"])
    assert len(value["query"]) <= 40
    assert set(value["query"].split()[:-1]) <= set(WORDS)
    assert type(value["limit"]) is int
    assert 1 <= value["limit"] <= 9
    assert -1 <= value["ratio"] <= 1
    assert isinstance(value["exact"], bool)
    assert value["order"] in ("up", "down")
    assert 2 <= len(value["tags"]) <= 3
    assert all(isinstance(tag, str) for tag in value["tags"])
    assert set(value["range"]) == {"from", "to"}
    assert type(value["range"]["from"]) is int
    assert value["range"]["to"] == "today" or value["range"]["to"] >= 100
    node = value.get("node", {})
    while node:
        assert set(node) <= {"next", "name"}
        node = node.get("next", {})
    return True


def test_arguments_fit_their_schema() -> None:
    """Nested, with references to itself; optional properties are given sometimes and required ones always."""
    made = [json.loads(arguments_text(SCHEMA, random.Random(seed))) for seed in range(200)]
    assert all(map(fits, made))
    assert 60 < sum("note" in each for each in made) < 140
    assert {each["order"] for each in made} == {"up", "down"}


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "string"}, {"properties": {}}])
def test_a_function_without_parameters_gets_an_empty_object(schema: dict[str, Any]) -> None:
    """Arguments are always an object."""
    assert arguments_text(schema, random.Random(1)) == "{}"


@given(st.text(max_size=200))
def test_pieces_are_what_the_tokens_stand_for(text: str) -> None:
    """Of any text: one piece a token, and together the text but for white space at its end."""
    pieces = tokenizer.pieces(text)
    assert "".join(pieces) == text.rstrip()
    assert len(pieces) == len(tokenizer.encode(text))


def asked(prompt: str, settings: Settings, **more: Any) -> Ask:
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    body = {"messages": [{"role": "user", "content": prompt}], "tools": tools, "max_tokens": 500, **more}
    return make_ask(read_draft("chat", msgspec.json.encode(body), settings), [], settings)


@pytest.fixture
def settings(tmp_path: Any) -> Any:
    """Makes settings with further keys."""

    def make(keys: str = "") -> Any:
        return load(tmp_path, f"{STEADY}\n{keys}\n")

    return make


def test_how_often_a_model_calls_is_a_share_of_prompts(settings: Any) -> None:
    """0.8 and, of these, 0.25 with several calls; in 600 prompts within 3.5 standard deviations; the same again."""
    chosen = settings("parallel_call_share: 0.25")
    made = [len(Replies(chosen, 1).reply(asked(f"task {n}", chosen)).calls) for n in range(600)]
    assert made == [len(Replies(chosen, 1).reply(asked(f"task {n}", chosen)).calls) for n in range(600)]
    calling = [calls for calls in made if calls]
    assert abs(len(calling) - 480) < 3.5 * (600 * 0.8 * 0.2) ** 0.5
    assert abs(sum(calls > 1 for calls in calling) - 0.25 * len(calling)) < 3.5 * (480 * 0.25 * 0.75) ** 0.5
    assert max(made) <= 3


def test_a_job_ends_also_if_the_model_always_calls(settings: Any) -> None:
    """After so many results since the user last spoke it answers, unless the request forces it to call."""
    chosen = settings("tool_call_share: 1\ntool_results_limit: 3")
    history = [{"role": "user", "content": "go"}]
    for results in range(5):
        replies = {
            choice: Replies(chosen, 1).reply(asked("", chosen, messages=history, tool_choice=choice))
            for choice in ("auto", "required")
        }
        assert bool(replies["auto"].calls) == (results < 3)
        assert replies["required"].calls
        history += [{"role": "assistant", "content": "one moment"}, {"role": "tool", "content": "result"}]
    again = asked("", chosen, messages=[*history, {"role": "user", "content": "and now"}])
    assert Replies(chosen, 1).reply(again).calls


def test_words_are_the_same_with_and_without_the_machinery_for_calls(settings: Any) -> None:
    """A model that never calls says to a request with tools what ``tool_choice: none`` gets."""
    chosen = settings("tool_call_share: 0")
    auto, none = (Replies(chosen, 1).reply(asked("go", chosen, tool_choice=choice)) for choice in ("auto", "none"))
    assert auto.tokens == none.tokens
    assert (auto.finish_reason, auto.calls) == (none.finish_reason, [])
