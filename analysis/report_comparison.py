"""Two runs beside each other on a page: verdicts in sentences, the change of each figure with its interval, a table."""

from __future__ import annotations

import math

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.columns import FURTHER, PUBLISHED, Column, number_text
from analysis.compared_run import ComparedRun
from analysis.comparison import Cell, Comparison, Verdict, comparisons, where
from analysis.effect import Effect
from analysis.report_sections import Block, Bullets, Link, Plot, Plots, Prose, Sentence, Tabled, row_anchor
from analysis.report_svg import SMALL, canvas, one_line, svg_of
from analysis.report_theme import MUTED, line
from analysis.tables import TextTable

_DRAWN = ("output_tok_s", "ttft_p50_s", "tpot_p50_s", "e2e_p50_s", "scheduled_ttft_p50_s", "scheduled_e2e_p50_s")
_MOST_LINKS = 8
_COLOURS = {Verdict.BETTER: line(2), Verdict.WORSE: line(1), Verdict.UNKNOWN: MUTED}


def comparison_blocks(base: ComparedRun, candidate: ComparedRun) -> list[Block]:
    """Sentences, plots and a table; only the reasons where the two cannot be compared."""
    found = comparisons([base], [[candidate]])[0]
    blocks: list[Block] = [
        Prose((f"Base: {base.outcome.name}, {base.path}. Candidate: {candidate.outcome.name}, {candidate.path}.",))
    ]
    if found.refused:
        lines = [Sentence(f"Not comparable: {one}") for one in found.refused]
        return [
            *blocks,
            Bullets((*lines, Sentence("No verdict is given on runs that asked for different things.")), warn=True),
        ]
    blocks.append(Bullets((*_verdicts(found), *(Sentence(f"They differ in {one}") for one in found.differences))))
    doubts = [Sentence(doubt) for doubt in (*found.doubts, *found.unmatched)]
    if doubts:
        blocks.append(Bullets(tuple(doubts), warn=True))
    return [*blocks, _plots(found), *([Tabled("comparison-table", _table(found), (_MEANING,))] if found.cells else [])]


_MEANING = (
    "Change: candidate relative to base, in brackets its 95 % interval. Verdicts hold "
    "for all cells together: with many "
    "cells a single one must be surer to count."
)


def _verdicts(found: Comparison) -> list[Sentence]:
    """One sentence a verdict, with links to its rows."""
    said = []
    for verdict in Verdict:
        rows = [i for i, cell in enumerate(found.cells) if cell.verdict == verdict]
        if rows and verdict is not Verdict.UNKNOWN:
            names = [f"{_name(found.cells[i])} at {where(found.cells[i].key)}" for i in rows]
            links = tuple(Link(name, row_anchor("comparison-table", i)) for i, name in zip(rows, names, strict=True))
            said.append(
                Sentence(f"{len(rows)} of {len(found.cells)} figures are {verdict.value}.", links[:_MOST_LINKS])
            )
    unknown = sum(cell.verdict is Verdict.UNKNOWN for cell in found.cells)
    if not found.cells:
        return [Sentence("The two have no level in common, or no figure of one.")]
    if unknown == len(found.cells):
        return [Sentence(f"No difference was found: of {unknown} figures none is better or worse beyond chance.")]
    return [*said, *([Sentence(f"On {unknown} figures the runs cannot tell.")] if unknown else [])]


def _plots(found: Comparison) -> Plots:
    made = [plot for name in _DRAWN if (plot := _plot(found, name)) is not None]
    return Plots(
        tuple(made), () if made else (("No plot of the comparison: no figure has an interval on both sides."),)
    )


def _plot(found: Comparison, name: str) -> Plot | None:
    pooled = any(cell.key[1] is None for cell in found.cells)
    cells = [cell for cell in found.cells if cell.figure == name and (cell.key[1] is None) == pooled]
    known = [(cell, effect) for cell in cells if isinstance(effect := cell.effect, Effect)]
    if not any(effect.interval() for _, effect in known):
        return None
    title, key = _name(known[0][0]), f"change-{name.replace('_', '-')}"
    with canvas(SMALL) as (figure, (axes,)):
        axes.axhline(0.0, color=MUTED, linewidth=1.0)
        for place, (cell, effect) in enumerate(known):
            change, colour = (effect.ratio - 1.0) * 100.0, _COLOURS[cell.verdict]
            ends = effect.interval()
            if ends is not None and math.isfinite(ends[1]):
                low, high = ((end - 1.0) * 100.0 for end in ends)
                axes.errorbar([place], [change], yerr=[[max(0.0, change - low)], [max(0.0, high - change)]],
                              fmt="none", ecolor=colour, capsize=4)  # fmt: skip
            axes.plot([place], [change], "o", color=colour, markersize=6)
        names = [one_line(where(cell.key), 12) for cell, _ in known]
        axes.xaxis.set_major_locator(FixedLocator(range(len(names))))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda place, _: names[int(place)] if 0 <= place < len(names) else "")
        )
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_ylabel(f"change of {title}, %")
        svg = svg_of(figure, key, f"Change of {title} from base to candidate")
    better = known[0][0].better
    says = (
        f"Points: change at each level, {better} is better; bars: 95 % intervals. Coloured "
        "points are verdicts, grey ones cannot tell."
    )
    return Plot(key, f"Change of {title}", says, svg)


def _table(found: Comparison) -> TextTable:
    header = ["level", "figure", "base", "candidate", "change", "verdict", "why"]
    body = [
        [where(cell.key), _name(cell), *_values(cell), _change(cell), cell.verdict.value, cell.reason]
        for cell in found.cells
    ]
    return TextTable("comparison", "All figures", header, body, fixed=2, left=frozenset({0, 1, 5, 6}))


def _column(cell: Cell) -> Column | None:
    return next((column for column in (*PUBLISHED, *FURTHER) if column.figure == cell.figure), None)


def _name(cell: Cell) -> str:
    column = _column(cell)
    return cell.title if column is None else column.title


def _values(cell: Cell) -> list[str]:
    column = _column(cell)
    scale, decimals, unit = (100.0, 1, " %") if column is None else (column.scale, column.decimals, "")
    return [f"{number_text(value * scale, decimals)}{unit}" for value in (cell.effect.base, cell.effect.candidate)]


def _change(cell: Cell) -> str:
    effect = cell.effect
    if not isinstance(effect, Effect):
        return ""
    ends = effect.interval()
    told = f"{effect.ratio - 1.0:+.1%}"
    return told if ends is None else f"{told} ({ends[0] - 1.0:+.1%} to {ends[1] - 1.0:+.1%})"
