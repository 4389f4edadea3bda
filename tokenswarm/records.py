"""The facts of one request, one row of ``requests.csv``. Nothing here is derived; see ``metrics``."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec


class Phase(StrEnum):
    """Which part of a level a request belongs to. Only ``measured`` rows enter a table's counts and latencies."""

    WARMUP = "warmup"  # before measuring: its own result, never mixed in
    MEASURED = "measured"
    FILL = "fill"  # keeps the concurrency up until the last measured session has ended
    DRAIN = "drain"  # in flight when the time of a level or the run was up


class TokenSource(StrEnum):
    """Where ``output_tokens`` comes from."""

    USAGE = "usage"  # the server's own count
    TOKENIZER = "tokenizer"  # counted after the run; an estimate
    CHUNKS = "chunks"  # one token a chunk assumed; an estimate, marked wherever it is shown


class Divergence(StrEnum):
    """How a model's answer compares with the recording that a replayed session goes on with."""

    SAME = "same"  # the same kind of answer, and where tools are called the same ones in the same order
    NO_CALL = "no_call"  # the recording calls a tool here, the model did not
    CALLED = "called"  # the recording answers here, the model called a tool
    OTHER_TOOLS = "other_tools"
    OTHER_ARGUMENTS = "other_arguments"  # the same tools with other arguments


class SessionEnd(StrEnum):
    """How a session came to its end by itself; a failure or a cut stands in ``error_kind``."""

    DONE = "done"  # an answer without a tool call, the last turn, or the end of the recording
    STEP_LIMIT = "step_limit"  # the model still called tools


class RequestRecord(msgspec.Struct, kw_only=True, gc=False):
    """One HTTP exchange. Times are seconds of the worker's monotonic clock; ``None`` is unknown and is never 0.

    Field order is column order in ``requests.csv``.
    """

    # identity
    level: int | None = None  # index in the scenario's list of levels, from 0; None when free-running
    concurrency: int | None = None  # users of the level, or running users when free-running
    phase: str
    ticket: int  # unique within level and phase group; with `seed` it decides prompt and class
    worker: str = ""
    user: int = 0
    traffic: str  # name of the traffic class in the scenario
    session: str = ""
    turn: int = 0
    session_end: str | None = None  # a SessionEnd, on the last request of a session that was played to its end
    arm: str | None = None  # "warm" or "cold", of a prefix-cache test
    pair: int | None = None  # number of the two sessions with the same text, within level and phase group
    prefix: str | None = None  # name of the text at the prompt's head that other sessions share on purpose
    request_id: str | None = None  # the server's
    # times
    pause_s: float | None = None  # duration of the think or tool time before this request; None where there was none
    scheduled_s: float | None = None
    sent_s: float | None = None
    headers_s: float | None = None
    first_token_s: float | None = None
    first_output_s: float | None = None
    last_token_s: float | None = None
    finished_s: float | None = None
    connect_s: float | None = None  # duration; None when the connection was reused
    prepare_s: float | None = None  # the generator's wait for pictures before the session, in its first request
    encode_s: float | None = None  # how long the pictures of the session took to make, in another process, likewise
    # durations as the server tells them
    server_queue_s: float | None = None
    server_prefill_s: float | None = None
    server_decode_s: float | None = None
    # counts
    asked_input_tokens: int | None = None
    asked_output_tokens: int | None = None
    prompt_tokens: int | None = None
    prefix_tokens: int | None = None  # of the prompt, that ``prefix`` names
    history_tokens: int | None = None  # of the prompt, that this session has sent or received before; 0 at its start
    cached_tokens: int | None = None
    images: int | None = None  # in the prompt
    image_pixels: int | None = None
    image_bytes: int | None = None  # of the files, before base64
    image_tokens: int | None = None  # of the prompt, as the server tells them
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    token_source: str | None = None
    chunks: int | None = None  # token events
    tool_calls: int | None = None
    malformed_calls: int | None = None  # of these, calls whose arguments are no JSON object or whose tool is unknown
    divergence: str | None = None  # a Divergence; None where there is no recording
    request_bytes: int | None = None
    response_bytes: int | None = None
    # the generator's own account of how well it saw the stream
    clock: str | None = None  # "kernel": receive stamps of the kernel; "watcher": when our loop read the bytes
    reads: int | None = None  # reads that carried at least one token event
    merged_reads: int | None = None  # of these, reads that carried several (they share one stamp)
    lag_max_s: float | None = None  # largest time from kernel stamp to our reading it
    # outcome
    finish_reason: str | None = None
    http_status: int | None = None
    retry_after_s: float | None = None
    error_kind: str | None = None  # an errors.ErrorKind; None is success
    error: str | None = None  # a short sample of the text, keys removed

    @property
    def ok(self) -> bool:
        return self.error_kind is None


COLUMNS: tuple[str, ...] = RequestRecord.__struct_fields__
HEADER: str = ",".join(COLUMNS) + "\n"


_LAST = len(COLUMNS) - 1
_QUOTED = re.compile('["\\r\\n]')


def to_csv(records: Iterable[RequestRecord]) -> str:
    """Rows without header; blank for ``None``, times with microseconds."""
    return "".join([_line(msgspec.structs.astuple(record)) for record in records])


def _line(values: Sequence[Any]) -> str:
    """Few rows have a cell that needs quotes, and on all others the csv module takes twice as long."""
    cells = ["" if value is None else f"{value:.6f}" if type(value) is float else str(value) for value in values]
    text = ",".join(cells)
    if text.count(",") == _LAST and not _QUOTED.search(text):
        return f"{text}\n"
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)  # puts what is in its own line end into quotes
    return f"{out.getvalue()[:-2]}\n"
