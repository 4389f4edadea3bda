"""How many requests a level needs for an interval of a wanted width.

It starts from the interval that the level's own requests gave, which has their spread and their correlation in it, and
from the fact that intervals narrow with the root of the number of requests. A level that gave no interval needs at
least as many as one takes. How many a comparison of two runs needs is told by the comparison (``Effect.runs_larger``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from analysis.figures import QUANTILES, Figure
from analysis.levels import LevelRow
from analysis.outcome import Note
from tokenswarm.quantiles import order_statistic_interval

CONFIDENCE = 0.95
WIDTH = 0.10  # of the value, to either side
# Figures for which a level is told its size: name and title.
TOLD: dict[str, str] = {
    "ttft_p50_s": "TTFT p50",
    "ttft_p95_s": "TTFT p95",
    "tpot_p50_s": "TPOT p50",
    "e2e_p50_s": "E2E p50",
    "e2e_p95_s": "E2E p95",
    "e2e_mean_s": "E2E mean",
}


@cache
def least_for_interval(q: float, confidence: float = CONFIDENCE) -> int:
    """Independent values below which no two of them enclose the ``q`` quantile: 6 for the median, 72 for p95."""
    tail = (1.0 - confidence) / 2.0
    start = math.ceil(math.log(tail) / math.log(max(q, 1.0 - q)))
    return next(n for n in range(start, 100 * start) if order_statistic_interval(n, q, confidence) is not None)


def requests_for_width(figure: Figure, width: float = WIDTH, q: float | None = None) -> int | None:
    """Requests for which the interval of a figure reaches ``width`` of its value to either side in the mean.

    ``q``: of a quantile, for which there is no interval at all below a number of requests; ``None`` for a mean.
    ``None`` where the figure says nothing: unknown, infinite, or without an interval though it has enough requests.
    """
    least = math.ceil((least_for_interval(q) if q is not None else 2) * correlated_times(figure))
    error = relative_error(figure)
    if figure.n is None or not figure.n:
        return None
    if error is None:
        few = q is not None and figure.n < least
        return least if few and figure.value and math.isfinite(figure.value) else None
    half = error * NormalDist().inv_cdf((1.0 + CONFIDENCE) / 2.0)
    return max(least, math.ceil(figure.n * (half / width) ** 2))


def relative_error(figure: Figure) -> float | None:
    """Standard error of the logarithm of a figure, from its 95 % interval; ``None`` where there is none."""
    value, low, high = figure.value, figure.low, figure.high
    if value is None or low is None or high is None or low <= 0 or not math.isfinite(high):
        return None
    return math.log(high / low) / (2.0 * NormalDist().inv_cdf((1.0 + CONFIDENCE) / 2.0))


def correlated_times(figure: Figure) -> float:
    """How many requests tell as much as one independent one: 1 or more."""
    if not figure.n or not figure.effective_n:
        return 1.0
    return max(1.0, figure.n / figure.effective_n)


@dataclass(frozen=True)
class SampleNeed:
    """Of one figure of a level: requests that it has, and those for the width."""

    title: str
    has: int
    for_width: int


def needs_of(row: LevelRow) -> list[SampleNeed]:
    """Figures that rest on requests, each with what it needs."""
    needs = []
    for name, title in TOLD.items():
        figure = row.figure(name)
        if figure.value is None or not figure.n:
            continue
        q = QUANTILES.get(name.split("_")[1])
        width = requests_for_width(figure, q=q)
        if width is not None:
            needs.append(SampleNeed(title, figure.n, width))
    return needs


def sample_size_notes(rows: Iterable[LevelRow]) -> list[Note]:
    """One detail a level: the requests that its figures need."""
    notes = []
    for row in rows:
        needs = needs_of(row)
        if not needs:
            continue
        widths = ", ".join(f"{need.title} {rounded(need.for_width)}" for need in needs)
        text = f"{row.name}: requests for an interval of ±{WIDTH:.0%}: {widths}"
        notes.append(Note("sample size", text, detail=True))
    return notes


def rounded(count: int) -> str:
    """Up to two digits, for more would promise too much."""
    unit = 10 ** max(0, len(str(count)) - 2)
    return str(math.ceil(count / unit) * unit)
