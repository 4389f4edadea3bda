"""What every kind of session has in common: it gives a turn, hears the answer, and gives the next one."""

from __future__ import annotations

from typing import Protocol

import msgspec

from tokenswarm.records import Divergence, SessionEnd
from tokenswarm.toolcalls import ToolCall
from tokenswarm.traffic.turn import Turn


class Answer(msgspec.Struct, frozen=True):
    """What the model said; ``calls`` are put together from their fragments, in the order in which they began.

    ``cut``: it ended because its length was reached, perhaps inside a call.
    """

    text: str
    calls: list[ToolCall] = []
    cut: bool = False


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says of an answer beyond its times. ``end`` is set with the last answer of a session."""

    end: SessionEnd | None = None
    divergence: Divergence | None = None  # None where there is no recording
    malformed_calls: int | None = None  # None where no tools were offered


class Session(Protocol):
    """One conversation or job. Calls alternate: ``next``, ``hear``, ``next``, ``hear`` ... until ``next`` gives None.

    A session whose request failed is not asked again. All chance comes from the generators it was made with.
    """

    keeps_answers: bool  # the model's own answers stand in the history; False where a recording's do

    def next(self) -> Turn | None:
        """The next request, None when the session is over."""

    def hear(self, answer: Answer) -> Heard:
        """Take the answer to the last turn."""
