"""The hot path: ``StreamingClient.send`` makes one request and tells everything about it, however it ends."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tokenswarm.connection import Clock, Connection, Timeouts
from tokenswarm.dialer import Dialer, Tls
from tokenswarm.endpoint import Api, Endpoint
from tokenswarm.errors import ErrorKind
from tokenswarm.failures import (
    Failure,
    answer_failure,
    connect_failure,
    error_group,
    retry_after_s,
    sample,
    secrets_of,
    status_failure,
    stream_failure,
)
from tokenswarm.keepalive import KeepAlive
from tokenswarm.protocols import AnswerDecoder
from tokenswarm.reception import Reception
from tokenswarm.records import RequestRecord, TokenSource
from tokenswarm.toolcalls import ToolCall

__all__ = ["Exchange", "StreamingClient", "error_group", "request_head"]


class Exchange(msgspec.Struct, kw_only=True):
    """One request and its answer, under the names of ``RequestRecord``; times on the monotonic clock, in seconds."""

    sent_s: float | None = None
    headers_s: float | None = None
    first_token_s: float | None = None
    first_output_s: float | None = None
    last_token_s: float | None = None
    finished_s: float | None = None
    connect_s: float | None = None
    server_queue_s: float | None = None
    server_prefill_s: float | None = None
    server_decode_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    image_tokens: int | None = None
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
    text. ``clock`` forces the reader's own time where kernel stamps would be used. Clients of the same server may share
    what they learn in ``keep_alive``.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        api: Api,
        headers: dict[str, str],
        timeouts: Timeouts,
        tls: Tls,
        clock: Clock | None = None,
        keep_alive: KeepAlive | None = None,
    ) -> None:
        self._api = api
        self._dialer = Dialer(endpoint, timeouts, tls, clock)
        self._keep_alive = keep_alive or KeepAlive()
        self._idle: list[tuple[Connection, float]] = []  # with the end of its last answer
        self._head = request_head(endpoint, endpoint.path_for(api), headers)
        self._secrets = secrets_of(headers)

    def send(self, body: bytes) -> Exchange:
        """Never raises for anything that a server, a network or the end of the run can do."""
        exchange = Exchange(request_bytes=len(body))
        answer = AnswerDecoder(self._api)
        connection: Connection | None = None
        reception: Reception | None = None
        reused = False
        failure: Failure | None
        try:
            connection = self._connection(exchange)
            reused = not connection.fresh
            reception = Reception(connection.parser, connection.clock == "kernel", answer)
            connection.exchange(b"%b%d\r\n\r\n%b" % (self._head, len(body), body), reception)
        except BaseException as error:  # noqa: BLE001 - boundary: every way to end is one Exchange
            failure = stream_failure(error, reception, reused) if reception else connect_failure(error)
            if failure[0] == ErrorKind.STALE_CONNECTION:
                self._keep_alive.doubt()
            if not isinstance(error, Exception):
                exchange.killed = error
            exchange.finished_s = time.perf_counter()
        else:
            failure = status_failure(reception) or answer_failure(answer, reception.body)
            exchange.finished_s = reception.last_s
            if connection.alive:
                self._keep(connection)
        if failure is not None:
            exchange.error_kind = failure[0]
            exchange.error = sample(failure[1], self._secrets)
        if reception is not None and connection is not None:
            _take_facts(exchange, reception, answer, connection.clock)
        return exchange

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()

    def _keep(self, connection: Connection) -> None:
        if self._keep_alive.kept is False:
            connection.close()
        else:
            self._idle.append((connection, time.perf_counter()))

    def _connection(self, exchange: Exchange) -> Connection:
        while self._idle:
            connection, ended_s = self._idle.pop()
            try:
                self._keep_alive.watch(ended_s)
            except BaseException:  # the end of the run
                connection.close()
                raise
            if connection.is_fit():
                self._keep_alive.saw_open()
                return connection
            self._keep_alive.saw_closed(ended_s)
            connection.close()
        start_s = exchange.sent_s = time.perf_counter()
        connection = self._dialer.open()
        exchange.connect_s = time.perf_counter() - start_s
        return connection


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


def _take_facts(exchange: Exchange, reception: Reception, answer: AnswerDecoder, clock: Clock) -> None:
    exchange.sent_s = reception.sent_s
    exchange.headers_s = reception.headers_s
    exchange.http_status = reception.status or None
    exchange.response_bytes = reception.response_bytes
    exchange.clock = clock
    exchange.lag_max_s = reception.lag_max_s
    exchange.request_id = answer.request_id or reception.headers.get("x-request-id")
    exchange.finish_reason = answer.finish_reason
    exchange.prompt_tokens = answer.prompt_tokens
    exchange.cached_tokens = answer.cached_tokens
    exchange.image_tokens = answer.image_tokens
    exchange.output_tokens = answer.output_tokens
    exchange.reasoning_tokens = answer.reasoning_tokens
    exchange.server_queue_s = answer.server_queue_s
    exchange.server_prefill_s = answer.server_prefill_s
    exchange.server_decode_s = answer.server_decode_s
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
        if answer.output_tokens is None and exchange.ok:
            exchange.output_tokens = len(times)
            exchange.token_source = TokenSource.CHUNKS
    else:
        exchange.reads = exchange.merged_reads = 0
    if "retry-after" in reception.headers:
        exchange.retry_after_s = retry_after_s(reception.headers["retry-after"])


def _count_reads(exchange: Exchange, times: list[float]) -> None:
    """All token events of one read have its stamp."""
    exchange.reads = len(set(times))
    exchange.merged_reads = 0
    if exchange.reads < len(times):
        seen: dict[float, int] = {}
        for at in times:
            seen[at] = seen.get(at, 0) + 1
        exchange.merged_reads = sum(1 for count in seen.values() if count > 1)
