"""Token events, usage, tool calls, finish and errors in the dialects of many servers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tokenswarm.failures import answer_failure
from tokenswarm.protocols import AnswerDecoder, chat_body, completion_body


def decode(*events: Any) -> AnswerDecoder:
    answer = AnswerDecoder("chat")
    for number, event in enumerate(events):
        payload = event if isinstance(event, bytes) else json.dumps(event).encode()
        answer.add([(float(number), payload)])
    return answer


def delta(finish: Any = None, **fields: Any) -> dict[str, Any]:
    return {"id": "r1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(**fields: Any) -> dict[str, Any]:
    return delta(tool_calls=[fields])


def calls(answer: AnswerDecoder) -> list[tuple[str | None, str, str]]:
    return [(one.id, one.name, one.arguments) for one in answer.tool_calls]


@pytest.mark.parametrize(
    "event",
    [
        delta(role="assistant", content=""),
        delta(role="assistant", content=None, reasoning_content=None),
        delta(role="assistant"),
        delta(finish="stop"),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 0}},
        {"choices": [], "prompt_filter_results": []},
        {"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]},
        {"choices": [{"delta": {}, "finish_reason": ""}], "prompt_progress": {"total": 9, "processed": 4}},
        {"choices": None},
        call(index=0, id="c", type="function"),
        call(index=0, function={"name": None, "arguments": ""}),
        b"{}",
    ],
)
def test_no_token_events(event: Any) -> None:
    """Role-only, empty, usage-only, progress and filter chunks do not start the clock, and do no harm."""
    answer = decode(event)
    assert answer.token_times == []
    assert answer.first_output_s is None
    assert (answer.error, answer.malformed) == (None, None)


@pytest.mark.parametrize(
    ("event", "text", "reasoning"),
    [
        (delta(content="a"), "a", ""),
        (delta(reasoning="r"), "", "r"),
        (delta(reasoning_content="r"), "", "r"),
        (delta(reasoning="r", reasoning_content="r"), "", "r"),
        (delta(content="a", reasoning="r"), "a", "r"),
        (delta(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "ab", ""),
        ({"choices": [{"index": 0, "text": "a", "finish_reason": None}]}, "a", ""),
        (call(index=0, function={"name": "f"}), "", ""),
        (call(index=0, function={"arguments": "{"}), "", ""),
        (delta(tool_calls={"index": 0, "function": {"name": "f", "arguments": {"x": 1}}}), "", ""),
    ],
)
def test_token_events(event: Any, text: str, reasoning: str) -> None:
    """Text, reasoning and pieces of tool calls each count once, whatever the field or form."""
    answer = decode(delta(content=""), event)
    assert answer.token_times == [1.0]
    assert (answer.text, answer.reasoning) == (text, reasoning)
    assert answer.first_output_s == (None if reasoning and not text else 1.0)


def test_first_output_is_the_first_that_is_not_reasoning() -> None:
    """TTFO starts at the answer."""
    answer = decode(delta(reasoning="a"), delta(reasoning="b"), delta(content="c"), delta(content="d"))
    assert (answer.token_times, answer.first_output_s) == ([0.0, 1.0, 2.0, 3.0], 2.0)


def test_pieces_of_calls_by_index() -> None:
    """Interleaved pieces go to the call of their index; id and name may be null afterwards."""
    answer = decode(
        call(index=0, id="a", function={"name": "f", "arguments": ""}),
        call(index=2, id="b", function={"name": "g", "arguments": '{"y"'}),
        call(index=0, id=None, type=None, function={"name": None, "arguments": '{"x":1}'}),
        call(index=2, function={"arguments": ":2}"}),
    )
    assert calls(answer) == [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]


@pytest.mark.parametrize("index", [{}, {"index": 0}, {"index": None}])
@pytest.mark.parametrize("ids", [("a", "b"), (None, None)])
def test_whole_calls_without_a_useful_index(index: dict[str, Any], ids: tuple[str | None, str | None]) -> None:
    """A complete call a chunk stays a call of its own where the index is missing or always 0."""
    answer = decode(
        call(**index, id=ids[0], function={"name": "f", "arguments": '{"x":1}'}),
        call(**index, id=ids[1], function={"name": "f", "arguments": '{"x":2}'}),
    )
    assert calls(answer) == [(ids[0], "f", '{"x":1}'), (ids[1], "f", '{"x":2}')]


def test_id_and_name_repeated_with_every_piece() -> None:
    """The same call goes on; the name is not joined to itself."""
    answer = decode(
        call(index=0, id="a", function={"name": "f", "arguments": '{"x'}),
        call(index=0, id="a", function={"name": "f", "arguments": '":1}'}),
    )
    assert calls(answer) == [("a", "f", '{"x":1}')]


def test_a_name_repeated_with_every_piece_of_long_arguments() -> None:
    """Twenty pieces with the same name are one call, until an object is whole: then the next one is another call."""
    pieces = ['{"text": "', *["word } "] * 20, '"}']
    answer = decode(*[call(index=0, function={"name": "write", "arguments": piece}) for piece in [*pieces, *pieces]])
    assert calls(answer) == [(None, "write", "".join(pieces))] * 2


def test_long_arguments_and_many_calls_take_time_in_proportion_to_their_length() -> None:
    """Four megabytes in 200,000 pieces, and 20,000 calls in one answer, hold the other users up for seconds at most."""
    event = json.dumps(call(index=0, function={"arguments": "x" * 20})).encode()
    answer = decode(call(index=0, id="a", function={"name": "write", "arguments": ""}))
    started = time.process_time()
    answer.add([(1.0, event)] * 200_000)
    many = decode(delta(tool_calls=[{"index": i, "function": {"name": "f", "arguments": "{}"}} for i in range(20_000)]))
    assert time.process_time() - started < 20
    assert [(one.name, len(one.arguments)) for one in answer.tool_calls] == [("write", 4_000_000)]
    assert len(many.tool_calls) == 20_000


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"a":' * 50_000])
def test_arguments_nested_without_end_are_kept_as_they_are(arguments: str) -> None:
    """They are the model's mistake, to be counted; they do not stop the client."""
    piece = {"name": "f", "arguments": arguments}
    assert calls(decode(call(index=0, function=piece), call(index=0, function={"name": "f", "arguments": "]"}))) == [
        (None, "f", arguments + "]")
    ]


