"""How much a figure changed from one side to the other, and how sure that is.

With one run a side, the error comes from within the runs. With several, it comes from how much the runs and their
halves differ, and where the sides took turns a steady drift is taken out: it is fitted beside the effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis import student
from analysis.estimate import Estimate, spread_of

POWER = 0.90  # with which a detectable effect is found
SIGNIFICANCE = 0.05
_ONE_IN_TEN = 1.281552  # 90 % quantile of the normal distribution
_FREEDOM = 12.0  # degrees of freedom that a sample has once it is large enough to find a small change


@dataclass(frozen=True)
class Effect:
    """Of the logarithm of a figure, candidate minus base; 0.05 is 5 % more. ``error`` is ``None`` where nothing tells
    how sure it is, and ``unsure`` then says why. ``base`` and ``candidate`` in the unit of the figure."""

    base: float
    candidate: float
    log_ratio: float
    error: float | None = None
    freedom: float = math.inf
    unsure: str = ""

    @property
    def ratio(self) -> float:
        return math.exp(self.log_ratio)

    @property
    def chance(self) -> float | None:
        """The p-value: how often an effect as large would be seen where there is none."""
        if self.error is None:
            return None
        if self.error == 0.0:
            return 0.0 if self.log_ratio else 1.0
        return student.tail(self.log_ratio / self.error, self.freedom)

    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the ratio."""
        if self.error is None:
            return None
        half = student.quantile(1.0 - SIGNIFICANCE / 2.0, self.freedom) * self.error
        return math.exp(self.log_ratio - half), math.exp(min(self.log_ratio + half, 700.0))

    def detectable(self, cells: int) -> float | None:
        """The share by which the figure would have to grow to be found with ``POWER`` among so many cells."""
        if self.error is None:
            return None
        return math.expm1(min(700.0, self.error * sureness(self.freedom, cells)))

    def runs_larger(self, share: float, cells: int) -> float | None:
        """How many times as many requests find a change by ``share`` among so many cells with ``POWER``: the error
        falls with their root.

        The error is itself uncertain, so the larger one counts that it exceeds in one of ten cases (Browne, Statistics
        in Medicine 14, 1995; the quantile of chi-squared after Wilson and Hilferty).
        """
        if self.error is None:
            return None
        part = 2.0 / (9.0 * self.freedom)
        unlucky = (1.0 - part - _ONE_IN_TEN * math.sqrt(part)) ** -3
        return unlucky * (self.error * sureness(max(self.freedom, _FREEDOM), cells) / math.log1p(share)) ** 2


def sureness(freedom: float, cells: int) -> float:
    """Standard errors that a true effect must have for it to be found with ``POWER`` in the first step of the
    correction for ``cells``."""
    found = student.quantile(1.0 - SIGNIFICANCE / (2.0 * max(1, cells)), freedom)
    return found + student.quantile(POWER, freedom)


@dataclass(frozen=True)
class Unit:
    """One run, or half of one: its figure, its side (0 base, 1 candidate), when it was measured, and which half."""

    estimate: Estimate
    side: int
    moment_s: float | None
    half: int = 0


def effect_of_two(base: Estimate, candidate: Estimate) -> Effect:
    """One run a side: groups at the same place of both are taken together. Of summaries their intervals are taken."""
    log_ratio = math.log(candidate.value / base.value)
    if base.error is not None and candidate.error is not None:
        return Effect(base.value, candidate.value, log_ratio, math.hypot(base.error, candidate.error))
    ours, theirs = base.parts, candidate.parts
    spread = None if ours is None or theirs is None or len(ours) != len(theirs) else spread_of(theirs - ours)
    if spread is None:
        return Effect(base.value, candidate.value, log_ratio)
    return Effect(base.value, candidate.value, log_ratio, math.sqrt(spread.variance), spread.freedom)


def effect_of_many(runs: Sequence[Unit], halves: Sequence[Unit]) -> Effect:
    """Several runs on a side. The halves of a run give degrees of freedom, the whole runs their part of the error: runs
    that differ more than their halves let expect count as they differ."""
    means = [float(np.mean([math.log(unit.estimate.value) for unit in runs if unit.side == side])) for side in (0, 1)]
    base, candidate = (math.exp(mean) for mean in means)
    whole = _fitted(runs)
    if whole is None:
        return Effect(base, candidate, means[1] - means[0])
    log_ratio, error, freedom = whole
    finer = _fitted(halves)
    if finer is not None and finer[1] is not None:
        both = [one for one in (error, finer[1]) if one is not None]
        error, freedom = max(both), finer[2]
    return Effect(base, candidate, log_ratio, error, freedom)


def _fitted(units: Sequence[Unit]) -> tuple[float, float | None, float] | None:
    """Effect, its error and degrees of freedom by least squares, beside what all second halves have in common and, if
    times are known, a straight drift; ``None`` where the order of the sides does not tell effect and drift apart."""
    logs = np.array([math.log(unit.estimate.value) for unit in units])
    sides = np.array([unit.side for unit in units], dtype=np.float64)
    moments = [unit.moment_s for unit in units if unit.moment_s is not None]
    halves = np.array([unit.half for unit in units], dtype=np.float64)
    columns = [np.ones(len(units)), sides, *([halves] if halves.any() else [])]
    if len(moments) == len(units) > 3 and max(moments) > min(moments):
        times = np.array(moments) - float(np.mean(moments))
        columns.append(times / float(np.abs(times).max()))
    design = np.column_stack(columns)
    if np.linalg.matrix_rank(design, tol=1e-6) < design.shape[1]:
        return None
    solved = np.linalg.inv(design.T @ design)
    fitted = solved @ design.T @ logs
    freedom = len(units) - design.shape[1]
    if freedom < 1:
        return float(fitted[1]), None, math.inf
    variance = float(((logs - design @ fitted) ** 2).sum()) / freedom
    return float(fitted[1]), math.sqrt(variance * float(solved[1, 1])), freedom
