"""Measures the process it runs in while it makes load, and writes a row a second: see ``health``."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter, process_time

import gevent
import msgspec

from tokenswarm.health import Counts, HealthRow
from tokenswarm.quantiles import LogHistogram, quantile
from tokenswarm.rundir import csv_lines

BEAT_S = 0.02
ROW_S = 1.0
_MOST_MISSED = 5000  # beats that a standstill adds: 100 s of it, a longer one adds as many at larger distances
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HealthProbe:
    """One for each process and run. ``sink`` takes (file of the run folder, CSV lines), as the recorder's does.

    ``level`` gives the number of the level that is being played; a row ends where it changes.
    """

    def __init__(
        self,
        worker: str,
        sink: Callable[[str, str], None],
        level: Callable[[], int | None],
        counts: Callable[[], Counts],
    ) -> None:
        self._worker = worker
        self._sink = sink
        self._level_now = level
        self._counts_now = counts
        self._beater: gevent.Greenlet | None = None
        self._begin()

    def start(self) -> None:
        self._begin()
        self._beater = gevent.spawn(self._beat_for_ever)

    def close(self) -> None:
        """Write what has been measured since the last row. Harmless when called again."""
        if self._beater is not None:
            self._beater.kill(block=False)
            self._beater = None
            self._write()

    def _begin(self) -> None:
        self._level = self._level_now()
        self._counts = self._counts_now()
        self._lags: list[float] = []
        self._cpu_s = process_time()
        self._begin_s = perf_counter()

    def _beat_for_ever(self) -> None:
        while True:
            asleep_s = perf_counter()
            gevent.sleep(BEAT_S)
            awake_s = perf_counter()
            self._lags += lateness(awake_s - asleep_s - BEAT_S)
            if awake_s - self._begin_s >= ROW_S or self._level_now() != self._level:
                self._write()

    def _write(self) -> None:
        level, begin_s, cpu_s, lags, before = self._level, self._begin_s, self._cpu_s, self._lags, self._counts
        self._begin()
        length_s, now = self._begin_s - begin_s, self._counts
        histogram = LogHistogram()
        for lag_s in lags:
            histogram.add(lag_s)
        row = HealthRow(
            worker=self._worker,
            level=level,
            begin_s=begin_s,
            length_s=length_s,
            cpu_share=(self._cpu_s - cpu_s) / length_s,
            loop_lag_p95_s=quantile(lags, 0.95),
            loop_lag_max_s=max(lags, default=None),
            loop_lag_mean_s=sum(lags) / len(lags) if lags else None,
            loop_lags=" ".join(f"{bucket}:{count}" for bucket, count in sorted(histogram.counts.items())),
            events=now.events - before.events,
            in_session=now.in_session,
            waiting=now.waiting,
            rss_bytes=rss_bytes(),
            backlog_bytes=now.backlog_bytes,
            held_s=_held_s(before.held_s, now.held_s),
        )
        self._sink("health", csv_lines([msgspec.structs.astuple(row)]))


def _held_s(before_s: float | None, now_s: float | None) -> float | None:
    """Of a row, from totals; one that has become smaller began anew, as the process joined again."""
    if now_s is None or before_s is None:
        return now_s
    return now_s - before_s if now_s >= before_s else now_s


def lateness(lag_s: float) -> list[float]:
    """Of a beat that came so late, and of those that were due meanwhile and never came."""
    missed = int(max(0.0, lag_s) / BEAT_S)
    step = 1 + missed // _MOST_MISSED
    return [max(0.0, lag_s - i * BEAT_S) for i in range(0, missed + 1, step)]


def rss_bytes() -> int | None:
    """Memory of this process that is resident now; ``None`` where the system does not show it in ``/proc``."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None
