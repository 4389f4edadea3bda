"""The facts of one request, one row of ``requests.csv``. Nothing here is derived; see ``metrics``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
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
    arm: str | None = None  # of a paired test
    request_id: str | None = None  # the server's
    # times
    scheduled_s: float | None = None
    sent_s: float | None = None
    headers_s: float | None = None
    first_token_s: float | None = None
    first_output_s: float | None = None
    last_token_s: float | None = None
    finished_s: float | None = None
    connect_s: float | None = None  # duration; None when the connection was reused
    # counts
    asked_input_tokens: int | None = None
    asked_output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    token_source: str | None = None
    chunks: int | None = None  # token events
    tool_calls: int | None = None
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


def _cell(value: Any) -> Any:
    return f"{value:.6f}" if type(value) is float else value


def to_csv(records: Iterable[RequestRecord]) -> str:
    """Rows without header; blank for ``None``, times with microseconds."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    for record in records:
        write([_cell(value) for value in msgspec.structs.astuple(record)])
    return out.getvalue()
