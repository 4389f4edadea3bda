"""Differences of the engine's own counters over one level, from the samples at its two edges in ``engine.csv``."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

# Names of the totals of prompt tokens and of those found in the cache: the cache's own where there are some.
_LOOKED_UP = (("prefix_queries", "prefix_hits"), ("prompt_tokens", "cached_prompt_tokens"))


@dataclass(frozen=True)
class PromptCounts:
    """Prompt tokens of one level as all engines together counted them."""

    prompt_tokens: float  # all that they were sent
    looked_up: float  # of these, looked for in the cache
    found: float


def prompt_counts(engine: pd.DataFrame, level: int | None) -> PromptCounts | None:
    """``None`` where an edge was not sampled, an engine has no such counters, or began anew in between.

    ``level`` None is the whole of a free-running load.
    """
    for queries, hits in _LOOKED_UP:
        looked_up, found = (counter_difference(engine, level, name) for name in (queries, hits))
        if looked_up is not None and found is not None:
            sent = counter_difference(engine, level, "prompt_tokens")
            return PromptCounts(looked_up if sent is None else sent, looked_up, found)
    return None


@dataclass(frozen=True)
class ImageCounts:
    """Images looked up in the multimodal caches of so many engines over one level."""

    looked_up: float
    found: float
    engines: int


def image_counts(engine: pd.DataFrame, level: int | None) -> ImageCounts | None:
    """``None`` as for ``prompt_counts``."""
    looked_up, found = (counter_difference(engine, level, name) for name in ("mm_queries", "mm_hits"))
    if looked_up is None or found is None:
        return None
    return ImageCounts(looked_up, found, len(_edge(engine, level, "end")))


def counter_difference(engine: pd.DataFrame, level: int | None, name: str) -> float | None:
    """What a total has grown by from the start of a level to its end, summed over the engines."""
    if name not in engine:
        return None
    start, end = (_edge(engine, level, edge) for edge in ("start", "end"))
    if start.empty or set(start.index) != set(end.index):
        return None
    if "process_start_s" in engine and (end["process_start_s"] - start["process_start_s"]).fillna(0.0).any():
        return None  # began anew
    samples = _of_level(engine, level)
    if (samples[name].groupby(samples["engine"].fillna("")).diff() < 0).any():
        return None  # likewise, where the engine does not tell when it began
    grown = end[name] - start[name]
    return None if grown.isna().any() or (grown < 0).any() else float(grown.sum())


def _of_level(engine: pd.DataFrame, level: int | None) -> pd.DataFrame:
    return engine[engine["level"].isna() if level is None else engine["level"] == level]


def _edge(engine: pd.DataFrame, level: int | None, edge: str) -> pd.DataFrame:
    """The last sample of each engine at that edge."""
    samples = _of_level(engine, level)
    rows = samples[samples["edge"] == edge]
    return rows.assign(engine=rows["engine"].fillna("")).groupby("engine").tail(1).set_index("engine").sort_index()
