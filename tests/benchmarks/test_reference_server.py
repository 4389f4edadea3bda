"""The reference server, read with nothing but a raw socket."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import pytest

from benchmarks.build import BenchmarkError
from benchmarks.server import ReferenceServer, TruthRow

MS = 1_000_000
TOKEN = re.compile(rb'"(?:content|text)":" (\d{16})"')


@dataclass(frozen=True)
class Reply:
    sent_ns: int
    read_ns: list[int]  # when each read returned
    raw: bytes

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def stamps_ns(self) -> list[int]:
        return [int(digits) for digits in TOKEN.findall(self.raw)]

    @property
    def events(self) -> list[Any]:
        """JSON of each event, by taking the HTTP chunks apart; the last one must be ``[DONE]``."""
        rest, payload = self.body, b""
        while True:
            size, _, rest = rest.partition(b"\r\n")
            if int(size, 16) == 0:
                break
            payload += rest[: int(size, 16)]
            assert rest[int(size, 16) :].startswith(b"\r\n")
            rest = rest[int(size, 16) + 2 :]
        data = [event.removeprefix(b"data: ") for event in payload.split(b"\n\n")]
        assert data[-2:] == [b"[DONE]", b""]
        return [json.loads(event) for event in data[:-2]]


def _open(server: ReferenceServer) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def _request(path: str, body: bytes, method: str = "POST") -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def call(server: ReferenceServer, path: str, body: Any = None, method: str = "POST") -> Reply:
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    with _open(server) as connection:
        sent_ns = time.monotonic_ns()
        connection.sendall(_request(path, content, method))
        read_ns, raw = [], b""
        while data := connection.recv(65536):
            read_ns.append(time.monotonic_ns())
            raw += data
    return Reply(sent_ns, read_ns, raw)


def chat(tokens: int, words: str = "hello there", **reference: Any) -> dict[str, Any]:
    return {
        "model": "reference",
        "messages": [{"role": "user", "content": words}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "reference": reference,
    }


def truth_of(server: ReferenceServer, reply: Reply) -> TruthRow:
    request_id = reply.events[0]["id"]
    return next(row for row in server.truth() if row.request_id == request_id)


def test_tokens_leave_at_their_deadlines_and_lateness_does_not_add_up(server: ReferenceServer) -> None:
    """No token leaves before its deadline, and the last is no later than the first: deadlines are absolute."""
    reply = call(server, "/v1/chat/completions", chat(40, ttft_us=50_000, itl_us=10_000))
    true = truth_of(server, reply)
    late_ns = [at - true.received_ns - 50 * MS - i * 10 * MS for i, at in enumerate(reply.stamps_ns)]
    assert len(late_ns) == 40
    assert min(late_ns) >= 0
    assert median(late_ns[20:]) < 5 * MS
    assert max(late_ns) == true.late_ns


def test_the_servers_record_agrees_with_what_came(server: ReferenceServer) -> None:
    """The record has the stamps of the first and last token, and lies between the client's own times."""
    reply = call(server, "/v1/chat/completions", chat(5, ttft_us=20_000, itl_us=5_000))
    true = truth_of(server, reply)
    assert (true.first_token_ns, true.last_token_ns) == (reply.stamps_ns[0], reply.stamps_ns[-1])
    assert (true.asked, true.tokens) == (5, 5)
    # The receive time comes from the wall clock's stamp: up to 0.1 ms of conversion is allowed.
    assert reply.sent_ns - MS // 10 <= true.received_ns <= true.first_token_ns
    assert reply.read_ns[-1] >= true.last_token_ns


def test_streams_in_step_send_at_common_multiples_of_the_interval(server: ReferenceServer) -> None:
    """Whenever a stream began, its tokens leave just after a multiple of the interval."""
    past_ns = []
    for pause_s in (0.0, 0.013, 0.027):
        time.sleep(pause_s)  # not a wait for anything: begins the streams at different phases
        reply = call(server, "/v1/chat/completions", chat(6, ttft_us=10_000, itl_us=40_000, in_step=True))
        past_ns += [at % (40 * MS) for at in reply.stamps_ns]
    assert len(past_ns) == 18
    assert median(past_ns) < 5 * MS


def test_jitter_only_delays_the_first_token(server: ReferenceServer) -> None:
    """First tokens are spread over the jitter, none before its time; the interval stays."""
    body = chat(2, ttft_us=1_000, itl_us=2_000, jitter_us=20_000)
    delays_ns = []
    for _ in range(12):
        reply = call(server, "/v1/chat/completions", body)
        true = truth_of(server, reply)
        delays_ns.append(reply.stamps_ns[0] - true.received_ns)
    assert min(delays_ns) >= MS
    assert max(delays_ns) - min(delays_ns) > 5 * MS


