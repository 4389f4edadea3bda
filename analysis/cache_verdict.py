"""Was as much of a level's prompts in the server's prefix cache as the workload implies?

What was measured must lie between the least and the most that the run's own requests imply (``eligible``), give or take
``TOLERANCE`` of the prompt tokens. That much rounding to blocks, lengths of a few tokens more or less and a single lost
prefix make at most; on the latencies of a level it has no effect that could be told from noise.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from analysis.cache_share import (
    TOLERANCE,
    CacheSource,
    CacheState,
    Found,
    Implied,
    LevelCache,
    judged,
    not_ours,
    noted,
    repeats_prompts,
)
from analysis.engine_counters import prompt_counts
from analysis.figures import ratio
from analysis.image_look_ups import pictures_come_again
from analysis.run_folder import Run
from tokenswarm.records import Phase

MOST_UNTOLD = 0.05  # share of the answers that may lack cached_tokens: some servers leave out a count of 0
_COLUMNS = ["level", "traffic", "phase", "error_kind", "prompt_tokens", "cached_tokens"]
SAME_TOKENS = 64  # by so much the server's count of prompt tokens may differ from ours in any case


class CacheJudge:
    """Judges the levels of one run. ``eligible``: see ``eligible.eligible_tokens``."""

    def __init__(self, run: Run, eligible: pd.DataFrame) -> None:
        self._run = run
        self._rows = run.requests[_COLUMNS].join(eligible)
        self._recorded = {name for name, item in run.traffic_classes.items() if _is_recorded(item)}

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
        implied, open_most = self._implied(told)
        state, reason = judged(
            found,
            implied,
            repeats=repeats_prompts(self._run, level, arms),
            more=partial(self._more_than_implied, open_most=open_most),
            less=self._less_than_implied,
        )
        if found.source is None and whole is not None:
            state, reason = whole.state, whole.reason
        return LevelCache(
            state,
            reason,
            found.source,
            measured=found.share,
            implied=None if implied is None else implied.share,
            looked_up=float(told["prompt_tokens"].sum()) or None,
            finding=self._finding(state, found),
        )

    def _of_usage(self, good: pd.DataFrame) -> Found:
        """From the answers, where nearly all of them tell: those that tell alone may be the ones with hits."""
        told = good[good["cached_tokens"].notna() & good["prompt_tokens"].notna()]
        if not len(told):
            return Found(why_not=self._advice())
        if len(told) < (1 - MOST_UNTOLD) * len(good):
            return Found(why_not=f"only {len(told)} of {len(good)} answers tell their cached tokens")
        share = ratio(float(told["cached_tokens"].sum()), float(told["prompt_tokens"].sum()))
        return Found(CacheSource.USAGE, share)

    def _advice(self) -> str:
        flag = self._run.cache_probe.get("flag")
        return "the answers do not tell their cached tokens" + (f"; start the server with {flag}" if flag else "")

    def _of_counters(self, level: int | None, rows: pd.DataFrame) -> Found:
        """From the engine's counters, where all that it counted was ours."""
        counts = prompt_counts(self._run.engine, level)
        if counts is None:
            return Found()
        least, most = _sent(rows)
        if not most:
            return Found(why_not=_UNCHECKED)
        why_not = not_ours("prompt tokens", counts.prompt_tokens, least, most, SAME_TOKENS)
        if why_not is not None:
            return Found(why_not=why_not)
        return Found(CacheSource.COUNTERS, ratio(counts.found, counts.looked_up))

    def _implied(self, rows: pd.DataFrame) -> tuple[Implied | None, float]:
        """Shares of the prompt tokens, of the rows whose figures are all known, and the most if recorded prompts share
        anything; ``None`` where that is not nearly all of the rows."""
        sent = rows[rows["prompt_tokens"].notna()]
        known = sent[sent["eligible_tokens"].notna()]
        prompts = float(known["prompt_tokens"].sum())
        if not prompts or len(known) < (1 - MOST_UNTOLD) * len(sent):
            return None, 0.0
        recorded = known["traffic"].isin(self._recorded)
        most = known["eligible_most"]
        open_most = most.where(~recorded, known["prompt_tokens"])
        sums = (known["eligible_least"].sum(), known["eligible_tokens"].sum(), most.sum())
        return Implied(*(float(tokens) / prompts for tokens in sums)), float(open_most.sum()) / prompts

    def _more_than_implied(self, share: float, open_most: float) -> tuple[CacheState, str]:
        if share <= open_most + TOLERANCE:
            if noted(self._run, "may hit a cache"):
                return CacheState.CONTAMINATED, _RAN_OUT
            return CacheState.UNKNOWN, _RECORDED
        return CacheState.CONTAMINATED, _EARLIER_LOAD

    def _finding(self, state: CacheState, found: Found) -> str:
        nothing = state == CacheState.BELOW and (found.share or 0.0) <= TOLERANCE
        return _FINDINGS.get(str(self._probed), "") if nothing else ""

    @property
    def _probed(self) -> object:
        """What the probe found before the load."""
        return self._run.cache_probe.get("state")

    def _less_than_implied(self, share: float) -> str:
        nothing = share <= TOLERANCE
        match self._probed:
            case "off" if nothing:
                return "the server's prefix cache is off"
            case "inert" if nothing:
                return "the server's prefix cache is enabled but inert: it serves nothing"
            case "on" if nothing:
                return "the prefix cache works, but all was evicted before it was wanted again"
            case _ if nothing:
                return "nothing came from the cache: it is off or inert, or all was evicted"
            case _:
                return "part of it was evicted before it was wanted again, or was in the cache of another server"


_RAN_OUT = "the file has too few prompts, so that some were sent again"
_RECORDED = (
    "recorded prompts share text with each other, and so do prompts about the same picture; how much is not known"
)
_EARLIER_LOAD = "prompts of an earlier load were still in the cache"
_UNCHECKED = "the answers do not tell their prompt tokens, so that the engine's counters cannot be checked"
_FINDINGS = {"off": "off", "inert": "enabled but inert"}


def _sent(rows: pd.DataFrame) -> tuple[float, float]:
    """The least and the most prompt tokens that these requests can have had: some ended before they were counted."""
    tokens = rows["prompt_tokens"]
    known = float(tokens.sum())
    largest = 0.0 if tokens.isna().all() else float(tokens.max())
    return known, known + largest * int(tokens.isna().sum())


def _is_recorded(traffic: dict[str, Any]) -> bool:
    """Whether the prompts of a class come from a file as they are, or begin with pictures that come again. Recorded
    jobs do neither: each has words of its own before its task, and what it shares before them has been counted.
    """
    return isinstance(traffic.get("prompts"), dict) or pictures_come_again(traffic)
