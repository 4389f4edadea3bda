"""One run of a comparison: its table, and where there are any, the requests behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.csv_file import header_of
from analysis.figures import Values
from analysis.levels import LevelRow, levels_of
from analysis.outcome import NameRow, Outcome
from analysis.published_table import holds_published, read_published
from analysis.run_folder import Run, read_run, run_of_requests
from analysis.source import outcome_of_run, read_outcome
from analysis.window import Arrivals
from tokenswarm.errors import ErrorKind, InputError, RunFolderError
from tokenswarm.metrics import METRICS
from tokenswarm.records import Phase

PART = "#"  # FILE#CONFIGURATION or FILE#TABLE/CONFIGURATION, of a published table
Key = tuple[str, str | None]  # name of the level; its class, None for all together


@dataclass(frozen=True)
class Sample:
    """Requests of a level. ``metrics``: of the measured ones that succeeded, blanks as NaN, in the order in which they
    were sent at ``sent_s``; ``failed``: 1 or 0 for each measured one that came to an end, in that order too."""

    metrics: dict[str, Values]
    sent_s: Values
    failed: Values
    arrivals: Arrivals  # tokens of all phases

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Sample:
        measured = rows[rows["phase"] == Phase.MEASURED].sort_values("sent_s")
        failed = measured["error_kind"].notna().to_numpy()
        ended = (measured["error_kind"].astype("object") != ErrorKind.CANCELLED).to_numpy()
        metrics = {name: measured[name].to_numpy(dtype="float64")[~failed] for name in METRICS}
        sent_s = measured["sent_s"].to_numpy(dtype="float64")[~failed]
        return cls(metrics, sent_s, failed[ended].astype("float64"), Arrivals.of(rows))

    def known(self, metric: str) -> Values:
        values = self.metrics[metric]
        return values[~np.isnan(values)]


@dataclass(frozen=True)
class ComparedRun:
    """``run`` is ``None`` where only summaries are known."""

    path: str
    outcome: Outcome
    run: Run | None = None
    rows: dict[str, pd.DataFrame] = field(default_factory=dict)  # of each level by its name, all phases

    samples: dict[Key, Sample | None] = field(default_factory=dict)

    @cached_property
    def levels(self) -> dict[Key, LevelRow]:
        """Each class of each level; all together where classes are not told, or there are several of them."""
        outcome = self.outcome
        if outcome.names:
            return {(one.name, None): one for one in map(_as_level, outcome.names)}
        found: dict[Key, LevelRow] = {(row.name, row.traffic): row for row in outcome.classes}
        if outcome.several_classes or not outcome.classes:
            found |= {(row.name, None): row for row in outcome.levels}
        return found

    def level_row(self, name: str) -> LevelRow | None:
        """All classes of a level together."""
        return next((row for row in self.outcome.levels if row.name == name), None)

    def sample(self, key: Key) -> Sample | None:
        """The requests of one class of one level; ``None`` where only summaries are known."""
        if key not in self.samples:
            rows = self.rows.get(key[0])
            if rows is not None and key[1] is not None:
                rows = rows[rows["traffic"] == key[1]]
            self.samples[key] = None if rows is None else Sample.of(rows)
        return self.samples[key]

    def moment_s(self, key: Key) -> float | None:
        """When the level was measured, unix time; ``None`` where no clock tells."""
        sample = self.sample(key)
        if sample is None or not len(sample.sent_s) or self.run is None or self.run.unix_minus_master_s is None:
            return self._created_s()
        return float(sample.sent_s.mean()) + self.run.unix_minus_master_s

    def _created_s(self) -> float | None:
        created = self.outcome.facts.get("created")
        try:
            return datetime.fromisoformat(str(created)).timestamp()
        except ValueError:
            return None


def _as_level(row: NameRow) -> LevelRow:
    """Of a locustfile that is not ours each name stands for a level."""
    label = f"{row.kind} {row.name}".strip()
    level = LevelRow(None, None, label=label, figures=row.figures)
    level.requests, level.failed, level.ok = row.requests, row.failed, row.requests - row.failed
    return level


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
    if path.is_file() and path.suffix.lower() in (".csv", ".tsv", ".md") and holds_published(path):
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
        one
        for name, one in names.items()
        if wanted in (name, one.facts["configuration"]) or (not wanted and len(parts) == 1)
    ]
    if len(found) == 1:
        return ComparedRun(f"{file}{PART}{wanted}" if wanted else file, found[0])
    listed = ", ".join(names)
    if not Path(file).exists():
        raise RunFolderError(f"{file}: nothing is there")
    raise InputError(f"{file}: wanted one configuration as {PART}NAME or {PART}TABLE/NAME, of {listed}")
