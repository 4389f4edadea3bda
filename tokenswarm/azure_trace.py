"""The Azure LLM inference traces of 2023 (Patel et al., Splitwise) and 2024 (Stojkovic et al., DynamoLLM).

CSV with three columns. Times are ``2023-11-16 18:17:03.9799600``, or ``2024-05-10 00:00:00.009930+00:00``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from tokenswarm.trace import TraceSession, TraceTurn
from tokenswarm.trace_rows import Table, bad_row, shown

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def azure_sessions(path: str) -> Iterator[TraceSession]:
    """One session of one turn a row, in the file's order; times are unix seconds. Raises ``InputError``."""
    for line, (at, asked, answered) in Table(path, COLUMNS).rows():
        try:
            moment = datetime.fromisoformat(at)
            turn = TraceTurn(int(asked), int(answered))
        except ValueError:
            raise bad_row(path, line, _complaint(at, asked, answered)) from None
        if turn.input_tokens < 0 or turn.output_tokens < 0:
            raise bad_row(path, line, _complaint(at, asked, answered))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        yield TraceSession(moment.timestamp(), (turn,))


def _complaint(*cells: str) -> str:
    return f"{' '.join(map(repr, map(shown, cells)))} for {', '.join(COLUMNS)}: a time and whole numbers are wanted"
