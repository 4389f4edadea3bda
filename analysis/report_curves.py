"""Figures of levels over the load: throughput, TTFT, TPOT, E2E and scaling, with intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.figures import Figure
from analysis.levels import LevelRow
from analysis.outcome import Outcome
from analysis.report_sections import Plot, Plots
from analysis.report_svg import SMALL, canvas, legend, one_line, spread, svg_of
from analysis.report_theme import INK, MUTED, PAPER, line
from analysis.scaling import scaling_levels, scaling_rows

Kind = tuple[str, tuple[str, ...]]  # of a level: all that is not its load
MOST_LINES = 6  # more cannot be told apart
_SHAPES: dict[Literal["-", "--"], str] = {"-": "o", "--": "^"}  # of p50 and p95, by the style of their lines
_HOLLOW = "Hollow points are levels that are not credible: incomplete, contaminated, or limited by the load generator."


@dataclass(frozen=True)
class Point:
    """``load``: users, or sessions a second."""

    load: float
    figure: Figure
    credible: bool


@dataclass(frozen=True)
class Latency:
    """``name`` as in ``ttft_p50_s``; ``scale`` leads from seconds to ``unit``."""

    name: str
    title: str
    unit: str
    scale: float
    says: str


@dataclass(frozen=True)
class Rate:
    """``pooled``: all classes together are worth a line of their own."""

    key: str
    name: str
    title: str
    unit: str
    says: str
    pooled: bool


_RATES = (
    Rate(
        "plot-throughput",
        "output_tok_s",
        "Throughput",
        "output tokens per second",
        "Output tokens per second of all users together. Where the line turns flat, more load only makes users wait.",
        pooled=True,
    ),
    Rate(
        "plot-speed",
        "per_request_tok_s",
        "Speed of one answer",
        "tokens per second and request",
        "How fast text appears for one user. It falls as more answers share the server.",
        pooled=False,
    ),
)
_LATENCIES = (
    Latency(
        "ttft",
        "TTFT",
        "ms",
        1000.0,
        ("How long a user waits for the first token. It grows first where requests queue."),
    ),
    Latency("tpot", "TPOT", "ms", 1000.0, "Time for each further token: it grows as more answers share the server."),
    Latency("e2e", "E2E", "s", 1.0, "Time for a whole answer."),
)


def curves(outcome: Outcome) -> Plots:
    """One plot a figure; ``missing`` where the levels have no load to stand over, or no values."""
    if outcome.names:
        return Plots(
            (), (("No plots over the load: these are the statistics of a locustfile by name, without levels."),)
        )
    loads = {row.level: size for row in outcome.levels if (size := load_of(row)) is not None}
    if not loads:
        return Plots((), ("No plots over the load: no level says how many users or arrivals it had.",))
    if not lines_of(outcome):
        return Plots((), ("No plots over the load: no kind of level comes with two loads.",))
    made = [_rate(outcome, loads, one) for one in _RATES]
    made[1:1] = [_latency(outcome, loads, one) for one in _LATENCIES]
    made.append(_scaling(outcome))
    missing = tuple(one for one in made if isinstance(one, str))
    return Plots(tuple(one for one in made if isinstance(one, Plot)), missing)


def load_of(row: LevelRow) -> float | None:
    """Users of a closed loop, or the rate at which sessions arrive; ``None`` where nobody tells."""
    if not row.by_clock:
        return row.concurrency
    if row.arrivals is not None and row.arrivals.rate_per_s is not None:
        return row.arrivals.rate_per_s
    named = re.match(r"([\d.]+)/s", row.name)  # a level with a steady rate is called by it
    return float(named.group(1)) if named else None


def load_axis(outcome: Outcome) -> str:
    """What stands below a plot over the load."""
    clocked = any(row.by_clock for row in outcome.levels)
    return "arrivals asked for per second" if clocked else "concurrent users"


def lines_of(outcome: Outcome) -> dict[str, list[LevelRow]]:
    """Rows that belong on one line, by its name: of one class, and of one kind of level. At most ``MOST_LINES``, of
    those that come with two loads or more."""
    rows = outcome.classes if outcome.several_classes else outcome.levels
    lines: dict[tuple[str | None, Kind], list[LevelRow]] = {}
    for row in rows:
        lines.setdefault((row.traffic if outcome.several_classes else None, row.load), []).append(row)
    drawn = [some for some in lines.values() if len({load_of(row) for row in some} - {None}) > 1]
    several_kinds = len({row.load for row in rows}) > 1
    return {_line_name(outcome, some[0], several_kinds): some for some in drawn[:MOST_LINES]}


def _line_name(outcome: Outcome, row: LevelRow, several_kinds: bool) -> str:
    """The kind as levels are called: ``cold`` for ``c=8 cold #2``."""
    kind = re.sub(r"^c=\S+ ?|^\S+/s ?| ?#\d+$", "", row.name) if several_kinds else ""
    traffic = row.traffic or "" if outcome.several_classes else ""
    return kind if traffic and kind.startswith(traffic) else " · ".join(part for part in (traffic, kind) if part)


