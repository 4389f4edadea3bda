"""One run of a comparison: its table, and where there are any, the requests behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pandas as pd

from analysis.levels import LevelRow, levels_of
from analysis.outcome import Outcome
from analysis.published_table import is_published, read_published
from analysis.csv_file import header_of
from analysis.run_folder import Run, read_run, run_of_requests
from analysis.source import outcome_of_run, read_outcome
from tokenswarm.errors import InputError, RunFolderError

PART = "#"  # FILE#CONFIGURATION or FILE#TABLE/CONFIGURATION, of a published table
Key = tuple[str, str | None]  # name of the level; its class, None for all together


@dataclass(frozen=True)
class ComparedRun:
    """``run`` is ``None`` where only summaries are known."""

    path: str
    outcome: Outcome
    run: Run | None = None
    rows: dict[str, pd.DataFrame] = field(default_factory=dict)  # of each level by its name, all phases

    @property
    def levels(self) -> dict[Key, LevelRow]:
        """Each class of each level; all together where classes are not told, or there are several of them."""
        outcome = self.outcome
        found: dict[Key, LevelRow] = {(row.name, row.traffic): row for row in outcome.classes}
        if outcome.several_classes or not outcome.classes:
            found |= {(row.name, None): row for row in outcome.levels}
        return found

    def level_row(self, name: str) -> LevelRow | None:
        """All classes of a level together."""
        return next((row for row in self.outcome.levels if row.name == name), None)

    def requests_of(self, key: Key) -> pd.DataFrame | None:
        """All phases of one class of one level; ``None`` where only summaries are known."""
        rows = self.rows.get(key[0])
        return rows if rows is None or key[1] is None else rows[rows["traffic"] == key[1]]

    def moment_s(self, key: Key) -> float | None:
        """When the level was measured, unix time; ``None`` where no clock tells."""
        if self.run is None or self.run.unix_minus_master_s is None:
            return self._created_s()
        rows = self.rows[key[0]]
        return float(rows["sent_s"].mean()) + self.run.unix_minus_master_s

    def _created_s(self) -> float | None:
        created = self.outcome.facts.get("created")
        try:
            return datetime.fromisoformat(str(created)).timestamp()
        except ValueError:
            return None


def read_compared(text: str) -> ComparedRun:
    """A run folder, a requests.csv, or anything that has a table; of a published one the part after ``#``.

    Raises ``RunFolderError`` or ``InputError`` with one line.
    """
    path = Path(text)
    run = _run_at(path)
    if run is not None:
        return compared_run(run)
    if PART in text and not path.exists():
        return _published_part(*text.rsplit(PART, 1))
    if path.is_file() and path.suffix.lower() in (".csv", ".tsv", ".md") and is_published(header_of(path)):
        return _published_part(text, "")
    return ComparedRun(text, read_outcome(text))


def compared_run(run: Run) -> ComparedRun:
    """From the files of a run."""
    outcome = outcome_of_run(run)
    names = {row.level: row.name for row in outcome.levels}
    rows = {names[level]: rows for level, rows in levels_of(run.requests) if level in names}
    return ComparedRun(str(run.path), outcome, run, rows)


def _run_at(path: Path) -> Run | None:
    folder = path.parent if path.name == "run.json" else path
    if (folder / "run.json").is_file():
        return read_run(folder)
    file = folder / "requests.csv" if folder.is_dir() else path
    if file.is_file() and file.suffix == ".csv" and "sent_s" in header_of(file):
        return run_of_requests(file)
    return None


def _published_part(file: str, wanted: str) -> ComparedRun:
    parts = read_published(file)
    names = {f"{one.facts['table']}/{one.facts['configuration']}".strip("/"): one for one in parts}
    found = [
        one for name, one in names.items() if wanted in (name, one.facts["configuration"]) or (not wanted and len(parts) == 1)
    ]
    if len(found) == 1:
        return ComparedRun(f"{file}{PART}{wanted}" if wanted else file, found[0])
    listed = ", ".join(names)
    if not Path(file).exists():
        raise RunFolderError(f"{file}: nothing is there")
    raise InputError(f"{file}: wanted one configuration as {PART}NAME or {PART}TABLE/NAME, of {listed}")
