"""Captioning runs as a picture: captions per hour, and TTFT of first and second questions, over the streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

if TYPE_CHECKING:
    from analysis.caption_report import CaptionLevel

_RATE = ("captions_per_h", "captions per hour", "-")
_TIMES = (("ttft_first_p50_s", "1st question", "-"), ("ttft_second_p50_s", "2nd question", "--"))
_MARKERS = "osD^vPX*"
_WIDE_RANGE = 8  # from here on, doublings are as far apart as each other


def draw(levels: Sequence[CaptionLevel], file: Path) -> None:
    """Writes the picture in the format that the file's name ends in. Raises ``OSError``."""
    with matplotlib.rc_context({"svg.hashsalt": "tokenswarm", "svg.fonttype": "none"}):  # equal input, equal files
        metadata = {"Date": None} if file.suffix.lower() == ".svg" else None
        figure_of(levels).savefig(file, dpi=150, metadata=metadata)


def figure_of(levels: Sequence[CaptionLevel]) -> Figure:
    """One line a run; a level that is not complete, or contaminated, has a hollow mark."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    rates, times = figure.subplots(1, 2)
    for number, name in enumerate(dict.fromkeys(one.name for one in levels)):
        mine = [one for one in levels if one.name == name and one.size]
        simulated = " (SIMULATED)" if any(one.outcome.simulated for one in mine) else ""
        _line(rates, mine, _RATE, number, f"{name}{simulated}")
        for what in _TIMES:
            _line(times, mine, what, number, f"{name}, {what[1]}")
    rates.set_ylabel(_RATE[1])
    times.set_ylabel("TTFT p50, s")
    for axes in (rates, times):
        axes.set_xlabel(" or ".join(sorted({_axis(one) for one in levels}, reverse=True)))
        _frame(axes, sorted({one.size for one in levels if one.size}))
    if any(not one.credible for one in levels):
        figure.supxlabel("hollow: the level is not complete or contaminated", fontsize=8)
    return figure


def _line(axes: Axes, levels: Sequence[CaptionLevel], what: tuple[str, str, str], number: int, label: str) -> None:
    name, _, style = what
    known = [(one.size, one.row.figure(name).value, one.credible) for one in levels]
    points = [(users, value, credible) for users, value, credible in known if users and value is not None]
    colour, marker = f"C{number % 10}", _MARKERS[number % len(_MARKERS)]
    axes.plot([p[0] for p in points], [p[1] for p in points], style, color=colour, label=label)
    for credible in (True, False):
        some = [point for point in points if point[2] == credible]
        face = colour if credible else "white"
        axes.plot([p[0] for p in some], [p[1] for p in some], marker, color=colour, markerfacecolor=face)


def _axis(one: CaptionLevel) -> str:
    return "sessions a second" if one.whole.by_clock else "streams"


def _frame(axes: Axes, users: list[float]) -> None:
    axes.set_ylim(bottom=0)
    if users and users[-1] >= _WIDE_RANGE * users[0]:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(users))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
