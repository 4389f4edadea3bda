"""What the server's prefix cache does, found out by a few requests before any load."""

from __future__ import annotations

from typing import Literal

import msgspec

from tokenswarm.tokens import TokenCounter


class CacheProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of one probe; None is "could not be told"."""

    state: Literal["on", "inert", "off", "unknown"]
    block_tokens: int | None = None
    salt: Literal["isolates", "ignored", "refused"] | None = None
    nonce_isolates: bool | None = None
    reports_cached_tokens: bool | None = None
    flag: str | None = None  # the server flag that would make it report them
    line: str = ""  # all of it in one line for a person


class Prober:
    """Sends the probe's requests."""


def probe_cache(server: Prober, counter: TokenCounter, *, api: str = "chat") -> CacheProbe:
    raise NotImplementedError
