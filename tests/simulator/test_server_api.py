"""The API over real sockets: shapes, counts, errors, keep-alive."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from sim_process import Simulator, ask, events

from simulator import tokenizer

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
PROMPT_TOKENS = 4 + 4 + 3  # "tell me a story" in one message


def stream(simulator: Simulator, body: dict[str, Any], path: str = CHAT) -> list[Any]:
    status, headers, raw = simulator.call("POST", path, body)
    assert status == 200, raw
    assert headers["content-type"].startswith("text/event-stream")
    return events(raw)


def content(chunk: Any) -> Any:
    return chunk["choices"][0]["delta"].get("content")


def test_chat_stream_has_vllm_s_sequence_of_chunks(steady: Simulator) -> None:
    """Role, then one chunk a token, the finish reason on the last one, usage, [DONE]."""
    chunks = stream(steady, ask(5, stream_options={"include_usage": True}))
    assert len(chunks) == 1 + 5 + 1 + 1
    role, *tokens, usage, done = chunks
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["finish_reason"] for chunk in tokens] == [None] * 4 + ["length"]
    assert len("".join(map(content, tokens)).split()) == 5
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": 5,
        "total_tokens": PROMPT_TOKENS + 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks[:-1]}) == 1
    assert role["object"] == "chat.completion.chunk"


def test_one_token_answer_has_its_finish_reason_on_the_only_token(steady: Simulator) -> None:
    """First and last chunk are one."""
    _, only, done = stream(steady, ask(1))
    assert content(only)
    assert only["choices"][0]["finish_reason"] == "length"
    assert done == "[DONE]"


def test_without_asking_there_is_no_usage(steady: Simulator) -> None:
    """As in vLLM, where stream_options has to ask for it."""
    assert not any("usage" in chunk for chunk in stream(steady, ask(3))[:-1])


def test_running_usage_counts_every_chunk(steady: Simulator) -> None:
    """``continuous_usage_stats``: 0 on the role chunk, then 1, 2, 3."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(steady, ask(3, stream_options=options))
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks[:-1]] == [0, 1, 2, 3, 3]


def test_completions_stream_text(steady: Simulator) -> None:
    """No role chunk; the prompt may be text or ids, which are counted without a template."""
    for prompt, count in (("once upon a time", 4), ([5, 6, 7], 3)):
        body = {"prompt": prompt, "max_tokens": 3, "ignore_eos": True, "stream": True}
        chunks = stream(steady, {**body, "stream_options": {"include_usage": True}}, TEXT)
        assert len(chunks) == 3 + 1 + 1
        assert all(chunk["object"] == "text_completion" for chunk in chunks[:-1])
        assert len("".join(chunk["choices"][0]["text"] for chunk in chunks[:3]).split()) == 3
        assert chunks[-2]["usage"]["prompt_tokens"] == count


def test_an_answer_that_is_not_streamed_has_the_same_text(steady: Simulator) -> None:
    """One JSON body, with usage."""
    chunks = stream(steady, ask(7))
    status, _, raw = steady.call("POST", CHAT, ask(7, stream=False))
    answer = json.loads(raw)
    assert status == 200
    assert answer["object"] == "chat.completion"
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "".join(map(content, chunks[1:-1]))}
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 7


def test_answers_end_by_themselves_unless_told_not_to(steady: Simulator) -> None:
    """The default preset has a median of 200 tokens; min_tokens holds the shortest ones up."""
    body = {"messages": [{"role": "user", "content": "stop by yourself"}], "max_tokens": 3500}
    _, _, raw = steady.call("POST", CHAT, body)
    answer = json.loads(raw)
    assert answer["choices"][0]["finish_reason"] == "stop"
    natural = answer["usage"]["completion_tokens"]
    assert 1 <= natural < 3500
    _, _, raw = steady.call("POST", CHAT, {**body, "max_tokens": natural + 9, "min_tokens": natural + 5})
    assert json.loads(raw)["usage"]["completion_tokens"] == natural + 5


def test_max_completion_tokens_is_the_newer_name(steady: Simulator) -> None:
    """It wins over max_tokens."""
    _, _, raw = steady.call("POST", CHAT, ask(9, stream=False, max_completion_tokens=2))
    assert json.loads(raw)["usage"]["completion_tokens"] == 2


