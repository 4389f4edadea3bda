"""One row of the level table from the requests of a level: counts, throughput, latencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pandas as pd

from analysis import window as windows
from analysis.arrivals import (
    LevelArrivals,
    clocked_latencies,
    clocked_levels,
    ended_s,
    level_arrivals,
    level_entry,
    scheduled_window,
    waits_when_full,
)
from analysis.cache_share import CacheSource, LevelCache
from analysis.cache_verdict import CacheJudge
from analysis.captions import LevelCaptions, level_captions, text_tokens
from analysis.eligible import eligible_tokens
from analysis.figures import BLANK, Figure, Mark, number, ratio
from analysis.goodput import goodput_figures
from analysis.health import LevelHealth, health_of
from analysis.health_verdict import GeneratorVerdict, judge_generator
from analysis.image_cache import ImageCacheJudge
from analysis.jobs import LevelJobs, jobs_of, level_jobs
from analysis.level_names import level_arms, level_classes, level_names
from analysis.level_state import Basis, basis_of, state_of
from analysis.limits import limits_by_class
from analysis.request_figures import (
    Served,
    cached_share,
    gap_figures,
    latencies,
    peak_figure,
    prompt_tokens,
    sizes,
)
from analysis.requests_csv import kept
from analysis.run_folder import Run
from analysis.throughput import Throughput
from analysis.unfinished import unfinished_figures
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Phase, TokenSource

# Of the requests that succeeded, what is counted and summed up here; with fewer columns all goes faster.
_OF_SUCCESSES = [
    *("traffic", "finish_reason", "output_tokens", "asked_output_tokens", "token_source", "first_token_s"),
    *("last_token_s", "finished_s", "e2e_s"),
]
_DUE = ("session", "phase", "turn", "scheduled_s", "last_token_s", "error_kind", "session_end")  # of arrivals
_ESTIMATES = (TokenSource.TOKENIZER.value, TokenSource.CHUNKS.value)


@dataclass
class LevelRow:
    """A level, or one traffic class of it. Figures carry their unit in the name; times are seconds."""

    level: int | None
    concurrency: int | None
    traffic: str | None = None  # None: all classes together
    label: str = ""  # "c=8", "c=8 cold #2"; empty where there are no levels
    arms: str = ""  # of a prefix-cache test: paired, cold or warm
    only: tuple[str, ...] = ()  # the classes that have users, where the level says so
    state: str = "unknown"  # complete, partial, timeout, interrupted, saturated, free-running or unknown
    reason: str = ""
    basis: Basis | None = None
    requests: int = 0
    ok: int = 0
    failed: int = 0
    cancelled: int = 0  # cut by the end of the run: neither a success nor a failure
    epoch: int | None = None  # of the server's life, from 0; None where nobody tells
    early_stopped: int | None = None
    errors: dict[str, int] = field(default_factory=dict)  # by error_kind, cancelled included
    estimated_tokens: int = 0  # successes whose token count is an estimate
    unknown_tokens: int = 0  # successes whose token count is unknown
    cache: LevelCache | None = None  # the verdict on what came from the prefix cache; None where nobody judged
    image_cache: LevelCache | None = None  # that on the cache of images; None also where no request had an image
    jobs: LevelJobs | None = None
    captions: LevelCaptions | None = None  # None where no measured request had pictures
    arrivals: LevelArrivals | None = None  # of a level by the clock
    clocked: bool = False  # likewise, where nothing is known of its arrivals
    health: LevelHealth | None = None  # of the processes that made the load of the whole level
    generator: GeneratorVerdict | None = None  # whether they limited it
    configuration: str = ""  # what was measured, where one file holds several
    table: str = ""  # of a published figure set: the printed table that it stands in
    unknown_counts: frozenset[str] = frozenset()  # those of requests, ok and failed that the source does not tell
    figures: dict[str, Figure] = field(default_factory=dict)

    def figure(self, name: str) -> Figure:
        return self.figures.get(name, BLANK)

    @property
    def name(self) -> str:
        """Of the level, as people read it."""
        return self.label or ("free-running" if self.level is None else f"c={self.concurrency}")

    @property
    def short_name(self) -> str:
        """The name without its ``c=``; without levels the number of users."""
        users = "" if self.concurrency is None else str(self.concurrency)
        return users if self.level is None else self.name.removeprefix("c=")

    @property
    def by_clock(self) -> bool:
        """Sessions arrive at times of their own, whatever the server does; then there is no concurrency asked for."""
        return self.clocked or self.arrivals is not None

    @property
    def load(self) -> tuple[str, tuple[str, ...]]:
        """Equal for levels that differ in the number of users alone."""
        return self.arms, (*self.only, self.configuration, self.table)

    @property
    def complete(self) -> bool:
        """False where the level is known to have ended early; an unknown end is not held against it."""
        return self.state in ("complete", "free-running", "unknown")

    @property
    def contaminated(self) -> bool:
        """More of the prompts or images came from the server's caches than the workload implies."""
        return any(cache is not None and cache.contaminated for cache in (self.cache, self.image_cache))

    @property
    def limited(self) -> bool:
        """The load generator and not the server made the level what it is."""
        return self.generator is not None and self.generator.limited

    @property
    def failed_share(self) -> float | None:
        return None if self.unknown_counts else ratio(self.failed, self.ok + self.failed)

    def count(self, name: str) -> int | None:
        """``requests``, ``ok`` or ``failed``; ``None`` where the source does not tell."""
        return None if name in self.unknown_counts else int(getattr(self, name))


