"""A trace, read and cut down to what a scenario wants of it."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from operator import attrgetter

from tokenswarm.errors import InputError
from tokenswarm.replay_load import Replay
from tokenswarm.shared_prefixes import SharedPrefixes
from tokenswarm.trace import TraceSession, TraceTurn
from tokenswarm.trace_formats import READERS, format_of

_EMPTY = "without a prompt or an answer"
LONGEST_S = 604_800  # a week, as other loads
_LISTED = 5  # names in one line
_AT = attrgetter("at_s")


@dataclass(frozen=True)
class Trace:
    """``sessions`` in the order of their times, the first one at 0. ``left_out``: how many others the file has, by the
    reason for which they are not played."""

    sessions: Sequence[TraceSession]
    format: str
    left_out: Mapping[str, int]

    @property
    def length_s(self) -> float:
        """Seconds from the first to the last session."""
        return self.sessions[-1].at_s

    def notes(self) -> list[str]:
        """What a reader must know about what was left out."""
        if not self.left_out:
            return []
        return [f"the trace has {len(self.sessions)} sessions to play; left out were {_counts(self.left_out)}"]

    def unnamed_classes(self, known: Sequence[str]) -> str | None:
        """One line where the trace names classes that are not among the ``known`` ones."""
        names = sorted({session.traffic for session in self.sessions if session.traffic} - set(known))
        if not names:
            return None
        listed = ", ".join(names[:_LISTED]) + (" …" if len(names) > _LISTED else "")
        return f"sessions of the trace's classes {listed} are played as {known[0]}: no traffic class has their name"


def read_trace(replay: Replay) -> Trace:
    """The sessions that ``replay`` wants. The last trace is kept, as long as its file does not change.

    Raises ``InputError``, in one line with file and line, where the file is no trace or nothing is left of it.
    """
    try:
        found = os.stat(replay.trace)
    except OSError as error:
        raise InputError(f"{replay.trace}: cannot be read: {error.strerror}") from error
    return _read(replay, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1)
def _read(replay: Replay, _changed_ns: int, _size: int) -> Trace:
    name = format_of(replay.trace, replay.format)
    read, filters = READERS[name], _Filters(replay)
    with _no_collection():
        if replay.from_s or replay.to_s is not None:
            filters.begins_s = min(map(_AT, read(replay.trace)), default=0.0)
        sessions = filters.first(filters.kept(read(replay.trace)))
        if not sessions:
            left_out = _counts(filters.left_out) or "it has none"
            raise InputError(f"{replay.trace}: no session is left to play: {left_out}")
        trace = Trace(tuple(_retimed(sessions, replay.speed)), name, dict(filters.left_out))
    if trace.length_s > LONGEST_S:
        raise InputError(
            f"{replay.trace}: sessions arrive for {trace.length_s:,.0f} s, longer than {LONGEST_S:,} s; "
            "take a part of it (load.replay.from_s, to_s, most_sessions) or a higher speed"
        )
    return trace


class _Filters:
    """``begins_s``: time of the trace's first request, known where a window is wanted."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.begins_s = 0.0
        self.left_out: Counter[str] = Counter()

    def kept(self, sessions: Iterable[TraceSession]) -> Iterator[TraceSession]:
        """Those that nothing speaks against, before ``most_sessions``."""
        windowed = bool(self._replay.from_s) or self._replay.to_s is not None
        lengths = self._replay.input_tokens, self._replay.output_tokens
        sized = any(limits.min or limits.max is not None for limits in lengths)
        for session in sessions:
            reason = self._against(session, windowed, sized)
            if reason is None:
                yield session
            else:
                self.left_out[reason] += 1

    def first(self, kept: Iterator[TraceSession]) -> list[TraceSession]:
        """In the order of their times, ``most_sessions`` at most."""
        most = self._replay.most_sessions
        if most is None:
            return sorted(kept, key=_AT)
        count = 0

        def counted() -> Iterator[TraceSession]:
            nonlocal count
            for count, session in enumerate(kept, 1):  # noqa: B007
                yield session

        sessions = nsmallest(most, counted(), key=_AT)
        if count > most:
            self.left_out["after most_sessions"] = count - most
        return sessions

    def _against(self, session: TraceSession, windowed: bool, sized: bool) -> str | None:
        for turn in session.turns:
            if not turn.input_tokens or not turn.output_tokens:
                return _EMPTY
        if windowed:
            at_s, to_s = session.at_s - self.begins_s, self._replay.to_s
            if at_s < self._replay.from_s or (to_s is not None and at_s >= to_s):
                return "outside from_s and to_s"
        return self._against_lengths(session.turns) if sized else None

    def _against_lengths(self, turns: Sequence[TraceTurn]) -> str | None:
        prompt = 0
        for turn in turns:
            prompt += turn.input_tokens
            if prompt not in self._replay.input_tokens:
                return "outside input_tokens"
            if turn.output_tokens not in self._replay.output_tokens:
                return "outside output_tokens"
            prompt += turn.output_tokens
        return None


def _retimed(sessions: Sequence[TraceSession], speed: float) -> Iterator[TraceSession]:
    """From 0 on, everything ``speed`` times as fast, with what they share named."""
    begins_s = sessions[0].at_s
    prefixes = SharedPrefixes(sessions) if any(session.shared for session in sessions) else None
    for session in sessions:
        shared, prefix = ((), None) if prefixes is None else prefixes.of(session)
        turns = session.turns
        if speed != 1 and len(turns) > 1:
            turns = tuple(TraceTurn(turn.input_tokens, turn.output_tokens, turn.pause_s / speed) for turn in turns)
        yield TraceSession((session.at_s - begins_s) / speed, turns, shared, session.traffic, prefix)


def _counts(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in left_out.items())


@contextmanager
def _no_collection() -> Iterator[None]:
    """A million small objects that all stay are looked through again and again otherwise."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
