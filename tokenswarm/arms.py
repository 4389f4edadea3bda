"""The arms of a prefix-cache test: which a session is in, and what keeps its requests from finding others' prompts.

A *warm* request may find whatever earlier warm requests of the run have left in the server's cache. A *cold* one may
not: its prompt belongs to a key of its own, used for one session or for one request. The key becomes vLLM's and
SGLang's ``cache_salt``, or chooses the words of a nonce at the head of the prompt, of the same length in both arms.
"""

from __future__ import annotations

from random import Random
from typing import Literal

import msgspec

from tokenswarm.records import Phase
from tokenswarm.schedule import Arms, Ticket

WARM, COLD = "warm", "cold"


class Isolation(msgspec.Struct, frozen=True):
    """How the arms are kept apart: ``by`` what, and for how long a ``cold`` key is used."""

    by: Literal["salt", "nonce"]
    cold: Literal["session", "request"]


def pair_of(ticket: Ticket) -> int | None:
    """The pair that a ticket belongs to; None where sessions are not paired.

    The two of a pair are as many tickets apart as there are users. Side by side they would start in the same moment and
    go on in step, so that the warm one waits for the cold one's prompt every time and seems to save nothing.
    """
    place = _place(ticket)
    return None if place is None else place[0]


def _place(ticket: Ticket) -> tuple[int, bool] | None:
    """The pair, and whether the ticket is the second of it."""
    level = ticket.level
    if level is None or level.arms != Arms.PAIRED:
        return None
    block, within = divmod(ticket.number, 2 * level.concurrency)
    total = {Phase.WARMUP: level.warmup_sessions, Phase.MEASURED: level.sessions}.get(ticket.phase)
    left = 2 * level.concurrency if total is None else min(2 * level.concurrency, total - ticket.number + within)
    apart = (left + 1) // 2  # the last block may be shorter
    return block * level.concurrency + within % apart, within >= apart


def arm_of(ticket: Ticket, seed: int) -> str | None:
    """``warm`` or ``cold``; in a pair chance decides which of the two comes first. None outside a test."""
    level, place = ticket.level, _place(ticket)
    if level is None or level.arms == Arms.NONE:
        return None
    if place is None:
        return str(level.arms)
    pair, second = place
    swapped = Random(f"arms {seed}/{level.index}/{ticket.phase}/{pair}").random() < 0.5
    return COLD if swapped != second else WARM


def cache_key(arm: str, isolation: Isolation, ticket: Ticket, turn: int, run: str) -> str:
    """What a request shares with all others that may find its prompt cached."""
    if arm == WARM:
        return f"tokenswarm-{run}"
    level = "" if ticket.level is None else ticket.level.index
    own = f"tokenswarm-{run}-{level}-{ticket.phase}-{ticket.number}"
    return own if isolation.cold == "session" else f"{own}-{turn}"
