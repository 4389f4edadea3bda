"""The hot path: ``StreamingClient.send`` makes one request and tells everything about it, however it ends."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from geventhttpclient._parser import HTTPParseError

from tokenswarm.connection import Clock, Connection, Dialer, LimitPassed, Timeouts, Tls
from tokenswarm.endpoint import Api, Endpoint
from tokenswarm.errors import ErrorKind
from tokenswarm.protocols import error_text
from tokenswarm.reception import CutShort, Reception
from tokenswarm.records import RequestRecord, TokenSource
from tokenswarm.toolcalls import ToolCall

_SAMPLE = 300  # characters of an error text that are kept
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOMEM, errno.ENOBUFS}
_SECRET_HEADERS = ("authorization", "api-key", "x-api-key", "proxy-authorization")


class Exchange(msgspec.Struct, kw_only=True):
    """One request and its answer, under the names of ``RequestRecord``; times on the monotonic clock, in seconds."""

    sent_s: float | None = None
    headers_s: float | None = None
    first_token_s: float | None = None
    first_output_s: float | None = None
    last_token_s: float | None = None
    finished_s: float | None = None
    connect_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    token_source: str | None = None
    chunks: int | None = None
    tool_calls: int | None = None
    request_bytes: int | None = None  # of the body
    response_bytes: int | None = None  # of the body, as it came
    clock: str | None = None
    reads: int | None = None
    merged_reads: int | None = None
    lag_max_s: float | None = None
    finish_reason: str | None = None
    http_status: int | None = None
    retry_after_s: float | None = None
    error_kind: str | None = None
    error: str | None = None
    request_id: str | None = None
    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = []
    token_times: list[float] = []
    per_event_tokens: list[int] | None = None
    killed: BaseException | None = None  # what ended the greenlet's wait; to be raised again once this is recorded

    @property
    def ok(self) -> bool:
        return self.error_kind is None

    def facts(self) -> dict[str, Any]:
        """What goes into a ``RequestRecord``, under its names."""
        return {name: getattr(self, name) for name in _FACTS}


_FACTS = tuple(name for name in Exchange.__struct_fields__ if name in RequestRecord.__struct_fields__)


class StreamingClient:
    """Sends to one operation of one server. Connections are kept; a client is meant for one user, several may share it.

    ``headers`` go out with every request; what stands in ``Authorization`` or ``api-key`` never comes back in an error
    text. ``clock`` forces the reader's own time where kernel stamps would be used.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        api: Api,
        headers: dict[str, str],
        timeouts: Timeouts,
        tls: Tls,
        clock: Clock | None = None,
    ) -> None:
        self._api = api
        self._dialer = Dialer(endpoint, timeouts, tls, clock)
        self._idle: list[Connection] = []
        self._head = request_head(endpoint, endpoint.path_for(api), headers)
        self._secrets = secrets_of(headers)

    def send(self, body: bytes) -> Exchange:
        """Never raises for anything a server, a network or the end of the run can do."""
        exchange = Exchange(request_bytes=len(body))
        failure: BaseException | None = None
        connection: Connection | None = None
        reception: Reception | None = None
        reused = False
        try:
            connection = self._connection(exchange)
            reused = not connection.fresh
            reception = Reception(self._api, connection.clock == "kernel", connection.parser)
            connection.exchange(b"%b%d\r\n\r\n%b" % (self._head, len(body), body), reception)
            if connection.alive:
                self._idle.append(connection)
        except BaseException as error:  # noqa: BLE001 - boundary: every way to end is one Exchange
            failure = error
            if not isinstance(error, Exception):
                exchange.killed = error
        if reception is not None and connection is not None:
            _take_facts(exchange, reception, connection.clock)
        kind, text = _outcome(failure, reception, reused)
        exchange.error_kind = kind
        if kind is not None:
            exchange.error = self._shown(text)
            if exchange.finished_s is None or failure is not None:
                exchange.finished_s = time.perf_counter()
        return exchange

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _connection(self, exchange: Exchange) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fit():
                return connection
            connection.close()
        start_s = exchange.sent_s = time.perf_counter()
        connection = self._dialer.open()
        exchange.connect_s = time.perf_counter() - start_s
        return connection

    def _shown(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = " ".join(text.split())
        return text if len(text) <= _SAMPLE else text[: _SAMPLE - 1] + "…"


def request_head(endpoint: Endpoint, path: str, headers: dict[str, str]) -> bytes:
    """Everything before the number in ``Content-Length``."""
    fields = {
        "Host": endpoint.netloc,
        "User-Agent": "tokenswarm",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
    }
    for name, value in headers.items():
        fields = {key: old for key, old in fields.items() if key.lower() != name.lower()} | {name: value}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}Content-Length: ".encode("latin-1")