def level_rows(
    run: Run, eligible: pd.DataFrame | None = None, *, failures_infinite: bool = False
) -> tuple[list[LevelRow], list[LevelRow]]:
    """The rows of all levels in order, and the rows of every traffic class of them.

    ``eligible``: those of ``eligible.eligible_tokens``, where they have been worked out already.
    """
    pooled, by_class = [], []
    names, arms, classes = level_names(run), level_arms(run), level_classes(run)
    clocked = clocked_levels(run)
    judges = _Judges(CacheJudge(run, eligible_tokens(run) if eligible is None else eligible), ImageCacheJudge(run))
    jobs, texts = jobs_of(run), text_tokens(run)
    for level, rows in levels_of(run.requests):
        row = _identity(run, level, rows)
        if level is not None:
            row.label, row.arms, row.only = names[level], arms.get(level, ""), classes.get(level, ())
        if level in clocked:
            row.concurrency = None
        scope = _Scope(run, level, rows, row, failures_infinite, judges, _at(jobs, level), texts, level in clocked)
        pooled.append(scope.row_for(None))
        played = sorted(str(name) for name in rows["traffic"].dropna().unique())
        if len(played) == 1:
            by_class.append(replace(pooled[-1], traffic=played[0]))
        else:
            by_class.extend(scope.row_for(name) for name in played)
    return pooled, by_class


def levels_of(requests: pd.DataFrame) -> Iterator[tuple[int | None, pd.DataFrame]]:
    """Rows of each level in order; ``None`` stands for the rows of a free-running run."""
    for level, rows in requests.groupby("level", dropna=False, sort=True):
        number: Any = level
        yield (None if pd.isna(number) else int(number)), rows


class _Judges(NamedTuple):
    prefix: CacheJudge
    images: ImageCacheJudge


@dataclass
class _Scope:
    """Everything that the rows of one level share."""

    run: Run
    level: int | None
    rows: pd.DataFrame
    identity: LevelRow
    failures_infinite: bool
    judges: _Judges
    jobs: pd.DataFrame  # of this level, one row each
    texts: dict[str, float]  # of captions, see text_tokens
    by_clock: bool

    def __post_init__(self) -> None:
        measured = self.rows.loc[self.rows["phase"] == Phase.MEASURED, ["sent_s", "finished_s", *_DUE]]
        self.window = windows.window_of(measured)
        by_clock = self.by_clock and self.level is not None
        self.scheduled = scheduled_window(self.run, self.level or 0, measured) if by_clock else None
        target = None if by_clock else self.identity.concurrency
        self.steady = windows.steady_of(self.rows, self.window, target) if self.window and target else None
        busy = self.scheduled or self.window
        health = self.identity.health = health_of(self.run, self.level, self.rows, busy, by_clock=by_clock)
        self.identity.generator = judge_generator(health)
        self.cache = self.judges.prefix.level(self.level, self.identity.arms)
        self.image_cache = self.judges.images.level(self.level, self.identity.arms)

    def row_for(self, traffic: str | None) -> LevelRow:
        rows = self.rows if traffic is None else self.rows[self.rows["traffic"] == traffic]
        measured = kept(rows, rows["phase"] == Phase.MEASURED)
        good = measured.loc[measured["error_kind"].isna(), _OF_SUCCESSES]
        row = replace(self.identity, traffic=traffic, figures={})
        _count(row, measured, good, _exact_classes(self.run))
        served = Served.of(measured, cut_is_late=self.by_clock)
        if row.ok or self.window is not None:
            row.figures |= self._rates(row, rows, good, served)
        row.figures |= latencies(served, failures_infinite=self.failures_infinite)
        row.figures |= unfinished_figures(self.run, self.level, rows, self.window) if not self.by_clock else {}
        if self.by_clock:
            row.arrivals = self._arrivals(rows, whole_level=traffic is None)
            row.figures |= self._from_schedule(measured, row.failed) | row.arrivals.figures
        row.figures |= sizes(served)
        row.figures |= gap_figures(_of(self.run.chunk_gaps, self.level, traffic))
        self._judge_caches(row, served)
        counting = windows.Counting(self.window, row.basis == Basis.WINDOW, self.failures_infinite, self.by_clock)
        jobs = self.jobs if traffic is None else self.jobs[self.jobs["traffic"] == traffic]
        row.jobs = level_jobs(jobs, rows, counting)
        row.captions = level_captions(rows, counting, self.texts)
        row.figures |= row.jobs.figures | (row.captions.figures if row.captions else {})
        row.figures = (row.health.figures if row.health else {}) | row.figures
        if row.estimated_tokens:
            for name in row.figures:
                if name.startswith(("tpot", "output_tok", "steady_tok", "per_request_tok", "tokens", "output_tokens")):
                    row.figures[name] = row.figures[name].marked(Mark.ESTIMATED)
        return row

    def _arrivals(self, rows: pd.DataFrame, *, whole_level: bool) -> LevelArrivals:
        ends_told = bool(self.run.requests["session_end"].notna().any())
        entry = level_entry(self.run, self.level)
        return level_arrivals(rows, entry, self.scheduled, whole_level=whole_level, ends_told=ends_told)

    def _from_schedule(self, measured: pd.DataFrame, failed: int) -> dict[str, Figure]:
        level = self.level or 0
        return clocked_latencies(
            measured,
            failed,
            ended_s(self.run, level, self.rows),
            waits=waits_when_full(self.run, level),
            failures_infinite=self.failures_infinite,
        )

    def _rates(self, row: LevelRow, rows: pd.DataFrame, good: pd.DataFrame, served: Served) -> dict[str, Figure]:
        whole_window, window = row.basis == Basis.WINDOW, self.window
        untold = row.ok > 0 and row.unknown_tokens == row.ok
        throughput = Throughput(window, self.steady, good, untold=untold)
        figures = throughput.tokens(rows, whole_window=whole_window)
        if window is None:
            return figures
        peak = windows.best_second(
            _of(self.run.timeline, self.level, row.traffic), window, self.run.unix_minus_master_s
        )
        figures["peak_tok_s"] = peak_figure(peak if row.ok else None, figures["output_tok_s"].value)
        asked = prompt_tokens(rows, window, whole_window)
        figures |= {
            "prompt_tok_s": number(ratio(asked, window.length_s)),
            "in_flight_mean": number(windows.mean_in_flight(rows, window)),
        }
        limits = limits_by_class(self.run.scenario)
        goodput = goodput_figures(served, limits, window, throughput.edges, by_clock=self.by_clock)
        return figures | throughput.requests(served) | goodput

    def _judge_caches(self, row: LevelRow, served: Served) -> None:
        prefix, images = self.judges
        row.cache, row.image_cache = self.cache, self.image_cache
        if row.traffic is not None:
            row.cache = prefix.level(self.level, row.arms, row.traffic, self.cache)
            row.image_cache = images.of_class(self.level, row.traffic, self.image_cache)
        for name, cache in (("cache", row.cache), ("image_cache", row.image_cache)):
            row.figures[f"{name}_share"] = number(cache.measured if cache else None)
            row.figures[f"{name}_share_implied"] = number(cache.implied if cache else None)
        if row.cache is not None and row.cache.source == CacheSource.USAGE:
            row.figures["cache_share"] = cached_share(served)


