"""What the marks and columns of the shown tables mean, and what to change in the scenario to be rid of a mark."""

from __future__ import annotations

from typing import Any

from analysis.cache_block import TOO_GOOD
from analysis.caption_table import figures_of_captions
from analysis.columns import ARRIVALS, BY_CLOCK, NAMES, SHOWN
from analysis.figures import LEGEND, SYMBOL, Mark
from analysis.import_block import foreign_columns
from analysis.job_tables import figures_of_jobs
from analysis.levels import LevelRow
from analysis.outcome import NameRow, Outcome
from analysis.scaling import scaling_rows
from analysis.tables import CONTAMINATED, LIMITED, OTHER_EPOCH

DEFINITIONS = "definitions: docs/metrics.md"
LIMITED_LINE = f"{LIMITED}  limited by the load generator: these are figures of this machine, not of the server"


def legend_of(outcome: Outcome, *, by_class: bool = False) -> list[str]:
    """One line for ``c`` and for each mark that occurs in the shown tables."""
    if outcome.names:
        return _marks(outcome, outcome.names)
    rows = outcome.classes if by_class else outcome.levels
    if outcome.several_classes and not by_class:
        rows = outcome.classes + outcome.levels
    lines = _loads(rows)
    lines += _marks(outcome, rows)
    if not all(row.complete for row in rows):
        lines.append("!  the level is not complete; see the notes")
    if any(row.contaminated for row in rows):
        lines.append(f"{CONTAMINATED}  contaminated: {TOO_GOOD}")
    if any(row.limited for row in rows):
        lines.append(LIMITED_LINE)
    if any(row.across_epochs for row in scaling_rows(outcome.levels)):
        lines.append(f"{OTHER_EPOCH}  relative to a level from before the server was started again")
    return [*lines, DEFINITIONS]


def _loads(rows: list[LevelRow]) -> list[str]:
    """What the levels are: steps of a closed loop, or of arrivals by the clock."""
    if any(row.by_clock for row in rows):
        from_schedule = [
            "scheduled TTFT, E2E: from the time at which a request was due, as a user feels it; objectives are judged "
            "by them. TTFT, E2E: from the send",
        ]
        line = "load: how sessions arrive, whether the server keeps up or not (open loop)"
        return [line, *(from_schedule if any(row.arrivals for row in rows) else [])]
    text = "c: users at the same time (closed loop: a slow answer delays the next request)"
    return [text] if any(row.level is not None for row in rows) else []


def _marks(outcome: Outcome, rows: list[LevelRow] | list[NameRow]) -> list[str]:
    columns = NAMES if outcome.names else (*SHOWN, *BY_CLOCK, *ARRIVALS, *foreign_columns(outcome.levels))
    marked = {mark for row in rows for column in columns for mark in row.figure(column.figure).marks}
    further = figures_of_jobs(outcome) + figures_of_captions(outcome)
    marked |= {mark for figure in further for mark in figure.marks}
    advice = {Mark.NO_BOUND: f"; {_more_requests(outcome, _needed(rows))}"}
    return [f"{SYMBOL[mark]}  {LEGEND[mark]}{advice.get(mark, '')}" for mark in Mark if mark in marked]


def _needed(rows: list[LevelRow] | list[NameRow]) -> tuple[str, int]:
    """The quantile to aim at, and its requests: p95, or p99 where only that lacks a bound."""
    columns = [column for column in (*SHOWN, *BY_CLOCK) if "_p99_" not in column.key]
    low = any(Mark.NO_BOUND in row.figure(column.figure).marks for row in rows for column in columns)
    return ("p95", 72) if low else ("p99", 368)


def _more_requests(outcome: Outcome, needed: tuple[str, int]) -> str:
    """Advice that names the key of the scenario which decides how many requests a level has."""
    quantile, count = needed
    load = outcome.scenario.get("load")
    closed: dict[str, Any] | None = load.get("closed") if isinstance(load, dict) else None
    by_rate = isinstance(load, dict) and isinstance(load.get("open"), dict)
    match closed or {}:
        case {"sessions": dict()}:
            key = f"set load.closed.sessions.at_least: {count}"
        case {"sessions": int()}:
            key = f"set load.closed.sessions: {count}"
        case {"duration_s": int() | float()}:
            key = f"make load.closed.duration_s long enough for {count} requests"
        case _ if by_rate:
            key = f"make load.open.duration_s long enough for {count} requests"
        case _ if any(row.level is None for row in outcome.levels) and not outcome.names:
            key = f"run longer (-t), until there are {count} requests"
        case _:
            key = f"take {count} requests"
    return f"for {quantile} {key}"
