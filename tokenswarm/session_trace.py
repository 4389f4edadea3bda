"""Traces in a format of our own, which finished runs can be exported to: JSON lines, one session a line.

``{"at_s": 12.5, "traffic": "support", "shared": [{"name": "system", "tokens": 400}], "turns": [{"input_tokens": 900,
"output_tokens": 120}, {"input_tokens": 60, "output_tokens": 80, "pause_s": 4.2}]}``. docs/traces.md describes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern
from typing import Annotated

import msgspec

from tokenswarm.trace import SharedText, TraceSession, TraceTurn
from tokenswarm.trace_rows import bad_row, lines_of

_WANTED = (
    '{"at_s": seconds, "turns": [{"input_tokens": …, "output_tokens": …, "pause_s": …}], '
    '"shared": [{"name": …, "tokens": …}], "traffic": name} is wanted'
)
_Tokens = Annotated[int, msgspec.Meta(ge=1, le=100_000_000)]


class _Turn(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    input_tokens: _Tokens
    output_tokens: _Tokens
    pause_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 0.0


class _Piece(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    tokens: _Tokens


class SessionLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One line. ``at_s`` from any zero; ``shared`` is part of the first turn's ``input_tokens``."""

    at_s: Annotated[float, msgspec.Meta(ge=0)]
    turns: Annotated[list[_Turn], msgspec.Meta(min_length=1)]
    shared: list[_Piece] = []
    traffic: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None


def recorded_sessions(path: str) -> Iterator[TraceSession]:
    """In the file's order, at its own seconds. Raises ``InputError``."""
    decode = msgspec.json.Decoder(SessionLine).decode
    pieces: dict[tuple[str, int], SharedText] = {}
    for number, line in lines_of(path):
        try:
            session = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise bad_row(path, number, f"{error}; {_WANTED}") from error
        asked, shared = session.turns[0].input_tokens, sum(piece.tokens for piece in session.shared)
        if shared > asked:
            raise bad_row(path, number, f"shared has {shared} tokens, but the first turn's input_tokens are {asked}")
        yield TraceSession(
            at_s=session.at_s,
            turns=tuple(TraceTurn(turn.input_tokens, turn.output_tokens, turn.pause_s) for turn in session.turns),
            shared=tuple(
                pieces.setdefault((piece.name, piece.tokens), SharedText(piece.name, piece.tokens))
                for piece in session.shared
            ),
            traffic=None if session.traffic is None else intern(session.traffic),
        )


def session_line(session: TraceSession) -> bytes:
    """The line that ``recorded_sessions`` reads as ``session``, without a line end."""
    turns = [  # a default stands for what is left out
        _Turn(turn.input_tokens, turn.output_tokens, *([turn.pause_s] if turn.pause_s else []))
        for turn in session.turns
    ]
    shared = [_Piece(piece.name, piece.tokens) for piece in session.shared]
    return msgspec.json.encode(SessionLine(session.at_s, turns, shared, session.traffic))
