"""What a level took from one of the server's caches, held against what its workload implies.

What is still in a cache from an earlier load makes TTFT and throughput better than this load deserves, and nothing else
in a table shows it. So each level is judged, once for the prefix cache and once for the cache of images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from analysis.run_folder import Run
from tokenswarm.schedule import Arms

TOLERANCE = 0.02  # of what was looked up; on the latencies of a level so much cannot be told from noise


class CacheState(StrEnum):
    CONFIRMED = "confirmed"
    CONTAMINATED = "contaminated"  # more than implied
    BELOW = "below"  # less than implied
    UNKNOWN = "unknown"


class CacheSource(StrEnum):
    """Where the measured share comes from."""

    USAGE = "usage"  # cached_tokens of the answers
    COUNTERS = "counters"  # of the engine, over the level


@dataclass(frozen=True)
class LevelCache:
    """Shares of what was looked up, and the verdict with its reason in a few words. ``None`` is unknown."""

    state: CacheState
    reason: str = ""
    source: CacheSource | None = None
    measured: float | None = None
    implied: float | None = None
    looked_up: float | None = None  # that the shares are of: prompt tokens, or images
    finding: str = ""  # why the state is below, where one word says it: "off", "enabled but inert"

    @property
    def contaminated(self) -> bool:
        return self.state == CacheState.CONTAMINATED

    @property
    def verdict(self) -> str:
        """As people read it."""
        return self.finding or self.state.value


@dataclass(frozen=True)
class Found:
    """A measured share, or why there is none."""

    source: CacheSource | None = None
    share: float | None = None
    why_not: str = ""


@dataclass(frozen=True)
class Implied:
    """Shares that the workload implies: what a cache serves at the very least when it works, what an ideal one serves,
    and what it may serve without anything of an earlier load."""

    least: float
    share: float
    most: float


def judged(
    found: Found,
    implied: Implied | None,
    *,
    repeats: bool,
    more: Callable[[float], tuple[CacheState, str]],
    less: Callable[[float], str],
) -> tuple[CacheState, str]:
    """State and reason. ``more`` and ``less`` explain a share above or below; ``repeats``: see ``repeats_prompts``."""
    if found.share is None or implied is None:
        why = found.why_not or "the session's own history is not known in tokens"
        return (CacheState.CONTAMINATED, _REPEATED) if repeats else (CacheState.UNKNOWN, why)
    if found.share > implied.most + TOLERANCE:
        return (CacheState.CONTAMINATED, _REPEATED) if repeats else more(found.share)
    if found.share < implied.least - TOLERANCE:
        return CacheState.BELOW, less(found.share)
    return CacheState.CONFIRMED, _REPEATED_IN_VAIN if repeats else ""


def repeats_prompts(run: Run, level: int | None, arms: str) -> bool:
    """Whether the scenario sends what an earlier level has sent, with nothing to keep the two apart."""
    load = run.scenario.get("load")
    closed: Any = load.get("closed") if isinstance(load, dict) else None
    again = isinstance(closed, dict) and closed.get("fresh_prompts") is False
    return again and level is not None and level != run.requests["level"].min() and arms != Arms.COLD


def noted(run: Run, words: str) -> bool:
    """Whether the run itself has written a note with these words."""
    notes = run.facts.get("notes")
    return isinstance(notes, list) and any(words in str(note) for note in notes)


def not_ours(what: str, counted: float, least: float, most: float, slack: float) -> str | None:
    """Why a count of the engine cannot be of this run alone, which sent ``least`` to ``most``; ``None`` if it can."""
    if counted > most * (1 + TOLERANCE) + slack:
        return f"others use the server: it counted {counted:.0f} {what}, this run sent {most:.0f}"
    if counted < least * (1 - TOLERANCE) - slack:
        return (
            f"not all requests reached the engine that shows its counters: it counted {counted:.0f} {what}, "
            f"this run sent {least:.0f}"
        )
    return None


def share_line(cache: LevelCache, what: str) -> str:
    """Measured and implied share with the reason, for one line of text."""
    measured = "an unknown share" if cache.measured is None else f"{cache.measured:.1%}"
    implied = "an unknown share" if cache.implied is None else f"{cache.implied:.1%}"
    because = f" ({cache.reason})" if cache.reason else ""
    return f"{measured} of the {what} came from the cache, the workload implies {implied}{because}"


_REPEATED = "repeats the prompts of the first level (load.closed.fresh_prompts: false)"
_REPEATED_IN_VAIN = f"{_REPEATED}, but nothing of them came from the cache"
