"""What cached prompts save a session: cold minus warm over the pairs of one level, with an interval and a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.figures import BLANK, Figure, Mark, Values
from analysis.pairs import MEASURES, Pairs
from tokenswarm.quantiles import order_statistic_interval, quantile

# A saving below both of these is not worth the name: a share of the cold arm's median, and seconds.
FLOOR_SHARE, FLOOR_S = 0.02, 0.001
SMALLEST_SAMPLE = 6  # pairs, for a 95 % interval of the median
_Z = 1.959964  # 97.5 % quantile of the normal distribution
_DETECTED = 1.645  # standard errors beyond which neighbours count as alike


class Answer(StrEnum):
    """Does the prefix cache pay?"""

    BENEFIT = "benefit"
    NONE = "no benefit"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Difference:
    """Cold minus warm of one measure, seconds; above 0 is saved. ``median`` decides, ``mean`` stands beside it.

    ``effective`` pairs are fewer than ``pairs`` where neighbouring pairs are alike beyond chance.
    """

    measure: str
    pairs: int
    effective: float
    cold: float | None  # median of the cold sessions
    warm: float | None
    median: Figure
    mean: Figure
    floor_s: float

    @property
    def relative(self) -> float | None:
        """The median saving as a share of the cold median."""
        return self.median.value / self.cold if self.median.value is not None and self.cold else None

    @property
    def answer(self) -> Answer:
        """By the interval of the median: above 0, below the floor, or neither."""
        value, low, high = self.median.value, self.median.low, self.median.high
        if value is None or low is None or high is None:
            return Answer.UNKNOWN
        if low > 0 and value >= self.floor_s:
            return Answer.BENEFIT
        return Answer.NONE if high < self.floor_s else Answer.UNKNOWN


def differences_of(pairs: Pairs, users: int) -> dict[str, Difference]:
    """By measure. ``users`` of the level: so many neighbouring pairs can have met the same queue."""
    return {measure: _difference(measure, pairs, users) for measure in MEASURES}


def _difference(measure: str, pairs: Pairs, users: int) -> Difference:
    saved = np.asarray(pairs.differences(measure), dtype=np.float64)
    cold, warm = (quantile(arm.dropna(), 0.5) for arm in (pairs.cold[measure], pairs.warm[measure]))
    effective = effective_size(saved, users)
    return Difference(
        measure=measure,
        pairs=len(saved),
        effective=effective,
        cold=cold,
        warm=warm,
        median=median_figure(saved, effective),
        mean=mean_with_interval(saved, effective),
        floor_s=max(FLOOR_S, FLOOR_SHARE * (cold or 0.0)),
    )


def median_figure(values: Values, effective: float) -> Figure:
    """Median with the interval that the order statistics of ``effective`` independent values have."""
    ordered = np.sort(values)
    n = len(ordered)
    median = quantile(values, 0.5)
    if median is None:
        return Figure(None, n=0)
    size = min(n, math.floor(effective))
    ranks = order_statistic_interval(size, 0.5)
    if ranks is None:
        return Figure(median, n=n, marks=(Mark.NO_BOUND,))
    low = max(1, math.floor(ranks[0] * n / size)) if size < n else ranks[0]
    return Figure(median, n=n, low=float(ordered[low - 1]), high=float(ordered[n - low]))


def mean_with_interval(values: Values, effective: float) -> Figure:
    """Mean with Student's interval for ``effective`` values."""
    n = len(values)
    if n == 0:
        return Figure(None, n=0)
    mean = float(values.mean())
    if effective < SMALLEST_SAMPLE:
        return Figure(mean, n=n, marks=(Mark.NO_BOUND,))
    half = student_975(effective - 1) * float(values.std(ddof=1)) / math.sqrt(effective)
    return Figure(mean, n=n, low=mean - half, high=mean + half)


def student_975(freedom: float) -> float:
    """97.5 % quantile of Student's t, within 0.2 % from 5 degrees of ``freedom`` on (Cornish and Fisher's series)."""
    z, v = _Z, freedom
    terms = (
        (z**3 + z) / (4 * v),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3),
    )
    return z + sum(terms)


def effective_size(values: Values, users: int) -> float:
    """Independent values that would fix the median as well as these, which are in the order of time.

    From the correlation of the signs around the median at lags up to ``users`` (Bartlett's weights). Chance decides
    in each pair anew which session is cold, so that even a queue that neighbours share leaves their differences
    independent; only correlation that chance does not explain counts.
    """
    n = len(values)
    lags = min(users, n // 10)  # fewer pairs cannot tell a correlation from chance
    if lags < 1:
        return float(n)
    signs = np.sign(values - np.median(values))
    power = float(signs @ signs)
    if power == 0.0:
        return float(n)
    weights = [1.0 - lag / (lags + 1) for lag in range(1, lags + 1)]
    excess = sum(weight * float(signs[:-lag] @ signs[lag:]) / power for lag, weight in enumerate(weights, start=1))
    by_chance = math.sqrt(sum(weight * weight for weight in weights) / n)
    return n / (1.0 + 2.0 * excess) if excess > _DETECTED * by_chance else float(n)


@dataclass(frozen=True)
class CachedTokens:
    """Prompt tokens from the cache a request, by arm, and the TTFT they save. Blank where the server is silent."""

    cold: float | None
    warm: float | None
    prompt: float | None  # prompt tokens a request
    saved_s_per_token: Figure  # median over the pairs in which the warm session found more than the cold one
    overall_s_per_token: Figure  # all that was saved by all tokens more that were cached


def cached_tokens_of(pairs: Pairs, effective: float) -> CachedTokens:
    """Over the requests of the pairs. ``effective``: of the pairs' number, the share that counts as independent."""
    cold, warm = pairs.cold_requests, pairs.warm_requests
    both = pd.DataFrame(
        {"saved_s": cold["ttft_s"] - warm["ttft_s"], "tokens": warm["cached_tokens"] - cold["cached_tokens"]}
    )
    by_pair = both.dropna().groupby(level="pair").sum()
    more = by_pair[by_pair["tokens"] > 0]
    ratios = np.asarray(more["saved_s"] / more["tokens"], dtype=np.float64)
    return CachedTokens(
        cold=_mean(cold["cached_tokens"]),
        warm=_mean(warm["cached_tokens"]),
        prompt=_mean(pd.concat([cold["prompt_tokens"], warm["prompt_tokens"]])),
        saved_s_per_token=median_figure(ratios, effective * len(ratios)),
        overall_s_per_token=_ratio_of_sums(by_pair, effective * len(by_pair)),
    )


def _ratio_of_sums(by_pair: pd.DataFrame, effective: float) -> Figure:
    """Its interval is Student's, from what is left of each pair beside the ratio."""
    n, tokens = len(by_pair), float(by_pair["tokens"].sum())
    if n == 0 or tokens <= 0:
        return BLANK
    ratio = float(by_pair["saved_s"].sum()) / tokens
    if effective < SMALLEST_SAMPLE:
        return Figure(ratio, n=n, marks=(Mark.NO_BOUND,))
    rest = np.asarray(by_pair["saved_s"] - ratio * by_pair["tokens"], dtype=np.float64)
    half = student_975(effective - 1) * float(rest.std(ddof=1)) / math.sqrt(effective) * n / tokens
    return Figure(ratio, n=n, low=ratio - half, high=ratio + half)


def _mean(column: pd.Series[float]) -> float | None:
    known = column.dropna()
    return float(known.mean()) if len(known) else None
