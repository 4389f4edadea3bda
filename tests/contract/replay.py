"""A server that answers from a script, byte for byte and at given times, and remembers when it wrote what.

Runs as a process of its own (``python replay.py SCRIPT``), a thread a connection, so that it never waits for the client
under test. The script is JSON: ``answers`` maps a path (or ``*``) to an answer, or to a list of them, of which the last
repeats. An answer is ``{"raw": latin-1 text}`` or the pieces of one: ``status``, ``reason``, ``headers``, ``framing``
(``chunked``, ``content-length``, ``close``), ``segments`` (``at_ms`` after the request, and ``data`` as latin-1 text)
and ``end``: ``clean``, ``abort`` (close), ``reset``, ``stall``. ``idle_close_s`` closes a connection that waits for a
request; ``cert`` and ``key`` make it TLS. ``GET /__log`` gives what was asked and when each segment was written, by the
monotonic clock that all processes of the machine share.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen


class Replay:
    """The server as a context: ``url``, and ``log()`` for what it saw."""

    def __init__(self, folder: Path, answers: dict[str, Any], host: str = "127.0.0.1", **options: Any) -> None:
        self._script = folder / f"replay-{len(list(folder.iterdir()))}.json"
        self._script.write_text(json.dumps({"answers": answers, "host": host, **options}))
        self._host = f"[{host}]" if ":" in host else host
        self._scheme = "https" if "cert" in options else "http"

    def __enter__(self) -> Replay:
        command = [sys.executable, __file__, str(self._script)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port, self._log_port = map(int, self._process.stdout.readline().split())
        self.url = f"{self._scheme}://{self._host}:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def log(self) -> list[dict[str, Any]]:
        with urlopen(f"http://127.0.0.1:{self._log_port}/") as answer:
            entries: list[dict[str, Any]] = json.load(answer)
        return entries


def recorded(folder: Path) -> dict[str, Any]:
    """The answer of a case: ``body.bin`` cut and timed as ``delivery.json`` says."""
    delivery: dict[str, Any] = json.loads((folder / "delivery.json").read_text())
    body = (folder / "body.bin").read_bytes().decode("latin-1")
    position = 0
    for segment in delivery["segments"]:
        segment["data"] = body[position : position + segment["len"]]
        position += segment["len"]
    assert position == len(body)
    return delivery


def stream(*segments: tuple[float, str], end: str = "clean", **more: Any) -> dict[str, Any]:
    """An event stream of segments (ms after the request, text)."""
    return {
        "status": 200,
        "headers": [["Content-Type", "text/event-stream"], ["Transfer-Encoding", "chunked"]],
        "framing": "chunked",
        "segments": [{"at_ms": at_ms, "data": data.encode().decode("latin-1")} for at_ms, data in segments],
        "end": {"how": end, "at_ms": segments[-1][0] if segments else 0},
        **more,
    }


def plain(status: int, body: str, *headers: tuple[str, str]) -> dict[str, Any]:
    """An answer in one piece."""
    data = body.encode().decode("latin-1")
    return {
        "status": status,
        "headers": [["Content-Length", str(len(data))], *map(list, headers)],
        "framing": "content-length",
        "segments": [{"at_ms": 0, "data": data}],
        "end": {"how": "clean"},
    }


class _Server:
    def __init__(self, script: dict[str, Any]) -> None:
        self.answers: dict[str, Any] = script["answers"]
        self.idle_close_s: float | None = script.get("idle_close_s")
        self.log: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.context: ssl.SSLContext | None = None
        if "cert" in script:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(script["cert"], script["key"])

    def serve(self, connection: socket.socket, number: int) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            file = connection.makefile("rb")
            while self._one(connection, file, number):
                pass
            file.close()
        except (OSError, ValueError):
            pass
        finally:
            connection.close()

    def _one(self, connection: socket.socket, file: Any, number: int) -> bool:
        connection.settimeout(self.idle_close_s)
        line = file.readline().decode("latin-1").split()
        connection.settimeout(None)
        if not line:
            return False
        headers = {}
        while (text := file.readline().decode("latin-1").strip()) != "":
            name, _, value = text.partition(":")
            headers[name.lower()] = value.strip()
        body = file.read(int(headers.get("content-length", 0)))
        entry = {"at_s": time.perf_counter(), "method": line[0], "path": line[1], "headers": headers}
        entry |= {"bytes": len(body), "connection": number, "writes": []}
        with self.lock:
            self.log.append(entry)
            answer = self.answers.get(line[1].partition("?")[0], self.answers.get("*"))
            if isinstance(answer, list):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return write(connection, answer, entry)


def write(connection: socket.socket, answer: dict[str, Any], entry: dict[str, Any]) -> bool:
    """True where the connection stays open."""
    if "raw" in answer:
        connection.sendall(answer["raw"].encode("latin-1"))
        return bool(answer.get("keep", False))
    _wait(entry["at_s"], answer.get("headers_at_ms", 0))
    head = f"HTTP/1.1 {answer['status']} {answer.get('reason', 'Some reason')}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in answer["headers"])
    connection.sendall(head.encode("latin-1") + b"\r\n")
    chunked = answer["framing"] == "chunked"
    for segment in answer["segments"]:
        data = segment["data"].encode("latin-1")
        _wait(entry["at_s"], segment["at_ms"])
        before_s = time.perf_counter()
        connection.sendall(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
        entry["writes"].append((before_s, time.perf_counter()))
    end = answer["end"]
    _wait(entry["at_s"], end.get("at_ms", 0))
    if end["how"] == "clean":
        if chunked:
            connection.sendall(b"0\r\n\r\n")
        return bool(answer["framing"] != "close")
    if end["how"] == "stall":
        time.sleep(end.get("hold_s", 5))
    elif end["how"] == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def _wait(start_s: float, ms: float) -> None:
    left_s = start_s + ms / 1000 - time.perf_counter()
    if left_s > 0:
        time.sleep(left_s)


def _show_log(listener: socket.socket, server: _Server) -> None:
    while True:
        connection, _ = listener.accept()
        connection.recv(65536)
        with server.lock:
            body = json.dumps(server.log).encode()
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        connection.close()


def main(path: str) -> None:
    script = json.loads(Path(path).read_text())
    server = _Server(script)
    family = socket.AF_INET6 if ":" in script["host"] else socket.AF_INET
    listener = socket.create_server((script["host"], 0), family=family, backlog=2048)
    log_listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], log_listener.getsockname()[1], flush=True)
    threading.Thread(target=_show_log, args=(log_listener, server), daemon=True).start()
    number = 0
    while True:
        connection, _ = listener.accept()
        number += 1
        threading.Thread(target=server.serve, args=(connection, number), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