def _points(
    rows: Sequence[LevelRow], loads: dict[int | None, float], name: str, scale: float, doubted: set[int | None]
) -> list[Point]:
    found = []
    for row in rows:
        load, figure = loads.get(row.level), _scaled(row.figure(name), scale)
        if load is not None and figure.value is not None and math.isfinite(figure.value):
            found.append(Point(load, figure, row.level not in doubted))
    return sorted(found, key=lambda point: point.load)


def doubted_levels(outcome: Outcome) -> set[int | None]:
    """Levels that are not complete, contaminated, or limited by the load generator."""
    return {row.level for row in outcome.levels if not row.complete or row.contaminated or row.limited}


def _rate(outcome: Outcome, loads: dict[int | None, float], what: Rate) -> Plot | str:
    doubted, lines = doubted_levels(outcome), lines_of(outcome)
    one_kind = len({row.load for row in outcome.levels}) == 1
    if what.pooled and outcome.several_classes and one_kind:
        lines = {"all classes": outcome.levels, **lines}
    drawn = {name: _points(rows, loads, what.name, 1.0, doubted) for name, rows in lines.items()}
    if not any(drawn.values()):
        return f"No plot of {what.title.lower()}: no level has a value."
    with canvas(SMALL) as (figure, (axes,)):
        colours = (
            [INK, *map(line, range(MOST_LINES))]
            if len(drawn) > len(lines_of(outcome))
            else [*map(line, range(MOST_LINES))]
        )
        handles = [_draw(axes, points, colour, "-") for points, colour in zip(drawn.values(), colours, strict=False)]
        if len(drawn) > 1:
            legend(axes, handles, [one_line(name) for name in drawn])
        _finish(axes, outcome, loads, what.unit)
        svg = svg_of(figure, what.key, f"{what.title} against {load_axis(outcome)}")
    return Plot(what.key, what.title, _caption(what.says, drawn.values()), svg)


def _latency(outcome: Outcome, loads: dict[int | None, float], what: Latency) -> Plot | str:
    doubted, lines = doubted_levels(outcome), lines_of(outcome)
    felt = "scheduled_" if what.name != "tpot" and any(row.by_clock for row in outcome.levels) else ""
    title = f"{'Scheduled ' if felt else ''}{what.title}"
    drawn = {
        (name, label): _points(rows, loads, f"{felt}{what.name}_{label}_s", what.scale, doubted)
        for name, rows in lines.items()
        for label in ("p50", "p95")
    }
    if not any(drawn.values()):
        return f"No plot of {title}: no level has a value."
    names = list(lines)
    with canvas(SMALL) as (figure, (axes,)):
        for (name, label), points in drawn.items():
            _draw(axes, points, line(names.index(name)), "-" if label == "p50" else "--")
        _key(axes, names)
        _finish(axes, outcome, loads, f"{title}, {what.unit}")
        svg = svg_of(figure, f"plot-{what.name}", f"{title} against {load_axis(outcome)}, p50 and p95")
    return Plot(f"plot-{what.name}", title, _caption(what.says, drawn.values()), svg)


