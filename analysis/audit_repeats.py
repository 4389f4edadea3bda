"""One thing told twice: figure sets of one configuration at one level, and values of one quantity."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from analysis.audit_concern import Concern, Kind
from analysis.audit_quoted import Quote
from analysis.audit_set import FigureSet, differing, same_place


def two_figures(sets: Sequence[FigureSet]) -> list[Concern]:
    """Published figure sets of one configuration at one level that cannot be the same numbers."""
    found = []
    for a, b in combinations(sets, 2):
        if not same_place(a.row, b.row) or not (names := differing(a, b)):
            continue
        name = "output_tok_s" if "output_tok_s" in names else names[0]
        first, second = a.spans[name].value, b.spans[name].value
        told = ", ".join(f"{each} {a.spans[each].value:.4g} and {b.spans[each].value:.4g}" for each in names)
        cause = "two measurements, of which each table shows one, or a setting that the tables do not name"
        step = "find out which one is of the run that is written up; conclude nothing that changes with the choice"
        rows = tuple(dict.fromkeys((*a.names, *b.names)))
        found.append(Concern(Kind.TWO_FIGURES, rows, told, cause, step, first, second, name))
    return found


def quoted_twice(quotes: Sequence[Quote]) -> list[Concern]:
    """Values of one quantity of one thing that differ by more than their printed digits."""
    found = []
    for a, b in combinations(quotes, 2):
        if a.subject != b.subject or a.span.agrees(b.span):
            continue
        text = f"{a.quantity} is told as {a.printed} and as {b.printed}"
        cause = "two starts or two settings under one name, or a slip"
        step = "name the run that each value is of, or keep the one of the run that is written up"
        rows = tuple(dict.fromkeys((a.where, b.where)))
        found.append(Concern(Kind.QUOTED, rows, text, cause, step, a.span.value, b.span.value, a.quantity))
    return found
