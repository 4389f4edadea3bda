"""What the master keeps of a level's requests: enough for its wall time, its tokens in the window, and progress."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenswarm.metrics import tokens_in_window


@dataclass
class LevelFacts:
    """Three numbers for each request after the warm-up, and the sums of the measured ones."""

    first_s: array[float] = field(default_factory=lambda: array("d"))
    last_s: array[float] = field(default_factory=lambda: array("d"))
    tokens: array[float] = field(default_factory=lambda: array("d"))
    ttfts_s: array[float] = field(default_factory=lambda: array("d"))
    measured_from_s: float = float("inf")
    measured_to_s: float = 0.0
    ok_tokens: float = 0.0
    measured_requests: int = 0
    failed_requests: int = 0

    def add(self, facts: Sequence[Any], offset_s: float) -> None:
        """``facts``: see ``gate.completion_facts``."""
        measured, ok, sent_s, first_s, last_s, finished_s, tokens = facts
        if first_s is not None:
            self.first_s.append(first_s + offset_s)
            self.last_s.append(last_s + offset_s)
            self.tokens.append(tokens or 0)
        if not measured:
            return
        self.measured_requests += 1
        self.failed_requests += not ok
        self.measured_from_s = min(self.measured_from_s, sent_s + offset_s)
        self.measured_to_s = max(self.measured_to_s, finished_s + offset_s)
        if ok:
            self.ok_tokens += tokens or 0
            if first_s is not None:
                self.ttfts_s.append(first_s - sent_s)

    @property
    def wall_s(self) -> float:
        return max(0.0, self.measured_to_s - self.measured_from_s) if self.measured_requests else 0.0

    def window_tokens(self, tail: str) -> float:
        """Tokens that count for the level's output tok/s, by the definition for its tail."""
        if tail == "drain":
            return self.ok_tokens
        return sum(
            tokens_in_window(first, last, tokens, self.measured_from_s, self.measured_to_s)
            for first, last, tokens in zip(self.first_s, self.last_s, self.tokens, strict=True)
        )
