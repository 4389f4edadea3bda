"""The figures that are compared, with the direction in which each is better, and each as an estimate of one run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from analysis import window as windows
from analysis.columns import FURTHER, PUBLISHED
from analysis.compared_run import ComparedRun, Key
from analysis.estimate import Estimate, group_count, mean_estimate, quantile_estimate, rate_estimate
from analysis.figures import QUANTILES, Figure, Values
from analysis.levels import LevelRow
from tokenswarm.metrics import METRICS
from tokenswarm.records import Phase

# Below these, in seconds, a change of a latency is not worth the name, nor below this share of any figure.
LEAST_S, LEAST_SHARE = {"ttft": 0.001, "tpot": 0.0001, "e2e": 0.001}, 0.005
_Z = 1.959964
_METRIC_OF_LEVEL = {"output_tok_s": "request_tok_s"}  # tokens a second are better the more, a request's or a level's


@dataclass(frozen=True)
class ComparedFigure:
    """``name``: of the figure in a ``LevelRow``; ``metric``: of the column it is made of, and of its direction."""

    name: str
    metric: str
    statistic: str  # p50, p95, mean; rate

    @property
    def better(self) -> Literal["lower", "higher"]:
        return METRICS[self.metric].better

    @property
    def title(self) -> str:
        return next(column.title for column in (*PUBLISHED, *FURTHER) if column.figure == self.name)

    @property
    def least(self) -> float:
        """In the unit of the figure, which is seconds for a latency."""
        return LEAST_S.get(self.metric.removeprefix("scheduled_").removesuffix("_s"), 0.0)


def _latency(metric: str, *statistics: str) -> list[ComparedFigure]:
    return [ComparedFigure(f"{metric.removesuffix('_s')}_{one}_s", metric, one) for one in statistics]


RATE = ComparedFigure("output_tok_s", _METRIC_OF_LEVEL["output_tok_s"], "rate")
CLOSED = (
    RATE,
    *_latency("ttft_s", "p50", "p95", "mean"),
    *_latency("tpot_s", "p50", "p95"),
    *_latency("e2e_s", "p50", "p95", "mean"),
)
# Sessions that arrive by the clock decide the throughput themselves, and latencies are those from the schedule.
BY_CLOCK = (
    *_latency("scheduled_ttft_s", "p50", "p95", "mean"),
    *_latency("tpot_s", "p50", "p95"),
    *_latency("scheduled_e2e_s", "p50", "p95", "mean"),
)


def figures_of(row: LevelRow, *, several_classes: bool) -> tuple[ComparedFigure, ...]:
    """Quantiles over classes as different as chats and captions are those of no user: of all classes together only
    the rate is compared."""
    if row.by_clock:
        return () if several_classes and row.traffic is None else BY_CLOCK
    return (RATE,) if several_classes and row.traffic is None else CLOSED


def group_count_of(one: ComparedRun, key: Key) -> int:
    """Groups into which the requests of a level can be taken; 0 where they are too few or not known."""
    rows = one.requests_of(key)
    return 0 if rows is None else group_count(len(_good(rows)), _wave(one.levels[key]))


def estimate_of(
    figure: ComparedFigure, one: ComparedRun, key: Key, groups: int = 0, part: int | None = None
) -> Estimate | None:
    """``part``: 0 or 1 for the first or second half of the requests; ``None`` for all, whose value is then that of the
    table. ``None`` where the figure is unknown, or no number above 0."""
    told, rows = one.levels[key].figure(figure.name), one.requests_of(key)
    if told.value is None or not 0 < told.value < math.inf:
        return None
    if rows is None:
        return None if part is not None else _of_summary(told)
    good = _good(rows)
    if figure.statistic == "rate":
        return _rate(rows, good, told.value, groups, part)
    values = good[figure.metric].dropna().to_numpy(dtype="float64")
    values = values if part is None else np.array_split(values, 2)[part]
    if figure.statistic == "mean":
        return mean_estimate(values, groups)
    return quantile_estimate(values, QUANTILES[figure.statistic], groups)


def _wave(row: LevelRow) -> int:
    """Requests that are in flight at the same time."""
    return row.concurrency or math.ceil(row.figure("in_flight_mean").value or 1.0)


def _good(rows: pd.DataFrame) -> pd.DataFrame:
    """The measured requests that succeeded, in the order in which they were sent."""
    return rows[rows["phase"].eq(Phase.MEASURED) & rows["error_kind"].isna()].sort_values("sent_s")


def _rate(rows: pd.DataFrame, good: pd.DataFrame, value: float, groups: int, part: int | None) -> Estimate | None:
    """Slices reach from the first send to the last: after that users find no more work, and the rate falls."""
    start, end = float(good["sent_s"].min()), float(good["sent_s"].max())
    if math.isnan(start) or end <= start:
        return Estimate(value, len(good)) if part is None else None
    if part is None:
        return rate_estimate(value, _arrived(rows, start, end, groups), len(good))
    half = float(_arrived(rows, start, end, 2)[part])
    return Estimate(half, len(good) // 2) if half > 0 else None


def _arrived(rows: pd.DataFrame, start_s: float, end_s: float, count: int) -> Values:
    """Tokens a second in equal slices of a time."""
    edges = np.linspace(start_s, end_s, count + 1)
    return np.diff(windows.Arrivals.of(rows).until(edges)) / ((end_s - start_s) / max(1, count))


def _of_summary(told: Figure) -> Estimate:
    """A published interval tells how sure a figure is, by whatever method it was made."""
    value = told.value or 0.0
    if told.low is None or told.high is None or not 0 < told.low <= told.high < math.inf:
        return Estimate(value, told.n or 0)
    return Estimate(value, told.n or 0, math.log(told.high / told.low) / (2.0 * _Z))
