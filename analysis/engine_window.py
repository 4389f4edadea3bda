"""The engine's own figures over exactly the time between two samples of ``engine.csv``, the edges of a level.

Differences of totals, summed over the engines that one page shows. Where a process began anew in between, or several
replicas answer behind one URL, no difference means anything, and there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pandas as pd

from analysis.engine_counters import counter_difference
from analysis.window import Window

TOTALS = (
    "generation_tokens",
    "prompt_tokens",
    "preemptions",
    "requests_ok",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
)
MEANS = ("ttft", "queue", "prefill", "decode", "e2e", "tpot")
_NEVER_FALL = ("generation_tokens", "prompt_tokens", "requests_ok", "ttft_count", "e2e_count")


class Counting(StrEnum):
    """Whether totals can be subtracted."""

    WHOLE = "whole"
    NO_EDGES = "not sampled"  # at both ends of the level
    RESTARTED = "restarted"
    REPLICAS = "several replicas"


@dataclass(frozen=True)
class EngineWindow:
    """``totals`` and ``means`` hold what is known; a mean rests on ``counts`` requests. Gauges are over the ``samples``
    in the measured time: requests, KV usage 0 to 1."""

    counting: Counting
    seconds: float | None
    totals: dict[str, float]
    means: dict[str, float]
    counts: dict[str, float]
    samples: int
    running_mean: float | None
    waiting_mean: float | None
    waiting_max: float | None
    waiting_share: float | None  # of the samples
    kv_usage_max: float | None


def engine_window(engine: pd.DataFrame, level: int | None, measured: Window | None) -> EngineWindow | None:
    """None where the level has no sample."""
    rows = engine[engine["level"].isna() if level is None else engine["level"] == level]
    rows = rows.assign(engine=rows["engine"].fillna("")).sort_values("time_s", kind="stable")
    if rows.empty:
        return None
    counting = _counting(rows)
    whole = counting == Counting.WHOLE
    means, counts = _means(engine, level) if whole else ({}, {})
    inside = rows[rows["time_s"].between(measured.start_s, measured.end_s)] if measured else rows.iloc[:0]
    running, waiting = (_summed(inside, name) for name in ("running", "waiting"))
    return EngineWindow(
        counting,
        _length_s(rows),
        _totals(engine, level) if whole else {},
        means,
        counts,
        int(inside["time_s"].nunique()),
        _mean(running),
        _mean(waiting),
        _largest(waiting),
        _mean((waiting > 0).astype("float64")),
        _largest(inside["kv_usage"]) if "kv_usage" in inside else None,
    )


def _totals(engine: pd.DataFrame, level: int | None) -> dict[str, float]:
    return {name: grown for name in TOTALS if (grown := counter_difference(engine, level, name)) is not None}


def _means(engine: pd.DataFrame, level: int | None) -> tuple[dict[str, float], dict[str, float]]:
    """Sum / count of each histogram that took anything in, and the count."""
    means: dict[str, float] = {}
    counts: dict[str, float] = {}
    for name in MEANS:
        spent, count = (counter_difference(engine, level, f"{name}_{part}") for part in ("sum_s", "count"))
        if spent is not None and count:
            means[name], counts[name] = spent / count, count
    return means, counts


def _counting(rows: pd.DataFrame) -> Counting:
    """One process has one start, and totals that never fall."""
    starts = rows.get("process_start_s", pd.Series(dtype="float64"))
    for _, started in starts.groupby(rows["engine"]):
        known = started.dropna()
        changes = int((known.diff().fillna(0.0) != 0).sum())
        if (known.diff() < 0).any():
            return Counting.REPLICAS  # an older process answered than before
        if changes:
            return Counting.RESTARTED
    labels = rows.groupby("time_s")["engine"].agg(frozenset)
    if labels.nunique() > 1:
        return Counting.REPLICAS
    if (fallen := _fallen(rows)) is not None:
        return fallen
    edges = {str(edge) for edge in rows["edge"].dropna()}
    return Counting.WHOLE if edges >= {"start", "end"} else Counting.NO_EDGES


def _fallen(rows: pd.DataFrame) -> Counting | None:
    """Totals that fell once: began anew; that fell and went back above where they had been: replicas by turns."""
    for name in _NEVER_FALL:
        if name not in rows:
            continue
        for _, total in rows[name].groupby(rows["engine"]):
            known = total.dropna()
            if (known.diff() < 0).any():
                first = int((known.diff() < 0).to_numpy().argmax())
                back = (known.iloc[first:] >= known.iloc[first - 1]).any()
                return Counting.REPLICAS if back else Counting.RESTARTED
    return None


def _length_s(rows: pd.DataFrame) -> float | None:
    start, end = (rows.loc[rows["edge"] == edge, "time_s"] for edge in ("start", "end"))
    return None if start.empty or end.empty else float(end.iloc[-1] - start.iloc[-1])


def _summed(rows: pd.DataFrame, name: str) -> pd.Series[float]:
    """Over the engines of one page; moments at which not all of them tell are left out."""
    if name not in rows:
        return pd.Series(dtype="float64")
    return rows.groupby("time_s")[name].agg(lambda one: one.sum(skipna=False)).dropna()


def _largest(values: pd.Series[float]) -> float | None:
    known = values.dropna()
    return float(known.max()) if len(known) else None


def _mean(values: pd.Series[float]) -> float | None:
    return float(values.mean()) if len(values) else None
