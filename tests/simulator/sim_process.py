"""A simulator in its own process, on a port the system chose, and the few lines of HTTP the tests need."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]

# Steps of 10 ms whatever the batch, prompts for nothing: every planned time can be told by counting.
STEADY = """
model: steady
max_model_len: 4096
decode_step_s: {0: 0.010}
prefill_token_s: 0.0
prefill_step_tokens: 100000
prefill_request_tokens: 100000
max_num_seqs: 256
kv_blocks: 10000
"""


class Simulator:
    """A running one; ``process`` may be signalled by the test."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers in lower case and body of one exchange on a connection of its own."""
        connection = self.connect()
        try:
            raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, path, raw, headers or {})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get_json(self, path: str) -> Any:
        status, _, body = self.call("GET", path)
        assert status == 200, body
        return json.loads(body)

    def truth(self, since: int = 0) -> list[dict[str, Any]]:
        """All rows from ``since`` on."""
        rows: list[dict[str, Any]] = []
        while True:
            page = self.get_json(f"/truth?since={since}")
            rows += page["rows"]
            since = page["next"]
            if since >= page["total"]:
                return rows


def events(body: bytes) -> list[Any]:
    """The events of a stream as the server cut them: JSON decoded, ``[DONE]`` as that text."""
    parts = body.decode().split("\n\n")
    assert parts.pop() == ""
    payloads = [part.removeprefix("data: ") for part in parts]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def figures(simulator: Simulator) -> dict[str, float]:
    """Samples of /metrics by name, with the labels beyond the usual two."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(simulator.call("GET", "/metrics")[2].decode()):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key not in ("engine", "model_name")}
            found[sample.name + (json.dumps(labels) if labels else "")] = sample.value
    return found


def ask(tokens: int, **more: Any) -> dict[str, Any]:
    """A streamed chat request for exactly so many tokens."""
    message = {"role": "user", "content": "tell me a story"}
    return {"messages": [message], "max_tokens": tokens, "ignore_eos": True, "stream": True, **more}


@contextmanager
def running_simulator(*arguments: str, env: dict[str, str] | None = None) -> Iterator[Simulator]:
    process = subprocess.Popen(
        [sys.executable, "-m", "simulator", *arguments],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line
        yield Simulator(process, int(line.rsplit(":", 1)[1]))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
