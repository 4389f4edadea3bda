"""Quantiles of times of which some are known only to be at least so long: of requests that the end of a level cut."""

from __future__ import annotations

import numpy as np

from analysis.figures import QUANTILES, Figure, Mark, Values, mean_figure, quantile_figure


def censored_figures(name: str, known: Values, at_least: Values, infinitely_late: int = 0) -> dict[str, Figure]:
    """``{name}_p50_s`` and so on, and ``{name}_mean_s``, times in seconds.

    Times in ``at_least`` stand in the quantiles as the shortest they can be. A quantile that would differ if they were
    infinitely long is a lower bound and marked as one, and so is the mean. ``infinitely_late`` times come on top, in
    the quantiles only.
    """
    late = np.full(infinitely_late, np.inf)
    shortest: Values = np.sort(np.concatenate([known, at_least, late]))
    longest: Values = np.sort(np.concatenate([known, np.full(len(at_least), np.inf), late]))
    figures = {}
    for label, q in QUANTILES.items():
        figure = quantile_figure(shortest, q)
        sure = figure.value == quantile_figure(longest, q).value
        figures[f"{name}_{label}_s"] = figure if sure else figure.marked(Mark.CENSORED)
    mean = mean_figure(np.concatenate([known, at_least]))
    figures[f"{name}_mean_s"] = mean.marked(Mark.CENSORED) if len(at_least) else mean
    return figures
