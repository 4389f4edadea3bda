"""Goodput: requests a second that succeeded and kept to every limit of their class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.figures import BLANK, Figure, Values
from analysis.limits import mapping
from analysis.rates import counted, rate_figure
from analysis.request_figures import Flags, Served
from analysis.window import Window

_LATENCIES = ("ttft_s", "tpot_s", "e2e_s")
_FELT = ("ttft_s", "e2e_s")  # by the clock from the scheduled time: waiting to be sent is part of what a user feels

Limits = dict[str, dict[str, Any]]


def request_limits(limits: Limits) -> dict[str, dict[str, float]]:
    """What a single request of each class must keep to, by column: the largest limit where several quantiles of one
    time are named. Classes without any are left out."""
    found = {
        name: {
            latency: float(max(mapping(of_class.get(latency)).values()))
            for latency in _LATENCIES
            if mapping(of_class.get(latency))
        }
        for name, of_class in limits.items()
    }
    return {name: kept for name, kept in found.items() if kept}


def within_limits(rows: pd.DataFrame, limits: Limits, clocked: Flags) -> Flags:
    """Whether each request succeeded and keeps to its class' limits. A single token has no TPOT, which keeps to any.

    ``clocked``: which rows belong to levels by the clock.
    """
    good: Flags = rows["error_kind"].isna().to_numpy()
    for name, of_class in request_limits(limits).items():
        mine = (rows["traffic"] == name).to_numpy(dtype=bool)
        for latency, limit in of_class.items():
            values = _felt(rows, latency, clocked)
            with np.errstate(invalid="ignore"):
                kept = values <= limit
            good = good & (kept | ~mine | (np.isnan(values) & (latency == "tpot_s")))
    return good


def _felt(rows: pd.DataFrame, latency: str, clocked: Flags) -> Values:
    values = rows[latency].to_numpy(dtype="float64")
    if latency not in _FELT or not clocked.any():
        return values
    return np.where(clocked, rows[f"scheduled_{latency}"].to_numpy(dtype="float64"), values)


def goodput_figures(
    served: Served, limits: Limits, window: Window | None, edges: Values, *, by_clock: bool
) -> dict[str, Figure]:
    """``goodput_per_s``, and ``good_share`` of the requests that succeeded or failed. Blank where a class that is
    played has no limit on a time."""
    played = {str(name) for name in served.rows["traffic"].dropna().unique()}
    if window is None or not played or not played <= request_limits(limits).keys():
        return {"goodput_per_s": BLANK, "good_share": BLANK}
    good = within_limits(served.rows, limits, np.full(len(served.rows), by_clock))
    ends: Values = served.rows["finished_s"].to_numpy(dtype="float64")[good]
    rate = len(ends) / window.length_s
    return {
        "goodput_per_s": rate_figure(rate, counted(ends, edges), edges),
        "good_share": served.share(good),
    }
