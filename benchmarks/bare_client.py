"""The streaming client alone, in plain greenlets: what is left when Locust, tickets and records are taken away.

Runs as a process of its own: ``python -m benchmarks.bare_client URL STREAMS TOKENS REFERENCE SECONDS FOLDER``.
"""

from __future__ import annotations

import csv
import gc
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import gevent

from tokenswarm.client import StreamingClient
from tokenswarm.endpoint import Endpoint
from tokenswarm.protocols import chat_body
from tokenswarm.target_settings import Timeouts, Tls

COLUMNS = (
    "phase",
    "request_id",
    "sent_s",
    "first_token_s",
    "last_token_s",
    "output_tokens",
    "reads",
    "merged_reads",
    "lag_max_s",
    "error_kind",
)
LAG_SAMPLE = 8  # token times are kept of one request in so many


class Load:
    """``streams`` greenlets with a connection each, one request after the other until the time is up."""

    def __init__(self, url: str, tokens: int, reference: dict[str, Any]) -> None:
        self._endpoint = Endpoint.parse(url)
        messages = [{"role": "user", "content": "word " * 32}]
        self._body = chat_body(
            "reference", messages, max_tokens=tokens, ignore_eos=True, extra={"reference": reference}
        )
        self.rows: list[tuple[Any, ...]] = []
        self.lags_s: list[float] = []

    def run(self, streams: int, seconds: float) -> None:
        end_s = perf_counter() + seconds
        gevent.joinall([gevent.spawn(self._stream, end_s) for _ in range(streams)])

    def _stream(self, end_s: float) -> None:
        client = StreamingClient(self._endpoint, "chat", {}, Timeouts(), Tls())
        while perf_counter() < end_s:
            exchange = client.send(self._body)
            self.rows.append(("measured", *(getattr(exchange, name) for name in COLUMNS[1:])))
            if len(self.rows) % LAG_SAMPLE == 0:
                # Each token's text is the server's send time in nanoseconds.
                sent_ns = map(int, exchange.text.split())
                self.lags_s += [at - ns * 1e-9 for at, ns in zip(exchange.token_times, sent_ns, strict=True)]
        client.close()


def main() -> None:
    url, streams, tokens, reference, seconds, folder = sys.argv[1:]
    load = Load(url, int(tokens), json.loads(reference))
    gc.collect()
    gc.freeze()
    load.run(int(streams), float(seconds))
    with open(Path(folder) / "requests.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([["" if cell is None else cell for cell in row] for row in load.rows])
    (Path(folder) / "lags_s.json").write_text(json.dumps(load.lags_s))


if __name__ == "__main__":
    main()
