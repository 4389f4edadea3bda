"""What is said of one finished level: good enough or not, and how it compares with another. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Judgement(StrEnum):
    """The closed list of answers to: does this level meet every objective?"""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"  # the level proves nothing, or has too few requests to tell


@dataclass(frozen=True)
class LevelVerdict:
    """``why``: the deciding figure, or what stands in the way of a decision; one line.

    ``output_tok_s`` and the E2E median with the ends of its 95 % interval, in seconds, are of the whole level; ``None``
    where unknown.
    """

    judgement: Judgement
    why: str
    output_tok_s: float | None = None
    e2e_p50_s: float | None = None
    e2e_p50_low_s: float | None = None
    e2e_p50_high_s: float | None = None
