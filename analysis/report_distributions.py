"""Latencies of single requests as distributions: for each level the share of requests that took at most so long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from analysis.figures import Values
from analysis.levels import LevelRow, levels_of
from analysis.outcome import Outcome
from analysis.report_sections import Plot, Plots, slug
from analysis.report_svg import SMALL, canvas, legend, logarithmic_times, one_line, svg_of
from analysis.report_theme import STEPS, step
from analysis.requests_csv import values_of
from analysis.run_folder import Run
from tokenswarm.records import Phase

MOST_CLASSES = 4
_MOST_POINTS = 200  # of a line: more cannot be seen
_WIDE_RANGE = 30.0  # from here on a logarithmic axis shows more
_METRICS = (("ttft_s", "TTFT", "ms", 1000.0), ("tpot_s", "TPOT", "ms", 1000.0), ("e2e_s", "E2E", "s", 1.0))


def distributions(outcome: Outcome, run: Run | None) -> Plots:
    """TTFT, TPOT and E2E of each class; ``missing`` where there are no single requests."""
    if run is None:
        return Plots((), ("No distributions: the source has only summaries, not single requests.",))
    good = run.requests[run.requests["phase"].eq(Phase.MEASURED) & run.requests["error_kind"].isna()]
    if good.empty:
        return Plots((), ("No distributions: no measured request succeeded.",))
    classes = sorted(str(name) for name in good["traffic"].dropna().unique())
    several = len(classes) > 1
    plots = []
    for name in classes[:MOST_CLASSES]:
        rows = good[good["traffic"] == name]
        plots += [
            plot for metric in _METRICS if (plot := _plot(outcome, rows, metric, name if several else "")) is not None
        ]
    left = classes[MOST_CLASSES:]
    return Plots(tuple(plots), (f"Not drawn: the distributions of {', '.join(left)}.",) if left else ())


def _plot(outcome: Outcome, rows: pd.DataFrame, metric: tuple[str, str, str, float], traffic: str) -> Plot | None:
    name, title, unit, scale = metric
    by_level = dict(levels_of(rows))
    known = [(row, values_of(by_level[row.level][name]) * scale) for row in outcome.levels if row.level in by_level]
    drawn = _few([(row, values) for row, values in known if len(values)])
    if not drawn:
        return None
    key = f"ecdf-{name.removesuffix('_s')}" + (f"-{slug(traffic)}" if traffic else "")
    heading = title + (f", {one_line(traffic)}" if traffic else "")
    with canvas(SMALL) as (figure, (axes,)):
        handles: list[Line2D] = []
        for number, (_, values) in enumerate(drawn):
            times, shares = ecdf(values)
            handles += axes.plot(times, shares * 100.0, color=step(number, len(drawn)), drawstyle="steps-post")
        smallest, largest = min(values[0] for _, values in drawn), max(values[-1] for _, values in drawn)
        if smallest > 0 and largest > _WIDE_RANGE * smallest:
            logarithmic_times(axes)
        else:
            axes.set_xlim(left=0)
        axes.set_ylim(0, 101)
        axes.set(xlabel=f"{title}, {unit}", ylabel="requests that took at most that, %")
        legend(axes, handles, [one_line(row.name) for row, _ in drawn])
        svg = svg_of(figure, key, f"Distribution of {heading} at each level")
    left_out = len(known) - len(drawn)
    says = _SAYS[name] + (f" {len(drawn)} of {len(known)} levels are drawn." if left_out else "")
    return Plot(key, heading, says, svg)


_SAYS = {
    "ttft_s": "The further right a line, the slower; a long flat end on top is a tail of users who wait much longer.",
    "tpot_s": "Steep lines are even service: every user gets tokens at the same pace.",
    "e2e_s": "Whole answers; their lengths differ, so these lines are never as steep as those of TPOT.",
}


def ecdf(ordered: Values) -> tuple[Values, Values]:
    """Times, and the share of the values that are at most that: up to ``_MOST_POINTS`` steps, the last at 1.

    ``ordered`` ascends and has at least one value.
    """
    n = len(ordered)
    ranks = np.unique(np.linspace(1, n, min(n, _MOST_POINTS)).round().astype(int))
    return np.concatenate([ordered[:1], ordered[ranks - 1]]), np.concatenate([[0.0], ranks / n])


def _few(known: Sequence[tuple[LevelRow, Values]]) -> list[tuple[LevelRow, Values]]:
    """At most as many levels as there are shades, spread evenly, the first and the last among them."""
    if len(known) <= STEPS:
        return list(known)
    return [known[round(i * (len(known) - 1) / (STEPS - 1))] for i in range(STEPS)]
