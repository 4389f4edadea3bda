"""Whether a server really keeps its connections open: learned once for all users of a process.

llama.cpp promises ``Keep-Alive`` and closes 20 µs after the end of every stream. A user without think time would send
its next request into that close, which looks like a failure of the server. Nothing may be sent twice, so the first
connection that is to be used again is watched for a moment before it is.
"""

from __future__ import annotations

from time import perf_counter

import gevent

_WATCH_S = 0.05  # a close that belongs to the end of an answer follows it at once; the rest is for a busy machine
_IDLE_S = 0.25  # a close after this may be an idle limit, which says nothing of the next connection


class KeepAlive:
    """``kept`` is None until it is known. A close right behind an answer is believed for good."""

    def __init__(self) -> None:
        self.kept: bool | None = None

    def watch(self, ended_s: float) -> None:
        """Give the server time to close a connection whose last answer ended at ``ended_s``, while that is unknown."""
        left_s = _WATCH_S - (perf_counter() - ended_s)
        if self.kept is None and left_s > 0:
            gevent.sleep(left_s)

    def saw_open(self) -> None:
        if self.kept is None:
            self.kept = True

    def saw_closed(self, ended_s: float) -> None:
        if perf_counter() - ended_s < _IDLE_S:
            self.kept = False

    def doubt(self) -> None:
        """A request met a close after all: the next connection is watched again."""
        if self.kept:
            self.kept = None
