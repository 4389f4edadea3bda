"""Server-sent events out of bytes, whatever the chunking or line ends (WHATWG HTML, section 9.2.6)."""

from __future__ import annotations

from collections.abc import Sequence

Event = tuple[float, bytes]

_BOM = b"\xef\xbb\xbf"


class EventDecoder:
    """Feed it the body of one response, read by read; it hands out what lies in the ``data`` of each complete event.

    Line ends may be LF, CRLF or CR, the space after ``data:`` may be missing, several ``data`` lines are joined by LF.
    Comments, ``event``, ``id`` and ``retry`` lines carry nothing a load tester needs. A line ``error: {...}``, which
    older llama.cpp servers write, comes out as ``{"error": {...}}``.
    """

    __slots__ = ("_data", "_last_s", "_skip_lf", "_started", "_tail")

    def __init__(self) -> None:
        self._tail = bytearray()  # an unfinished line
        self._data: list[bytes] = []  # data lines of an unfinished event
        self._skip_lf = False  # the last byte was a CR that already ended its line
        self._started = False  # a byte order mark can no longer come
        self._last_s = 0.0

    def feed(self, data: bytes, at: float) -> list[Event]:
        """``at`` is the stamp of the read that brought ``data``; each event gets that of the read that completed it."""
        self._last_s = at
        if data[:6] == b"data: " and data[-2:] == b"\n\n" and not self._tail and not self._data:
            payloads = data[6:-2].split(b"\n\ndata: ")
            if data.count(b"\n") == 2 * len(payloads) and b"\r" not in data and not self._skip_lf:
                self._started = True
                return [(at, payload) for payload in payloads]
        return self._feed_lines(data, at)

    def plain(self, parts: Sequence[bytes | bytearray]) -> list[bytes] | None:
        """The payloads of ``parts`` where each is exactly one event of one ``data`` line: what servers mostly send.

        ``None`` where that is not so; then nothing was taken, and the parts have to be fed one by one.
        """
        if self._tail or self._data or self._skip_lf:
            return None
        text = b"".join(parts)
        payloads = text[6:-2].split(b"\n\ndata: ")
        if text[:6] != b"data: " or text[-2:] != b"\n\n" or b"\r" in text or text.count(b"\n") != 2 * len(parts):
            return None
        if list(map(len, payloads)) != [len(part) - 8 for part in parts]:
            return None
        self._started = True
        return payloads

    def close(self) -> list[Event]:
        """The last event of a body that ended without a blank line."""
        return self._feed_lines(b"\n\n", self._last_s) if self._tail or self._data else []

    def _feed_lines(self, data: bytes, at: float) -> list[Event]:
        if self._skip_lf and data:
            self._skip_lf = False
            if data[0] == 10:
                data = data[1:]
        if b"\r" in data:
            self._skip_lf = data[-1] == 13
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            self._tail += data
            return []
        lines = data.split(b"\n")
        lines[0] = bytes(self._tail) + lines[0]
        self._tail[:] = lines.pop()
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(_BOM)
        return [(at, payload) for line in lines if (payload := self._line(line))]

    def _line(self, line: bytes) -> bytes | None:
        """What the line completes: the payload of an event at a blank line."""
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value[1:] if value[:1] == b" " else value)
            elif name == b"error":
                self._data.append(b'{"error":%b}' % value)
            return None
        payload = b"\n".join(self._data)
        self._data.clear()
        return payload
