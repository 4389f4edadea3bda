"""One class of one level on both sides: its cells, and what keeps it out of verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from analysis.aa_floor import floor_of, halves_of
from analysis.compared_figure import UNFINISHED, ComparedFigure, estimate_of, figures_of, group_count_of
from analysis.compared_run import ComparedRun, Key
from analysis.effect import Effect, Unit, effect_of_many, effect_of_two
from analysis.failure_effect import FailureEffect, failure_effect
from analysis.levels import LevelRow
from analysis.objectives import level_doubts

ALIKE_SHARE = 0.05  # by which mean lengths of two runs may differ
FEWEST_RUNS = 2  # of a side, for some of its runs to be left out


class Verdict(StrEnum):
    """Of the candidate against the base."""

    BETTER = "better"
    WORSE = "worse"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Cell:
    """One figure of one class of one level. ``floor`` and ``detectable`` are shares of the base; ``corrected`` is the
    p-value among all cells. ``better`` says in which direction the figure is better."""

    key: Key
    figure: str
    title: str
    better: str
    effect: Effect | FailureEffect
    floor: float | None = None
    least: float = 0.0
    corrected: float | None = None
    detectable: float | None = None
    needed: int | None = None  # for a change of ``SOUGHT_SHARE``: requests a run; runs a side where it has several
    verdict: Verdict = Verdict.UNKNOWN
    reason: str = ""

    @property
    def improves(self) -> bool:
        """Whether the value moved in the better direction."""
        higher = self.effect.candidate > self.effect.base
        return higher == (self.better == "higher")


@dataclass(frozen=True)
class LevelPair:
    """One class of one level on both sides; ``left_out``: why there is no verdict on it, empty where there is."""

    key: Key
    rows: tuple[LevelRow, LevelRow]  # of the first run of each side
    left_out: str
    dropped: tuple[str, ...]  # runs of several that are not fit, and why
    cells: tuple[Cell, ...]
    size: int  # requests of the smaller run; where a side has several runs, runs of the smaller side
    lasting: bool  # whether the floor is of several runs, which more requests do not lower


def where(key: Key) -> str:
    """A level and its class, as people read them."""
    return f"{key[0]} {key[1]}" if key[1] else key[0]


def level_pair(
    base: Sequence[ComparedRun],
    candidate: Sequence[ComparedRun],
    key: Key,
    repeated: Sequence[ComparedRun],
    allowed: Sequence[str],
) -> LevelPair:
    """Without verdicts, which depend on how many cells there are in all. Of several runs a side, those that are not fit
    are left out as long as enough others are."""
    fit = [[one for one in side if not _doubt(one, key)] for side in (base, candidate)]
    dropped: tuple[str, ...] = ()
    if min(len(side) for side in fit) >= FEWEST_RUNS:
        dropped = tuple(doubt for one in (*base, *candidate) if (doubt := _doubt(one, key)))
        base, candidate = fit
    runs = (*base, *candidate)
    rows = base[0].levels[key], candidate[0].levels[key]
    doubts = [doubt for one in runs if (doubt := _doubt(one, key))]
    return LevelPair(
        key=key,
        rows=rows,
        left_out=doubts[0] if doubts else _unlike([one.levels[key] for one in runs], allowed),
        dropped=dropped,
        cells=tuple(_cells(base, candidate, key, repeated)),
        size=min(row.ok for row in rows) if len(runs) == 2 else min(len(base), len(candidate)),
        lasting=bool(repeated) or len(runs) > 2,
    )


def _cells(
    base: Sequence[ComparedRun], candidate: Sequence[ComparedRun], key: Key, repeated: Sequence[ComparedRun]
) -> list[Cell]:
    several = any(one.outcome.several_classes for one in (*base, *candidate))
    cells = []
    for figure in figures_of(base[0].levels[key], several_classes=several):
        effect = _effect(figure, key, base, candidate)
        if effect is not None:
            floor = floor_of(figure, key, (base, candidate), repeated)
            cells.append(Cell(key, figure.name, figure.title, figure.better, effect, floor, figure.least))
    failures = failure_effect(key, base, candidate)
    return cells if failures is None else [*cells, Cell(key, "failed_share", "failed", "lower", failures)]


def _effect(
    figure: ComparedFigure, key: Key, base: Sequence[ComparedRun], candidate: Sequence[ComparedRun]
) -> Effect | None:
    units, groups = [], min(group_count_of(one, key) for one in (*base, *candidate))
    for number, side in enumerate((base, candidate)):
        for one in side:
            found = estimate_of(figure, one, key, groups)
            if found is None:
                return None
            units.append(Unit(found, number, one.moment_s(key)))
    if len(units) == 2:
        effect = effect_of_two(units[0].estimate, units[1].estimate)
    else:
        halves = [
            unit for number, side in enumerate((base, candidate)) for unit in halves_of(figure, key, side, number)
        ]
        effect = effect_of_many(units, halves if len(halves) == 2 * len(units) else [])
    return effect if effect.error is not None else replace(effect, unsure=_why_unsure(figure, key, (*base, *candidate)))


def _why_unsure(figure: ComparedFigure, key: Key, runs: Sequence[ComparedRun]) -> str:
    if any(UNFINISHED.intersection(one.levels[key].figure(figure.name).marks) for one in runs):
        return "no interval: sessions were unfinished"
    if any(one.run is None for one in runs):
        return "no interval: only summaries are known"
    return "no interval: too few requests" if len(runs) == 2 else "no interval: too few runs, or not in turns"


def _doubt(one: ComparedRun, key: Key) -> str:
    """Why nothing can be concluded from this level of this run; empty where something can."""
    whole = one.level_row(key[0])
    doubts = [*one.outcome.doubts, *(level_doubts(whole) if whole is not None and one.run is not None else [])]
    return f"{one.path}: {doubts[0]}" if doubts else ""


def _unlike(rows: Sequence[LevelRow], allowed: Sequence[str]) -> str:
    """Requests of other lengths are another workload, whatever the scenario says."""
    for name in ("prompt_tokens", "output_tokens"):
        means = [row.figure(f"{name}_mean").value for row in rows]
        known = [mean for mean in means if mean]
        if name not in allowed and known and max(known) > (1.0 + ALIKE_SHARE) * min(known):
            what = name.replace("_", " ")
            return f"requests were not alike: {min(known):,.0f} to {max(known):,.0f} {what} on average (--allow {name})"
    return ""
