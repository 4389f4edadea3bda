"""The BurstGPT traces (Wang et al., 2024): CSV with 6 columns, or 8 in the releases that name sessions.

Each row is a session of one turn: the files tell which rows belong to one conversation, but not which part of a prompt
is its history. ``Model`` is taken as the name of the class.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from sys import intern

from tokenswarm.trace import TraceSession, TraceTurn
from tokenswarm.trace_rows import Table, bad_row, shown

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def burstgpt_sessions(path: str) -> Iterator[TraceSession]:
    """In the file's order, at its own seconds. Raises ``InputError``."""
    for line, (at, asked, answered, model) in Table(path, COLUMNS, ("Model",)).rows():
        try:
            at_s, turn = float(at), TraceTurn(int(asked), int(answered))
        except ValueError:
            raise bad_row(path, line, _complaint(at, asked, answered)) from None
        if not isfinite(at_s) or turn.input_tokens < 0 or turn.output_tokens < 0:
            raise bad_row(path, line, _complaint(at, asked, answered))
        yield TraceSession(at_s, (turn,), traffic=intern(model) or None)


def _complaint(*cells: str) -> str:
    return f"{' '.join(map(repr, map(shown, cells)))} for {', '.join(COLUMNS)}: seconds and whole numbers are wanted"
