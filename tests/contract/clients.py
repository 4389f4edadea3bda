"""Streaming clients for tests, with limits that a test sets itself."""

from __future__ import annotations

from typing import Any

from tokenswarm.client import Exchange, StreamingClient
from tokenswarm.endpoint import Endpoint
from tokenswarm.scenario import Timeouts, Tls


def client(
    url: str,
    *,
    api: Any = "chat",
    headers: dict[str, str] | None = None,
    verify: bool = True,
    ca_file: str | None = None,
    clock: Any = None,
    **limits: float,
) -> StreamingClient:
    """Limits of 20 s unless told otherwise: a test must not hang."""
    timeouts = Timeouts(**({"connect_s": 20, "first_byte_s": 20, "idle_s": 20, "total_s": 20} | limits))
    return StreamingClient(
        Endpoint.parse(url), api, headers or {}, timeouts, Tls(verify=verify, ca_file=ca_file), clock
    )


def send(url: str, body: bytes = b"{}", **options: Any) -> Exchange:
    """One request on a client of its own."""
    one = client(url, **options)
    try:
        return one.send(body)
    finally:
        one.close()
