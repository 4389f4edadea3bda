"""Every failure on demand, as a client sees it on the wire and as /truth tells it."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from sim_process import Simulator, ask, events

CHAT = "/v1/chat/completions"


def raw_exchange(simulator: Simulator, body: dict[str, Any], timeout: float = 20.0) -> tuple[bytes, Exception | None]:
    """All bytes of the answer and how the connection ended: ``None`` is an orderly end."""
    payload = json.dumps(body).encode()
    head = b"POST %b HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(payload))
    received = b""
    with socket.create_connection(("127.0.0.1", simulator.port), timeout=timeout) as sock:
        try:
            sock.sendall(head + payload)
            while data := sock.recv(65536):
                received += data
        except OSError as error:
            return received, error
    return received, None


def test_refused_connections_end_without_a_byte(start: Callable[..., Any]) -> None:
    """Every second connection; the others work."""
    with start("--fault", "refuse:every=2") as simulator:
        assert simulator.call("POST", CHAT, ask(1))[0] == 200
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            simulator.call("POST", CHAT, ask(1))
        served, refused = simulator.truth()[:2]
        assert (served["ended"], refused["ended"]) == ("length", "refuse")


@pytest.mark.parametrize("status", [429, 503])
def test_pushed_back_with_retry_after(start: Callable[..., Any], status: int) -> None:
    """A real HTTP status, a JSON body, and when to come again."""
    with start("--fault", f"{status}:retry_after_s=7") as simulator:
        got, headers, raw = simulator.call("POST", CHAT, ask(1))
        assert (got, headers["retry-after"]) == (status, "7")
        assert json.loads(raw)["error"]["code"] == status
        (row,) = simulator.truth()
        assert (row["ended"], row["http_status"], row["first_token_s"]) == (str(status), status, None)


def test_pushed_back_above_a_concurrency(start: Callable[..., Any]) -> None:
    """Two long answers are open, a third request is one too many; when they are over the fourth is not."""
    with start("--fault", "429:above=2") as simulator, ExitStack() as stack:
        connections = []
        for _ in range(2):
            connection = simulator.connect()
            stack.callback(connection.close)
            connection.request("POST", CHAT, json.dumps(ask(150)))
            connections.append(connection.getresponse())
        assert simulator.call("POST", CHAT, ask(1))[0] == 429
        for answer in connections:
            assert answer.read().endswith(b"[DONE]\n\n")
        assert simulator.call("POST", CHAT, ask(1))[0] == 200
        assert [row["ended"] for row in simulator.truth()] == ["length", "length", "429", "length"]


def test_error_in_a_stream_that_began_well(start: Callable[..., Any]) -> None:
    """Status 200, four tokens, then vLLM's error object and [DONE]; no finish reason ever; the connection stays."""
    with start("--fault", "error-in-stream:after_tokens=4,every=1") as simulator:
        connection = simulator.connect()
        for _ in range(2):
            connection.request("POST", CHAT, json.dumps(ask(9)))
            answer = connection.getresponse()
            assert answer.status == 200
            role, *tokens, error, done = events(answer.read())
            assert role["choices"][0]["delta"]["role"] == "assistant"
            assert len(tokens) == 4
            assert not any(chunk["choices"][0]["finish_reason"] for chunk in tokens)
            assert (error["error"]["code"], done) == (500, "[DONE]")
        connection.close()
        assert {(row["ended"], row["output_tokens"]) for row in simulator.truth()} == {("error-in-stream", 4)}
        assert b'finished_reason="error"} 2' in simulator.call("GET", "/metrics")[2]


def test_reset_in_a_stream(start: Callable[..., Any]) -> None:
    """The client's socket says so."""
    with start("--fault", "reset:after_tokens=2") as simulator:
        _, end = raw_exchange(simulator, ask(9))
        assert isinstance(end, ConnectionResetError)
        (row,) = simulator.truth()
        assert (row["ended"], row["output_tokens"]) == ("reset", 2)


def test_truncated_stream(start: Callable[..., Any]) -> None:
    """An orderly end of the connection after two tokens, without the last chunk of the body."""
    with start("--fault", "truncate:after_tokens=2") as simulator:
        received, end = raw_exchange(simulator, ask(9))
        assert end is None
        assert received.count(b'"content":"') == 1 + 2
        assert b"[DONE]" not in received
        assert not received.endswith(b"0\r\n\r\n")
        assert simulator.truth()[0]["ended"] == "truncate"


def test_stalled_stream(start: Callable[..., Any]) -> None:
    """Two tokens, then silence while the connection stays open; the engine does not work for it any more."""
    with start("--fault", "stall:after_tokens=2") as simulator:
        received, end = raw_exchange(simulator, ask(9), timeout=1.0)
        assert isinstance(end, TimeoutError)
        assert received.count(b'"content":"') == 1 + 2
        assert b'num_requests_running{engine="0",model_name="steady"} 0.0' in simulator.call("GET", "/metrics")[2]
        assert simulator.truth()[0]["ended"] == "stall"


@pytest.mark.parametrize(("after", "tokens"), [(0, 0), (50, 4)])
def test_failures_at_the_very_beginning_and_in_short_answers(
    start: Callable[..., Any], after: int, tokens: int
) -> None:
    """After 0 tokens none is sent; an answer shorter than ``after_tokens`` fails in place of its last token."""
    with start("--fault", f"truncate:after_tokens={after}") as simulator:
        raw_exchange(simulator, ask(5))
        assert simulator.truth()[0]["output_tokens"] == tokens


@pytest.mark.parametrize(
    ("kind", "ended"), [("error-in-stream", None), ("reset", ConnectionResetError), ("truncate", None)]
)
def test_answers_in_one_body_fail_as_well(start: Callable[..., Any], kind: str, ended: type[Exception] | None) -> None:
    """A 500, a reset, or fewer bytes than announced."""
    with start("--fault", kind) as simulator:
        received, end = raw_exchange(simulator, ask(5, stream=False), timeout=1.0)
        if kind == "error-in-stream":
            assert received.startswith(b"HTTP/1.1 500 ")
        elif kind == "reset":
            assert isinstance(end, ConnectionResetError)
        else:
            head, _, body = received.partition(b"\r\n\r\n")
            (length,) = (line for line in head.split(b"\r\n") if line.startswith(b"content-length"))
            assert end is None
            assert len(body) < int(length.split(b":")[1])
        assert simulator.truth()[0]["ended"] == kind


def test_cold_start_makes_the_first_request_slow(start: Callable[..., Any]) -> None:
    """0.5 s more for the first one, nothing for the second."""
    with start("--cold-start", "0.5") as simulator:
        for _ in range(2):
            simulator.call("POST", CHAT, ask(2))
        cold, warm = (row["planned_first_token_s"] - row["arrival_s"] for row in simulator.truth())
        assert cold == pytest.approx(0.510, abs=1e-6)
        assert warm == pytest.approx(0.010, abs=1e-6)
