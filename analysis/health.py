"""How the load generator fared in a level: what ``health.csv`` tells of its processes, and the requests of their sends.

Nothing here judges; see ``health_verdict``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.figures import Figure, number, ratio
from analysis.requests_csv import kept, values_of
from analysis.run_folder import Run
from analysis.window import Window
from tokenswarm.quantiles import LogHistogram, quantile_of_sorted

WHOLE_S = 0.5  # a shorter row is no second that could be the worst one
_COLUMNS = [
    *("phase", "worker", "user", "traffic", "error_kind", "sent_s", "first_token_s", "last_token_s", "connect_s"),
    *("prepare_s", "send_delay_s", "lag_max_s", "reads", "merged_reads", "clock", "ttft_s", "tpot_s", "e2e_s"),
]
_COUNT = re.compile(r"(-?\d{1,5}):(\d{1,9})(?= |$)")
_LARGEST_BUCKET = 2000  # 1.02 ** 2000 s; beyond it is damage


@dataclass(frozen=True)
class Process:
    """One load-generating process over a level. Shares of one core; ``None`` where nothing is known."""

    worker: str
    seconds: float  # that are known
    cpu_share: float | None  # mean over the level
    cpu_share_max: float | None  # of its worst second
    loop_lag_p95_s: float | None
    loop_lag_max_s: float | None
    events_per_s: float | None  # token events
    rss_bytes: float | None  # the most
    backlog_bytes: float | None  # the most
    held_s: float | None  # together


@dataclass(frozen=True)
class Sends:
    """What the requests of a level tell of the process that sent and read them.

    ``late_merged_share``: reads with several token events, of requests of which a read was late by half ``read_gap_s``,
    over all reads; None where the kernel does not tell. ``streams`` are the requests that were read.
    ``ttft_s``, ``tpot_s`` and ``e2e_s`` are the smallest median that a traffic class has, ``read_gap_s`` is the median
    time between two reads of a stream. ``kernel``: all stamps are the kernel's, so that late reading is in no latency.
    """

    sends: int
    delay_p50_s: float | None
    delay_p95_s: float | None
    read_lag_p95_s: float | None
    streams: int
    merged_share: float | None
    late_merged_share: float | None
    read_gap_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    kernel: bool


@dataclass(frozen=True)
class LevelHealth:
    """Of all processes and requests of one level. ``by_clock``: sessions had times of their own; with ``waits`` one
    could have to wait for a user, which is in the send delay and no fault of the generator."""

    processes: tuple[Process, ...]
    sends: Sends
    by_clock: bool = False
    waits: bool = False

    @property
    def known(self) -> bool:
        """False for runs that kept no ``health.csv``, and for levels of which it has no row."""
        return bool(self.processes)

    def most(self, fact: str) -> float | None:
        """The largest that a process has; ``fact``: one of its names."""
        return max((value for one in self.processes if (value := getattr(one, fact)) is not None), default=None)

    def total(self, fact: str) -> float | None:
        known = [value for one in self.processes if (value := getattr(one, fact)) is not None]
        return sum(known) if known else None

    @property
    def figures(self) -> dict[str, Figure]:
        """Of the process that has most of it."""
        sends = self.sends
        values = {
            "load_processes": float(len(self.processes)) if self.known else None,
            "cpu_share": self.most("cpu_share"),
            "cpu_share_max": self.most("cpu_share_max"),
            "loop_lag_p95_s": self.most("loop_lag_p95_s"),
            "send_delay_p50_s": sends.delay_p50_s,
            "send_delay_p95_s": sends.delay_p95_s,
            "read_lag_p95_s": sends.read_lag_p95_s,
            "process_events_per_s": self.most("events_per_s"),
            "merged_reads_share": sends.merged_share,
            "held_s": self.most("held_s"),
        }
        return {name: number(value) for name, value in values.items()}


def health_of(run: Run, level: int | None, rows: pd.DataFrame, window: Window | None, *, by_clock: bool) -> LevelHealth:
    """``rows``: of all phases of the level; ``window``: its measured time."""
    plan = next((one for one in run.planned_levels if level is not None and one.get("level") == level), {})
    return LevelHealth(
        processes=_processes(run.health, level, window),
        sends=_sends(rows, by_clock=by_clock),
        by_clock=by_clock,
        waits=plan.get("when_full") == "wait",
    )


def _processes(health: pd.DataFrame, level: int | None, window: Window | None) -> tuple[Process, ...]:
    rows = health[health["level"].isna() if level is None else health["level"] == level]
    rows = rows[rows["length_s"] > 0]
    if window is None or rows.empty:
        return ()
    rows = _measured(rows, window)
    return tuple(_process(str(worker), some) for worker, some in rows.groupby("worker", sort=True))


def _measured(rows: pd.DataFrame, window: Window) -> pd.DataFrame:
    """The rows whose middle lies in the window; all that touch it where that is shorter than a row."""
    middle = rows["begin_s"] + rows["length_s"] / 2
    inside = rows[middle.between(window.start_s, window.end_s)]
    if len(inside):
        return inside
    return rows[(rows["begin_s"] <= window.end_s) & (rows["begin_s"] + rows["length_s"] >= window.start_s)]


def _process(worker: str, rows: pd.DataFrame) -> Process:
    whole = rows[rows["length_s"] >= WHOLE_S]
    told = rows.dropna(subset=["cpu_share"])
    busy_s = float((told["cpu_share"] * told["length_s"]).sum())
    counted = rows.dropna(subset=["events"])
    return Process(
        worker=worker,
        seconds=float(rows["length_s"].sum()),
        cpu_share=ratio(busy_s, float(told["length_s"].sum())),
        cpu_share_max=_most((whole if len(whole) else rows)["cpu_share"]),
        loop_lag_p95_s=_pooled_lags(rows["loop_lags"].dropna()).quantile(0.95),
        loop_lag_max_s=_most(rows["loop_lag_max_s"]),
        events_per_s=ratio(float(counted["events"].sum()), float(counted["length_s"].sum())),
        rss_bytes=_most(rows["rss_bytes"]),
        backlog_bytes=_most(rows["backlog_bytes"]),
        held_s=float(rows["held_s"].sum()) if rows["held_s"].notna().any() else None,
    )


def _pooled_lags(texts: Iterable[Any]) -> LogHistogram:
    """All beats of a process; what is no "bucket:count" is passed over."""
    histogram = LogHistogram()
    for text in texts:
        for bucket, count in _COUNT.findall(str(text)):
            if int(bucket) <= _LARGEST_BUCKET:
                histogram.merge({int(bucket): int(count)})
    return histogram


def _sends(rows: pd.DataFrame, *, by_clock: bool) -> Sends:
    rows = rows[_COLUMNS]
    measured = kept(rows, rows["phase"] == "measured")
    good = measured[measured["error_kind"].isna()]
    delays = values_of(send_delays(measured if by_clock else _later_ones(rows, measured)))
    gap_s = _read_gap_s(good)
    return Sends(
        sends=len(delays),
        delay_p50_s=_quantile(delays, 0.50),
        delay_p95_s=_quantile(delays, 0.95),
        read_lag_p95_s=_quantile(values_of(measured["lag_max_s"]), 0.95),
        streams=int((measured["reads"] > 0).sum()),
        merged_share=_merged_share(measured, measured),
        late_merged_share=_late_merged_share(measured, gap_s),
        read_gap_s=gap_s,
        ttft_s=_least_median(good, "ttft_s"),
        tpot_s=_least_median(good, "tpot_s"),
        e2e_s=_least_median(good, "e2e_s"),
        kernel=bool(measured["clock"].notna().any()) and set(measured["clock"].dropna().unique()) == {"kernel"},
    )


def _read_gap_s(good: pd.DataFrame) -> float | None:
    streams = good[good["reads"] >= 2]
    gaps = (streams["last_token_s"] - streams["first_token_s"]) / (streams["reads"] - 1)
    return _quantile(values_of(gaps), 0.50)


def _merged_share(some: pd.DataFrame, measured: pd.DataFrame) -> float | None:
    return ratio(float(some["merged_reads"].sum()), float(measured["reads"].sum()))


def _late_merged_share(measured: pd.DataFrame, gap_s: float | None) -> float | None:
    if gap_s is None or measured["lag_max_s"].isna().all():
        return None
    return _merged_share(measured[measured["lag_max_s"] > gap_s / 2], measured)


def send_delays(rows: pd.DataFrame) -> pd.Series[float]:
    """``send_delay_s`` less what is not the generator's lateness: opening a connection, and waiting for pictures."""
    explained = rows["connect_s"].fillna(0.0) + rows["prepare_s"].fillna(0.0)
    return (rows["send_delay_s"] - explained).clip(lower=0.0)


def _later_ones(rows: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Without the first two requests of each user in the level: all users set out at the same moment, one after the
    other, and nobody asked for less; and before a process uses a connection again for the first time, it watches for a
    moment whether the server keeps it (``keepalive``)."""
    place = rows.groupby(["worker", "user"], observed=True, dropna=False)["sent_s"].rank(method="first")
    return measured[place.reindex(measured.index) > 2]


def _least_median(good: pd.DataFrame, name: str) -> float | None:
    return _least(_quantile(values_of(some), 0.50) for _, some in good.groupby("traffic", observed=True)[name])


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _most(column: pd.Series[float]) -> float | None:
    known = column.dropna()
    return float(known.max()) if len(known) else None


def _quantile(ordered: Sequence[float] | Any, q: float) -> float | None:
    return quantile_of_sorted(ordered, q)
