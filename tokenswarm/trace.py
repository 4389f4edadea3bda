"""What a trace says of each session: when it came, how long its turns were, and which text it shared with others."""

from __future__ import annotations

import msgspec


class SharedText(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a prompt that every session with the same ``name`` has word for word; ``tokens`` long."""

    name: str
    tokens: int


class TraceTurn(msgspec.Struct, frozen=True, array_like=True):
    """``input_tokens``: of the whole first prompt, or what a later turn adds; ``pause_s`` before the request."""

    input_tokens: int
    output_tokens: int
    pause_s: float = 0.0


class TraceSession(msgspec.Struct, frozen=True, array_like=True):
    """One session of a trace. ``at_s``: seconds from the first session of the trace as it is replayed.

    ``shared``: what the first prompt begins with, piece by piece; what is left of ``input_tokens`` is its own.
    """

    at_s: float
    turns: tuple[TraceTurn, ...]
    shared: tuple[SharedText, ...] = ()
    traffic: str | None = None  # class of the session, where the trace names one
    prefix: str | None = None  # name of what it shares with others: see ``shared_prefixes``