def _scaling(outcome: Outcome) -> Plot | str:
    levels = {row.name: row for row in scaling_levels(outcome.levels)}
    scaled = [
        row for row in scaling_rows(outcome.levels) if row.label in levels and row.throughput_ratio and row.efficiency
    ]
    if len(scaled) < 2:
        return "No plot of scaling: it needs two levels of a closed loop that have a throughput."
    kinds = list(dict.fromkeys(row.base for row in scaled))
    with canvas(SMALL) as (figure, (axes,)):
        handles = []
        for number, base in enumerate(kinds[:MOST_LINES]):
            mine = sorted((row for row in scaled if row.base == base), key=lambda row: row.concurrency or 0)
            loads = [float(row.concurrency or 0) for row in mine]
            ratios = [row.throughput_ratio or 0.0 for row in mine]
            handles += axes.plot(loads, ratios, "o-", color=line(number), markersize=5)
            ideal = [(row.throughput_ratio or 0.0) / (row.efficiency or 1.0) for row in mine]
            axes.plot(loads, ideal, ":", color=MUTED)
        handles.append(Line2D([], [], linestyle=":", color=MUTED))
        legend(axes, handles, [*(f"relative to {base}" for base in kinds[:MOST_LINES]), "as many times as users"])
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        axes.set(xlabel="concurrent users", ylabel="throughput, times that of the first level")
        spread(axes, [float(row.concurrency or 0) for row in scaled])
        svg = svg_of(figure, "plot-scaling", "Throughput relative to the first level, against concurrent users")
    says = (
        "The distance below the dotted line is what sharing the server costs: on it, each "
        "user has the speed of a lone one."
    )
    return Plot("plot-scaling", "Scaling", says, svg)


def _draw(axes: Axes, points: Sequence[Point], colour: str, style: Literal["-", "--"]) -> Line2D:
    """A line, through the means where loads come again; bars for intervals, hollow points for what is not credible."""
    loads = sorted({point.load for point in points})
    means = [fmean(point.figure.value or 0.0 for point in points if point.load == load) for load in loads]
    (drawn,) = axes.plot(loads, means, style, color=colour)
    for point in points:
        value, low, high = point.figure.value or 0.0, point.figure.low, point.figure.high
        if low is not None and high is not None and math.isfinite(high):
            bar = [[max(0.0, value - low)], [max(0.0, high - value)]]
            axes.errorbar(
                [point.load], [value], yerr=bar, fmt="none", ecolor=colour, elinewidth=1.2, capsize=3, alpha=0.7
            )
        face, shape = colour if point.credible else PAPER, _SHAPES[style]
        axes.plot([point.load], [value], shape, color=colour, markerfacecolor=face, markersize=5)
    return drawn


def _key(axes: Axes, names: Sequence[str]) -> None:
    """Colours are classes, dashes are quantiles."""
    alone = len(names) == 1
    handles = [Line2D([], [], color=line(i)) for i in range(len(names))] if not alone else []
    styles = [
        Line2D([], [], color=line(0) if alone else INK, linestyle=style, marker=shape, markersize=5)
        for style, shape in _SHAPES.items()
    ]
    legend(axes, [*handles, *styles], [*(one_line(name) for name in names if not alone), "p50", "p95"])


def _finish(axes: Axes, outcome: Outcome, loads: dict[int | None, float], title: str) -> None:
    axes.set(xlabel=load_axis(outcome), ylabel=title)
    axes.margins(y=0.08)
    axes.set_ylim(bottom=0)
    spread(axes, list(loads.values()))


def _caption(says: str, drawn: Collection[list[Point]]) -> str:
    points = [point for one in drawn for point in one]
    sure = [point.figure.low is not None for point in points]
    if any(sure):
        says += " Bars are 95 % intervals" + ("." if all(sure) else "; a point without one rests on too few requests.")
    if any(len({point.load for point in one}) < len(one) for one in drawn):
        says += " Where a load comes several times, the line runs through the mean."
    return says if all(point.credible for point in points) else f"{says} {_HOLLOW}"


def _scaled(figure: Figure, scale: float) -> Figure:
    low, high = (None if end is None else end * scale for end in (figure.low, figure.high))
    return Figure(None if figure.value is None else figure.value * scale, figure.n, low, high, figure.marks)
