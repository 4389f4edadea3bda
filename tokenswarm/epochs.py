"""Which life of the server a level was measured in: one that was started again has cold caches, perhaps other flags.

Pure: no clock, no socket.
"""

from __future__ import annotations

SAME_S = 2.0  # engines round the time of their start


class Epochs:
    """Counts the server's lives from 0. ``number`` is None where nobody knows whether it was started again."""

    def __init__(self, number: int | None = 0, starts_s: dict[str, float] | None = None) -> None:
        """``starts_s``: unix time at which each engine was last known to have been started; after a pause between two
        parts of a run ``number`` counts only if it is known for some engine."""
        self.number = number
        self._starts_s = dict(starts_s or {})

    def look(self, engine: str, start_s: float | None) -> None:
        """An engine says since when it runs; None: it does not say."""
        if start_s is None:
            return
        known_s = self._starts_s.get(engine)
        if known_s is not None and abs(start_s - known_s) > SAME_S:
            self.number = None if self.number is None else self.number + 1
            self._starts_s.clear()  # those of the other engines are learned anew: one restart, one epoch
        self._starts_s[engine] = start_s
