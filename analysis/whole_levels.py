"""Throughput of whole levels in the order cold, warm, warm, cold: what all traffic together gains from the cache.

The order cancels a drift that is even over the four levels. Four levels give no interval; how much two equal levels
differ is the floor below which a difference means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.benefit import FLOOR_SHARE, Answer
from analysis.levels import LevelRow
from tokenswarm.schedule import Arms

ORDER = (Arms.COLD, Arms.WARM, Arms.WARM, Arms.COLD)


@dataclass(frozen=True)
class Measure:
    """``higher``: more is better."""

    name: str  # of the figure of a level
    title: str
    decimals: int
    higher: bool


MEASURES = (
    Measure("output_tok_s", "output tok/s", 1, higher=True),
    Measure("jobs_per_h", "jobs/h", 0, higher=True),
    Measure("e2e_mean_s", "E2E mean s", 1, higher=False),
)


@dataclass(frozen=True)
class Comparison:
    """One measure of four levels. Ratios are warm / cold; ``floor`` is a share."""

    measure: Measure
    values: tuple[float | None, ...]  # in the order of the levels

    @property
    def halves(self) -> tuple[float, float] | None:
        """The ratio of the first two and of the last two levels."""
        cold, warm, again, last = self.values
        if not cold or not warm or not again or not last:
            return None
        return warm / cold, again / last

    @property
    def ratio(self) -> float | None:
        """Mean of both halves."""
        return None if self.halves is None else sum(self.halves) / 2

    @property
    def floor(self) -> float | None:
        """The larger of the differences that two cold and two warm levels have, at least ``FLOOR_SHARE``."""
        cold, warm, again, last = self.values
        if not cold or not warm or not again or not last:
            return None
        return max(abs(last / cold - 1), abs(again / warm - 1), FLOOR_SHARE)

    @property
    def answer(self) -> Answer:
        ratio, floor = self.ratio, self.floor
        if ratio is None or floor is None or abs(ratio - 1) <= floor:
            return Answer.UNKNOWN
        return Answer.BENEFIT if (ratio > 1) == self.measure.higher else Answer.NONE


@dataclass(frozen=True)
class WholeLevels:
    """Four levels of the same number of users. ``partial`` names those that are not complete."""

    users: int | None
    levels: tuple[int, ...]
    partial: tuple[str, ...]
    comparisons: tuple[Comparison, ...]


def whole_levels_of(rows: list[LevelRow]) -> list[WholeLevels]:
    """Wherever four levels in a row have the same users and the arms in their ``ORDER``."""
    found, at = [], 0
    while at + len(ORDER) <= len(rows):
        four = rows[at : at + len(ORDER)]
        if [row.arms for row in four] == list(ORDER) and len({row.concurrency for row in four}) == 1:
            found.append(_compared(four))
            at += len(ORDER)
        else:
            at += 1
    return found


def _compared(four: list[LevelRow]) -> WholeLevels:
    return WholeLevels(
        users=four[0].concurrency,
        levels=tuple(row.level for row in four if row.level is not None),
        partial=tuple(row.name for row in four if not row.complete),
        comparisons=tuple(Comparison(one, tuple(row.figure(one.name).value for row in four)) for one in MEASURES),
    )