def secrets_of(headers: dict[str, str]) -> list[str]:
    """Keys inside the headers, longest first."""
    values = [value for name, value in headers.items() if name.lower() in _SECRET_HEADERS]
    keys = {value.split(" ", 1)[-1].strip() for value in values}
    return sorted((key for key in keys if len(key) >= 4), key=len, reverse=True)


def error_group(kind: str, status: int | None = None) -> str:
    """A text that is the same for all errors of one sort: kind and, for HTTP errors, the status; nothing else."""
    words = {"http_3xx": "redirect", "http_401": "key not accepted", "http_429": "too many requests"}
    text = words.get(kind, "" if kind.startswith("http_") else kind.replace("_", " "))
    if status is not None and kind.startswith("http_"):
        return f"HTTP {status} {text}".strip()
    return text or kind.replace("_", " ")


def _take_facts(exchange: Exchange, reception: Reception, clock: Clock) -> None:
    answer = reception.answer
    exchange.sent_s = reception.sent_s
    exchange.headers_s = reception.headers_s
    exchange.http_status = reception.status or None
    exchange.response_bytes = reception.response_bytes
    exchange.clock = clock
    exchange.lag_max_s = reception.lag_max_s
    if reception.begun:
        exchange.finished_s = reception.last_s
    exchange.request_id = answer.request_id or reception.headers.get("x-request-id")
    exchange.finish_reason = answer.finish_reason
    exchange.prompt_tokens = answer.prompt_tokens
    exchange.cached_tokens = answer.cached_tokens
    exchange.output_tokens = answer.output_tokens
    exchange.reasoning_tokens = answer.reasoning_tokens
    if answer.output_tokens is not None:
        exchange.token_source = TokenSource.USAGE
    times = answer.token_times
    exchange.chunks = len(times)
    if times:
        exchange.token_times = times
        exchange.first_token_s = times[0]
        exchange.first_output_s = answer.first_output_s
        exchange.last_token_s = times[-1]
        exchange.text = answer.text
        exchange.reasoning = answer.reasoning
        exchange.calls = answer.tool_calls
        exchange.per_event_tokens = answer.per_event_tokens
        exchange.tool_calls = len(exchange.calls)
        _count_reads(exchange, times)
        if answer.output_tokens is None and answer.complete:
            exchange.output_tokens = len(times)
            exchange.token_source = TokenSource.CHUNKS
    else:
        exchange.reads = exchange.merged_reads = 0
    if "retry-after" in reception.headers:
        exchange.retry_after_s = _retry_after_s(reception.headers["retry-after"])


def _count_reads(exchange: Exchange, times: list[float]) -> None:
    """All token events of one read have its stamp."""
    exchange.reads = len(set(times))
    exchange.merged_reads = 0
    if exchange.reads < len(times):
        seen: dict[float, int] = {}
        for at in times:
            seen[at] = seen.get(at, 0) + 1
        exchange.merged_reads = sum(1 for count in seen.values() if count > 1)


def _outcome(failure: BaseException | None, reception: Reception | None, reused: bool) -> tuple[ErrorKind | None, str]:
    if reception is None:
        return _connect_failure(failure)
    if failure is not None:
        return _stream_failure(failure, reception, reused)
    if reception.status != 200:
        return _status_failure(reception)
    return _answer_failure(reception)


