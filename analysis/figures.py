"""A number with what one must know to read it: how many values it rests on, its interval, its marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from tokenswarm.quantiles import order_statistic_interval, quantile_of_sorted

QUANTILES: dict[str, float] = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}  # what is told of every time
Values = npt.NDArray[np.float64]


class Mark(StrEnum):
    """The closed list of reasons to read a number with care. :data:`LEGEND` says what each one means."""

    NO_BOUND = "no bound"
    COARSE = "coarse"
    ESTIMATED = "estimated"
    EDGES = "edges"
    WAITED = "waited"
    CENSORED = "lower bound"


SYMBOL: dict[Mark, str] = {
    Mark.NO_BOUND: "*", Mark.COARSE: "~", Mark.ESTIMATED: "≈", Mark.EDGES: "^", Mark.WAITED: "§", Mark.CENSORED: "+",
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
    Mark.EDGES: "edges: no whole second inside the window held more than the mean of the window, which is shown",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. ``value`` is ``None`` where nothing is known, and infinite where failures count as infinitely late.

    ``n`` is the number of values it rests on; ``low`` and ``high`` are the ends of its 95 % interval.
    """

    value: float | None
    n: int | None = None
    low: float | None = None
    high: float | None = None
    marks: tuple[Mark, ...] = ()

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


def quantile_figure(ordered: Values, q: float) -> Figure:
    """Quantile of values in ascending order, with its order-statistic interval or the mark that there is none."""
    n = len(ordered)
    sequence: Sequence[float] = ordered  # type: ignore[assignment]
    value = quantile_of_sorted(sequence, q)
    if value is None:
        return Figure(None, n=0)
    ranks = order_statistic_interval(n, q)
    if ranks is None:
        return Figure(value, n=n, marks=(Mark.NO_BOUND,))
    return Figure(value, n=n, low=float(ordered[ranks[0] - 1]), high=float(ordered[ranks[1] - 1]))


def mean_figure(values: Values) -> Figure:
    """Arithmetic mean; blank for no values."""
    return Figure(float(values.mean()), n=len(values)) if len(values) else Figure(None, n=0)
