"""How far the prefix cache keeps up with growing prompts: by step of a job, and TTFT by length of the context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, log2
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.figures import Figure, mean_figure, quantile_figure, ratio
from analysis.level_names import level_names
from analysis.levels import levels_of
from analysis.requests_csv import values_of
from analysis.run_folder import Run
from tokenswarm.records import Phase

# First steps of the groups in which people read them: the first four by themselves.
GROUPS = (1, 2, 3, 4, 5, 9, 17, 33)
MOST_BUCKETS = 6
_COLUMNS = ["level", "traffic", "turn", "prompt_tokens", "cached_tokens", "ttft_s"]
ALIKE = 4  # the longest prompt has fewer than so many times the tokens of the shortest


@dataclass(frozen=True)
class StepRow:
    """Successful measured requests at some steps of their jobs, counted from 1; ``level`` None: of all levels.

    Means of tokens a request. ``share``: cached tokens over eligible ones, of the requests that tell both.
    """

    traffic: str
    level: int | None
    label: str
    first: int
    last: int | None  # None: and all later ones
    requests: int
    prompt_tokens: Figure
    eligible_tokens: Figure
    cached_tokens: Figure
    share: float | None

    @property
    def steps(self) -> str:
        return f"{self.first}+" if self.last is None else _span(self.first, self.last)


@dataclass(frozen=True)
class ContextRow:
    """TTFT of the successful measured requests whose prompts have ``low`` to ``high`` tokens, at one level."""

    traffic: str
    level: int | None
    label: str
    low: int
    high: int
    ttft_p50_s: Figure
    ttft_p95_s: Figure
    cached_share: float | None

    @property
    def tokens(self) -> str:
        return _span(self.low, self.high)


@dataclass(frozen=True)
class Steps:
    """``steps``: each level and step; ``groups``: steps together, of each level and of all."""

    steps: list[StepRow]
    groups: list[StepRow]
    contexts: list[ContextRow]


def job_classes(run: Run) -> list[str]:
    """Classes whose sessions are jobs worth a table: agents, and whatever sent a second request in a session."""
    agents = {name for name, item in run.traffic_classes.items() if item.get("kind") == "agentic"}
    several = run.requests.loc[run.requests["turn"] > 0, "traffic"].dropna().unique()
    seen = {str(name) for name in run.requests["traffic"].dropna().unique()}
    return sorted((agents & seen) | {str(name) for name in several})


def steps_of(run: Run, eligible: pd.DataFrame) -> Steps:
    """Nothing for classes whose sessions have one request. ``eligible``: see ``eligible.eligible_tokens``."""
    rows = run.requests
    wanted = (rows["phase"] == Phase.MEASURED) & rows["error_kind"].isna() & rows["turn"].notna()
    good = rows.loc[wanted, _COLUMNS].join(eligible["eligible_tokens"])
    names = level_names(run)
    found = Steps([], [], [])
    for traffic in job_classes(run):
        mine = good[good["traffic"] == traffic]
        steps = mine["turn"].astype(int) + 1
        groups = pd.Series(np.searchsorted(GROUPS, steps, side="right") - 1, index=mine.index)
        edges = _edges(mine["prompt_tokens"])
        levels = list(levels_of(mine))
        for level, part in levels:
            label = names.get(level, "") if level is not None else ""
            place = _Place(traffic, level, label)
            found.steps.extend(_step_row(place, step, step, some) for step, some in _parts(part, steps))
            found.groups.extend(_step_row(place, *_group(index), some) for index, some in _parts(part, groups))
            found.contexts.extend(_contexts(place, part, edges))
        if len(levels) > 1:
            whole = _Place(traffic, None, "")
            found.groups.extend(_step_row(whole, *_group(index), some) for index, some in _parts(mine, groups))
    return found


class _Place(NamedTuple):
    traffic: str
    level: int | None
    label: str


def _parts(rows: pd.DataFrame, keys: pd.Series[Any]) -> Iterator[tuple[int, pd.DataFrame]]:
    """The rows with each key, in ascending order."""
    for key, some in rows.groupby(keys):
        number: Any = key
        yield int(number), some


def _group(index: int) -> tuple[int, int | None]:
    """First and last step of a group."""
    return GROUPS[index], GROUPS[index + 1] - 1 if index + 1 < len(GROUPS) else None


def _step_row(place: _Place, first: int, last: int | None, rows: pd.DataFrame) -> StepRow:
    told = rows.dropna(subset=["eligible_tokens", "cached_tokens"])
    return StepRow(
        *place,
        first,
        last,
        len(rows),
        prompt_tokens=mean_figure(values_of(rows["prompt_tokens"])),
        eligible_tokens=mean_figure(values_of(rows["eligible_tokens"])),
        cached_tokens=mean_figure(values_of(rows["cached_tokens"])),
        share=ratio(float(told["cached_tokens"].sum()), float(told["eligible_tokens"].sum())),
    )


def _edges(tokens: pd.Series[float]) -> list[int]:
    """Lower ends of at most ``MOST_BUCKETS`` buckets: doublings (or coarser), or steps of a round number where all
    lengths are alike. Ends with the upper end of the last one."""
    known = tokens[tokens >= 1]
    if known.empty:
        return []
    least, most = int(known.min()), int(known.max())
    if most < ALIKE * least:
        widths = (factor * 10**power for power in range(12) for factor in (1, 2, 5))
        width = next(width for width in widths if most // width - least // width < MOST_BUCKETS)
        return list(range(least // width * width, most + width + 1, width))
    first, last = floor(log2(least)), floor(log2(most))
    doublings = next(step for step in range(1, 64) if last // step - first // step < MOST_BUCKETS)
    return [2**power for power in range(first // doublings * doublings, last + doublings + 1, doublings)]


def _contexts(place: _Place, rows: pd.DataFrame, edges: list[int]) -> Iterator[ContextRow]:
    known = rows[rows["prompt_tokens"] >= 1]
    buckets = pd.Series(np.searchsorted(edges, known["prompt_tokens"], side="right") - 1, index=known.index)
    for bucket, some in _parts(known, buckets):
        ttft = values_of(some["ttft_s"])
        told = some[some["cached_tokens"].notna()]
        share = ratio(float(told["cached_tokens"].sum()), float(told["prompt_tokens"].sum())) if len(told) else None
        quantiles = quantile_figure(ttft, 0.50), quantile_figure(ttft, 0.95)
        yield ContextRow(*place, edges[bucket], edges[bucket + 1] - 1, *quantiles, share)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"
