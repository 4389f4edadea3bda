"""How a load-generating process fared in about one second, a row of ``health.csv``.

A generator that is short of CPU sends late and reads late, and the server gets the blame. These rows tell.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Counts(NamedTuple):
    """What a process counts itself. ``events`` and ``held_s`` are totals since its start, the others are now.

    ``None`` where nothing can hold the process back.
    """

    events: int  # token events that were decoded
    in_session: int  # users
    waiting: int  # users without a ticket
    backlog_bytes: int | None = None  # rows that the master has not acknowledged
    held_s: float | None = None  # time in which no session was begun because of these


class HealthRow(msgspec.Struct, kw_only=True, gc=False):
    """One process over ``length_s`` seconds from ``begin_s`` on its monotonic clock, within one level.

    Loop lag is how late a timer of the event loop fires. A timer that is due every 20 ms counts as often as it was due,
    so that a loop that stood still for a second has late ones for all of it. Field order is column order.
    """

    worker: str
    level: int | None = None  # None between levels, and where there are none
    begin_s: float
    length_s: float
    cpu_share: float  # CPU time of the process / time: of one core
    loop_lag_p95_s: float | None = None
    loop_lag_max_s: float | None = None
    loop_lag_mean_s: float | None = None
    loop_lags: str = ""  # "bucket:count …" of a ``quantiles.LogHistogram``, so that rows can be pooled
    events: int  # token events decoded in this time
    in_session: int  # at its end, as the following
    waiting: int
    rss_bytes: int | None = None
    backlog_bytes: int | None = None
    held_s: float | None = None  # of this time, without a new session because of the backlog


COLUMNS: tuple[str, ...] = HealthRow.__struct_fields__
