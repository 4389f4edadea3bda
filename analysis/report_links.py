"""Links from sentences to the rows of levels that they rest on."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.levels import LevelRow
from analysis.outcome import Outcome
from analysis.report_sections import Link, row_anchor

MOST_LINKS = 8


def level_link(outcome: Outcome, row: LevelRow) -> Link:
    """To the row of a level in the table of all classes, or of one class in theirs."""
    if row.traffic is not None and outcome.several_classes:
        place = (row.level, row.traffic)
        number = next(i for i, one in enumerate(outcome.classes) if (one.level, one.traffic) == place)
        return Link(f"{row.name} {row.traffic}", row_anchor("classes", number))
    number = next(i for i, one in enumerate(outcome.levels) if one.level == row.level)
    return Link(row.name, row_anchor("all-classes" if outcome.several_classes else "levels", number))


def level_links(outcome: Outcome, rows: Iterable[LevelRow]) -> tuple[Link, ...]:
    """At most ``MOST_LINKS``."""
    return tuple(level_link(outcome, row) for row in rows)[:MOST_LINKS]


def rows_links(outcome: Outcome, names: Iterable[str], traffic: str | None) -> tuple[Link, ...]:
    """Likewise, of levels by their names; ``traffic``: of one class where there are several."""
    rows = outcome.classes if traffic is not None and outcome.several_classes else outcome.levels
    wanted = list(names)
    mine = [row for row in rows if traffic in (None, row.traffic) or not outcome.several_classes]
    return level_links(outcome, (row for row in mine if row.name in wanted))
