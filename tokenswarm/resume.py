"""Going on with a sweep that ended early: what is finished is taken over into the new run folder, the rest is run.

The new folder stands for itself. Times of the old run are laid on the new master's clock by way of unix time, and the
old run's workers get names of their own.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenswarm.epochs import Epochs
from tokenswarm.errors import InputError
from tokenswarm.rundir import FORMAT, HEADERS, RunFolder, csv_lines
from tokenswarm.scenario import Scenario
from tokenswarm.schedule import Level

# Files with rows of levels; of each the columns that hold seconds of the master's clock.
_FILES: dict[str, tuple[str, ...]] = {
    "requests": (),
    "timeline": (),
    "chunk_gaps": (),
    "health": (),
    "engine": ("time_s",),
    "levels": ("started_s", "measured_started_s", "measured_ended_s", "ended_s"),
}
_Row = dict[str, str | None]


@dataclass(frozen=True)
class Resumption:
    """The finished part of an earlier run."""

    path: Path
    levels: frozenset[int]  # numbers of those that are complete
    description: dict[str, Any]

    @classmethod
    def of(cls, path: Path, scenario: Scenario) -> Resumption:
        """Raises ``InputError`` where the folder is no run of this scenario, or nothing is missing."""
        description, levels = _kept(path)
        if description.get("format") != FORMAT:
            raise InputError(f"--resume {path}: has format {description.get('format')}, {FORMAT} is wanted")
        if scenario.load is None or scenario.load.search is not None or scenario.load.replay is not None:
            raise InputError(f"--resume {path}: only a scenario that lists its levels can be resumed")
        if description.get("scenario_digest") != scenario.digest:
            raise InputError(f"--resume {path}: was another scenario than {scenario.source}; give the one of that run")
        planned = {int(level["level"]) for level in description["levels"]}
        ended = {int(row["level"] or -1): row for row in levels if row["state"] == "complete"}
        complete = {number: row for number, row in ended.items() if number in planned}
        if not planned - complete.keys():
            raise InputError(f"--resume {path}: all of its {len(planned)} levels are complete")
        _require_rows(path, complete)
        return cls(path, frozenset(complete), description)

    def missing(self, levels: tuple[Level, ...]) -> tuple[Level, ...]:
        return tuple(level for level in levels if level.index not in self.levels)

    def told(self) -> dict[str, Any]:
        """What ``run.json`` of the new run says."""
        old = self.description
        return {
            "run": self.path.name,
            "run_id": old.get("run_id"),
            "created": old.get("created"),
            "levels": sorted(self.levels),
            "url": old.get("target", {}).get("url"),
            "provenance": old.get("provenance"),
        }

    def epochs(self) -> Epochs:
        """The server's life in which the last complete level was measured, and since when its engines ran."""
        known = [row["epoch"] for row in _rows(self.path / "levels.csv") if row.get("epoch")]
        starts_s = {
            row["engine"] or "": float(row["process_start_s"] or 0)
            for row in _rows(self.path / "engine.csv")
            if row.get("process_start_s")
        }
        return Epochs(int(known[-1] or 0) if known and starts_s else None, starts_s)

    def take_over(self, folder: RunFolder, unix_minus_master_s: float) -> None:
        """Copy the rows of all complete levels. ``unix_minus_master_s``: of the new master's monotonic clock."""
        clocks = list(_rows(self.path / "workers.csv"))
        shift_s = 0.0
        for row in clocks:
            shift_s = _seconds(row, "wall_s") - _seconds(row, "monotonic_s") - _seconds(row, "offset_s")
            shift_s -= unix_minus_master_s
            offset_s = _seconds(row, "offset_s") + shift_s
            folder.append_row("workers", row | {"worker": self._name(row), "offset_s": f"{offset_s:.6f}"})
        for file, times in _FILES.items():
            self._copy(folder, file, times, shift_s)

    def _copy(self, folder: RunFolder, file: str, times: tuple[str, ...], shift_s: float) -> None:
        batch: list[list[str | None]] = []
        for row in _rows(self.path / f"{file}.csv"):
            if not (row.get("level") or "").isdecimal() or int(row["level"] or 0) not in self.levels:
                continue
            for column in times:
                row[column] = f"{_seconds(row, column) + shift_s:.6f}" if row.get(column) else row.get(column)
            if row.get("worker"):
                row["worker"] = self._name(row)
            batch.append([row.get(column) for column in HEADERS[file]])
            if len(batch) >= 10_000:
                folder.append(file, csv_lines(batch))
                batch.clear()
        folder.append(file, csv_lines(batch))

    def _name(self, row: _Row) -> str:
        """Of a worker of the old run: nobody of the new one is called so."""
        return f"{row['worker']} of {self.path.name}"


def _kept(path: Path) -> tuple[dict[str, Any], list[_Row]]:
    """What ``run.json`` says, and the rows of ``levels.csv``."""
    try:
        description = json.loads((path / "run.json").read_text(encoding="utf-8"))
        levels = list(_rows(path / "levels.csv"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"--resume {path}: run.json or levels.csv cannot be read: {why}") from error
    if not isinstance(description, dict):
        raise InputError(f"--resume {path}: run.json describes no run")
    return description, [row for row in levels if "state" in row and (row.get("level") or "").isdecimal()]


def _require_rows(path: Path, complete: dict[int, _Row]) -> None:
    """Levels whose rows are lost count as nothing. Raises ``InputError``."""
    if not complete:
        return
    for file in ("requests", "timeline", "workers"):
        if not (path / f"{file}.csv").exists():
            raise InputError(f"--resume {path}: {file}.csv is missing; its levels cannot be taken over without")
    found: defaultdict[int, set[str | None]] = defaultdict(set)
    for request in _rows(path / "requests.csv"):
        if request["phase"] == "measured" and (request["level"] or "").isdecimal():
            found[int(request["level"] or 0)].add(request["session"])
    for number, level in complete.items():
        wanted = int(level.get("scheduled") or 1) - int(level.get("lost") or 0)
        if len(found[number]) < wanted:
            raise InputError(
                f"--resume {path}: requests.csv has {len(found[number])} measured sessions of level {number}, "
                f"{wanted} are wanted; rows are lost"
            )


def _rows(path: Path) -> Iterator[_Row]:
    """Whole rows only: the last line of a run that was killed may be half a line."""
    if not path.exists():
        return
    with open(path, newline="", encoding="utf-8", errors="replace") as lines:
        for row in csv.DictReader(lines):
            if None not in row and None not in row.values():
                yield row


def _seconds(row: _Row, column: str) -> float:
    return float(row.get(column) or 0.0)
