"""A number with what one must know to read it: how many values it rests on, its interval, its marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from analysis import student
from tokenswarm.quantiles import correlated_bounds, quantile_of_sorted

QUANTILES: dict[str, float] = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}  # what is told of every time
Values = npt.NDArray[np.float64]


_NORMAL_975 = 1.959964
_MANY = 200.0
_FEWEST_PAIRS = 8  # below them the approximation of a ratio's interval is not worth showing


class Worth(Protocol):
    """How many independent values ``n`` correlated ones are worth, see ``effective_sample``."""

    @property
    def n(self) -> int: ...

    def for_quantile(self, q: float, value: float) -> float: ...

    def for_mean(self) -> float: ...


class Mark(StrEnum):
    """The closed list of reasons to read a number with care. :data:`LEGEND` says what each one means."""

    NO_BOUND = "no bound"
    COARSE = "coarse"
    ESTIMATED = "estimated"
    EDGES = "edges"
    WAITED = "waited"
    CENSORED = "lower bound"
    SURVIVAL = "Kaplan-Meier"


SYMBOL: dict[Mark, str] = {
    Mark.NO_BOUND: "*", Mark.COARSE: "~", Mark.ESTIMATED: "≈", Mark.EDGES: "^", Mark.WAITED: "§", Mark.CENSORED: "+",
    Mark.SURVIVAL: "×",
}  # fmt: skip

LEGEND: dict[Mark, str] = {
    Mark.NO_BOUND: ("no bound: too few requests for a 95 % interval of this quantile (p50 needs 6, p95 72, p99 368)"),
    Mark.COARSE: (
        "coarse: as Locust rounded it (whole milliseconds below 100, else two digits), or over the whole run; "
        "may exceed the largest value, and is never the source where a requests.csv exists"
    ),
    Mark.ESTIMATED: "estimated: rests on token counts that the server did not report",
    Mark.WAITED: (
        "waited: streams waited for pictures more than 2 % of their time, so that the generator held the load back"
    ),
    Mark.CENSORED: (
        "lower bound: sessions were unfinished at the end of the level; they count with the time they had taken by then"
    ),
    Mark.SURVIVAL: (
        "Kaplan-Meier: requests were unfinished at the end of the level; they count as those that had taken as long "
        "by then and went on"
    ),
    Mark.EDGES: "edges: no whole second inside the window held more than the mean of the window, which is shown",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. ``value`` is ``None`` where nothing is known, and infinite where failures count as infinitely late.

    ``n`` is the number of values it rests on; ``low`` and ``high`` are the ends of its 95 % interval. ``effective_n``:
    the independent values that those are worth, where they were found to be correlated.
    """

    value: float | None
    n: int | None = None
    low: float | None = None
    high: float | None = None
    marks: tuple[Mark, ...] = ()
    effective_n: float | None = None

    def marked(self, *marks: Mark) -> Figure:
        """The same number with more marks; a blank carries none."""
        if self.value is None:
            return self
        return replace(self, marks=self.marks + tuple(mark for mark in marks if mark not in self.marks))


BLANK = Figure(None)


def number(value: float | None) -> Figure:
    """A figure without sample; what is no number becomes blank."""
    return BLANK if value is None or math.isnan(value) else Figure(float(value))


def ratio(above: float | None, below: float | None) -> float | None:
    """``above / below``, ``None`` where either is unknown or there is nothing to divide by."""
    return None if above is None or below is None or below <= 0 else above / below


def student_975(freedom: float) -> float:
    """97.5 % quantile of Student's t; for many degrees of freedom by the first term of its series (within 1e-4)."""
    z = _NORMAL_975
    return z + (z**3 + z) / (4.0 * freedom) if freedom > _MANY else student.quantile(0.975, freedom)


def quantile_figure(ordered: Values, q: float, worth: Worth | None = None) -> Figure:
    """Quantile of values in ascending order, with its order-statistic interval or the mark that there is none.

    ``worth`` tells how many independent values they are worth; without it they are taken for independent.
    """
    n = len(ordered)
    sequence: Sequence[float] = ordered  # type: ignore[assignment]
    value = quantile_of_sorted(sequence, q)
    if value is None:
        return Figure(None, n=0)
    effective = float(n) if worth is None else min(float(n), worth.for_quantile(q, value) * n / max(1, worth.n))
    low, high = correlated_bounds(n, q, effective)
    told = None if effective == n else effective
    if low is None or high is None:
        return Figure(value, n=n, marks=(Mark.NO_BOUND,), effective_n=told)
    return Figure(value, n=n, low=float(ordered[low - 1]), high=float(ordered[high - 1]), effective_n=told)


def mean_figure(values: Values, worth: Worth | None = None) -> Figure:
    """Arithmetic mean with Student's interval; blank for no values, and for one without interval."""
    n = len(values)
    if not n:
        return Figure(None, n=0)
    mean = float(values.mean())
    effective = float(n) if worth is None else min(float(n), worth.for_mean() * n / max(1, worth.n))
    told = None if effective == n else effective
    if effective < 2.0:
        return Figure(mean, n=n, effective_n=told)
    half = student_975(effective - 1.0) * float(values.std(ddof=1)) / math.sqrt(effective)
    low = max(0.0, mean - half) if float(values.min()) >= 0.0 else mean - half
    return Figure(mean, n=n, low=low, high=mean + half, effective_n=told)


def share_figure(hits: int, n: int, effective: float | None = None) -> Figure:
    """A share of ``n`` cases with Wilson's interval (JASA 22, 1927), as of ``effective`` independent ones."""
    if n < 1:
        return Figure(None, n=0)
    size = float(n) if effective is None else min(float(n), effective)
    share, z = hits / n, _NORMAL_975
    centre, spread = share + z * z / (2 * size), z * math.sqrt(share * (1 - share) / size + (z / (2 * size)) ** 2)
    low, high = ((centre + sign * spread) / (1 + z * z / size) for sign in (-1, 1))
    told = None if size == n else size
    return Figure(share, n=n, low=max(0.0, low) if hits else 0.0, high=1.0 if hits == n else high, effective_n=told)


def ratio_figure(above: Values, below: Values) -> Figure:
    """``sum(above) / sum(below)`` of pairs with Student's interval of a ratio (by its linear approximation)."""
    n = len(above)
    value = ratio(float(above.sum()), float(below.sum())) if n else None
    if value is None:
        return Figure(None, n=n)
    if n < _FEWEST_PAIRS:
        return Figure(value, n=n)
    residuals = above - value * below
    half = student_975(n - 1.0) * float(residuals.std(ddof=1)) * math.sqrt(n) / float(below.sum())
    return Figure(value, n=n, low=value - half, high=value + half)