def test_the_chat_stream_has_vllms_shape(server: ReferenceServer) -> None:
    """Role chunk, one chunk a token, the finish reason in the last of them, then usage and [DONE]."""
    events = call(server, "/v1/chat/completions", chat(3, "one two  three\nfour", ttft_us=0, itl_us=0)).events
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [event["choices"][0]["finish_reason"] for event in events[1:4]] == [None, None, "length"]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    assert events[4]["choices"] == []
    assert events[4]["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    assert len(events) == 5


@pytest.mark.parametrize(("role", "opening_chunks"), [("first", 1), ("early", 1), ("none", 0)])
def test_the_role_chunk_can_be_moved_or_left_out(server: ReferenceServer, role: str, opening_chunks: int) -> None:
    """An early role chunk comes with the headers, long before the first token; none leaves only tokens."""
    reply = call(server, "/v1/chat/completions", chat(2, ttft_us=60_000, itl_us=1_000, role=role))
    deltas = [event["choices"][0]["delta"] for event in reply.events if event["choices"]]
    assert ["role" in delta for delta in deltas] == [True] * opening_chunks + [False, False]


def test_completions_stream_text_and_count_token_ids(server: ReferenceServer) -> None:
    """A prompt of token ids is as long as its list; without include_usage there is no usage chunk."""
    body = {"prompt": [5, 6, 7], "max_tokens": 2, "stream": True, "reference": {"ttft_us": 0, "itl_us": 0}}
    reply = call(server, "/v1/completions", body)
    assert len(reply.stamps_ns) == 2
    assert [event["object"] for event in reply.events] == ["text_completion"] * 2
    whole = json.loads(call(server, "/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 2}).body)
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ({"prompt": "a b  c\nd\te"}, 5),
        ({"prompt": ""}, 0),
        ({"prompt": [1, 2, 3, 4]}, 4),
        ({"prompt": 'quote \\" and \\\\ slash'}, 5),
        ({"prompt": "wörter äöü 🙂"}, 3),
        ({"messages": [{"role": "system", "content": "a b"}, {"role": "user", "content": "c"}]}, 3),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x y z"}]}]}, 3),
        ({"messages": [{"role": "assistant", "content": None}]}, 0),
    ],
)
def test_tokenize_counts_words(server: ReferenceServer, body: dict[str, Any], count: int) -> None:
    """One word is one token, whatever holds the words; ``tokens`` is that long."""
    answer = json.loads(call(server, "/tokenize", body).body)
    assert answer["count"] == count
    assert len(answer["tokens"]) == count


def test_tokenize_gives_equal_words_equal_ids(server: ReferenceServer) -> None:
    """Ids depend on the words alone: the same in a message and in a prompt, different for different words."""
    prompt = json.loads(call(server, "/tokenize", {"prompt": "one two one"}).body)["tokens"]
    chat_ids = json.loads(call(server, "/tokenize", {"messages": [{"role": "user", "content": "two one"}]}).body)[
        "tokens"
    ]
    assert prompt[0] == prompt[2] != prompt[1]
    assert chat_ids == prompt[1:]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"max_tokens', b'{"max_tokens":', b'{"messages":[{"content":"a', b"null", b'"', b"\x00" * 10],
)
def test_a_body_that_is_no_request_does_no_harm(server: ReferenceServer, body: bytes) -> None:
    """Whatever the body, the server answers it by its defaults and goes on."""
    assert call(server, "/v1/chat/completions", body).raw.startswith(b"HTTP/1.1 200")
    assert call(server, "/health", method="GET").raw.startswith(b"HTTP/1.1 200")


def test_a_request_in_pieces_and_two_at_once_are_served_in_order(server: ReferenceServer) -> None:
    """A request may come byte by byte, and a second one on the same connection waits for the first."""
    first = _request("/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2}).encode()).replace(
        b"close", b"keep-alive"
    )
    second = _request("/v1/completions", json.dumps({"prompt": "a b", "max_tokens": 3}).encode())
    with _open(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in first:
            connection.sendall(bytes([byte]))
        connection.sendall(first + second)
        raw = b""
        while data := connection.recv(65536):
            raw += data
    assert [int(n) for n in re.findall(rb'"total_tokens":(\d+)', raw)] == [3, 3, 5]


def test_a_client_that_leaves_is_recorded_as_unfinished(start_server: Callable[..., ReferenceServer]) -> None:
    """The record of a stream that was cut has fewer tokens than were asked for."""
    server = start_server()
    with _open(server) as connection:
        connection.sendall(_request("/v1/chat/completions", json.dumps(chat(1000, itl_us=2_000)).encode()))
        while b"data: " not in connection.recv(65536):
            pass
    deadline = time.monotonic() + 10
    while not (rows := server.truth()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (rows[0].asked, rows[0].tokens < 1000) == (1000, True)
    assert server.stats()["aborted"] == 1
    assert server.stats()["active"] == 0


def test_the_record_is_bounded_and_says_what_it_forgot(start_server: Callable[..., ReferenceServer]) -> None:
    """With room for four rows the fifth overwrites the first, and reading the whole record is refused."""
    server = start_server("--records", "4")
    for _ in range(4):
        call(server, "/v1/completions", {"prompt": "a", "max_tokens": 1})
    assert len(server.truth()) == 4
    call(server, "/v1/completions", {"prompt": "a", "max_tokens": 1})
    with pytest.raises(BenchmarkError, match="--records"):
        server.truth()
    page = call(server, "/truth?after=3&limit=1", method="GET").body.decode().splitlines()
    assert [line.split(",")[0] for line in page] == ["n", "4"]


def test_an_unpaced_stream_outruns_a_slow_reader_without_loss(server: ReferenceServer) -> None:
    """A reader that pauses makes the server wait; every token still arrives, in order."""
    body = chat(20_000, ttft_us=0, itl_us=0)
    with _open(server) as connection:
        connection.sendall(_request("/v1/chat/completions", json.dumps(body).encode()))
        time.sleep(0.2)  # long enough to fill the socket's buffers; nothing depends on it
        raw = b""
        while data := connection.recv(1 << 20):
            raw += data
    stamps = [int(digits) for digits in TOKEN.findall(raw)]
    assert len(stamps) == 20_000
    assert stamps == sorted(stamps)
