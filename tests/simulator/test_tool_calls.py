"""Tool calls over real sockets: their chunks beside recorded ones, their arguments, their tokens, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from recorded import recorded, shape
from sim_process import Simulator, ask, events, figures, running_simulator

CHAT = "/v1/chat/completions"


def tool(name: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties), **more}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


CITIES = ["Paris", "Berlin", "New York"]
TOOLS = [
    tool("get_weather", {"city": {"type": "string", "enum": CITIES}, "celsius": {"type": "boolean"}}),
    tool("get_time", {"zone": {"type": "string", "enum": ["CET", "UTC"]}}),
]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def tool_ask(tool_choice: Any, *, max_tokens: int = 200, **more: Any) -> dict[str, Any]:
    body = ask(max_tokens, tools=TOOLS, tool_choice=tool_choice, stream_options={"include_usage": True})
    return {**body, "ignore_eos": False, **more}


def stream(simulator: Simulator, body: dict[str, Any]) -> list[Any]:
    status, _, raw = simulator.call("POST", CHAT, body)
    assert status == 200, raw
    return events(raw)


class Assembled:
    """What a client makes of a stream."""

    def __init__(self, chunks: list[Any]) -> None:
        self.content = ""
        self.calls: dict[int, dict[str, str]] = {}
        self.usage = chunks[-2]["usage"]
        for chunk in chunks[:-2]:
            (choice,) = chunk["choices"]
            self.finish_reason = choice["finish_reason"]
            self.content += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls", ()):
                call = self.calls.setdefault(part["index"], {"arguments": ""})
                call["arguments"] += part["function"].get("arguments", "")
                if "id" in part:
                    assert part["type"] == "function"
                    call |= {"id": part["id"], "name": part["function"]["name"]}

    @property
    def arguments(self) -> list[Any]:
        return [json.loads(call["arguments"]) for _, call in sorted(self.calls.items())]


ALWAYS = ("--speed", "10", "--set", "tool_call_share=1")
ONE, SEVERAL = ("--set", "parallel_call_share=0"), ("--set", "parallel_call_share=1")


@pytest.fixture(scope="module")
def caller(steady_preset: str) -> Iterator[Simulator]:
    """A model that always calls, one function at a time."""
    with running_simulator("--preset", steady_preset, "--truth", "tokens", *ALWAYS, *ONE) as simulator:
        yield simulator


@pytest.mark.parametrize(
    ("tool_choice", "name"), [("required", "c_tool_required_strict"), (NAMED, "c_tool_named_strict")]
)
def test_the_chunks_of_a_call_have_the_shape_vllm_sends(caller: Simulator, tool_choice: Any, name: str) -> None:
    """Role; id, type, index and name; arguments in fragments; an empty delta with the finish reason; usage."""
    chunks = stream(caller, tool_ask(tool_choice, parallel_tool_calls=False))
    assert shape(chunks) == shape(recorded(name))
    assert len(chunks) > 6, "the arguments come in several fragments"


@pytest.mark.parametrize(
    ("tool_choice", "reason"), [("required", "tool_calls"), ("auto", "tool_calls"), (NAMED, "stop")]
)
def test_a_complete_call_fits_its_schema(caller: Simulator, tool_choice: Any, reason: str) -> None:
    """For ten prompts; the named function is the one that is called, and its finish reason is another, as in vLLM."""
    for number in range(10):
        messages = [{"role": "user", "content": f"question {number}"}]
        got = Assembled(stream(caller, tool_ask(tool_choice, messages=messages)))
        assert got.finish_reason == reason
        assert got.content == ""
        (call,), (arguments,) = got.calls.values(), got.arguments
        if tool_choice == NAMED or call["name"] == "get_weather":
            assert call["name"] == "get_weather"
            assert arguments["city"] in CITIES
            assert isinstance(arguments["celsius"], bool)
        else:
            assert arguments["zone"] in ("CET", "UTC")


def test_every_token_of_a_call_is_counted_everywhere(caller: Simulator) -> None:
    """Chunks with a choice (but the role's), usage, the server's record, its stamps and its counter agree."""
    before = figures(caller)["vllm:generation_tokens_total"]
    chunks = stream(caller, tool_ask("required"))
    tokens = Assembled(chunks).usage["completion_tokens"]
    assert len(chunks) - 1 - 2 == tokens
    row = caller.truth()[-1]
    assert (row["output_tokens"], len(row["token_s"]), row["chunks"]) == (tokens, tokens, tokens - 1)
    assert (row["ended"], row["tool_calls"], row["malformed_calls"]) == ("tool_calls", 1, 0)
    assert row["first_token_s"] == row["token_s"][0]
    assert row["last_token_s"] == row["token_s"][-2] < row["token_s"][-1], "the end of the call shows nothing"
    assert figures(caller)["vllm:generation_tokens_total"] - before == tokens
    assert (row["planned_last_token_s"] - row["planned_first_token_s"]) * 10 == pytest.approx(0.010 * (tokens - 2))


def test_without_streaming_the_same_call_comes_in_one_message(caller: Simulator) -> None:
    """Content is empty where a call was forced, null where the model chose to, as in vLLM."""
    for tool_choice, content in (("required", ""), (NAMED, ""), ("auto", None)):
        streamed = Assembled(stream(caller, tool_ask(tool_choice)))
        body = tool_ask(tool_choice, stream=False)
        del body["stream_options"]
        answer = json.loads(caller.call("POST", CHAT, body)[2])
        (choice,) = answer["choices"]
        (call,) = choice["message"]["tool_calls"]
        assert choice["message"]["content"] == content
        assert choice["finish_reason"] == streamed.finish_reason
        assert call["type"] == "function"
        assert {"id": call["id"], **call["function"]} == streamed.calls[0]
        assert answer["usage"]["completion_tokens"] == streamed.usage["completion_tokens"]


def test_an_asked_length_is_kept_to_the_token(caller: Simulator) -> None:
    """ignore_eos: after the call the model goes on with words, where there is room; a call is cut off where not."""
    whole = Assembled(stream(caller, tool_ask("auto", max_tokens=100, ignore_eos=True)))
    assert (whole.finish_reason, whole.usage["completion_tokens"]) == ("length", 100)
    (call,) = whole.calls.values()
    assert json.loads(call["arguments"])
    natural = Assembled(stream(caller, tool_ask("auto"))).usage["completion_tokens"]
    assert len(whole.content.split()) == 100 - (natural - 1)  # words instead of the token that ends a call
    for ignore_eos in (True, False):
        cut = Assembled(stream(caller, tool_ask("auto", max_tokens=2, ignore_eos=ignore_eos)))
        assert (cut.finish_reason, cut.usage["completion_tokens"]) == ("length", 2)
        assert call["arguments"].startswith(cut.calls[0]["arguments"])
        with pytest.raises(json.JSONDecodeError):
            assert cut.arguments
        row = caller.truth()[-1]
        assert (row["tool_calls"], row["malformed_calls"], row["output_tokens"]) == (1, 1, 2)
    body = {**tool_ask("auto", max_tokens=2, stream=False)}
    del body["stream_options"]
    message = json.loads(caller.call("POST", CHAT, body)[2])["choices"][0]["message"]
    assert "tool_calls" not in message, "vLLM gives a call that is no JSON back as text"
    assert call["name"] in message["content"]


def test_min_tokens_holds_a_call_up(caller: Simulator) -> None:
    """Words follow until it may end; then it has still called."""
    got = Assembled(stream(caller, tool_ask("auto", min_tokens=60)))
    assert (got.finish_reason, got.usage["completion_tokens"]) == ("tool_calls", 60)
    assert len(got.calls) == 1
    assert got.content


def test_the_next_prompt_begins_with_prompt_and_call(caller: Simulator) -> None:
    """All blocks that the call's step filled are found in the next one: its tokens but the last have their keys."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "an agent's task " * 20}]
    first = Assembled(stream(caller, tool_ask("required", messages=messages)))
    (call,) = first.calls.values()
    function = {"name": call["name"], "arguments": call["arguments"]}
    messages.append({"role": "assistant", "tool_calls": [{"id": call["id"], "type": "function", "function": function}]})
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": "twenty words of result " * 5})
    second = Assembled(stream(caller, tool_ask("required", messages=messages)))
    computed = first.usage["prompt_tokens"] + first.usage["completion_tokens"] - 1
    assert second.usage["prompt_tokens_details"]["cached_tokens"] == computed // 16 * 16
    assert second.usage["prompt_tokens"] == computed + 1 + (4 + 20) + 3


def test_several_calls_at_once(start: Callable[..., Any]) -> None:
    """Two or three, with indexes from 0 on and ids of their own, one after the other; not where the request forbids."""
    with start(*ALWAYS, *SEVERAL) as simulator:
        got = Assembled(stream(simulator, tool_ask("auto")))
        assert list(got.calls) in ([0, 1], [0, 1, 2])
        assert len({call["id"] for call in got.calls.values()}) == len(got.calls)
        assert all(got.arguments)
        assert got.finish_reason == "tool_calls"
        assert simulator.truth()[-1]["tool_calls"] == len(got.calls)
        for body in (tool_ask("auto", parallel_tool_calls=False), tool_ask(NAMED)):
            assert list(Assembled(stream(simulator, body)).calls) == [0]


def test_malformed_arguments(start: Callable[..., Any]) -> None:
    """They are cut off, yet the answer ends as with any call; the server's record counts them."""
    with start(*ALWAYS, *ONE, "--set", "malformed_call_share=1") as simulator:
        got = Assembled(stream(simulator, tool_ask("auto")))
        with pytest.raises(json.JSONDecodeError):
            assert got.arguments
        assert got.finish_reason == "tool_calls"
        assert simulator.truth()[-1]["malformed_calls"] == 1


def test_fragments_can_be_several_tokens_long(start: Callable[..., Any]) -> None:
    """vLLM's stream interval: name and arguments can then share a chunk, and the text is the same."""
    with start(*ALWAYS) as one, start(*ALWAYS, "--tokens-per-chunk", "4") as four:
        single, grouped = stream(one, tool_ask("auto")), stream(four, tool_ask("auto"))
        assert Assembled(grouped).calls == Assembled(single).calls
        assert len(grouped) < len(single)


def test_none_and_no_tools_call_nothing(caller: Simulator) -> None:
    """With ``none`` the tools stand in the prompt and nothing is called, as in vLLM."""
    got = Assembled(stream(caller, tool_ask("none", max_tokens=8)))
    assert (got.calls, len(got.content.split())) == ({}, 8)
    with_tools = got.usage["prompt_tokens"]
    body = {key: value for key, value in tool_ask("none", max_tokens=8).items() if key not in ("tools", "tool_choice")}
    got = Assembled(stream(caller, body))
    assert (got.calls, got.usage["prompt_tokens"] < with_tools) == ({}, True)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "missing"}}}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice.function.name"),
        ({"tool_choice": "required", "tools": None}, "tool_choice"),
        ({"tool_choice": NAMED, "tools": None}, "tool_choice"),
        ({"tools": []}, "tools"),
        ({"tools": [{"type": "function"}]}, "body.tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "body.tools[0].function.name"),
        ({"messages": [{"role": "assistant", "tool_calls": ["call"]}]}, "tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]}, "tool_calls"),
    ],
)
def test_what_vllm_refuses_is_refused(caller: Simulator, change: dict[str, Any], param: str) -> None:
    """The unknown function as recorded from vLLM, the others by the rules of its validation."""
    status, _, raw = caller.call("POST", CHAT, {**tool_ask("auto"), **change})
    error = json.loads(raw)["error"]
    assert (status, error["code"], error["param"]) == (400, 400, param)


def test_the_history_of_an_agent_is_taken(caller: Simulator) -> None:
    """Results without an id and arguments that are no JSON are taken, as vLLM does: a conversation can go on."""
    call = {"id": "c1", "type": "function", "function": {"name": "get_time", "arguments": '{"zone": '}}
    messages = [
        {"role": "user", "content": "what time is it"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "that was no JSON"},
    ]
    assert Assembled(stream(caller, tool_ask("required", messages=messages))).calls