def test_an_event_nested_without_end_is_the_servers_mistake() -> None:
    """It is malformed, not a failure of this client, and what came before it counts."""
    answer = decode(delta(content="a"), b'{"id": "r1", "more": ' + b"[" * 100_000, delta(finish="stop"))
    kind, text = answer_failure(answer, b"") or ("", "")
    assert (kind, answer.token_times) == ("malformed", [0.0])
    assert "no JSON object" in text


def test_two_calls_in_one_chunk() -> None:
    """Both are kept; the chunk is one token event."""
    both = [{"index": n, "id": str(n), "function": {"name": f"f{n}", "arguments": "{}"}} for n in (0, 1)]
    answer = decode(delta(tool_calls=both))
    assert calls(answer) == [("0", "f0", "{}"), ("1", "f1", "{}")]
    assert answer.token_times == [0.0]


@pytest.mark.parametrize(
    ("event", "text", "kind"),
    [
        ({"error": "overloaded", "error_type": "busy"}, "overloaded", "busy"),
        ({"error": {"message": "no memory", "type": "OOM", "code": 500}}, "no memory", "OOM"),
        ({"error": {"message": "no memory", "type": None, "code": 500}}, "no memory", "500"),
        ({"object": "error", "message": "bad", "type": "BadRequest", "code": 400}, "bad", "BadRequest"),
        ({"message": "bad", "type": "invalid", "code": 400}, "bad", "invalid"),
        ({"detail": "Not Found"}, "Not Found", None),
        ({"error": {"detail": {"message": "deep"}}}, "deep", None),
        ({"choices": [{"delta": {"content": "x"}}], "error": {"message": "late"}}, "late", None),
    ],
)
def test_errors_inside_the_stream(event: dict[str, Any], text: str, kind: str | None) -> None:
    """Text, object, flat object and nested forms; the first error holds, also with [DONE] behind it."""
    answer = decode(delta(content="a"), event, {"error": "second"}, b"[DONE]")
    assert (answer.error, answer.error_type) == (text, kind)
    failure = answer_failure(answer, b"")
    assert failure is not None
    assert failure[0] == "stream_error"


def test_full_queue_under_status_200() -> None:
    """SGLang tells of a full queue in the stream, with a usage of zeros and [DONE] behind it."""
    answer = decode(
        {"error": {"message": "The request queue is full.", "type": "SERVICE_UNAVAILABLE", "code": 503}},
        {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}},
        b"[DONE]",
    )
    assert answer_failure(answer, b"") == ("stream_error", "SERVICE_UNAVAILABLE: The request queue is full.")
    assert answer.token_times == []


def test_running_usage_is_not_added_up() -> None:
    """The last value holds; its differences are the tokens of each event, a held-back token counting in the next."""

    def counted(tokens: int, **fields: Any) -> dict[str, Any]:
        return delta(**fields) | {"usage": {"prompt_tokens": 7, "completion_tokens": tokens}}

    answer = decode(counted(0, content=""), counted(1, content="a"), counted(2, content=""), counted(4, content="bc"))
    assert answer.output_tokens == 4
    assert answer.per_event_tokens == [1, 3]


