"""Locust's ``_stats_history.csv``: its rows, and the levels of a load that goes up in steps.

Counts are totals since the start. Percentiles are those of about the last 10 s, so none of them is the percentile of a
level. Versions before 1.0 write no number of users; their levels cannot be told.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from analysis.figures import Figure, Mark, number, ratio
from analysis.levels import LevelRow
from analysis.locust_csv import number_of, records_of
from analysis.outcome import Note, Outcome
from tokenswarm.errors import RunFolderError

SUFFIX = "_stats_history.csv"
LEAST_ROWS = 5  # of a level; a number of users with fewer is part of a ramp
WINDOW_S = 10.0  # of Locust's percentiles
_PERCENTILES = {"p50": "50%", "p90": "90%", "p95": "95%", "p99": "99%"}


@dataclass(frozen=True)
class Moment:
    """One row. ``requests`` and ``failures`` are totals since the start, percentiles milliseconds or no data."""

    time_s: float
    users: int | None
    kind: str
    name: str
    requests: int
    failures: int
    requests_per_s: float | None
    percentiles: dict[str, float | None]
    is_total: bool


def read_history(path: Path) -> list[Moment]:
    """All rows in order, those of single names and of all together. Raises ``RunFolderError`` with one line."""
    moments = [_moment(path, record) for record in records_of(path, required=("Timestamp", "Name"))]
    if not moments:
        raise RunFolderError(f"{path}: wanted a history that Locust wrote with --csv: it holds only the header")
    return moments


def _moment(path: Path, record: dict[str, str]) -> Moment:
    time_s = number_of(record["Timestamp"])
    if time_s is None:
        raise RunFolderError(f"{path}: wanted a history of Locust: Timestamp is {record['Timestamp']!r}")
    requests = number_of(record.get("Total Request Count") or record.get("Request Count")) or 0.0
    least = number_of(record.get("Total Min Response Time") or record.get("Min Response Time")) or 0.0
    users = number_of(record.get("User Count"))

    def percentile(column: str) -> float | None:
        """0 where something took longer is an empty window."""
        value = number_of(record.get(column))
        return None if not requests or (value == 0 and least > 0) else value

    return Moment(
        time_s=time_s,
        users=None if users is None else int(users),
        kind=record.get("Type", ""),
        name=record["Name"],
        requests=int(requests),
        failures=int(number_of(record.get("Total Failure Count") or record.get("Failure Count")) or 0),
        requests_per_s=number_of(record.get("Requests/s")),
        percentiles={label: percentile(column) for label, column in _PERCENTILES.items()},
        is_total=record["Name"] in ("Aggregated", "Total") and record.get("Type", "") in ("", "None"),
    )


def outcome_of_history(path: Path) -> Outcome:
    """One level for each number of users that was held for at least :data:`LEAST_ROWS` rows; the rest is ramp."""
    moments = [one for one in read_history(path) if one.is_total]
    if not any(one.users is not None for one in moments):
        raise RunFolderError(f"{path}: wanted levels, but this history names no number of users (User Count)")
    held = [list(rows) for _, rows in groupby(moments, key=lambda one: one.users)]
    plateaus = [rows for rows in held if rows[0].users and len(rows) >= LEAST_ROWS]
    if not plateaus:
        raise RunFolderError(f"{path}: wanted levels, but no number of users was held for {LEAST_ROWS} rows")
    levels = list(_levels(plateaus))
    ramp = sorted({rows[0].users or 0 for rows in held} - {row.concurrency for row in levels})
    return Outcome(
        path=str(path),
        source="Locust CSV",
        name=path.name.removesuffix(SUFFIX),
        levels=levels,
        notes=[Note("coarse", "from Locust's history: counts are those between the first and last row of a level")]
        + (
            [Note("ramp", f"not levels: {', '.join(map(str, ramp))} users, with fewer than {LEAST_ROWS} rows")]
            if ramp
            else []
        ),
        doubts=[] if any(row.ok for row in levels) else ["no request succeeded"],
    )


def _levels(plateaus: list[list[Moment]]) -> Iterator[LevelRow]:
    seen: dict[int, int] = {}
    for i, rows in enumerate(plateaus):
        first, last, users = rows[0], rows[-1], rows[0].users or 0
        times = seen[users] = seen.get(users, 0) + 1
        requests, failed = last.requests - first.requests, last.failures - first.failures
        row = LevelRow(i, users, label=f"c={users}" + (f" #{times}" if times > 1 else ""))
        row.requests, row.failed, row.ok = requests, failed, requests - failed
        settled = [one for one in rows if one.time_s - first.time_s >= WINDOW_S] or rows
        row.figures = {
            f"response_10s_{label}_s": _middle([one.percentiles[label] for one in settled]) for label in _PERCENTILES
        }
        row.figures["all_requests_per_s"] = number(ratio(requests, last.time_s - first.time_s))
        yield row


def _middle(values: list[float | None]) -> Figure:
    known = [value / 1000.0 for value in values if value is not None]
    return Figure(statistics.median(known), n=len(known)).marked(Mark.COARSE) if known else Figure(None)
