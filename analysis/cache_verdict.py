"""Was as much of a level's prompts in the server's prefix cache as the workload implies?

Prompts that are still in the cache from an earlier load make TTFT and throughput better than this load deserves, and
nothing else in a table shows it. So each level is judged: what was measured must lie between the least and the most
that the run's own requests imply (``eligible``), give or take ``TOLERANCE`` of the prompt tokens. That much rounding to
blocks, lengths of a few tokens more or less and a single lost prefix make at most; on the latencies of a level it has
no effect that could be told from noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from analysis.engine_counters import PromptCounts, prompt_counts
from analysis.figures import ratio
from analysis.run_folder import Run
from tokenswarm.records import Phase
from tokenswarm.schedule import Arms

TOLERANCE = 0.02
MOST_UNTOLD = 0.05  # share of the answers that may lack cached_tokens: some servers leave out a count of 0
SAME_TOKENS = 64  # by so much the server's count of prompt tokens may differ from ours in any case


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
    """Shares of the prompt tokens, and the verdict with its reason in a few words. ``None`` is unknown."""

    state: CacheState
    reason: str = ""
    source: CacheSource | None = None
    measured: float | None = None
    implied: float | None = None
    prompt_tokens: float | None = None  # that the shares are of

    @property
    def contaminated(self) -> bool:
        return self.state == CacheState.CONTAMINATED


@dataclass(frozen=True)
class _Found:
    source: CacheSource | None = None
    share: float | None = None
    why_not: str = ""


@dataclass(frozen=True)
class _Implied:
    """Shares of the prompt tokens, see ``eligible``. In ``open_most`` recorded prompts may share anything."""

    least: float
    share: float
    most: float
    open_most: float


class CacheJudge:
    """Judges the levels of one run. ``eligible``: see ``eligible.eligible_tokens``."""

    def __init__(self, run: Run, eligible: pd.DataFrame) -> None:
        self._run = run
        self._rows = run.requests.join(eligible)
        self._recorded = {name for name, item in run.traffic_classes.items() if _is_recorded(item)}
        self._first = run.requests["level"].min()

    def level(
        self, level: int | None, arms: str, traffic: str | None = None, whole: LevelCache | None = None
    ) -> LevelCache:
        """The verdict on a level, or on one class of it as far as the answers themselves tell; else that on the
        ``whole`` level, without a share."""
        rows = self._rows[self._rows["level"].isna() if level is None else self._rows["level"] == level]
        if traffic is not None:
            rows = rows[rows["traffic"] == traffic]
        good = rows[(rows["phase"] == Phase.MEASURED) & rows["error_kind"].isna()]
        found, told = self._of_usage(good), good
        if found.share is None and traffic is None:
            counted = self._of_counters(level, rows)
            if counted.share is not None or counted.why_not:
                found, told = counted, rows
        implied = self._implied(told)
        prompt_tokens = float(told["prompt_tokens"].sum()) or None
        repeats = self._repeats(level, arms)
        state, reason = self._verdict(found, implied, repeats)
        if found.source is None and whole is not None:
            state, reason = whole.state, whole.reason
        return LevelCache(
            state, reason, found.source, found.share, None if implied is None else implied.share, prompt_tokens
        )

    def _of_usage(self, good: pd.DataFrame) -> _Found:
        """From the answers, where nearly all of them tell: those that tell alone may be the ones with hits."""
        told = good[good["cached_tokens"].notna() & good["prompt_tokens"].notna()]
        if not len(told):
            return _Found(why_not=self._advice())
        if len(told) < (1 - MOST_UNTOLD) * len(good):
            return _Found(why_not=f"only {len(told)} of {len(good)} answers tell their cached tokens")
        share = ratio(float(told["cached_tokens"].sum()), float(told["prompt_tokens"].sum()))
        return _Found(CacheSource.USAGE, share)

    def _advice(self) -> str:
        flag = self._run.cache_probe.get("flag")
        return "the answers do not tell their cached tokens" + (f"; start the server with {flag}" if flag else "")

    def _of_counters(self, level: int | None, rows: pd.DataFrame) -> _Found:
        """From the engine's counters, where all that it counted was ours."""
        counts = prompt_counts(self._run.engine, level)
        if counts is None:
            return _Found()
        least, most = _sent(rows)
        if (why_not := _not_ours(counts, least, most)) is not None:
            return _Found(why_not=why_not)
        return _Found(CacheSource.COUNTERS, ratio(counts.found, counts.looked_up))

    def _implied(self, rows: pd.DataFrame) -> _Implied | None:
        """Of the rows whose figures are all known; ``None`` where that is not nearly all of them."""
        sent = rows[rows["prompt_tokens"].notna()]
        known = sent[sent["eligible_tokens"].notna()]
        prompts = float(known["prompt_tokens"].sum())
        if not prompts or len(known) < (1 - MOST_UNTOLD) * len(sent):
            return None
        recorded = known["traffic"].isin(self._recorded)
        most = known["eligible_most"]
        open_most = most.where(~recorded, known["prompt_tokens"])
        sums = (known["eligible_least"].sum(), known["eligible_tokens"].sum(), most.sum(), open_most.sum())
        return _Implied(*(float(tokens) / prompts for tokens in sums))

    def _repeats(self, level: int | None, arms: str) -> bool:
        """Whether the scenario sends the prompts of an earlier level again, with nothing to keep them apart."""
        load = self._run.scenario.get("load")
        closed: Any = load.get("closed") if isinstance(load, dict) else None
        again = isinstance(closed, dict) and closed.get("fresh_prompts") is False
        return again and level is not None and level != self._first and arms != Arms.COLD

    def _verdict(self, found: _Found, implied: _Implied | None, repeats: bool) -> tuple[CacheState, str]:
        if found.share is None or implied is None:
            why = found.why_not or "the session's own history is not known in tokens"
            return (CacheState.CONTAMINATED, _REPEATED) if repeats else (CacheState.UNKNOWN, why)
        if found.share > implied.most + TOLERANCE:
            return self._more_than_implied(found.share, implied, repeats)
        if found.share < implied.least - TOLERANCE:
            return CacheState.BELOW, self._less_than_implied(found.share)
        return CacheState.CONFIRMED, _REPEATED_IN_VAIN if repeats else ""

    def _more_than_implied(self, share: float, implied: _Implied, repeats: bool) -> tuple[CacheState, str]:
        if repeats:
            return CacheState.CONTAMINATED, _REPEATED
        if share <= implied.open_most + TOLERANCE:
            if self._ran_out:
                return CacheState.CONTAMINATED, _RAN_OUT
            return CacheState.UNKNOWN, _RECORDED
        return CacheState.CONTAMINATED, _EARLIER_LOAD

    @property
    def _ran_out(self) -> bool:
        """Whether the run itself noted that its file has too few prompts."""
        notes = self._run.facts.get("notes")
        return isinstance(notes, list) and any("may hit a cache" in str(note) for note in notes)

    def _less_than_implied(self, share: float) -> str:
        nothing = share <= TOLERANCE
        match self._run.cache_probe.get("state"):
            case "off":
                return "the server's prefix cache is off"
            case "inert":
                return "the server's prefix cache is enabled but inert: it serves nothing"
            case "on" if nothing:
                return "the prefix cache works, but all was evicted before it was wanted again"
            case _ if nothing:
                return "nothing came from the cache: it is off or inert, or all was evicted"
            case _:
                return "part of it was evicted before it was wanted again, or was in the cache of another server"


