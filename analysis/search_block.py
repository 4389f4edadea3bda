"""The search for the highest load as people read it: its levels in order, each with what decided, and the answer."""

from __future__ import annotations

from analysis.part import Part
from analysis.search_result import SearchResult
from analysis.tables import TextTable
from tokenswarm.level_verdict import Judgement
from tokenswarm.search import Ended

TITLE = "Search"


def search_blocks(result: SearchResult | None) -> list[Part]:
    """Nothing where the run did not search."""
    if result is None or not result.steps:
        return []
    rows = [[one.label, one.judgement.value, one.why] for one in result.steps]
    table = TextTable("search", TITLE, ["level", "objectives", "decided by"], rows, left=frozenset({0, 1, 2}))
    return [Part(TITLE, table, [answer(result), *_ending(result)])]


def answer(result: SearchResult) -> str:
    """One sentence."""
    kind = "concurrency" if result.of_users else "rate"
    if result.best is None:
        return f"no {kind} was found that meets all objectives{_missed(result)}"
    return f"highest {kind} that meets all objectives: {result.best.label}{_missed(result)}"


def _missed(result: SearchResult) -> str:
    bad = result.first_bad
    if bad is None:
        return ""
    return f" ({bad.label} {'is ' if bad.why.startswith('saturated') else 'misses '}{bad.why})"


def _ending(result: SearchResult) -> list[str]:
    """Why it went no further, where the answer alone would mislead."""
    lines = []
    if result.ended in (Ended.LIMIT, Ended.SATURATED):
        lines.append(f"nothing higher was tried: {result.reason}")
    elif result.ended == Ended.LOWEST:
        lines.append(result.reason)
    elif result.doubt is not None:
        lines.append(result.doubt)
    if any(one.judgement == Judgement.MISSED and one.why.startswith("saturated") for one in result.steps):
        lines.append("saturated levels were stopped before a steady state: their figures depend on how long they ran")
    return lines
