"""One response as it comes in: stamps, HTTP framing, content coding, and the decoder behind them."""

from __future__ import annotations

import re
import struct
import sys
import zlib
from collections.abc import Iterable
from time import perf_counter, time_ns
from typing import TYPE_CHECKING

from geventhttpclient._parser import HTTPParseError, HTTPResponseParser

from tokenswarm.errors import ErrorKind
from tokenswarm.protocols import AnswerDecoder
from tokenswarm.sse import EventDecoder

if TYPE_CHECKING:
    from tokenswarm.connection import Timeouts

_timespec = struct.Struct("@ll").unpack
_HEAD_LIMIT = 131072
_INTERIM = re.compile(rb"HTTP/1\.[01] 1")  # 100 Continue and the like; the response itself follows
_CLOCK_STEP_S = 0.001  # somebody set the wall clock while the response came in
_KEPT_BODY = 65536  # bytes of a body that is no event stream


class CutShort(Exception):
    """The connection was closed before the response had ended."""


class UndecodableBody(Exception):
    """The body's content coding is unknown or broken."""


class Tally:
    """What all responses to this process came to so far."""

    __slots__ = ("token_events",)

    def __init__(self) -> None:
        self.token_events = 0


tally = Tally()


class ResponseParser(HTTPResponseParser):
    """llhttp; one object serves all responses of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytearray] = []
        self.names: list[str] = []
        self.values: list[str] = []
        self._on_body = self.bodies.append
        self._on_header_field = self.names.append
        self._on_header_value = self.values.append
        self.headed = False
        self.complete = False
        self.code = 0

    def _on_message_begin(self) -> None:
        pass

    def _on_status(self, text: str) -> None:
        pass

    def _on_headers_complete(self) -> None:
        if not self.headed:
            self.headed = True
            self.code = self.get_code()

    def _on_message_complete(self) -> None:
        self.complete = True


class Reception:
    """``add`` takes reads in order; afterwards the attributes are the facts of the response.

    With an ``answer`` the body of a 200 response is decoded as an event stream, unless it is JSON or HTML; without, it
    is kept as it is.
    """

    def __init__(self, parser: ResponseParser, stamped: bool = False, answer: AnswerDecoder | None = None) -> None:
        self.answer = answer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.sent_s = 0.0
        self.headers_s: float | None = None
        self.last_s = 0.0  # stamp of the last read
        self.lag_max_s: float | None = None
        self.response_bytes = 0
        self.body = b""  # beginning of a body that is no event stream
        self.reusable = False
        self.eager = True  # reads cannot wait: the end of the response would not be seen by its last bytes
        self.begun = False  # a byte of the response has come
        self.body_begun = False
        self._last_read_s = 0.0
        self._stamped = stamped
        self._clean = True
        self._parser = parser
        self._head = b""
        self._events: EventDecoder | None = None
        self._inflate: _Inflater | _Unknown | None = None
        self._keep = 0  # bytes of the body that are still to be kept
        self._base_s = 0
        self._offset_s = 0.0

    def begin(self) -> None:
        """Takes the time of sending, and how far the wall clock, in which the kernel stamps, is ahead of it."""
        parser = self._parser
        parser.headed = parser.complete = False
        parser.names.clear()
        parser.values.clear()
        parser.bodies.clear()
        before_s = perf_counter()
        wall_ns = time_ns()
        self.sent_s = now_s = perf_counter()
        if self._stamped:
            if now_s - before_s > 2e-5:  # the process was interrupted in between
                before_s = perf_counter()
                wall_ns = time_ns()
                self.sent_s = now_s = perf_counter()
            self._base_s, nanoseconds = divmod(wall_ns, 1_000_000_000)
            self._offset_s = nanoseconds * 1e-9 - (before_s + now_s) / 2

    def add(self, reads: list[bytes], times: list[float], marks: list[bytes | None]) -> bool:
        """True when the response is complete. ``marks`` are the kernel's stamps (a timespec), where it gives any."""
        stamps = self._stamps(times, marks) if marks else times
        self._last_read_s = times[-1]
        self.last_s = stamps[-1]
        parser = self._parser
        arrivals: list[float] = []  # a stamp for each piece of the body in ``parser.bodies``
        try:
            for data, stamp in zip(reads, stamps):  # noqa: B905 - equal by construction, and this is the hot path
                if parser.headed and data:
                    parser.feed(data)
                else:
                    self._parse_head(data, stamp)
                while len(arrivals) < len(parser.bodies):
                    arrivals.append(stamp)
        except HTTPParseError:
            if not parser.complete:
                raise
            self._clean = False  # bytes after the end: the answer stands, the connection is not used again
        finally:
            arrivals += [self.last_s] * (len(parser.bodies) - len(arrivals))
            if arrivals:
                self._take_body(arrivals)
        return parser.complete and self._end()

    def _take_body(self, arrivals: list[float]) -> None:
        bodies: list[bytes | bytearray] = [*self._parser.bodies]
        self._parser.bodies.clear()
        self.response_bytes += sum(map(len, bodies))
        if self._inflate is not None:
            bodies = [self._inflate.feed(bytes(body)) for body in bodies]
        if not self.body_begun:
            self.body_begun = True
            self._open_body(bytes(bodies[0]))
        if self._keep > 0:
            self.body += b"".join(bodies)[: self._keep]
            self._keep -= len(self.body)
        if self._events is None or self.answer is None:
            return
        before = len(self.answer.token_times)
        self.answer.add(_events_of(self._events, bodies, arrivals))
        tally.token_events += len(self.answer.token_times) - before

    def _open_body(self, start: bytes) -> None:
        """JSON or a page of HTML is no event stream, whatever the headers say."""
        told = "event-stream" in self.headers.get("content-type", "").lower()
        if self.answer is None:
            self._keep = sys.maxsize
        elif self.status != 200 or start.lstrip()[:1] in (b"{", b"[", b"<"):
            self._keep = _KEPT_BODY
        else:
            self._events = EventDecoder()
            self._keep = 0 if told else _KEPT_BODY

    def _end(self) -> bool:
        self.reusable = self._clean and self._parser.should_keep_alive()
        if self._events is not None and self.answer is not None:
            self.answer.add(self._events.close())
        return True

    def due(self, limits: Timeouts) -> tuple[ErrorKind, float, float]:
        """The limit that is reached next: its kind, its length, and when."""
        total = (ErrorKind.TOTAL_TIMEOUT, limits.total_s, self.sent_s + limits.total_s)
        if self.body_begun:
            quiet = (ErrorKind.IDLE_TIMEOUT, limits.idle_s, self._last_read_s + limits.idle_s)
        else:
            quiet = (ErrorKind.FIRST_BYTE_TIMEOUT, limits.first_byte_s, self.sent_s + limits.first_byte_s)
        return min(total, quiet, key=lambda limit: limit[2])

    def _stamps(self, times: list[float], marks: list[bytes | None]) -> list[float]:
        """Kernel receive times on the monotonic clock; a read without a plausible one keeps its own time."""
        base_s, offset_s, lag_s = self._base_s, self._offset_s, -1.0
        earliest_s = self.sent_s
        wall_s = (time_ns() - base_s * 1_000_000_000) * 1e-9
        if abs(wall_s - perf_counter() - offset_s) > _CLOCK_STEP_S:
            return times
        stamps = []
        for read_s, mark in zip(times, marks):  # noqa: B905 - equal by construction, and this is the hot path
            if mark:
                seconds, nanoseconds = _timespec(mark)
                stamp = (seconds - base_s) + nanoseconds * 1e-9 - offset_s
                if earliest_s <= stamp <= read_s:
                    stamps.append(stamp)
                    if read_s - stamp > lag_s:
                        lag_s = read_s - stamp
                    continue
            stamps.append(read_s)
        if lag_s >= 0.0:
            self.lag_max_s = max(lag_s, self.lag_max_s or 0.0)
        return stamps

    def _parse_head(self, data: bytes, stamp: float) -> None:
        """The parser gets the head in one piece, so that names and values of headers come out whole."""
        if not data:
            self._cut()
            return
        self.begun = True
        self._head += data
        while _INTERIM.match(self._head) and b"\r\n\r\n" in self._head:
            self._head = self._head.partition(b"\r\n\r\n")[2]
        if _could_be_head(self._head):
            return
        head, self._head = self._head, b""
        parser = self._parser
        try:
            parser.feed(head)
        except HTTPParseError:
            if not parser.complete:
                raise
            self._clean = False
        if parser.headed:
            self.headers_s = stamp
            self.status = parser.code
            self.headers = headers = {
                name.lower(): value
                for name, value in zip(parser.names, parser.values)  # noqa: B905 - equal by construction
            }
            self.eager = "chunked" not in headers.get("transfer-encoding", "").lower()
            self._inflate = _inflater(headers.get("content-encoding", "identity").lower())

    def _cut(self) -> None:
        """The end of the connection is the end of the body where nothing else tells it."""
        try:
            if self._head:
                self._parser.feed(self._head)
            self._parser.feed(b"")
        except HTTPParseError:
            raise CutShort("connection closed before the response had ended") from None
        if not self._parser.complete:  # not a byte of it had come: to the parser, no message has ended badly
            raise CutShort("connection closed before the response had begun")