def test_the_second_turn_reports_its_cached_tokens(steady: Simulator) -> None:
    """Prompt 50 + 7, answer 30, of which 86 have keys and values: 5 blocks of 16."""
    words = " ".join(f"cached{n}" for n in range(50))
    messages = [{"role": "user", "content": words}]
    body = {"messages": messages, "max_tokens": 30, "ignore_eos": True}
    first = json.loads(steady.call("POST", CHAT, body)[2])
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert first["usage"]["prompt_tokens"] == 57
    body["messages"] = [*messages, first["choices"][0]["message"], {"role": "user", "content": "go on"}]
    second = json.loads(steady.call("POST", CHAT, body)[2])
    assert second["usage"]["prompt_tokens"] == 57 + 30 + 1 + 4 + 2 + 3
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 80


def test_text_parts_tools_and_tool_calls_are_understood(steady: Simulator) -> None:
    """Tools count as their JSON, at the head; a call as one token and its arguments, as the model wrote it."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "look at"}, {"type": "text", "text": "this"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "nothing there"},
    ]
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    expected = [("system", json.dumps(tools)), ("user", "look at\nthis"), ("assistant", "<call:look> {}")]
    expected.append(("tool", "nothing there"))
    status, _, raw = steady.call("POST", CHAT, {"messages": messages, "tools": tools, "max_tokens": 1})
    assert status == 200, raw
    assert json.loads(raw)["usage"]["prompt_tokens"] == len(tokenizer.encode_chat(expected))


def test_tokenize_and_detokenize(steady: Simulator) -> None:
    """vLLM's shapes; a chat counts as it is billed."""
    message = {"role": "user", "content": "tell me a story"}
    _, _, raw = steady.call("POST", "/tokenize", {"model": "steady", "messages": [message]})
    chat = json.loads(raw)
    assert (chat["count"], chat["max_model_len"]) == (PROMPT_TOKENS, 4096)
    assert len(chat["tokens"]) == chat["count"]
    _, _, raw = steady.call("POST", "/tokenize", {"prompt": "apple tok9", "return_token_strs": True})
    plain = json.loads(raw)
    assert plain["token_strs"] == ["apple", "tok9"]
    _, _, raw = steady.call("POST", "/detokenize", {"tokens": plain["tokens"]})
    assert json.loads(raw) == {"prompt": "apple tok9"}


