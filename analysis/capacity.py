"""How much load keeps an objective: the highest that is proven to, the lowest that is proven not to.

More load is taken to make nothing faster: a level that fits speaks for every lower one, one that misses for every
higher one. Each end errs with at most 2.5 % at the level it rests on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.capacity_fit import Crossing, Reading, crossing_of
from analysis.capacity_level import FAILED, Evidence, Point, barred, metric_at, point_of
from analysis.check_text import comparison
from analysis.levels import LevelRow

Limits = dict[str, float]  # by metric: ttft_p95_s, ... or failed


@dataclass(frozen=True)
class LoadPoint:
    """All limits at one level. ``deciding``: the one that is nearest to its limit or beyond it, or that is open."""

    row: LevelRow
    load: float
    evidence: Evidence
    deciding: Point
    by_value: bool | None

    @property
    def text(self) -> str:
        """``c=8: TTFT p95 60 ms > 50 ms``."""
        return f"{self.row.name}: {comparison(self.deciding.check)}"


@dataclass(frozen=True)
class Bracket:
    """``fits``: the highest load that is proven to; ``misses``: the lowest above it that is proven not to.

    ``against``: a lower load missed although a higher one fits; then only what lies below it counts.
    """

    fits: LoadPoint | None
    misses: LoadPoint | None
    against: LoadPoint | None = None


@dataclass(frozen=True)
class Capacity:
    """Of one traffic class under all its limits. ``values``: the same by bare values, which prove nothing."""

    traffic: str | None
    limits: Limits
    of_users: bool
    points: tuple[LoadPoint, ...]
    proven: Bracket
    values: Bracket
    crossings: dict[str, Crossing]

    @property
    def answer(self) -> str:
        return _answer(self.proven, self.of_users)

    @property
    def answer_by_value(self) -> str:
        return _answer(self.values, self.of_users)

    @property
    def decided(self) -> bool:
        return self.proven.fits is not None or self.proven.misses is not None


def capacity_of(rows: Sequence[LevelRow], limits: Limits, pooled: Sequence[LevelRow]) -> Capacity:
    """``rows``: of one class, at levels of one kind; ``pooled``: the same levels with all classes together."""
    why = {row.level: barred(row) for row in pooled}
    found: dict[str, list[Point]] = {}
    points = []
    for row in rows:
        its = [
            point
            for metric, limit in limits.items()
            if (point := point_of(row, metric_at(row, metric), limit, why.get(row.level) or barred(row)))
        ]
        if its:
            points.append(_together(its))
        for metric, point in zip(limits, its, strict=False):
            found.setdefault(metric, []).append(point)
    points.sort(key=lambda one: one.load)
    return Capacity(
        rows[0].traffic if rows else None,
        limits,
        not any(row.by_clock for row in rows),
        tuple(points),
        _bracket(points, {Evidence.FITS: True, Evidence.MISSES: False}),
        _bracket(points, None),
        {metric: _crossing(its) for metric, its in found.items() if metric != FAILED},
    )


def of_all(capacities: Sequence[Capacity]) -> tuple[str, str]:
    """What fits every class at once, proven and by values: the smallest of what fits each."""
    of_users = all(one.of_users for one in capacities)
    proven = _smallest([one.proven for one in capacities])
    return _answer(proven, of_users), _answer(_smallest([one.values for one in capacities]), of_users)


def _smallest(brackets: Sequence[Bracket]) -> Bracket:
    fits = [one.fits for one in brackets if one.fits is not None]
    misses = [one.misses for one in brackets if one.misses is not None]
    all_fit = len(fits) == len(brackets)
    return Bracket(
        min(fits, key=lambda one: one.load) if all_fit and fits else None,
        min(misses, key=lambda one: one.load, default=None),
    )


def amount(load: float, of_users: bool) -> str:
    """``8 users`` or ``2.5/s``."""
    return f"{load:g} user{'s' * (load != 1)}" if of_users else f"{load:g}/s"


def _together(points: Sequence[Point]) -> LoadPoint:
    """A limit that is missed for sure decides; else what is open does."""
    first = points[0]
    missed = [one for one in points if one.evidence is Evidence.MISSES]
    unsure = [one for one in points if one.evidence is Evidence.OPEN]
    evidence = Evidence.MISSES if missed else Evidence.OPEN if unsure else Evidence.FITS
    deciding = max(missed or unsure or points, key=_nearness)
    values = [one.by_value for one in points]
    by_value = False if False in values else None if None in values else True
    if first.row.state == "saturated":
        by_value = False
    return LoadPoint(first.row, first.load, evidence, deciding, by_value)


def _nearness(point: Point) -> float:
    """What is unknown comes before all that is known."""
    value, limit = point.check.value, point.check.limit
    return math.inf if value is None else value / limit if limit else (math.inf if value else 0.0)


def _bracket(points: Sequence[LoadPoint], proof: dict[Evidence, bool] | None) -> Bracket:
    """``proof``: what evidence says; without it values say it."""
    verdicts = [(one, one.by_value if proof is None else proof.get(one.evidence)) for one in points]
    misses = next((one for one, fits in verdicts if fits is False), None)
    good = [one for one, fits in verdicts if fits]
    below = [one for one in good if misses is None or one.load < misses.load]
    above = [one for one in good if misses is not None and one.load >= misses.load]
    return Bracket(below[-1] if below else None, misses, above[-1] if above else None)


def _answer(bracket: Bracket, of_users: bool) -> str:
    fits, misses = bracket.fits, bracket.misses
    if fits is None and misses is None:
        return "cannot tell"
    if misses is None and fits is not None:
        return f"at least {amount(fits.load, of_users)}"
    end = 0.0 if misses is None else misses.load
    if fits is None:
        return "not even 1 user" if of_users and end <= 1 else f"fewer than {amount(end, of_users)}"
    if not of_users:
        return f"{fits.load:g} to {end:g}/s"
    return amount(fits.load, True) if end - 1 <= fits.load else f"{fits.load:g} to {end - 1:g} users"


def _crossing(points: Iterable[Point]) -> Crossing:
    known = [one for one in points if not one.barred and one.figure.value is not None and one.figure.value > 0]
    readings = [Reading(one.load, one.figure.value or 0.0, one.figure.low, one.figure.high) for one in known]
    return crossing_of(readings, known[0].check.limit) if known else Crossing(None, None, None)
