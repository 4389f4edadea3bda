"""The arms of a prefix-cache test: which a session is in, and what keeps its requests from finding others' prompts.

A *warm* request may find whatever earlier warm requests of the run have left in the server's cache. A *cold* one may
not: its prompt belongs to a key of its own, used for one session or for one request. The key becomes vLLM's and
SGLang's ``cache_salt``, or chooses the words of a nonce at the head of the prompt, of the same length in both arms.
"""

from __future__ import annotations

from random import Random
from typing import Literal

import msgspec

from tokenswarm.schedule import Arms, Level, Ticket

WARM, COLD = "warm", "cold"


class Isolation(msgspec.Struct, frozen=True):
    """How the arms are kept apart: ``by`` what, and for how long a ``cold`` key is used."""

    by: Literal["salt", "nonce"]
    cold: Literal["session", "request"]


def pair_of(level: Level | None, number: int) -> int | None:
    """The pair that ticket ``number`` belongs to; None where sessions are not paired."""
    return number // 2 if level is not None and level.arms == Arms.PAIRED else None


def arm_of(ticket: Ticket, seed: int) -> str | None:
    """``warm`` or ``cold``; in a pair chance decides which of the two comes first. None outside a test."""
    level = ticket.level
    match Arms.NONE if level is None else level.arms:
        case Arms.NONE:
            return None
        case Arms.PAIRED:
            assert level is not None
            swapped = Random(f"arms {seed}/{level.index}/{ticket.phase}/{ticket.number // 2}").random() < 0.5
            return COLD if swapped == (ticket.number % 2 == 0) else WARM
        case one:
            return str(one)


def cache_key(arm: str, isolation: Isolation, ticket: Ticket, turn: int, run: str) -> str:
    """What a request shares with all others that may find its prompt cached."""
    if arm == WARM:
        return f"tokenswarm-{run}"
    level = "" if ticket.level is None else ticket.level.index
    own = f"tokenswarm-{run}-{level}-{ticket.phase}-{ticket.number}"
    return own if isolation.cold == "session" else f"{own}-{turn}"
