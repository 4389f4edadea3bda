"""What really happened: one row a request, in order of arrival, so that a client's figures can be held against facts.

All moments are seconds of CLOCK_MONOTONIC (``time.perf_counter`` on Linux, in every process of the machine), taken
right after the write to the socket. A client can have the bytes a little earlier than that, but never before the same
write began, which ``*_begun_s`` tells. ``planned_*`` are the moments at which the engine's virtual clock wanted them.
First and last token are those that a chunk shows: a special token that ends reasoning or a tool call is counted only.
"""

from __future__ import annotations

from array import array
from collections import deque

import msgspec

MAX_ROWS = 100_000  # about 60 MB; older rows are forgotten and counted
MAX_TOKEN_STAMPS = 4_000_000  # 32 MB; with ``--truth tokens`` no more rows get their stamps after that
PAGE_ROWS = 2_000


class Row(msgspec.Struct, gc=False):
    """Facts of one request; ``None`` is "did not happen (yet)"."""

    number: int
    arrival_s: float  # the whole request was read
    id: str | None = None  # the id in the answer's chunks
    client_id: str | None = None  # the request's x-request-id
    role_s: float | None = None  # the role chunk was written
    first_token_begun_s: float | None = None
    first_token_s: float | None = None
    last_token_begun_s: float | None = None  # None where the answer was cut off
    last_token_s: float | None = None
    finished_s: float | None = None  # the end of the answer was written
    planned_first_token_s: float | None = None
    planned_last_token_s: float | None = None
    max_late_s: float = 0.0  # largest written - planned over the tokens of this request
    queue_wait_s: float | None = None  # arrival until the first step that worked on it
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    images: int | None = None  # in the prompt, where there are any
    image_tokens: int | None = None  # of prompt_tokens
    image_hits: int | None = None  # images found in the multimodal cache
    decoding_s: float | None = None  # arrival until its images were decoded and it went to the engine; real time
    output_tokens: int = 0  # written, and special ones that no chunk shows
    reasoning_tokens: int | None = None  # of a complete answer, where the server looks for reasoning
    tool_calls: int | None = None  # of a complete answer
    malformed_calls: int | None = None  # of these, with arguments that are no JSON
    chunks: int = 0  # written, that show at least one token
    http_status: int | None = None
    ended: str | None = None  # its finish reason, client-left, rejected, or the kind of the failure that hit it
    buffered: bool = False  # the client read too slowly once: stamps are of handing over, not of sending
    token_s: array[float] | None = None  # with --truth tokens


def _encode_array(value: object) -> object:
    if isinstance(value, array):
        return value.tolist()
    raise NotImplementedError(type(value))


class Truth:
    """Keeps the rows of the last ``MAX_ROWS`` requests."""

    def __init__(self, every_token: bool = False) -> None:
        self._rows: deque[Row] = deque(maxlen=MAX_ROWS)
        self._next = 0
        self._stamps_left = MAX_TOKEN_STAMPS if every_token else 0
        self._encoder = msgspec.json.Encoder(enc_hook=_encode_array)

    def add(self, arrival_s: float) -> Row:
        """A new row, which its request fills in."""
        row = Row(number=self._next, arrival_s=arrival_s)
        self._next += 1
        self._rows.append(row)
        return row

    def expect_tokens(self, row: Row, tokens: int) -> None:
        """Makes room for a stamp of each token, if that was asked for and there is any left."""
        if tokens <= self._stamps_left:
            self._stamps_left -= tokens
            row.token_s = array("d")

    def page(self, since: int, limit: int, speed: float) -> bytes:
        """JSON of the rows from number ``since`` on; ``next`` is the ``since`` of the following page."""
        oldest = self._next - len(self._rows)
        first = min(max(since, oldest), self._next)
        last = min(self._next, first + min(limit, PAGE_ROWS))
        rows = [self._rows[number - oldest] for number in range(first, last)]
        head = {"clock": "CLOCK_MONOTONIC", "speed": speed, "total": self._next, "forgotten": oldest, "next": last}
        return self._encoder.encode({**head, "rows": rows})
