"""Two runs beside each other on a page: verdicts in sentences, the change of each figure with its interval, a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, repeat

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.columns import FURTHER, PUBLISHED, Column
from analysis.compared_level import Cell, Verdict, where
from analysis.compared_run import ComparedRun
from analysis.comparison import Comparison, comparisons
from analysis.comparison_block import comparison_parts, rules
from analysis.effect import Effect
from analysis.report_sections import Block, Bullets, Link, Plot, Plots, Prose, Sentence, Tabled, row_anchor, slug
from analysis.report_svg import SMALL, canvas, one_line, svg_of
from analysis.report_theme import MUTED, line

_DRAWN = ("output_tok_s", "ttft_p50_s", "tpot_p50_s", "e2e_p50_s", "scheduled_ttft_p50_s", "scheduled_e2e_p50_s")
_COLOURS = {Verdict.BETTER: line(2), Verdict.WORSE: line(1), Verdict.UNKNOWN: MUTED}


def comparison_blocks(base: ComparedRun, candidate: ComparedRun, allowed: Sequence[str] = ()) -> list[Block]:
    """What changed with links to the cells, plots, all cells; only the reasons where the two cannot be compared.

    ``allowed``: differences that are wanted, as the refusal names them.
    """
    found = comparisons([base], [[candidate]], allowed=allowed)[0]
    answer, *further = comparison_parts([found])
    title = Prose((f"Candidate against base: {answer.title}.",))
    if found.refused or answer.table is None:
        return [title, Bullets(tuple(map(Sentence, answer.lines)), warn=True)]
    decided = [i for i, cell in enumerate(found.cells) if cell.verdict is not Verdict.UNKNOWN]
    links = [(Link("its row", row_anchor("comparison-cells", i)),) for i in decided]
    rest = repeat(())  # the lines after those of the cells that changed
    told = tuple(Sentence(line, link) for line, link in zip(answer.lines, chain(links, rest), strict=False))
    table = replace(answer.table, title="All figures")
    blocks: list[Block] = [
        title,
        Bullets(told),
        _plots(found),
        Tabled("comparison-cells", table, tuple(rules([found]))),
    ]
    tables = [part.table for part in further if part.table is not None]
    return [*blocks, *(Tabled(f"comparison-{slug(table.key)}", table) for table in tables)]


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
        several = len({cell.key[1] for cell, _ in known}) > 1
        names = [one_line(where(cell.key) if several else cell.key[0], 12) for cell, _ in known]
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


def _column(cell: Cell) -> Column | None:
    return next((column for column in (*PUBLISHED, *FURTHER) if column.figure == cell.figure), None)


def _name(cell: Cell) -> str:
    column = _column(cell)
    return cell.title if column is None else column.title
