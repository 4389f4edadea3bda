"""What the client does without a network: heads, keys, groups of errors, stamps."""

from __future__ import annotations

import errno
import socket
import ssl
import struct
import time
from types import SimpleNamespace

import pytest
from geventhttpclient._parser import HTTPParseError

import tokenswarm.reception
from tokenswarm.client import Exchange, request_head
from tokenswarm.endpoint import Endpoint
from tokenswarm.errors import ErrorKind
from tokenswarm.failures import connect_failure, error_group, retry_after_s, sample, secrets_of, stream_failure
from tokenswarm.protocols import AnswerDecoder
from tokenswarm.reception import CutShort, Reception, ResponseParser
from tokenswarm.records import COLUMNS

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text: str) -> bytes:
    data = f'data: {{"choices":[{{"delta":{{"content":"{text}"}}}}]}}\n\n'.encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_head() -> None:
    """Own headers replace the usual ones whatever their case; the address of the server is named as it was given."""
    head = request_head(Endpoint.parse("http://[::1]:8000"), "/x?y=1", {"user-agent": "me", "X-A": "b"}).decode()
    lines = head.split("\r\n")
    assert lines[0] == "POST /x?y=1 HTTP/1.1"
    assert "Host: [::1]:8000" in lines
    assert "Accept-Encoding: identity" in lines
    assert [line for line in lines if line.lower().startswith("user-agent")] == ["user-agent: me"]
    assert lines[-1] == "Content-Length: "


def test_keys_are_found_and_blanked() -> None:
    """With and without the word Bearer; a text is one short line."""
    keys = secrets_of({"Authorization": "Bearer abcdef", "api-key": "abcdef-long", "X-Other": "visible"})
    assert keys == ["abcdef-long", "abcdef"]
    assert sample("bad abcdef-long\nor abcdef, visible", keys) == "bad *** or ***, visible"
    assert len(sample("x" * 1000, keys)) == 300


@pytest.mark.parametrize("kind", ErrorKind)
def test_groups_have_no_details(kind: ErrorKind) -> None:
    """A group's text depends on kind and status alone, and reads as words."""
    assert "_" not in error_group(kind)
    assert error_group(kind)
    assert len({error_group(kind, status) for status in (None, 418)}) == (2 if kind.startswith("http_") else 1)


def test_groups_are_told_apart() -> None:
    """No two kinds share a text."""
    assert len({error_group(kind) for kind in ErrorKind}) == len(ErrorKind)
    assert error_group("http_429", 429) == "HTTP 429 too many requests"
    assert error_group("idle_timeout") == "idle timeout"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "refused"),
        (socket.gaierror(-2, "Name or service not known"), "dns"),
        (ssl.SSLCertVerificationError("self-signed certificate"), "tls"),
        (TimeoutError("connect timed out"), "connect_timeout"),
        (OSError(errno.ENETUNREACH, "unreachable"), "connect"),
        (OSError(errno.EMFILE, "Too many open files"), "client_limit"),
        (OSError(errno.ENFILE, "Too many open files in system"), "client_limit"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), "client_limit"),
        (MemoryError(), "client_limit"),
        (ValueError("bug"), "client"),
        (KeyboardInterrupt(), "cancelled"),
    ],
)
def test_kinds_of_failed_connects(error: BaseException, kind: str) -> None:
    """By what the system says, not by its words."""
    assert connect_failure(error)[0] == kind
    assert connect_failure(error)[1]


@pytest.mark.parametrize(
    ("error", "begun", "reused", "kind"),
    [
        (CutShort("closed"), True, False, "truncated"),
        (CutShort("closed"), False, False, "reset"),
        (CutShort("closed"), False, True, "stale_connection"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), True, True, "reset"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), False, True, "stale_connection"),
        (OSError(errno.ENOMEM, "no memory"), True, False, "client_limit"),
        (HTTPParseError("bad"), True, False, "malformed"),
        (RuntimeError("bug"), True, False, "client"),
    ],
)
def test_kinds_of_failed_streams(error: BaseException, begun: bool, reused: bool, kind: str) -> None:
    """Before any byte of the answer a kept connection was stale, a fresh one was reset."""
    reception = Reception(ResponseParser())
    reception.begun = begun
    assert stream_failure(error, reception, reused)[0] == kind


