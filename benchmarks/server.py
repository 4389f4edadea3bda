"""The reference server as a child process, and its own record of what it sent when."""

from __future__ import annotations

import csv
import io
import json
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks import build
from benchmarks.build import BenchmarkError
from benchmarks.process import PinnedProcess


@dataclass(frozen=True)
class TruthRow:
    """One request as the server saw it; nanoseconds of CLOCK_MONOTONIC.

    ``received_ns`` is when the kernel had the request; the tokens' times are read just before they are written.
    ``late_ns`` is how far the server itself missed one of its deadlines; ``first_token_ns`` is ``None`` when the client
    went away before any token.
    """

    request_id: str
    received_ns: int
    first_token_ns: int | None
    last_token_ns: int | None
    late_ns: int
    asked: int
    tokens: int


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class ReferenceServer:
    """Started on ``core``; ``options`` as in the head of ``reference_server.c``, ``prefix`` runs before it."""

    def __init__(
        self,
        core: int,
        log: Path,
        *,
        host: str = "127.0.0.1",
        options: Sequence[str] = (),
        prefix: Sequence[str] = (),
        urgent: bool = False,
    ) -> None:
        binary = build.reference_server()
        self._folder = tempfile.TemporaryDirectory(prefix="reference-")  # a short path: sockets allow 107 bytes
        control = str(Path(self._folder.name) / "control")
        command = [*prefix, str(binary), "--host", host, "--control", control, "--die-with-parent", *options]
        self.process = PinnedProcess(command, core=core, log=log, stdout=subprocess.PIPE, urgent=urgent)
        assert self.process.popen.stdout is not None
        line = self.process.popen.stdout.readline().decode().strip()
        if not line.startswith("listening on "):
            self.close()
            raise BenchmarkError(f"the reference server did not start: {self.process.last_line()}")
        self.url = "http://" + line.removeprefix("listening on ")
        self._control = _UnixConnection(control)

    def __enter__(self) -> ReferenceServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.process.__exit__()
        self._folder.cleanup()

    def _get(self, path: str) -> bytes:
        self._control.request("GET", path)
        return self._control.getresponse().read()

    def stats(self) -> dict[str, Any]:
        """Counters so far: ``now_ns``, ``requests``, ``finished``, ``aborted``, ``active``, ``tokens``,
        ``first_request_ns`` (0 before it)."""
        counters: dict[str, Any] = json.loads(self._get("/stats"))
        return counters

    def truth(self) -> list[TruthRow]:
        """All finished requests, oldest first; ``BenchmarkError`` when the server has forgotten some."""
        rows: list[TruthRow] = []
        while True:
            page = list(csv.DictReader(io.StringIO(self._get(f"/truth?after={len(rows)}").decode())))
            if not page:
                return rows
            if int(page[0]["n"]) != len(rows) + 1:
                raise BenchmarkError("more requests than the server remembers: raise its --records")
            rows += [_truth_row(row) for row in page]


def _truth_row(row: dict[str, str]) -> TruthRow:
    return TruthRow(
        request_id=row["request_id"],
        received_ns=int(row["received_ns"]),
        first_token_ns=int(row["first_token_ns"]) if row["first_token_ns"] else None,
        last_token_ns=int(row["last_token_ns"]) if row["last_token_ns"] else None,
        late_ns=int(row["late_ns"]),
        asked=int(row["asked"]),
        tokens=int(row["tokens"]),
    )
