"""A server whose answers a test writes down, byte by byte. It counts no tokens, so that prompts are approximate."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODELS = {"object": "list", "data": [{"id": "scripted", "object": "model"}]}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Handler(BaseHTTPRequestHandler):
    """One connection; ``server`` knows what to answer."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Scripted

    def do_GET(self) -> None:
        self.server.gets.append((self.path, dict(self.headers)))
        self.reply(*self.server.get(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not body.get("stream"):  # questions about tokens
            self.reply(*self.server.probe)
            return
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
        self.server.answer(self, number)

    def reply(self, status: int, content: Any, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin(self) -> None:
        self.wfile.write(HEAD)

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def stream(self, *events: bytes) -> None:
        """A whole answer of these events."""
        self.begin()
        for event in events:
            self.chunk(event)
        self.end()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.wfile.flush()
        self.connection.close()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Silence."""


Answer = Callable[[Handler, int], None]


class Scripted(ThreadingHTTPServer):
    """``answer(handler, number)`` answers the streaming request with this number, from 0, in order of arrival."""

    daemon_threads = True

    def __init__(self, answer: Answer, models: tuple[int, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.models = models
        self.probe: tuple[int, Any] = (404, {"error": {"message": "no such route"}})  # to requests that do not stream
        self.lock = threading.Lock()
        self.gets: list[tuple[str, dict[str, str]]] = []
        self.requests: list[dict[str, Any]] = []
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def get(self, path: str) -> tuple[int, Any]:
        return self.models if path == "/v1/models" else (404, {"error": {"message": f"no route {path}"}})

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error of the test."""


@contextlib.contextmanager
def scripted(answer: Answer, models: tuple[int, Any] = (200, MODELS), tls: Any = None) -> Iterator[Scripted]:
    """A running server; ``tls`` is an ``ssl.SSLContext``."""
    server = Scripted(answer, models)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.scheme = "https"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def event(content: Any) -> bytes:
    return b"data: " + (content if isinstance(content, bytes) else json.dumps(content).encode()) + b"\n\n"


def delta(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    """A chunk with a piece of the answer, or with its end."""
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}
    return event({"id": "answer", "object": "chat.completion.chunk", "choices": [choice], **more})


def usage(prompt: int, completion: int) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return event({"id": "answer", "object": "chat.completion.chunk", "choices": [], "usage": counts})


DONE = event(b"[DONE]")


def good(texts: Sequence[str] = ("A", " b", " c")) -> list[bytes]:
    """Events of a complete answer, one token each."""
    return [*(delta(text) for text in texts), delta(finish="length"), usage(5, len(texts)), DONE]
