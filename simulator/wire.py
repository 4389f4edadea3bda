"""The server's side of HTTP/1.1 on one connection: requests in, bytes out without a detour through the event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from http import HTTPStatus

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Request:
    """One complete request; header names in lower case."""

    __slots__ = ("body", "headers", "keep_alive", "method", "path", "query")

    def __init__(self, method: str, target: str, version: str, headers: dict[str, str]) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        connection = headers.get("connection", "").lower()
        self.keep_alive = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
        self.body = b""


class BadRequest(Exception):
    """The bytes are no HTTP this server understands; carries the status to answer with."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def parse_head(head: bytes) -> Request:
    """Request line and headers, without the empty line."""
    try:
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        pairs = (line.split(":", 1) for line in lines)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
    except ValueError:
        raise BadRequest(400) from None
    if not version.startswith("HTTP/1."):
        raise BadRequest(505)
    return Request(method, target, version, headers)


def take_chunked(buffer: bytearray, start: int) -> tuple[bytes, int] | None:
    """Decodes a chunked body from ``start``; gives it and where it ends, or ``None`` while it is incomplete."""
    body = bytearray()
    while True:
        line_end = buffer.find(b"\r\n", start)
        if line_end < 0:
            return None
        try:
            size = int(buffer[start:line_end].partition(b";")[0], 16)
        except ValueError:
            raise BadRequest(400) from None
        data = line_end + 2
        if len(body) + size > MAX_BODY_BYTES:
            raise BadRequest(413)
        if len(buffer) < data + size + 2:
            return None
        if size == 0:
            trailer_end = buffer.find(b"\r\n", data)
            return bytes(body), trailer_end + 2
        body += buffer[data : data + size]
        start = data + size + 2


class Connection(asyncio.Protocol):
    """Reads one request after the other; the next is looked at when :meth:`finish` ends the answer to this one.

    ``accept(connection)`` is called first and may close it; ``handle(connection, request)`` has to answer;
    ``gone(connection)`` is called when the peer left.
    """

    def __init__(
        self,
        accept: Callable[[Connection], None],
        handle: Callable[[Connection, Request], None],
        gone: Callable[[Connection], None],
    ) -> None:
        self._accept, self._handle, self._gone = accept, handle, gone
        self._buffer = bytearray()
        self._head: Request | None = None
        self._head_bytes = 0
        self._answering = False
        self._keep_alive = True
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self.answer: object = None  # whatever the server ties to the request being answered
        self.buffered = False  # the last write did not fit into the socket

    # -- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fd = sock.fileno()
        self._accept(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next_request()

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._fd = -1
        self._gone(self)

    # -- answering -------------------------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Straight to the socket, so that a stamp taken now is the moment of sending; the rest of what does not fit
        is left to the loop.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.buffered = bool(transport.get_write_buffer_size())
        if not self.buffered:
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                transport.abort()
                return
            if sent == len(data):
                return
            self.buffered = True
            data = data[sent:]
        transport.write(data)

    def respond(self, status: int, body: bytes, content_type: str, headers: dict[str, str] | None = None) -> None:
        """A whole answer with its length."""
        fields = {"content-type": content_type, "content-length": str(len(body)), **(headers or {})}
        self.write(self.head(status, fields) + body)
        self.finish()

    def head(self, status: int, fields: dict[str, str]) -> bytes:
        """Status line and headers, as bytes to write."""
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "server: tokenswarm-simulator"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        if not self._keep_alive:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def finish(self) -> None:
        """The answer is complete: close, or look at what else has come on this connection."""
        self._answering = False
        self.answer = None
        if not self._keep_alive:
            self.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._next_request)

    def close(self) -> None:
        """Orderly end, after what was written."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """The peer sees a TCP reset."""
        if self._transport is not None:
            sock: socket.socket = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()

    # -- reading ---------------------------------------------------------------------------------------------------

    def _next_request(self) -> None:
        if self._answering or not self.open:
            return
        try:
            request = self._take_request()
        except BadRequest as error:
            self._keep_alive = False
            self._answering = True
            self.respond(error.status, b"Invalid HTTP request received.", "text/plain; charset=utf-8")
            return
        if request is not None:
            self._answering = True
            self._keep_alive = request.keep_alive
            self._handle(self, request)

    def _take_request(self) -> Request | None:
        """The next request once all of it is there."""
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end > MAX_HEAD_BYTES or (end < 0 and len(self._buffer) > MAX_HEAD_BYTES):
                raise BadRequest(431)
            if end < 0:
                return None
            self._head = parse_head(bytes(self._buffer[:end]))
            self._head_bytes = end + 4
            if self._head.headers.get("expect", "").lower() == "100-continue":
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        taken = self._take_body(self._head)
        if taken is None:
            return None
        request, self._head = self._head, None
        request.body, end = taken
        del self._buffer[:end]
        return request

    def _take_body(self, request: Request) -> tuple[bytes, int] | None:
        if "chunked" in request.headers.get("transfer-encoding", "").lower():
            return take_chunked(self._buffer, self._head_bytes)
        length = request.headers.get("content-length", "0")
        if not length.isdecimal():
            raise BadRequest(400)
        if int(length) > MAX_BODY_BYTES:
            raise BadRequest(413)
        end = self._head_bytes + int(length)
        if len(self._buffer) < end:
            return None
        return bytes(self._buffer[self._head_bytes : end]), end
