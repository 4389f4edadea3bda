"""Two configurations beside each other: of every figure of every level the effect, how sure it is, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from analysis import fingerprint, holm
from analysis.compared_figure import LEAST_SHARE
from analysis.compared_level import Cell, LevelPair, Verdict, level_pair, where
from analysis.compared_run import ComparedRun, Key
from analysis.effect import SIGNIFICANCE
from analysis.failure_effect import FailureEffect
from analysis.fingerprint import Difference
from analysis.levels import LevelRow
from analysis.objectives import DEFAULT_FAILED_LIMIT

SOUGHT_SHARE = 0.05  # the change for which a sample size is recommended
# One floor in ten is at least so many times as large as the usual one: the larger of two normal deviations.
FLOOR_REACH = 1.9


@dataclass(frozen=True)
class Comparison:
    """``refused``: differences that make the sides unlike; then there are no pairs. ``unmatched``: levels that only one
    side has."""

    base: tuple[ComparedRun, ...]
    candidate: tuple[ComparedRun, ...]
    differences: list[Difference]
    pairs: list[LevelPair] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)

    @property
    def refused(self) -> list[Difference]:
        return [one for one in self.differences if not one.allowed]

    @property
    def cells(self) -> list[Cell]:
        return [cell for pair in self.pairs for cell in pair.cells]

    @property
    def doubts(self) -> list[str]:
        """Which levels were left out of verdicts, and why."""
        return [f"{where(pair.key)}: {pair.left_out}" for pair in self.pairs if pair.left_out]

    @property
    def dropped(self) -> list[str]:
        """Runs of several that were left out of a level."""
        return [f"{where(pair.key)}: {text}" for pair in self.pairs for text in pair.dropped]


def comparisons(
    base: Sequence[ComparedRun],
    candidates: Sequence[Sequence[ComparedRun]],
    *,
    repeated: Sequence[ComparedRun] = (),
    allowed: Sequence[str] = (),
) -> list[Comparison]:
    """Each candidate against the base, every side one run or several of one configuration. Verdicts are corrected for
    all cells of all comparisons together."""
    found = [_compared(tuple(base), tuple(candidate), repeated, allowed) for candidate in candidates]
    chances = [cell.effect.chance for one in found for cell in one.cells]
    tested = [chance for chance in chances if chance is not None]
    corrected = iter(holm.adjusted(tested))

    def judged(pair: LevelPair) -> LevelPair:
        cells = [
            replace(cell, corrected=None if cell.effect.chance is None else next(corrected)) for cell in pair.cells
        ]
        return replace(pair, cells=tuple(_judged(_planned(cell, pair, len(tested)), pair) for cell in cells))

    return [replace(one, pairs=[judged(pair) for pair in one.pairs]) for one in found]


def _planned(cell: Cell, pair: LevelPair, tested: int) -> Cell:
    """With what could be found, and what it takes to find more."""
    return replace(cell, detectable=cell.effect.detectable(tested), needed=_needed(cell, pair, tested))


def _needed(cell: Cell, pair: LevelPair, tested: int) -> int | None:
    """What makes the error small enough, and the floor too, where that is the chance of two halves and not a lasting
    difference between runs."""
    larger = None if isinstance(cell.effect, FailureEffect) else cell.effect.runs_larger(SOUGHT_SHARE, tested)
    if larger is None or (pair.lasting and cell.floor is not None and cell.floor >= SOUGHT_SHARE):
        return None
    if not pair.lasting and cell.floor is not None:
        larger = max(larger, (FLOOR_REACH * cell.floor / SOUGHT_SHARE) ** 2)
    return math.ceil(larger * pair.size)


def _judged(cell: Cell, pair: LevelPair) -> Cell:
    reason = pair.left_out or _open(cell) or _survivors(cell, pair)
    if reason:
        return replace(cell, reason=reason)
    return replace(cell, verdict=Verdict.BETTER if cell.improves else Verdict.WORSE)


def _open(cell: Cell) -> str:
    """Why the figure alone does not decide; empty where it does."""
    effect = cell.effect
    if cell.corrected is None:
        return effect.unsure
    if cell.corrected >= SIGNIFICANCE:
        return "within chance"
    if cell.floor is not None and abs(effect.ratio - 1.0) <= cell.floor:
        return "within the floor"
    if abs(effect.candidate - effect.base) < max(cell.least, LEAST_SHARE * effect.base):
        return "too small to matter"
    return ""


def _survivors(cell: Cell, pair: LevelPair) -> str:
    """A side that fails more must not look better for the requests that it did not answer."""
    if isinstance(cell.effect, FailureEffect):
        return ""
    shares = [row.failed_share or 0.0 for row in pair.rows]
    better = shares[1] if cell.improves else shares[0]
    if better > DEFAULT_FAILED_LIMIT and better >= max(shares):
        return f"{better:.0%} failed on the side that looks better"
    return ""


# -- one comparison ------------------------------------------------------------------------------------------------


def _compared(
    base: tuple[ComparedRun, ...],
    candidate: tuple[ComparedRun, ...],
    repeated: Sequence[ComparedRun],
    allowed: Sequence[str],
) -> Comparison:
    keys, unmatched = _keys(base, candidate)
    differences = _differences(base, candidate, repeated, allowed)
    differences += [one for one in _level_differences(base, candidate, keys, allowed)]
    found = Comparison(base, candidate, differences, unmatched=unmatched)
    if found.refused:
        return found
    return replace(found, pairs=[level_pair(base, candidate, key, repeated, allowed) for key in keys])


def _keys(base: Sequence[ComparedRun], candidate: Sequence[ComparedRun]) -> tuple[list[Key], list[str]]:
    """Classes of levels that all runs have, in the order of the base, and the others."""
    runs = (*base, *candidate)
    every = {key: None for one in runs for key in one.levels}
    common = [key for key in every if all(key in one.levels for one in runs)]
    missing = [key for key in every if key not in common]
    said = [f"{where(key)}: only in {_those_with(key, runs)}" for key in missing]
    return common, said


def _those_with(key: Key, runs: Sequence[ComparedRun]) -> str:
    return ", ".join(dict.fromkeys(one.path for one in runs if key in one.levels))


def _differences(
    base: Sequence[ComparedRun],
    candidate: Sequence[ComparedRun],
    repeated: Sequence[ComparedRun],
    allowed: Sequence[str],
) -> list[Difference]:
    """Between the first run of the base and every other; within a side not even a model may differ."""
    found: dict[str, Difference] = {}
    for one in candidate:
        found |= {str(difference): difference for difference in fingerprint.differences(base[0], one, allowed)}
    for side, others in ((base[0], (*base[1:], *repeated)), (candidate[0], candidate[1:])):
        for other in others:
            for difference in fingerprint.differences(side, other, allowed):
                strict = difference.name in ("model", "preset") and difference.name not in allowed
                found.setdefault(str(difference), replace(difference, allowed=difference.allowed and not strict))
    return list(found.values())


def _level_differences(
    base: Sequence[ComparedRun], candidate: Sequence[ComparedRun], keys: Sequence[Key], allowed: Sequence[str]
) -> Iterator[Difference]:
    """In how the figures of a level are defined."""
    for key in keys:
        first = base[0].levels[key]
        for other in (one.levels[key] for one in (*base[1:], *candidate)):
            for name, ours, theirs in (
                ("basis", first.basis, other.basis),
                ("token_source", _counted(first), _counted(other)),
                ("arms", first.arms or None, other.arms or None),
            ):
                if ours is not None and theirs is not None and ours != theirs:
                    yield Difference(name, f"{ours} at {where(key)}", f"{theirs}", name in allowed)


def _counted(row: LevelRow) -> str | None:
    return None if not row.ok else "an estimate" if row.estimated_tokens else "told by the server"