@pytest.mark.parametrize(("text", "wanted"), [("2", 2.0), ("0.5", 0.5), ("-1", 0.0), ("x", None), ("", None)])
def test_retry_after(text: str, wanted: float | None) -> None:
    """Seconds; what cannot be read is unknown."""
    assert retry_after_s(text) == wanted


def test_facts_are_columns() -> None:
    """Every fact the client knows has its column in the record."""
    facts = Exchange(sent_s=1.0).facts()
    assert facts.keys() <= set(COLUMNS)
    assert facts["sent_s"] == 1.0
    identity = {"level", "concurrency", "phase", "ticket", "worker", "user", "traffic", "session", "turn", "arm"}
    identity |= {"pair", "prefix", "session_end"}
    identity |= {"images", "image_pixels", "image_bytes"}
    asked = {"prepare_s", "encode_s", "pause_s", "scheduled_s", "asked_input_tokens", "asked_output_tokens"}
    known_to_the_session = {"prefix_tokens", "history_tokens", "malformed_calls", "divergence"}
    assert set(COLUMNS) - facts.keys() == identity | asked | known_to_the_session


def stamped(at_s: float) -> bytes:
    """The kernel's stamp for a moment of the monotonic clock, by an offset measured here."""
    wall_ns = time.time_ns() + int((at_s - time.perf_counter()) * 1e9)
    return struct.pack("@ll", *divmod(wall_ns, 1_000_000_000))


def received(reception: Reception, *offsets_ms: float) -> list[float]:
    """Token stamps of chunks whose kernel stamps lie so much before the reading of each."""
    reads = [HEAD] + [chunk("x") for _ in offsets_ms]
    now_s = time.perf_counter()
    marks = [None] + [stamped(now_s + offset / 1000) for offset in offsets_ms]
    reception.add(reads, [now_s] * len(reads), marks)
    assert reception.answer is not None
    return [round((at - now_s) * 1000, 1) for at in reception.answer.token_times]


def test_kernel_stamps_are_taken_where_they_can_be_true() -> None:
    """A stamp before sending or after reading is replaced by the time of reading; the lag is that of good stamps."""
    reception = Reception(ResponseParser(), stamped=True, answer=AnswerDecoder("chat"))
    reception.begin()
    time.sleep(0.05)
    assert received(reception, -40, -20, -5000, +300, -1) == [-40, -20, 0, 0, -1]
    assert reception.lag_max_s == pytest.approx(0.040, abs=0.002)


def test_wall_clock_set_while_receiving(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a step of the wall clock its stamps are worth nothing, also where they look plausible."""
    reception = Reception(ResponseParser(), stamped=True, answer=AnswerDecoder("chat"))
    reception.begin()
    time.sleep(0.05)
    real = time.time_ns
    monkeypatch.setattr(tokenswarm.reception, "time_ns", lambda: real() - 20_000_000)
    assert received(reception, -40, -20) == [0, 0]
    assert reception.lag_max_s is None


def test_limits_in_turn() -> None:
    """First byte until the body begins, idle from the last read on, total over all."""
    limits = SimpleNamespace(first_byte_s=10, idle_s=3, total_s=60, connect_s=1)
    reception = Reception(ResponseParser(), answer=AnswerDecoder("chat"))
    reception.begin()
    sent_s = reception.sent_s
    assert reception.due(limits) == ("first_byte_timeout", 10, sent_s + 10)
    reception.add([HEAD], [sent_s + 1], [])
    assert reception.due(limits) == ("first_byte_timeout", 10, sent_s + 10)
    reception.add([chunk("a")], [sent_s + 5], [])
    assert reception.due(limits) == ("idle_timeout", 3, sent_s + 8)
    reception.add([chunk("a")], [sent_s + 58], [])
    assert reception.due(limits) == ("total_timeout", 60, sent_s + 60)


def test_head_in_pieces() -> None:
    """Cut anywhere, also behind an interim response: names and values stay whole."""
    text = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HEAD.replace(b"200", b"404")
    for cut in range(1, len(text)):
        reception = Reception(ResponseParser(), answer=AnswerDecoder("chat"))
        reception.begin()
        reception.add([text[:cut]], [1.0], [])
        reception.add([text[cut:]], [2.0], [])
        assert reception.status == 404, cut
        assert reception.headers == {"content-type": "text/event-stream", "transfer-encoding": "chunked"}, cut
        assert reception.headers_s == 2.0
