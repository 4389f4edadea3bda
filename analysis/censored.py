"""Quantiles of times of which some are known only to be at least so long: of requests that the end of a level cut.

The product-limit estimate of Kaplan and Meier (JASA 53, 1958): a request that was cut goes on as those did that had
taken as long. That holds where later requests are served like earlier ones, and is too low where a queue still grows;
so what rests on it carries a mark. Its interval is that of Brookmeyer and Crowley (Biometrics 38, 1982), with
Greenwood's variance of log(-log S).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.figures import QUANTILES, Figure, Mark, Values, Worth, mean_figure, quantile_figure
from tokenswarm.quantiles import quantile_of_sorted

_Z = 1.959964  # 97.5 % quantile of the normal distribution


def censored_figures(
    name: str, known: Values, at_least: Values, infinitely_late: int = 0, worth: Worth | None = None
) -> dict[str, Figure]:
    """``{name}_p50_s`` and so on, and ``{name}_mean_s``, times in seconds. ``worth``: see ``quantile_figure``.

    A quantile that is the same however long the times in ``at_least`` become is sure. Another is Kaplan and Meier's
    where that reaches it, else the lower bound that these times give; marked accordingly. The mean takes them as the
    shortest they can be. ``infinitely_late`` times come on top, in the quantiles only.
    """
    late = np.full(infinitely_late, np.inf)
    shortest: Values = np.sort(np.concatenate([known, at_least, late]))
    longest: Values = np.sort(np.concatenate([known, np.full(len(at_least), np.inf), late]))
    survival = Survival.of(np.concatenate([known, late]), at_least)
    figures = {}
    for label, q in QUANTILES.items():
        figure = quantile_figure(shortest, q, worth)
        sure = not len(at_least) or figure.value == quantile_of_sorted(longest.tolist(), q)
        figures[f"{name}_{label}_s"] = figure if sure else _estimated(figure, survival, q)
    mean = mean_figure(np.concatenate([known, at_least]), worth)
    figures[f"{name}_mean_s"] = mean.marked(Mark.CENSORED) if len(at_least) else mean
    return figures


def _estimated(shortest: Figure, survival: Survival, q: float) -> Figure:
    """``shortest``: the quantile if what was cut had ended at once. An estimate below that says less than it."""
    value, n = survival.quantile(q), shortest.n or 0
    if value is None or math.isinf(value) or shortest.value is None or value < shortest.value:
        return shortest.marked(Mark.CENSORED)
    low, high = survival.interval(q, inflated=1.0 if not shortest.effective_n else n / shortest.effective_n)
    marks = (Mark.SURVIVAL,) if high is not None and low is not None else (Mark.NO_BOUND, Mark.SURVIVAL)
    return Figure(value, n, low, high, marks, shortest.effective_n)


@dataclass(frozen=True)
class Survival:
    """``times_s``: distinct times at which something ended, ascending. ``share``: of all, what took longer than each.
    ``greenwood``: sum up to each of d / (r (r - d)), with d that ended of r that were still under way."""

    times_s: Values
    share: Values
    greenwood: Values

    @classmethod
    def of(cls, ended: Values, at_least: Values) -> Survival:
        """A request that was cut just when another ended counts as still under way then."""
        times, deaths = np.unique(ended, return_counts=True)
        everything = np.sort(np.concatenate([ended, at_least]))
        under_way = len(everything) - np.searchsorted(everything, times, side="left")
        left = under_way - deaths
        with np.errstate(divide="ignore"):
            steps = np.where(left > 0, deaths / (under_way * np.maximum(left, 1.0)), np.inf)
        share: Values = np.cumprod(left / under_way, dtype=np.float64)
        greenwood: Values = np.cumsum(steps, dtype=np.float64)
        return cls(times, share, greenwood)

    def quantile(self, q: float) -> float | None:
        """The first time by which at least a share ``q`` has ended; ``None`` where that is never seen."""
        reached = np.flatnonzero(self.share <= 1.0 - q + 1e-12)
        return float(self.times_s[reached[0]]) if len(reached) else None

    def interval(self, q: float, inflated: float = 1.0) -> tuple[float | None, float | None]:
        """95 % interval of the quantile; ``None`` for an end that is never seen. ``inflated``: the variance counts so
        many times, because of correlation."""
        open_ended = (self.share > 0.0) & (self.share < 1.0)
        share = np.where(open_ended, self.share, 0.5)
        spread = np.sqrt(np.where(open_ended, self.greenwood, 0.0) * inflated) / np.abs(np.log(share))
        with np.errstate(divide="ignore"):
            distance = np.log(-np.log(share)) - math.log(-math.log(1.0 - q))
        inside = open_ended & (np.abs(distance) <= _Z * spread)
        above = (distance > _Z * spread) & open_ended | (self.share <= 0.0)
        first, beyond = np.flatnonzero(inside), np.flatnonzero(above)
        low = float(self.times_s[first[0]]) if len(first) else None
        return low, float(self.times_s[beyond[0]]) if len(beyond) else None
