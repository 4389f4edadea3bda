"""Were the objectives of the scenario met, and is the run fit to say so?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from analysis.cache_share import share_line
from analysis.figures import QUANTILES, Figure, Mark
from analysis.level_verdicts import SATURATED, LevelJudgement, level_judgement
from analysis.levels import LevelRow
from analysis.limits import limits_by_class, mapping, objective_names
from analysis.outcome import Outcome
from analysis.request_figures import LATENCIES
from analysis.search_result import SearchResult, search_result
from tokenswarm.errors import ErrorKind
from tokenswarm.quantiles import order_statistic_interval

# A run in which more requests fail than this does not pass, even if nobody named a limit.
DEFAULT_FAILED_LIMIT = 0.01

# Judged from the scheduled time in levels by the clock: waiting to be sent is part of what a user feels.
_WAITING = ("ttft", "e2e")

EXIT_MET, EXIT_MISSED, EXIT_NOT_CREDIBLE = 0, 1, 3


@dataclass(frozen=True)
class Check:
    """One limit: ``metric`` is ``failed`` or, say, ``ttft_p95_s``, by the clock ``scheduled_ttft_p95_s``.

    A value that is unknown does not meet it. ``no_bound``: the value is a quantile of too few requests to bound it, by
    what they are worth; ``too_few``: even if each told as much as one that stands alone.
    """

    metric: str
    limit: float
    value: float | None
    no_bound: bool = False
    too_few: bool = False

    @property
    def met(self) -> bool:
        return self.value is not None and self.value <= self.limit

    def __str__(self) -> str:
        is_now = "unknown" if self.value is None else f"{self.value:.4g}"
        return f"{self.metric} is {is_now}, at most {self.limit:g} is allowed"


@dataclass(frozen=True)
class ClassVerdict:
    """All limits of one traffic class at one level.

    Where ``proves`` is false, meeting them proves nothing: the level is not complete, its prompts were in the
    server's prefix cache already, or the load generator limited it.
    """

    level: int | None
    concurrency: int | None
    traffic: str | None
    objective: str | None
    checks: tuple[Check, ...]
    proves: bool = True
    label: str = ""  # of the level; empty where there are none
    rate_per_s: float | None = None  # mean rate that a level by the clock was asked for
    saturated: bool = False  # the level was stopped before a steady state: whatever its figures, it is missed

    @property
    def size(self) -> float | None:
        """How large the load of the level is: its users, or its rate; ``None`` where neither is known."""
        return self.rate_per_s if self.concurrency is None else self.concurrency

    @property
    def met(self) -> bool:
        return not self.saturated and all(check.met for check in self.checks)


@dataclass(frozen=True)
class Verdict:
    """``doubts`` are the reasons why the run is not credible; with any, meeting an objective proves nothing.

    A search is to go beyond what the server can bear: what counts there is its answer, not that every level is good.
    """

    classes: tuple[ClassVerdict, ...]
    doubts: tuple[str, ...] = field(default=())
    levels: tuple[LevelJudgement, ...] = ()
    search: SearchResult | None = None

    @property
    def credible(self) -> bool:
        return not self.doubts

    @property
    def missed(self) -> list[str]:
        """A line for every limit that was not met."""
        return [
            f"{one.traffic or 'all'}{f' at {one.label}' if one.label else ''}: {check}"
            for one in self.classes
            for check in one.checks
            if not check.met
        ]

    @property
    def exit_code(self) -> int:
        if not self.credible:
            return EXIT_NOT_CREDIBLE
        if self.search is not None:
            return EXIT_MET if self.search.best is not None else EXIT_MISSED
        return EXIT_MET if all(verdict.met for verdict in self.classes) else EXIT_MISSED


def judge(outcome: Outcome) -> Verdict:
    """Each class at each level against its objective, or against the default share of failures."""
    limits, named = limits_by_class(outcome.scenario), objective_names(outcome.scenario)
    verdicts = []
    spoilt = {row.level for row in outcome.levels if row.contaminated or row.limited}
    rates = {row.level: row.arrivals.rate_per_s for row in outcome.levels if row.arrivals is not None}
    for row in outcome.classes:
        name = named.get(row.traffic or "")
        checks = tuple(_checks(row, limits.get(row.traffic or "", {})))
        label = "" if row.level is None else row.name
        proves = row.complete and row.level not in spoilt
        rate, saturated = rates.get(row.level), row.state == SATURATED
        one = ClassVerdict(row.level, row.concurrency, row.traffic, name, checks, proves, label, rate, saturated)
        verdicts.append(one)
    levels = tuple(
        _level(row, verdicts, [name for name, objective in named.items() if objective]) for row in outcome.levels
    )
    if not searches(outcome.scenario):
        return Verdict(tuple(verdicts), tuple(outcome.doubts + _doubts(outcome.levels)), levels)
    search = search_result(outcome.search, levels)
    doubts = [*outcome.doubts, *([search.doubt] if search.doubt else [])]
    return Verdict(tuple(verdicts), tuple(doubts), levels, search)


def _level(row: LevelRow, verdicts: list[ClassVerdict], wanted: list[str]) -> LevelJudgement:
    doubts = [] if row.state == SATURATED else _incomplete(row)
    return level_judgement(row, [one for one in verdicts if one.level == row.level], doubts + _doubts_of(row), wanted)


def searches(scenario: dict[str, Any]) -> bool:
    """Whether the scenario looks for the highest load, so that its last levels are to be too much for the server."""
    load = mapping(scenario.get("load"))
    closed, by_rate = mapping(load.get("closed")), mapping(load.get("open"))
    asked = (closed.get("users"), by_rate.get("requests_per_s"), by_rate.get("sessions_per_s"))
    return any("search" in mapping(one) for one in asked)


def _checks(row: LevelRow, limits: dict[str, Any]) -> list[Check]:
    failed_limit = limits.get("failed")
    checks = [Check("failed", DEFAULT_FAILED_LIMIT if failed_limit is None else float(failed_limit), row.failed_share)]
    for latency in (*LATENCIES, "job"):
        for statistic, limit in mapping(limits.get(f"{latency}_s")).items():
            felt = row.by_clock and latency in _WAITING
            name = f"{'scheduled_' if felt else ''}{latency}_{statistic}_s"
            figure = row.figure(name)
            judged, no_bound = _judged(figure, float(limit)), Mark.NO_BOUND in figure.marks
            checks.append(Check(name, float(limit), judged, no_bound, no_bound and _too_few(figure, statistic)))
    return checks


def _too_few(figure: Figure, statistic: str) -> bool:
    q = QUANTILES.get(statistic)
    return q is not None and (figure.n is None or order_statistic_interval(figure.n, q) is None)


def _judged(figure: Figure, limit: float) -> float | None:
    """A lower bound that keeps to the limit says nothing, nor does an estimate of what was never seen."""
    guessed = Mark.CENSORED in figure.marks or Mark.SURVIVAL in figure.marks
    unsure = guessed and figure.value is not None and figure.value <= limit
    return None if unsure else figure.value


def _doubts(levels: list[LevelRow]) -> list[str]:
    """Each with the level that it is of."""
    return [
        f"{row.name if row.level is not None else 'the free-running load'}: {doubt}"
        for row in levels
        for doubt in level_doubts(row)
    ]


def level_doubts(row: LevelRow) -> list[str]:
    """What makes a level not credible; empty where nothing does."""
    return _incomplete(row) + _doubts_of(row)


def _incomplete(row: LevelRow) -> list[str]:
    return [] if row.complete else [f"the level is {row.state}{': ' + row.reason if row.reason else ''}"]


def _doubts_of(row: LevelRow) -> list[str]:
    """What else makes a level not credible."""
    doubts = [
        f"contaminated: {share_line(cache, what)}"
        for cache, what in ((row.cache, "prompt tokens"), (row.image_cache, "images"))
        if cache is not None and cache.contaminated
    ]
    if row.generator is not None and row.limited:
        doubts.append(f"limited by the load generator: {row.generator.line}")
    if not row.ok:
        doubts.append("no request succeeded")
    blamed = {
        kind: count
        for kind, count in row.errors.items()
        if kind in (ErrorKind.CLIENT_LIMIT.value, ErrorKind.CLIENT.value)
    }
    if blamed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in blamed.items())
        doubts.append(f"failures inside the load generator ({kinds})")
    return doubts
