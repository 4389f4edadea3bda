"""The floor: how large an effect the same machinery sees where nothing differs.

It comes from whatever is at hand: from runs that the reader names as repeated, else from the runs of one side compared
with each other in turns, else from the first and the second half of one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from analysis.compared_figure import ComparedFigure, estimate_of, half_of
from analysis.compared_run import ComparedRun, Key
from analysis.effect import Unit, effect_of_many
from analysis.estimate import Estimate

_TURNS = 4


def floor_of(
    figure: ComparedFigure, key: Key, sides: Sequence[Sequence[ComparedRun]], repeated: Sequence[ComparedRun]
) -> float | None:
    """As a share of the figure; ``None`` where nothing was repeated."""
    if repeated:
        return _largest([_between(one, other) for one, other in combinations(_known(figure, key, repeated), 2)])
    return _largest([_within(figure, key, side) for side in sides])


def _known(figure: ComparedFigure, key: Key, runs: Sequence[ComparedRun]) -> list[Estimate]:
    found = [estimate_of(figure, one, key) for one in runs if key in one.levels]
    return [one for one in found if one is not None]


def _between(one: Estimate, other: Estimate) -> float:
    return max(one.value, other.value) / min(one.value, other.value) - 1.0


def _within(figure: ComparedFigure, key: Key, side: Sequence[ComparedRun]) -> float | None:
    """Of four runs and more, as if those in the middle were another side; of fewer, between the halves of each."""
    halves = halves_of(figure, key, side, 0)
    if len(halves) != 2 * len(side):
        return None
    if len(side) < _TURNS:
        return _largest(
            [_between(one.estimate, other.estimate) for one, other in zip(halves[::2], halves[1::2], strict=True)]
        )
    in_turns = [replace(unit, side=int(i // 2 % _TURNS in (1, 2))) for i, unit in enumerate(halves)]
    return abs(effect_of_many(in_turns, []).ratio - 1.0)


def halves_of(figure: ComparedFigure, key: Key, side: Sequence[ComparedRun], number: int) -> list[Unit]:
    """First and second half of each run of a side, in the order of time."""
    units = []
    for one in side:
        moment_s = one.moment_s(key)
        for part in (0, 1):
            found = half_of(figure, one, key, part)
            if found is not None:
                units.append(Unit(found, number, moment_s, part))
    return units


def _largest(found: Sequence[float | None]) -> float | None:
    return max((one for one in found if one is not None), default=None)