def test_usage_on_some_chunks_only_tells_nothing_of_each() -> None:
    """Tokens of each event are unknown, not guessed."""
    usage = {"usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    assert decode(delta(content="a"), delta(content="b") | usage).per_event_tokens is None


@pytest.mark.parametrize(
    ("usage", "cached", "reasoning"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 3}}, 5, 3),
        ({"prompt_tokens_details": None, "completion_tokens_details": None}, None, None),
        ({"prompt_cache_hit_tokens": 5, "reasoning_tokens": 3}, 5, 3),
        ({"prompt_tokens_details": {"cached_tokens": 0}, "reasoning_tokens": 0}, 0, 0),
        ({"prompt_tokens_details": [], "completion_tokens": 9.0}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": -1}, "reasoning_tokens": -1}, None, None),
    ],
)
def test_details_of_usage(usage: dict[str, Any], cached: int | None, reasoning: int | None) -> None:
    """Cached and reasoning tokens by the names of OpenAI, DeepSeek and SGLang; unknown is not 0."""
    answer = decode({"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 9} | usage})
    assert (answer.prompt_tokens, answer.output_tokens) == (8, 9)
    assert (answer.cached_tokens, answer.reasoning_tokens) == (cached, reasoning)


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([delta(content="a"), delta(finish="stop")], None),
        ([delta(content="a"), b"[DONE]"], None),
        ([delta(content="a"), b" [DONE] "], None),
        ([delta(content="a", finish="length")], None),
        ([delta(content="a"), delta(content="b", finish="")], "truncated"),
        ([], "truncated"),
        ([delta(finish="stop"), b"[DONE]"], "empty"),
        ([b"[DONE]"], "empty"),
        ([delta(content="a"), b"not json", b"[DONE]"], "malformed"),
        ([delta(content="a"), b"[1, 2]", b"[DONE]"], "malformed"),
        ([delta(content="a", finish="error")], "stream_error"),
    ],
)
def test_outcome(events: list[Any], kind: str | None) -> None:
    """Success needs a token event, and finish_reason or [DONE]."""
    failure = answer_failure(decode(*events), b"")
    assert (failure and failure[0]) == kind


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"metrics": {"queue_time_ms": 2, "time_to_first_token_ms": 3.5, "generation_time_ms": 40}},
            (0.002, 0.0035, 0.04),
        ),
        ({"metrics": {"queue_time_ms": None, "time_to_first_token_ms": 3.5}}, (None, 0.0035, None)),
        ({"timings": {"cache_n": 3, "prompt_ms": 1.5, "predicted_ms": -1}}, (None, 0.0015, None)),
        ({"metrics": {"queue_time_ms": "fast"}, "timings": []}, (None, None, None)),
        ({"metrics": [1, 2]}, (None, None, None)),
        ({"metrics": None, "timings": None}, (None, None, None)),
    ],
)
def test_durations_the_server_tells(more: dict[str, Any], told: tuple[float | None, ...]) -> None:
    """Milliseconds become seconds; what is no duration is unknown and does no harm to the rest of its chunk."""
    answer = decode(delta(content="Hi"), {"choices": [], "usage": {"completion_tokens": 1}, **more})
    assert (answer.server_queue_s, answer.server_prefill_s, answer.server_decode_s) == told
    assert (answer.text, answer.output_tokens, answer.malformed) == ("Hi", 1, None)


def test_cached_tokens_from_timings() -> None:
    """llama.cpp without usage details; where both are there, usage holds."""
    timings = {"timings": {"cache_n": 7}}
    assert decode({**delta("stop", content="a"), **timings}).cached_tokens == 7
    assert decode({**delta("stop", content="a"), "timings": {"cache_n": -1}}).cached_tokens is None
    usage = {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 5}}, **timings}
    assert decode(delta(content="a"), usage).cached_tokens == 5


def test_a_count_too_large_for_any_number_is_unknown() -> None:
    """``1e400`` is read as infinite, which counts nothing."""
    usage = b'{"prompt_tokens": 1e400, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1e400}}'
    answer = decode(b'{"choices": [], "usage": ' + usage + b"}")
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == (None, 9, None)


def test_halves_of_a_character_are_joined() -> None:
    """A surrogate pair in two escapes of two events is one character; a lone half becomes a replacement character."""
    halves = [b'{"choices":[{"delta":{"content":"\\ud83e"}}]}', b'{"choices":[{"delta":{"content":"\\udd80!"}}]}']
    assert decode(*halves).text == "🦀!"
    assert decode(halves[0]).text == "\ufffd"


def test_bytes_that_are_not_utf8() -> None:
    """They cost one character, not the request."""
    answer = decode(b'{"choices":[{"delta":{"content":"a\xff"},"finish_reason":"stop"}]}')
    assert answer.text == "a\ufffd"
    assert answer_failure(answer, b"") is None


def test_request_id_is_the_servers() -> None:
    """The first non-empty id, also where the first chunk has an empty one."""
    assert decode({"id": "", "choices": []}, delta(content="a")).request_id == "r1"


def test_bodies() -> None:
    """Streaming with usage is always asked for; extra fields come last and win."""
    message = {"role": "user", "content": "é"}
    body = json.loads(
        chat_body("m", [message], max_tokens=5, ignore_eos=True, extra={"temperature": 0, "max_tokens": 6})
    )
    assert body == {
        "model": "m",
        "messages": [message],
        "max_tokens": 6,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "temperature": 0,
    }
    body = json.loads(completion_body("m", [1, 2, 3], max_tokens=5))
    assert body["prompt"] == [1, 2, 3]
    assert "ignore_eos" not in body