_REPEATED = "repeats the prompts of the first level (load.closed.fresh_prompts: false)"
_REPEATED_IN_VAIN = f"{_REPEATED}, but nothing of them came from the cache"
_RAN_OUT = "the file has too few prompts, so that some were sent again"
_RECORDED = "recorded prompts share text with each other, how much is not known"
_EARLIER_LOAD = "prompts of an earlier load were still in the cache"


def _sent(rows: pd.DataFrame) -> tuple[float, float]:
    """The least and the most prompt tokens that these requests can have had: some ended before they were counted."""
    tokens = rows["prompt_tokens"]
    known = float(tokens.sum())
    largest = 0.0 if tokens.isna().all() else float(tokens.max())
    return known, known + largest * int(tokens.isna().sum())


def _not_ours(counts: PromptCounts, least: float, most: float) -> str | None:
    """Why the server's count of prompt tokens cannot be that of this run's requests; ``None`` where it can."""
    if not most:
        return "the answers do not tell their prompt tokens, so that the engine's counters cannot be checked"
    if counts.prompt_tokens > most * (1 + TOLERANCE) + SAME_TOKENS:
        return f"others use the server: it counted {counts.prompt_tokens:.0f} prompt tokens, this run sent {most:.0f}"
    if counts.prompt_tokens < least * (1 - TOLERANCE) - SAME_TOKENS:
        return (
            f"not all requests reached the engine that shows its counters: it counted {counts.prompt_tokens:.0f} "
            f"prompt tokens, this run sent {least:.0f}"
        )
    return None


def _is_recorded(traffic: dict[str, Any]) -> bool:
    """Whether the prompts of a class come from a file as they are. Recorded jobs do not: each has words of its own
    before its task, and what it shares before them has been counted.
    """
    return isinstance(traffic.get("prompts"), dict)


def share_line(cache: LevelCache) -> str:
    """Measured and implied share with the reason, for one line of text."""
    measured = "an unknown share" if cache.measured is None else f"{cache.measured:.1%}"
    implied = "an unknown share" if cache.implied is None else f"{cache.implied:.1%}"
    because = f" ({cache.reason})" if cache.reason else ""
    return f"{measured} of the prompt tokens came from the cache, the workload implies {implied}{because}"
