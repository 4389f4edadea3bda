"""Which columns of words name the configuration and the printed table, where their titles do not say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

_FILLED = 0.9  # of the rows: remarks stand in some of them only


def configuration_and_table(
    texts: Mapping[str, Sequence[str]], users: Sequence[str], figures: Sequence[Sequence[str]]
) -> tuple[str | None, str | None]:
    """Titles of the two columns among ``texts``; ``None`` where no column can be it.

    Rows of one configuration at one level hold the same figures, also in different tables; rows of one table at one
    level are of different configurations, and do not. ``users`` and ``figures``: the cells of these columns.
    """
    told = {title: cells for title, cells in texts.items() if _names_rows(cells)}
    if not told:
        return None, None
    configuration = max(told, key=lambda title: _agreement(told[title], users, figures))
    rest = [title for title, cells in told.items() if title != configuration and len(set(cells)) < len(cells)]
    return configuration, rest[0] if rest else None


def _names_rows(cells: Sequence[str]) -> bool:
    return bool(cells) and sum(bool(cell) for cell in cells) >= _FILLED * len(cells)


def _agreement(cells: Sequence[str], users: Sequence[str], figures: Sequence[Sequence[str]]) -> int:
    """Figures that are the same in two rows of one name at one level, less those that differ."""
    rows: dict[tuple[str, str], list[int]] = {}
    for i, key in enumerate(zip(cells, users, strict=True)):
        rows.setdefault(key, []).append(i)
    score = 0
    for places in rows.values():
        for a, b in combinations(places, 2):
            score += sum((column[a] == column[b]) * 2 - 1 for column in figures if column[a] and column[b])
    return score
