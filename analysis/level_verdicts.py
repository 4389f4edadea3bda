"""Does a level as a whole meet every objective? Met, missed, or undecided where that cannot be told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.check_text import comparison
from analysis.levels import LevelRow
from tokenswarm.level_verdict import Judgement

if TYPE_CHECKING:
    from analysis.objectives import Check, ClassVerdict

SATURATED = "saturated"


@dataclass(frozen=True)
class LevelJudgement:
    """``load``: its users or its rate, ``None`` where neither is known. ``why``: the deciding figure, or what stands in
    the way of a decision."""

    level: int | None
    label: str
    load: float | None
    judgement: Judgement
    why: str


def level_judgement(
    row: LevelRow, classes: Sequence[ClassVerdict], doubts: Sequence[str], wanted: Iterable[str]
) -> LevelJudgement:
    """``classes``: the verdicts on the classes of this level; ``doubts``: what makes it not credible; ``wanted``:
    names of the classes that have an objective."""
    judgement, why = _judge(row, classes, doubts, wanted)
    rate = row.arrivals.rate_per_s if row.arrivals is not None else None
    load = rate if row.by_clock else row.concurrency
    return LevelJudgement(row.level, row.name, load, judgement, why)


def _judge(
    row: LevelRow, classes: Sequence[ClassVerdict], doubts: Sequence[str], wanted: Iterable[str]
) -> tuple[Judgement, str]:
    if doubts:
        return Judgement.UNDECIDED, doubts[0]
    if row.state == SATURATED:
        return Judgement.MISSED, f"saturated: {row.reason}"
    absent = sorted(set(wanted) - {one.traffic for one in classes})
    if absent:
        return Judgement.UNDECIDED, f"no request of {absent[0]}"
    return _by_checks([(one, check) for one in classes for check in one.checks])


def _by_checks(checks: list[tuple[ClassVerdict, Check]]) -> tuple[Judgement, str]:
    """A limit that is missed for sure decides; else all must be known and bounded."""
    missed = [pair for pair in checks if not pair[1].met and pair[1].value is not None and not pair[1].too_few]
    if missed:
        return Judgement.MISSED, _shown(*max(missed, key=lambda pair: _nearness(pair[1])))
    for one, check in checks:
        if check.value is None:
            return Judgement.UNDECIDED, _shown(one, check)
        if check.too_few:
            return Judgement.UNDECIDED, f"{_shown(one, check)}, but of too few requests to bound it"
    if not checks:
        return Judgement.UNDECIDED, "no measured request"
    return Judgement.MET, _shown(*max(checks, key=lambda pair: _nearness(pair[1])))


def _shown(one: ClassVerdict, check: Check) -> str:
    return f"{one.traffic or 'all'} {comparison(check)}"


def _nearness(check: Check) -> float:
    """Value as a share of the limit; above 1 where it is missed."""
    value = 0.0 if check.value is None else check.value
    return value / check.limit if check.limit else math.inf if value else 0.0