def test_models_and_health(steady: Simulator) -> None:
    """What a client asks before it starts."""
    (model,) = steady.get_json("/v1/models")["data"]
    assert (model["id"], model["max_model_len"]) == ("steady", 4096)
    assert steady.call("GET", "/health")[::2] == (200, b"")


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{not json", 400, "body"),
        ({}, 400, "body"),
        ({"messages": []}, 400, None),
        ({"messages": [{"role": "nobody", "content": "x"}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "body.messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, None),
        (ask(0), 400, "max_tokens"),
        (ask(4096), 400, "max_tokens"),
        (ask(5, n=2), 400, "n"),
        (ask(5, min_tokens=6), 400, "min_tokens"),
        (ask(5, stream=False, stream_options={"include_usage": True}), 400, "stream_options"),
        (ask(5, max_tokens="five"), 400, "body.max_tokens"),
        ({"messages": [{"role": "user", "content": "w " * 4090}]}, 400, "input_tokens"),
        (ask(5, model="other"), 404, "model"),
    ],
)
def test_wrong_requests_get_an_error_object(steady: Simulator, body: Any, status: int, param: str | None) -> None:
    """Status and code agree, a message is there, the connection stays usable."""
    got, headers, raw = steady.call("POST", CHAT, body)
    error = json.loads(raw)["error"]
    assert (got, error["code"]) == (status, status)
    assert headers["content-type"] == "application/json"
    assert error["message"]
    if param is not None:
        assert error["param"] == param


def test_unknown_paths_and_methods(steady: Simulator) -> None:
    """404 and 405 with the bodies vLLM's web framework gives."""
    assert steady.call("GET", "/nowhere")[::2] == (404, b'{"detail":"Not Found"}')
    assert steady.call("GET", CHAT)[::2] == (405, b'{"detail":"Method Not Allowed"}')
    assert steady.call("POST", "/health")[0] == 405


def test_the_key_guards_v1_only(start: Callable[..., Any]) -> None:
    """As in vLLM: /metrics, /tokenize and /health stay open."""
    with start("--api-key-env", "SIM_KEY", env={"SIM_KEY": "secret"}) as simulator:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Bearer secret"}, 200),
        ):
            assert simulator.call("POST", CHAT, ask(1), headers)[0] == status
            assert simulator.call("GET", "/v1/models", None, headers)[0] == status
        assert simulator.call("GET", "/metrics")[0] == 200


def test_one_connection_carries_many_requests(steady: Simulator) -> None:
    """Streams, bodies and errors in turn, on the same socket."""
    connection = steady.connect()
    connection.connect()
    ours = connection.sock
    for body, status in ((ask(2), 200), (ask(2, stream=False), 200), (ask(0), 400), (ask(2), 200)):
        connection.request("POST", CHAT, json.dumps(body))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    assert connection.sock is ours
    connection.close()


def test_a_request_in_pieces_with_a_chunked_body(steady: Simulator) -> None:
    """Byte by byte, after 100-continue, and with a second request already behind it."""
    body = json.dumps(ask(1, stream=False)).encode()
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", steady.port), timeout=10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(head)
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        for byte in chunked:
            sock.sendall(bytes([byte]))
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = b"".join(iter(lambda: sock.recv(65536), b""))
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert b'"completion_tokens":1' in received


def test_a_client_that_reads_slowly_loses_nothing(start: Callable[..., Any]) -> None:
    """Twelve answers of about 1 MB on one connection before the first byte is read: more than sockets hold."""
    with start("--speed", "1000") as simulator, socket.create_connection(("127.0.0.1", simulator.port), 20) as sock:
        body = json.dumps(ask(4000)).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n" % len(body)
        sock.sendall((head + b"\r\n" + body) * 11 + head + b"Connection: close\r\n\r\n" + body)
        until = time.monotonic() + 20
        while not any(row["buffered"] for row in simulator.truth()) and time.monotonic() < until:
            time.sleep(0.05)
        received = b"".join(iter(lambda: sock.recv(1 << 20), b""))
        assert received.count(b'"content":"') == 12 * (1 + 4000)
        assert received.count(b'"finish_reason":"length"') == received.count(b"data: [DONE]\n\n\r\n0\r\n\r\n") == 12
        rows = simulator.truth()
        assert any(row["buffered"] for row in rows)
        assert {(row["ended"], row["output_tokens"]) for row in rows} == {("length", 4000)}


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 70_000, 431),
    ],
)
def test_bytes_that_are_no_http_are_answered_and_closed(steady: Simulator, raw: bytes, status: int) -> None:
    """The server neither hangs nor falls."""
    with socket.create_connection(("127.0.0.1", steady.port), timeout=10) as sock:
        sock.sendall(raw)
        received = b"".join(iter(lambda: sock.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert steady.call("GET", "/health")[0] == 200


@pytest.mark.parametrize(
    ("switches", "first_tokens", "chunks"),
    [(("--tokens-per-chunk", "5"), [1, 5, 5, 1], 4), ((), [1] * 12, 12)],
)
def test_several_tokens_a_chunk(
    start: Callable[..., Any], switches: tuple[str, ...], first_tokens: list[int], chunks: int
) -> None:
    """vLLM's stream interval: the first chunk has one token, the last one what is left."""
    with start(*switches) as simulator:
        parts = stream(simulator, ask(12))[1:-1]
        assert [len(content(part).split()) for part in parts] == first_tokens
        (row,) = simulator.truth()
        assert (row["output_tokens"], row["chunks"]) == (12, chunks)


def test_usage_can_be_missing(start: Callable[..., Any]) -> None:
    """A server that never tells its counts, streamed or not."""
    with start("--no-usage") as simulator:
        options = {"include_usage": True, "continuous_usage_stats": True}
        chunks = stream(simulator, ask(2, stream_options=options))
        assert not any("usage" in chunk for chunk in chunks[:-1])
        assert b"usage" not in simulator.call("POST", CHAT, ask(2, stream=False))[2]


def test_without_a_role_chunk_the_first_chunk_is_the_first_token(start: Callable[..., Any]) -> None:
    """Some servers send none."""
    with start("--role-chunk", "none") as simulator:
        first, *_ = stream(simulator, ask(2))
        assert content(first)
        assert simulator.truth()[0]["role_s"] is None


def test_the_prefix_cache_can_be_off(start: Callable[..., Any]) -> None:
    """The same prompt again is computed again."""
    with start("--no-prefix-cache") as simulator:
        body = ask(1, messages=[{"role": "user", "content": "w " * 100}])
        for _ in range(2):
            usage = stream(simulator, {**body, "stream_options": {"include_usage": True}})[-2]["usage"]
            assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