def _identity(run: Run, level: int | None, rows: pd.DataFrame) -> LevelRow:
    """Concurrency, state and basis of a level, from the plan, ``levels.csv`` and the rows."""
    users = rows["concurrency"].max()
    row = LevelRow(level, None if pd.isna(users) else int(users))
    row.state, row.reason = state_of(run, level)
    epoch = level_entry(run, level).get("epoch")
    row.epoch = None if pd.isna(epoch) else int(epoch)
    row.basis = basis_of(run, level, rows)
    return row


def _of(table: pd.DataFrame, level: int | None, traffic: str | None) -> pd.DataFrame:
    """Rows of a side table that belong to one level and class."""
    rows = _at(table, level)
    return rows if traffic is None else rows[rows["traffic"] == traffic]


def _at(table: pd.DataFrame, level: int | None) -> pd.DataFrame:
    return table[table["level"].isna() if level is None else table["level"] == level]


def _exact_classes(run: Run) -> set[str] | None:
    """Classes that asked for an exact output length; ``None`` where no scenario says so (then all are taken to)."""
    classes = run.traffic_classes
    return {name for name, item in classes.items() if _is_exact(item)} if classes else None


def _is_exact(traffic: dict[str, Any]) -> bool:
    """Live agents are asked for exact lengths only where the scenario says so."""
    live = traffic.get("kind") == "agentic" and traffic.get("mode") == "live"
    return bool(traffic.get("ignore_eos", not live))


def _count(row: LevelRow, measured: pd.DataFrame, good: pd.DataFrame, exact: set[str] | None) -> None:
    kinds = measured["error_kind"].value_counts()
    row.requests, row.ok = len(measured), len(good)
    row.errors = {str(kind): int(count) for kind, count in kinds.items() if count}
    row.cancelled = row.errors.get(ErrorKind.CANCELLED.value, 0)
    row.failed = row.requests - row.ok - row.cancelled
    asked = good if exact is None else good[good["traffic"].isin(exact)]
    short = (asked["finish_reason"] == "stop") & (asked["output_tokens"] < asked["asked_output_tokens"])
    row.early_stopped = int(short.sum())
    row.estimated_tokens = int(good["token_source"].isin(_ESTIMATES).sum())
    row.unknown_tokens = int(good["output_tokens"].isna().sum())
