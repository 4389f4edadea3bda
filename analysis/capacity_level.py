"""What one level says about one limit: it fits, it misses, or that stays open, with the reason."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum

from analysis.figures import QUANTILES, Figure, Mark, share_figure
from analysis.level_verdicts import SATURATED
from analysis.levels import LevelRow
from analysis.objectives import Check, level_doubts
from tokenswarm.quantiles import order_statistic_interval

FAILED = "failed"
_DUE = "scheduled_"
_RATE = re.compile(r"([\d.]+)/s\b.*")  # name of a level by the clock, where nothing else tells its rate


class Evidence(StrEnum):
    """``FITS``: the upper end of the interval keeps to the limit; ``MISSES``: its lower end does not."""

    FITS = "fits"
    MISSES = "misses"
    OPEN = "open"


@dataclass(frozen=True)
class Point:
    """One level against one limit. ``check`` has its value; ``why``: what leaves it open; ``barred``: what makes it
    prove nothing, whatever its figures."""

    row: LevelRow
    load: float
    check: Check
    figure: Figure
    evidence: Evidence
    why: str = ""
    barred: str = ""

    @property
    def by_value(self) -> bool | None:
        """Whether the bare value keeps to the limit; ``None`` where nothing can be read from it."""
        if self.barred or self.check.value is None:
            return None
        return self.check.met


def load_of(row: LevelRow) -> float | None:
    """Its users, or the rate of sessions that arrive."""
    if not row.by_clock:
        return row.concurrency
    told = row.arrivals.rate_per_s if row.arrivals is not None else None
    asked = row.figure("asked_requests_per_s").value if told is None else told
    named = _RATE.fullmatch(row.label)
    return float(named[1]) if asked is None and named else asked


def barred(row: LevelRow) -> str:
    """Why a level proves nothing; empty where it does, as one that was stopped because its queue grew does."""
    if row.state == SATURATED:
        return ""
    told = row if row.count("ok") is not None else replace(row, ok=1)  # a count that nobody tells is not 0
    doubts = level_doubts(told)
    return doubts[0] if doubts else ""


def point_of(row: LevelRow, metric: str, limit: float, why_barred: str) -> Point | None:
    """``metric``: ``ttft_p95_s``, ... or ``failed``. ``None`` where the level has no load."""
    load = load_of(row)
    if load is None:
        return None
    figure = _failed(row) if metric == FAILED else row.figure(metric)
    check = Check(metric, limit, figure.value, Mark.NO_BOUND in figure.marks)
    if why_barred:
        return Point(row, load, check, figure, Evidence.OPEN, barred=why_barred)
    if row.state == SATURATED:
        return Point(row, load, check, figure, Evidence.MISSES)
    evidence = _evidence(figure, limit, failed=metric == FAILED)
    return Point(row, load, check, figure, evidence, _open_why(figure, metric) if evidence is Evidence.OPEN else "")


def metric_at(row: LevelRow, metric: str) -> str:
    """A latency in which a user waits counts from the schedule in levels by the clock."""
    felt = row.by_clock and metric.startswith(("ttft", "e2e"))
    return f"{_DUE}{metric}" if felt and row.figure(f"{_DUE}{metric}").value is not None else metric


def needed(q: float) -> int:
    """Independent requests that the interval of a quantile takes."""
    n = 1
    while order_statistic_interval(n, q) is None:
        n += 1
    return n


def _too_few(figure: Figure, least: int) -> str:
    """Neighbours that resemble each other are worth fewer independent requests."""
    n = figure.n or 0
    if figure.effective_n is None or n < least:
        return f"{n} requests have no interval here, {least} or more have"
    wanted = math.ceil(least * n / max(1.0, figure.effective_n))
    worth = f"{n} requests that are worth {figure.effective_n:.0f} independent ones"
    return f"{worth} have no interval here, about {wanted} would"


def _failed(row: LevelRow) -> Figure:
    return Figure(None) if row.unknown_counts else share_figure(row.failed, row.ok + row.failed)


def _evidence(figure: Figure, limit: float, *, failed: bool) -> Evidence:
    """Failures are held by their value: to prove a share of 1 % takes hundreds of requests, and every failure counts
    as infinitely late in the quantiles already."""
    if figure.value is None:
        return Evidence.OPEN
    if figure.low is not None and figure.low > limit:
        return Evidence.MISSES
    if failed:
        return Evidence.FITS if figure.value <= limit else Evidence.OPEN
    bounded = figure.high is not None and Mark.CENSORED not in figure.marks
    return Evidence.FITS if bounded and figure.high is not None and figure.high <= limit else Evidence.OPEN


def _open_why(figure: Figure, metric: str) -> str:
    if figure.value is None:
        return "unknown"
    if figure.low is not None:
        return "its interval holds the limit" if Mark.CENSORED not in figure.marks else "it is a lower bound"
    q = next((q for name, q in QUANTILES.items() if f"_{name}_" in metric), None)
    if Mark.NO_BOUND in figure.marks and q is not None:
        return _too_few(figure, needed(q))
    return "its source tells no interval"