def _connect_failure(error: BaseException | None) -> tuple[ErrorKind, str]:
    if not isinstance(error, Exception):
        return ErrorKind.CANCELLED, "cut by the end of the run while connecting"
    match error:
        case socket.gaierror():
            kind = ErrorKind.CLIENT_LIMIT if _no_descriptor_left() else ErrorKind.DNS
        case ssl.SSLError():
            kind = ErrorKind.TLS
        case TimeoutError():
            kind = ErrorKind.CONNECT_TIMEOUT
        case ConnectionRefusedError():
            kind = ErrorKind.REFUSED
        case OSError(errno=number) if number in _OUT_OF_RESOURCES:
            kind = ErrorKind.CLIENT_LIMIT
        case OSError():
            kind = ErrorKind.CONNECT
        case MemoryError():
            kind = ErrorKind.CLIENT_LIMIT
        case _:
            kind = ErrorKind.CLIENT
    return kind, str(error) or type(error).__name__


def _stream_failure(error: BaseException, reception: Reception, reused: bool) -> tuple[ErrorKind, str]:
    text = str(error) or type(error).__name__
    match error:
        case LimitPassed():
            return error.kind, text
        case CutShort() | ConnectionError() if not reception.begun:
            kind = ErrorKind.STALE_CONNECTION if reused else ErrorKind.RESET
            return kind, "connection closed before any byte of the answer"
        case CutShort():
            return ErrorKind.TRUNCATED, text
        case OSError(errno=number) if number in _OUT_OF_RESOURCES:
            return ErrorKind.CLIENT_LIMIT, text
        case OSError():
            return ErrorKind.RESET, text
        case HTTPParseError() | UnicodeError():
            return ErrorKind.MALFORMED, text
        case MemoryError():
            return ErrorKind.CLIENT_LIMIT, text
        case Exception():
            return ErrorKind.CLIENT, f"{type(error).__name__}: {text}"
    return ErrorKind.CANCELLED, "cut by the end of the run"


def _status_failure(reception: Reception) -> tuple[ErrorKind, str]:
    status = reception.status
    match status:
        case 401 | 403:
            kind = ErrorKind.HTTP_401
        case 429:
            kind = ErrorKind.HTTP_429
        case _ if 300 <= status < 400:
            return ErrorKind.HTTP_3XX, f"redirect to {reception.headers.get('location', 'nowhere')}"
        case _ if 400 <= status < 500:
            kind = ErrorKind.HTTP_4XX
        case _ if status >= 500:
            kind = ErrorKind.HTTP_5XX
        case _:
            kind = ErrorKind.NON_STREAM
    return kind, f"HTTP {status}: {body_text(reception.body)}"


def _answer_failure(reception: Reception) -> tuple[ErrorKind | None, str]:
    answer = reception.answer
    if answer.error is not None or answer.finish_reason == "error":
        return ErrorKind.STREAM_ERROR, f"{answer.error_type or 'error'}: {answer.error or 'finish_reason error'}"
    if answer.malformed is not None:
        return ErrorKind.MALFORMED, f"event is no JSON object: {answer.malformed}"
    if answer.events == 0 and not answer.done and reception.body:
        return ErrorKind.NON_STREAM, f"no event stream: {body_text(reception.body)}"
    if not answer.complete:
        return ErrorKind.TRUNCATED, "the stream ended without finish_reason and [DONE]"
    if not answer.token_times:
        return ErrorKind.EMPTY, "the answer has no text, no reasoning and no tool call"
    return None, ""


def body_text(body: bytes) -> str:
    """One line out of an error body: JSON's message, HTML without its tags, else the text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return error_text(json.loads(text))
    except ValueError:
        if text[:1] == "<":
            text = re.sub(r"<[^>]*>", " ", text)
        return text or "empty body"


def _retry_after_s(value: str) -> float | None:
    """Seconds from now; the header has seconds or an HTTP date."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def _no_descriptor_left() -> bool:
    """Name resolution reports full descriptor tables as an unknown host."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _OUT_OF_RESOURCES
    return False
