"""Were as many of a level's images in the server's multimodal cache as the workload implies?

Measured by the engine's counters over the level, warm-up and fill included, if they counted our images and no others;
implied by the requests themselves (``image_look_ups``). Two questions about a picture imply half of the look-ups.
"""

from __future__ import annotations

from functools import partial

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
from analysis.engine_counters import ImageCounts, counter_difference, image_counts
from analysis.figures import ratio
from analysis.image_look_ups import LookUps, distinct_pictures, image_requests, look_ups_of
from analysis.run_folder import Run

SAME_IMAGES = 1  # by so many the engine's count may differ from ours in any case
OFF = "off"


class ImageCacheJudge:
    """Judges the levels of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._requests = image_requests(run)
        self._distinct = distinct_pictures(run)

    def level(self, level: int | None, arms: str) -> LevelCache | None:
        """The verdict on a level; ``None`` where no request of it had an image."""
        numbers = self._requests["level"]
        requests = self._requests[numbers.isna() if level is None else numbers == level]
        if requests.empty:
            return None
        before = self._requests[numbers < level] if level is not None else self._requests.head(0)
        sent = look_ups_of(requests, before, self._distinct)
        counts = image_counts(self._run.engine, level)
        off = counts is not None and counts.looked_up == 0 and self._reached(level)
        found = Found(CacheSource.COUNTERS, 0.0) if off else _found(counts, sent)
        implied = _implied(sent)
        state, reason = judged(
            found,
            implied,
            repeats=repeats_prompts(self._run, level, arms),
            more=self._more_than_implied,
            less=partial(_less_than_implied, off=off, engines=1 if counts is None else counts.engines),
        )
        return LevelCache(
            state,
            reason,
            found.source,
            measured=found.share,
            implied=None if implied is None else implied.share,
            looked_up=sent.count,
            finding=OFF if off and state == CacheState.BELOW else "",
        )

    def of_class(self, level: int | None, traffic: str, whole: LevelCache | None) -> LevelCache | None:
        """The level's verdict without shares, for a class with images: counters know no classes."""
        mine = self._requests[self._requests["traffic"] == traffic]
        numbers = mine["level"]
        images = float(mine.loc[numbers.isna() if level is None else numbers == level, "images"].sum())
        if whole is None or not images:
            return None
        return LevelCache(whole.state, whole.reason, looked_up=images, finding=whole.finding)

    def _reached(self, level: int | None) -> bool:
        """Whether the engine that shows its counters has computed prompts in this level."""
        return (counter_difference(self._run.engine, level, "prompt_tokens") or 0) > 0

    def _more_than_implied(self, share: float) -> tuple[CacheState, str]:
        return CacheState.CONTAMINATED, _RAN_OUT if noted(self._run, "may be served from an image cache") else _EARLIER


def _found(counts: ImageCounts | None, sent: LookUps) -> Found:
    if counts is None:
        return Found(why_not=_UNTOLD)
    why_not = not_ours("images", counts.looked_up, sent.count, sent.count + sent.uncertain, SAME_IMAGES)
    if why_not is not None:
        return Found(why_not=why_not)
    return Found(CacheSource.COUNTERS, ratio(counts.found, counts.looked_up))


def _implied(sent: LookUps) -> Implied | None:
    if not sent.count:
        return None
    everything = sent.count + sent.uncertain
    least, most = sent.again_least / everything, (sent.again_most + sent.uncertain) / everything
    return Implied(least, sent.again / sent.count, most)


def _less_than_implied(share: float, *, off: bool, engines: int) -> str:
    if off:
        return "the engine looked no image up: its multimodal cache is off"
    if engines > 1:
        return (
            f"each of the {engines} engines may have a cache of its own, or images were evicted before their next use"
        )
    if share <= TOLERANCE:
        return "nothing came from the cache: it is too small for an image, or all were evicted before their next use"
    return "images were evicted before their next use, or were in the cache of another server"


_UNTOLD = (
    "the engine does not tell: its counters of image look-ups are needed at both ends of the level (vLLM has them)"
)
_RAN_OUT = "there are too few pictures, so that some were sent again"
_EARLIER = "images of an earlier load were still in the cache, or the source has the same ones several times"
