"""Traces as published with Mooncake (Qin et al., FAST '25): one request a line, with the hash of each block.

``{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [block, …]}``. Blocks have 512 tokens,
the last one of a prompt may have fewer. Equal ids are equal text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from tokenswarm.trace import SharedText, TraceSession, TraceTurn
from tokenswarm.trace_rows import bad_row, lines_of

BLOCK_TOKENS = 512
_WANTED = '{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [whole numbers]} is wanted'

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=100_000_000)]


class _Request(msgspec.Struct, gc=False):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: _Tokens
    output_length: _Tokens
    hash_ids: list[int] = []


def mooncake_sessions(path: str) -> Iterator[TraceSession]:
    """One session of one turn a line, in the file's order and at its own seconds. Raises ``InputError``."""
    decode = msgspec.json.Decoder(_Request).decode
    blocks: dict[int, SharedText] = {}
    for number, line in lines_of(path):
        try:
            request = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise bad_row(path, number, f"{error}; {_WANTED}") from error
        yield TraceSession(
            at_s=request.timestamp / 1000,
            turns=(TraceTurn(request.input_length, request.output_length),),
            shared=_pieces(request, blocks, path, number),
        )


def _pieces(request: _Request, blocks: dict[int, SharedText], path: str, number: int) -> tuple[SharedText, ...]:
    """``blocks`` holds the whole ones that came before."""
    ids = request.hash_ids
    whole, rest = divmod(request.input_length, BLOCK_TOKENS)
    if len(ids) > whole + (rest > 0):
        raise bad_row(
            path,
            number,
            f"{len(ids)} hash_ids for {request.input_length} tokens; one for each {BLOCK_TOKENS} tokens is wanted",
        )
    pieces = [blocks.get(id_) or blocks.setdefault(id_, SharedText(str(id_), BLOCK_TOKENS)) for id_ in ids[:whole]]
    if len(ids) > whole:
        pieces.append(SharedText(str(ids[whole]), rest))
    return tuple(pieces)
