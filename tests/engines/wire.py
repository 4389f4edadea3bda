"""A forwarder that stands between Locust and an engine and keeps what both really said.

It parses with the standard library alone, after the load, so that it shares nothing with the client under test.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import threading
from dataclasses import dataclass, field
from typing import Any, cast

BLOCK = 65536
EVENTS, JSON = "text/event-stream", "application/json"


@dataclass
class Exchange:
    """One request and the event stream that answered it."""

    path: str
    request: dict[str, Any]
    events: list[dict[str, Any]]

    @property
    def id(self) -> str:
        return str(self.events[0]["id"])

    @property
    def text(self) -> str:
        """The answer as the server sent it."""
        choices = [choice for event in self.events for choice in event["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    def last(self, key: str) -> dict[str, Any]:
        """What stands under ``key`` in the last event that has it."""
        return cast(dict[str, Any], next(event[key] for event in reversed(self.events) if event.get(key)))


@dataclass
class Connection:
    """Both directions of one connection: blocks of bytes in the order in which they came."""

    blocks: list[tuple[str, bytes]] = field(default_factory=list)

    def turns(self) -> list[tuple[bytes, bytes]]:
        """Each request with its answer."""
        turns: list[tuple[bytes, bytes]] = []
        last = "server"
        for side, data in self.blocks:
            if side == "client" and last == "server":
                turns.append((b"", b""))
            asked, answered = turns[-1]
            turns[-1] = (asked + data, answered) if side == "client" else (asked, answered + data)
            last = side
        return turns


class Wire:
    """Listens on ``url`` and forwards to a port of this machine until ``close``."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[Connection] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def exchanges(self) -> list[Exchange]:
        """What was streamed so far, each connection's in order."""
        parsed = [_parse(*turn) for connection in self._connections for turn in connection.turns()]
        return [exchange for exchange in parsed if exchange is not None]

    def usages(self) -> list[dict[str, Any]]:
        """``usage`` of every answer so far that has one, streamed or not: what the engine was asked in all."""
        answers = [answered for connection in self._connections for _, answered in connection.turns()]
        return [usage for usage in map(_usage, answers) if usage is not None]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                connection = Connection()
                self._connections.append(connection)
                for side, source, sink in (("client", client, server), ("server", server, client)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=_forward, args=(side, source, sink, connection), daemon=True).start()


def _forward(side: str, source: socket.socket, sink: socket.socket, connection: Connection) -> None:
    with contextlib.suppress(OSError):  # the other side has left
        while data := source.recv(BLOCK):
            connection.blocks.append((side, data))
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class _Received:
    """Bytes in the place of a socket, for ``http.client``."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _parse(asked: bytes, answered: bytes) -> Exchange | None:
    """None for what is no streamed answer."""
    head, _, body = asked.partition(b"\r\n\r\n")
    kind, text = _answer(answered)
    return Exchange(head.split(b" ")[1].decode(), json.loads(body), _events(text)) if kind == EVENTS else None


def _usage(answered: bytes) -> dict[str, Any] | None:
    kind, text = _answer(answered)
    said = _events(text) if kind == EVENTS else [json.loads(text)] if kind == JSON else []
    return next((event["usage"] for event in reversed(said) if isinstance(event, dict) and event.get("usage")), None)


def _answer(answered: bytes) -> tuple[str, str]:
    """Content type and body; nothing where a connection ended unanswered: the request was sent again on another one."""
    if not answered:
        return "", ""
    answer = http.client.HTTPResponse(cast(socket.socket, _Received(answered)))
    answer.begin()
    return answer.headers.get_content_type(), answer.read().decode()


def _events(text: str) -> list[dict[str, Any]]:
    lines = text.replace("\r\n", "\n").split("\n")  # splitlines() knows ends that are none in an event stream
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(event) for event in data if event != "[DONE]"]
