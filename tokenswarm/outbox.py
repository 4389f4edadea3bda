"""What a worker has recorded, on its way to the master: in order, numbered, and held in bounded memory.

The master acknowledges every message. While many are under way the next ones wait here, and while these are too many
bytes no new session may begin: a slow master or network slows the load down, and is told as such, but loses nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

MOST_UNDER_WAY = 64  # messages
MOST_BYTES = 16_000_000


class Outbox:
    """Of one life of a worker: the master counts its messages from 1."""

    def __init__(self, life: int, send: Callable[[str, dict[str, Any]], None], hold: Callable[[bool], None]) -> None:
        """``hold`` is told when sessions may not begin any more, and when they may again."""
        self.life = life
        self._send = send
        self._hold = hold
        self._sizes: deque[tuple[int, int]] = deque()  # number and bytes of what is under way
        self._waiting: deque[tuple[str, dict[str, Any], int]] = deque()
        self._number = 0
        self._held_since_s: float | None = None
        self._held_s = 0.0
        self.backlog_bytes = 0

    @property
    def held_s(self) -> float:
        """Seconds in which no session could begin."""
        since_s = self._held_since_s
        return self._held_s + (0.0 if since_s is None else perf_counter() - since_s)

    @property
    def behind(self) -> bool:
        """Messages wait here because too many are under way."""
        return bool(self._waiting)

    def post(self, message: str, data: dict[str, Any], size: int) -> None:
        """``size``: about how many bytes."""
        self.backlog_bytes += size
        self._waiting.append((message, data, size))
        self._forward()

    def acknowledged(self, life: int, number: int) -> None:
        """The master has all messages up to this one."""
        if life != self.life:
            return
        while self._sizes and self._sizes[0][0] <= number:
            self.backlog_bytes -= self._sizes.popleft()[1]
        self._forward()

    def _forward(self) -> None:
        while self._waiting and len(self._sizes) < MOST_UNDER_WAY:
            message, data, size = self._waiting.popleft()
            self._number += 1
            self._sizes.append((self._number, size))
            self._send(message, {**data, "life": self.life, "number": self._number})
        self._regulate()

    def _regulate(self) -> None:
        held = self._held_since_s is not None
        if not held and self.backlog_bytes > MOST_BYTES:
            self._held_since_s = perf_counter()
            self._hold(True)
        elif held and self.backlog_bytes < MOST_BYTES / 2:
            self._held_s = self.held_s
            self._held_since_s = None
            self._hold(False)
