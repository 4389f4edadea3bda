"""The figures that are compared, with the direction in which each is better, and each as an estimate of one run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from analysis.columns import FURTHER, NAMES, PUBLISHED
from analysis.compared_run import ComparedRun, Key, Sample
from analysis.estimate import Estimate, group_count, mean_estimate, quantile_estimate, rate_estimate
from analysis.figures import QUANTILES, Figure, Mark, Values
from analysis.levels import LevelRow
from tokenswarm.metrics import METRICS

# Below these, in seconds, a change of a latency is not worth the name, nor below this share of any figure.
LEAST_S, LEAST_SHARE = {"ttft": 0.001, "tpot": 0.0001, "e2e": 0.001}, 0.005
_Z = 1.959964
UNFINISHED = frozenset({Mark.CENSORED, Mark.SURVIVAL})  # what has no end is in the figure and not among the values
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
        return next(column.title for column in (*PUBLISHED, *FURTHER, *NAMES) if column.figure == self.name)

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
# What Locust tells of the names of a locustfile that is not ours: response times, as it took them.
NAMED = (
    *(ComparedFigure(f"{one}_s", "e2e_s", one) for one in ("p50", "p95", "mean")),
    ComparedFigure("requests_per_s", RATE.metric, "rate"),
)


def figures_of(row: LevelRow, *, several_classes: bool) -> tuple[ComparedFigure, ...]:
    """Quantiles over classes as different as chats and captions are those of no user: of all classes together only
    the rate is compared."""
    if "p50_s" in row.figures:
        return NAMED
    if row.by_clock:
        return () if several_classes and row.traffic is None else BY_CLOCK
    return (RATE,) if several_classes and row.traffic is None else CLOSED


def group_count_of(one: ComparedRun, key: Key) -> int:
    """Groups into which the requests of a level can be taken; 0 where they are too few or not known."""
    sample = one.sample(key)
    return 0 if sample is None else group_count(len(sample.sent_s), _wave(one.levels[key]))


def estimate_of(figure: ComparedFigure, one: ComparedRun, key: Key, groups: int = 0) -> Estimate | None:
    """Its value is that of the table. ``None`` where the figure is unknown, or no number above 0."""
    told, sample = one.levels[key].figure(figure.name), one.sample(key)
    if told.value is None or not 0 < told.value < math.inf:
        return None
    if sample is None:
        return _of_summary(told)
    if UNFINISHED.intersection(told.marks):
        return Estimate(told.value, told.n or 0)
    if figure.statistic == "rate":
        return rate_estimate(told.value, _slices(sample.sent_s, sample, groups), len(sample.sent_s))
    found = _of_values(figure, sample.known(figure.metric), groups)
    return None if found is None else replace(found, value=told.value)


def half_of(figure: ComparedFigure, one: ComparedRun, key: Key, part: int) -> Estimate | None:
    """The value in the first (0) or second half (1) of the requests after the first wave, which begins all at once;
    ``None`` where only summaries are known."""
    sample = one.sample(key)
    if sample is None:
        return None
    wave = _wave(one.levels[key])
    first = wave if len(sample.sent_s) >= 3 * wave else 0
    if figure.statistic == "rate":
        rates = _slices(sample.sent_s[first:], sample, 2)
        return Estimate(float(rates[part]), len(sample.sent_s) // 2) if len(rates) and rates.min() > 0 else None
    return _of_values(figure, np.array_split(sample.known(figure.metric)[first:], 2)[part], 0)


def _of_values(figure: ComparedFigure, values: Values, groups: int) -> Estimate | None:
    if figure.statistic == "mean":
        return mean_estimate(values, groups)
    return quantile_estimate(values, QUANTILES[figure.statistic], groups)


def _wave(row: LevelRow) -> int:
    """Requests that are in flight at the same time."""
    return row.concurrency or math.ceil(row.figure("in_flight_mean").value or 1.0)


def _slices(sent_s: Values, sample: Sample, count: int) -> Values:
    """Tokens a second in equal slices of the time from the first to the last send: after that users find no more work,
    and the rate falls."""
    if not count or not len(sent_s) or sent_s[-1] <= sent_s[0]:
        return np.zeros(0)
    edges = np.linspace(sent_s[0], sent_s[-1], count + 1)
    return np.asarray(np.diff(sample.arrivals.until(edges)) * count / (edges[-1] - edges[0]), dtype=np.float64)


def _of_summary(told: Figure) -> Estimate:
    """A published interval tells how sure a figure is, by whatever method it was made."""
    value = told.value or 0.0
    if told.low is None or told.high is None or not 0 < told.low <= told.high < math.inf:
        return Estimate(value, told.n or 0)
    return Estimate(value, told.n or 0, math.log(told.high / told.low) / (2.0 * _Z))
