"""The run second by second: tokens, requests in flight, and what the engine said of itself at the time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures import Values
from analysis.level_names import level_names
from analysis.report_sections import Plot, Plots
from analysis.report_svg import WIDE, canvas, legend, one_line, svg_of
from analysis.report_theme import BAND, MUTED, line
from analysis.run_folder import Run

_MOST_POINTS = 600  # on the axis of time; longer runs are averaged over several seconds
_MOST_LABELS = 24  # names of levels above the plot


@dataclass(frozen=True)
class Seconds:
    """``starts_s`` from the begin of the run; rates are means over ``width_s`` from there."""

    starts_s: Values
    width_s: int
    tokens_per_s: Values
    in_flight: Values


def timeline(run: Run | None) -> Plots:
    """One plot; ``missing`` says which of its panels there are not."""
    if run is None or (run.timeline.empty and run.engine.empty):
        return Plots((), ("No timeline: the source does not say what happened second by second.",))
    begin_s = _begin_s(run)
    if begin_s is None:
        return Plots((), ("No timeline: the clocks of the run were not recorded.",))
    seconds = seconds_of(run, begin_s)
    engine = run.engine.assign(since_s=run.engine["time_s"] + (run.unix_minus_master_s or math.nan) - begin_s)
    between = engine[engine["edge"].isna()]
    kv = bool(between["kv_usage"].notna().any()) if "kv_usage" in between else False
    with canvas(WIDE, panels=3 if kv else 2) as (figure, panels):
        if seconds is not None:
            edges = np.append(seconds.starts_s, seconds.starts_s[-1] + seconds.width_s)
            panels[0].stairs(seconds.tokens_per_s, edges, color=line(0), linewidth=1.8, baseline=None)
            panels[1].stairs(
                seconds.in_flight,
                edges,
                color=line(0),
                linewidth=1.8,
                baseline=None,
                label="in flight, as the client sees it",
            )
        panels[0].set_ylabel("output tok/s")
        panels[1].set_ylabel("requests")
        _engine(panels[1], engine)
        if kv:
            _series(panels[2], engine, "kv_usage", line(3), "KV cache in use", scale=100.0)
            panels[2].set_ylabel("KV cache, %")
        _bands(run, panels, begin_s)
        for axes in panels:
            axes.set_ylim(bottom=0)
        panels[-1].set_xlabel("seconds since the begin of the run")
        handles, labels = panels[1].get_legend_handles_labels()
        legend(panels[1], handles, labels)
        svg = svg_of(figure, "plot-timeline", "Tokens, requests and the engine's samples over time")
    says = "Shaded stretches are levels, from the first warm-up to the last answer."
    if seconds is not None and seconds.width_s > 1:
        says += f" Each step is the mean of {seconds.width_s} seconds."
    return Plots(
        (Plot("plot-timeline", "Timeline", says + _engine_words(between), svg, wide=True),), _missing(run, between, kv)
    )


def seconds_of(run: Run, begin_s: float) -> Seconds | None:
    """Sums over all workers, classes and phases; ``None`` without a timeline. ``begin_s``: unix time."""
    table = run.timeline.dropna(subset=["second"])
    if table.empty:
        return None
    sums = table.groupby("second")[["tokens", "in_flight_s"]].sum()
    first, last = int(sums.index.min()), int(sums.index.max())
    every = sums.reindex(range(first, last + 1), fill_value=0.0)
    width = max(1, -(-len(every) // _MOST_POINTS))
    group = np.arange(len(every)) // width
    means = every.groupby(group).mean()
    starts = first - begin_s + means.index.to_numpy(dtype="float64") * width
    return Seconds(
        starts, width, means["tokens"].to_numpy(dtype="float64"), means["in_flight_s"].to_numpy(dtype="float64")
    )


def _begin_s(run: Run) -> float | None:
    """Unix time: of the first level, else of the first second."""
    started = run.levels["started_s"].min()
    if run.unix_minus_master_s is not None and not pd.isna(started):
        return float(started) + run.unix_minus_master_s
    first = run.timeline["second"].min()
    return None if pd.isna(first) else float(first)


def _engine(axes: Axes, engine: pd.DataFrame) -> None:
    _series(axes, engine, "running", line(2), "running, as the engine says")
    _series(axes, engine, "waiting", line(1), "waiting, as the engine says")


def _series(axes: Axes, engine: pd.DataFrame, name: str, colour: str, label: str, scale: float = 1.0) -> None:
    """A line an engine and level: between two levels nothing was sampled. At their edges nothing is under way."""
    if name not in engine:
        return
    told = engine[engine["edge"].isna() & engine["since_s"].notna() & engine[name].notna()]
    engines = sorted(told["engine"].fillna("").unique())
    for number, (_, rows) in enumerate(told.groupby([told["engine"].fillna(""), told["level"].fillna(-1.0)])):
        style = ("o-", "s--", "^:", "v-.")[engines.index(rows["engine"].fillna("").iloc[0]) % 4]
        first = label if number == 0 else f"_{label}"
        axes.plot(rows["since_s"], rows[name] * scale, style, color=colour, markersize=4.5, linewidth=1.2, label=first)


def _bands(run: Run, panels: list[Axes], begin_s: float) -> None:
    """Levels as stretches of time, every second one shaded, with their names on top."""
    for number, (name, start, end) in enumerate(_levels(run, begin_s)):
        for axes in panels:
            if number % 2 == 0:
                axes.axvspan(start, end, color=BAND, zorder=0, linewidth=0)
        if number < _MOST_LABELS:
            place = ((start + end) / 2, 1.0)
            panels[0].annotate(
                one_line(name, 14), place, (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points",
                ha="center", va="bottom", fontsize=8, color=MUTED,
            )  # fmt: skip


def _levels(run: Run, begin_s: float) -> Iterator[tuple[str, float, float]]:
    if run.unix_minus_master_s is None:
        return
    names, shift = level_names(run), run.unix_minus_master_s - begin_s
    known = run.levels.dropna(subset=["level", "started_s", "ended_s"])
    for level, start, end in zip(known["level"], known["started_s"], known["ended_s"], strict=True):
        yield names.get(int(level), ""), float(start) + shift, float(end) + shift


def _engine_words(between: pd.DataFrame) -> str:
    if between.empty:
        return ""
    dots = "Dots are samples of the engine's metrics, every few seconds; where requests wait there, the server is full."
    return f" {dots}"


def _missing(run: Run, between: pd.DataFrame, kv: bool) -> tuple[str, ...]:
    if run.engine.empty:
        return ("No samples of the engine: it had no /metrics page, or the run is older than them.",)
    if between.empty:
        return ("No samples of the engine under load: the levels were shorter than the time between two samples.",)
    return () if kv else ("The engine told nothing about its KV cache.",)
