"""Plots as SVG elements that may stand in a page beside each other, in the page's own font and colours."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from analysis.report_secrets import shown
from analysis.report_theme import GRID, INK, MUTED, variables

SMALL, WIDE = (5.2, 3.4), (10.6, 2.4)  # inches; a panel of a wide plot
_LEGEND_WIDTH, _HANDLE_WIDTH = 70, 7  # letters beside each other above a small plot; of a line and its gaps
_WIDE_RANGE = 8  # from here on, doublings are as far apart as each other
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # names may have dollars in them
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "figure.facecolor": "none",
    "font.size": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
}


@contextmanager
def canvas(size: tuple[float, float], panels: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of panels below each other that share their horizontal axis."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(size[0], size[1] * panels), layout="constrained")
        axes = figure.subplots(panels, 1, sharex=True, squeeze=False)
        yield figure, [row[0] for row in axes]


def svg_of(figure: Figure, key: str, title: str) -> str:
    """One ``<svg>`` without anything from outside; its ids begin with ``key``."""
    out = io.StringIO()
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": key}):  # equal input, equal text
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].rstrip()
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    size = re.search(r'viewBox="([^"]+)"', text)
    head = f'<svg viewBox="{size.group(1) if size else ""}" role="img" aria-label="{_attribute(title)}">'
    text = head + text[text.index(">") + 1 :]
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = re.sub(r"url\(#", f"url(#{key}-", text)
    text = re.sub(r'xlink:href="#', f'href="#{key}-', text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    return variables("\n".join(line.rstrip() for line in text.splitlines() if line.strip()))


def legend(axes: Axes, handles: Iterable[Artist], labels: Iterable[str]) -> None:
    """Above the plot, where no line runs. Labels of strangers too: a name that begins with an underscore is a name."""
    shown = list(labels)
    if shown:
        columns = max(1, min(len(shown), _LEGEND_WIDTH // (max(map(len, shown)) + _HANDLE_WIDTH)))
        place: dict[str, Any] = {
            "loc": "lower left",
            "bbox_to_anchor": (0.0, 1.0),
            "ncols": columns,
            "borderaxespad": 0.2,
        }
        axes.legend(list(handles), shown, handlelength=1.8, columnspacing=1.2, **place)


def spread(axes: Axes, sizes: Sequence[float], texts: Sequence[str] | None = None) -> None:
    """The loads on the horizontal axis: all of them marked, doublings equally far apart where they are many."""
    known = sorted(set(sizes))
    if known and known[0] > 0 and known[-1] >= _WIDE_RANGE * known[0]:
        axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(known))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def logarithmic_times(axes: Axes) -> None:
    """Times that differ by orders of magnitude."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def one_line(text: str, most: int = 40) -> str:
    """A name short enough for a legend; what no SVG may hold becomes a space."""
    text = shown("".join(c if c.isprintable() else " " for c in text))
    return text if len(text) <= most else text[: most - 1] + "…"


def _attribute(text: str) -> str:
    return one_line(text, 200).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
