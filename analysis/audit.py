"""The consistency audit: what any table of results, our own or anybody's, must fulfil whatever was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from analysis.audit_concern import Concern, Kind
from analysis.audit_counts import (
    counts_close,
    peak_holds_mean,
    quantiles_in_order,
    reached,
    small_samples,
    tokens_and_time,
)
from analysis.audit_identities import end_to_end, littles_law, request_rate, throughput_against_tpot
from analysis.audit_lengths import answers_as_asked, early_stops, inert_cache, prompts_as_asked
from analysis.audit_quoted import Quote, derived_values, inert_caches
from analysis.audit_repeats import quoted_twice, two_figures
from analysis.audit_set import FigureSet, figure_sets
from analysis.outcome import Note, Outcome
from analysis.published_table import SOURCE as PUBLISHED

# Each rule looks at one figure set.
RULES: tuple[Callable[[FigureSet], list[Concern]], ...] = (
    counts_close,
    tokens_and_time,
    peak_holds_mean,
    quantiles_in_order,
    littles_law,
    reached,
    throughput_against_tpot,
    request_rate,
    end_to_end,
    answers_as_asked,
    early_stops,
    inert_cache,
    small_samples,
)
_OWN = ("run folder", "requests.csv")  # sources whose single requests were looked at
# What a table of our own says in another place: marks, notes on early stops.
_TOLD_ELSEWHERE = (Kind.SMALL, Kind.EARLY)


@dataclass
class Audit:
    """``rows``: how many were looked at; ``sources``: their names."""

    concerns: list[Concern] = field(default_factory=list)
    rows: int = 0
    quotes: int = 0
    sources: list[str] = field(default_factory=list)


def audit_rows(outcome: Outcome) -> tuple[list[Concern], list[FigureSet]]:
    """All rules on the rows of one source."""
    published = outcome.source == PUBLISHED
    rules = RULES if outcome.source in _OWN else (*RULES, prompts_as_asked)
    sets = figure_sets(outcome.levels, published=published)
    concerns = [concern for one in sets for rule in rules for concern in rule(one)]
    return (two_figures(sets) if published else []) + concerns, sets


def audit_quotes(quotes: Sequence[Quote], sets: Sequence[FigureSet]) -> list[Concern]:
    """Rules on single values, and on those that follow from rows."""
    return quoted_twice(quotes) + derived_values(quotes, sets) + inert_caches(quotes)


def concerns_of(outcome: Outcome) -> list[Concern]:
    """Of one outcome: those of its rows and those that were found in its requests."""
    concerns, _ = audit_rows(outcome)
    return concerns + outcome.concerns


def audit_notes(outcome: Outcome) -> list[Note]:
    """Where something does not close, one line each; what marks and other notes say already is left out."""
    shown = [concern for concern in concerns_of(outcome) if concern.kind not in _TOLD_ELSEWHERE]
    return [Note("audit", f"does not close: {concern.line}") for concern in shown]


def audit_of(outcomes: Sequence[Outcome], quotes: Sequence[Quote]) -> Audit:
    """Several sources and the values quoted beside them."""
    audit = Audit(quotes=len(quotes))
    sets: list[FigureSet] = []
    for outcome in outcomes:
        concerns, its_sets = audit_rows(outcome)
        audit.concerns += concerns + outcome.concerns
        audit.rows += len(outcome.levels)
        audit.sources.append(outcome.path)
        sets += its_sets
    audit.concerns += audit_quotes(quotes, sets)
    return audit