def _events_of(
    decoder: EventDecoder, bodies: list[bytes | bytearray], arrivals: list[float]
) -> Iterable[tuple[float, bytes]]:
    """The short way where it goes; a big read may cut its first and its last piece, but not those in between."""
    payloads = decoder.plain(bodies)
    if payloads is not None:
        return zip(arrivals, payloads)  # noqa: B905 - equal by construction
    events: list[tuple[float, bytes]] = []
    start = 0
    if len(bodies) > 3:
        events += decoder.feed(bytes(bodies[0]), arrivals[0])
        start = 1
        inner = decoder.plain(bodies[1:-1])
        if inner is not None:
            events += zip(arrivals[1:-1], inner)  # noqa: B905 - equal by construction
            start = len(bodies) - 1
    for at, body in zip(arrivals[start:], bodies[start:], strict=True):
        events += decoder.feed(bytes(body), at)
    return events


def _could_be_head(data: bytes) -> bool:
    return b"\r\n\r\n" not in data and len(data) < _HEAD_LIMIT and data[:5] == b"HTTP/"[: len(data)]


def _inflater(coding: str) -> _Inflater | _Unknown | None:
    if coding in ("gzip", "x-gzip", "deflate"):
        return _Inflater()
    return None if coding == "identity" else _Unknown(coding)


class _Unknown:
    """A content coding that was not asked for and is not known here."""

    def __init__(self, coding: str) -> None:
        self._coding = coding

    def feed(self, data: bytes) -> bytes:
        raise UndecodableBody(f"content-encoding {self._coding} cannot be decoded")


class _Inflater:
    """gzip, also of several members, and both things that are called deflate."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=47)
        self._untouched = True

    def feed(self, data: bytes) -> bytes:
        try:
            return self._decompress(data)
        except zlib.error as error:
            raise UndecodableBody(str(error)) from None

    def _decompress(self, data: bytes) -> bytes:
        try:
            out = self._inflate.decompress(data)
        except zlib.error:
            if not self._untouched:
                raise
            self._inflate = zlib.decompressobj(wbits=-15)
            out = self._inflate.decompress(data)
        self._untouched = False
        while self._inflate.eof and self._inflate.unused_data:
            rest = self._inflate.unused_data
            self._inflate = zlib.decompressobj(wbits=47)
            out += self._inflate.decompress(rest)
        return out
