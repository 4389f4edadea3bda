"""Several Locust results in one folder, one for each number of users, as the levels of one table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from analysis.figures import Figure
from analysis.levels import LevelRow
from analysis.locust_csv import read_locust
from analysis.locust_levels import outcome_of_locust
from analysis.outcome import NameRow, Note, Outcome
from tokenswarm.errors import RunFolderError

_USERS = re.compile(
    r"(?:^|[_\-. ])(?:users?|u|c|conc|concurrency|clients?|vus?)[_\-=]?(\d+)(?=$|[_\-. ])", re.IGNORECASE
)
_BEFORE = re.compile(r"(?:^|[_\-. ])(\d+)[_\-]?(?:users?|u|clients?|vus?)(?=$|[_\-. ])", re.IGNORECASE)
_LABELS = ("p50", "p90", "p95", "p99", "mean")


def outcome_of_sweep(folder: Path, prefixes: list[str]) -> Outcome:
    """Levels by the number of users in the names of the results (``users_8_stats.csv``, ``100_users_stats.csv``).

    Raises ``RunFolderError`` with one line where a name has none; then these are results of different things.
    """
    users = {prefix: count for prefix in prefixes if (count := _users(prefix)) is not None}
    if len(users) < len(prefixes):
        raise RunFolderError(f"{folder}: holds several Locust results, name one of {', '.join(prefixes)}")
    ordered = sorted(users, key=lambda prefix: users[prefix])
    outcome = Outcome(path=str(folder), source="Locust CSV", name=folder.name)
    for prefix in ordered:
        part = outcome_of_locust(read_locust(prefix))
        outcome.levels += part.levels or [_level(users[prefix], part.names)]
        outcome.classes += part.classes
        outcome.failures += part.failures
        outcome.notes += [note for note in part.notes if note not in outcome.notes]
        outcome.simulated |= part.simulated
    _number(outcome.levels)
    outcome.classes = [replace(row, level=_place(row, outcome.levels)) for row in outcome.classes]
    names = ", ".join(Path(prefix).name for prefix in ordered)
    outcome.notes.insert(0, Note("source", f"one Locust result for each level: {names}"))
    if not any(row.ok for row in outcome.levels):
        outcome.doubts.append("no request succeeded")
    return outcome


def _users(prefix: str) -> int | None:
    name = Path(prefix).name
    found = _USERS.search(name) or _BEFORE.search(name)
    return int(found[1]) if found else None


def _level(users: int, names: list[NameRow]) -> LevelRow:
    """From the total of all names."""
    total = next((row for row in names if row.is_total), None)
    rows = [total] if total is not None else names
    row = LevelRow(0, users, label=f"c={users}")
    row.requests, row.failed = sum(one.requests for one in rows), sum(one.failed for one in rows)
    row.ok = row.requests - row.failed
    if len(rows) == 1:
        row.figures = {f"response_{label}_s": rows[0].figure(f"{label}_s") for label in _LABELS}
        row.figures["all_requests_per_s"] = Figure(rows[0].figure("requests_per_s").value)
    return row


def _number(rows: list[LevelRow]) -> None:
    seen: dict[str, int] = {}
    for i, row in enumerate(rows):
        name = row.name
        times = seen[name] = seen.get(name, 0) + 1
        row.level, row.label = i, name if times == 1 else f"{name} #{times}"


def _place(row: LevelRow, levels: list[LevelRow]) -> int | None:
    return next((one.level for one in levels if one.label == row.label), row.level)
