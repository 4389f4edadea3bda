"""The run folder, format 1, as ``tokenswarm.rundir`` writes it: everything beside ``requests.csv``.

Every file but ``run.json`` may be missing or cut off: an interrupted run is read as far as it got.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.csv_file import CsvFile, header_of, read_csv
from analysis.json_file import read_object
from analysis.requests_csv import read_requests
from tokenswarm.errors import RunFolderError

FORMAT = 1

_WORKERS = {"worker": "str", "wall_s": "float64", "monotonic_s": "float64", "offset_s": "float64"}
_LEVELS = {
    "level": "float64",
    "concurrency": "float64",
    "state": "str",
    "reason": "str",
    "started_s": "float64",
    "measured_started_s": "float64",
    "measured_ended_s": "float64",
    "ended_s": "float64",
    "planned_sessions": "float64",
    "measured_sessions": "float64",
    "arms": "str",
    "rate_per_s": "float64",
    "scheduled": "float64",
    "not_admitted": "float64",
    "lost": "float64",
    "epoch": "float64",
    "label": "str",
}
_LATER = ("arms", "rate_per_s", "scheduled", "not_admitted", "lost", "epoch", "label")  # columns that earlier runs lack
_TIMELINE = {
    "worker": "category",
    "level": "float64",
    "traffic": "category",
    "phase": "category",
    "second": "float64",
    "tokens": "float64",
    "started": "float64",
    "finished": "float64",
    "failed": "float64",
    "in_flight_s": "float64",
}
# Samples of the engine: the columns that name one are there in any case, all others are numbers.
_ENGINE = {"time_s": "float64", "level": "float64", "edge": "str", "engine": "str"}
# How the processes that made the load fared; earlier runs lack the file.
_HEALTH = {"worker": "str", "level": "float64", "loop_lags": "str"} | dict.fromkeys(
    ("begin_s", "length_s", "cpu_share", "loop_lag_max_s", "events", "rss_bytes", "backlog_bytes", "held_s"), "float64"
)
_GAPS = {"level": "float64", "traffic": "category", "phase": "category", "bucket": "float64", "count": "float64"}


@dataclass
class Run:
    """One run as read. Frames of missing files are empty; ``facts`` and ``end`` are the JSON files."""

    path: Path
    facts: dict[str, Any]
    end: dict[str, Any] | None
    requests: pd.DataFrame
    levels: pd.DataFrame
    timeline: pd.DataFrame
    chunk_gaps: pd.DataFrame
    engine: pd.DataFrame
    health: pd.DataFrame
    unix_minus_master_s: float | None = None  # add to a time on the master's axis to get unix time
    search: dict[str, Any] = field(default_factory=dict)  # search.json; empty where nothing was searched to its end
    whole_folder: bool = True  # False: only a requests.csv was given
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Of the scenario; for a lone requests.csv that of the folder around it."""
        return str(self.facts.get("name") or self.path.resolve().parent.name)

    @property
    def simulated(self) -> bool:
        return bool(self.target.get("simulated"))

    @property
    def target(self) -> dict[str, Any]:
        return _mapping(self.facts.get("target"))

    @property
    def scenario(self) -> dict[str, Any]:
        return _mapping(self.facts.get("scenario"))

    @property
    def planned_levels(self) -> list[dict[str, Any]]:
        planned = self.facts.get("levels")
        return [level for level in planned if isinstance(level, dict)] if isinstance(planned, list) else []

    @property
    def cache_probe(self) -> dict[str, Any]:
        """What was found out about the prefix cache before the load; empty where nothing was asked."""
        return _mapping(self.facts.get("cache_probe"))

    @property
    def isolation(self) -> dict[str, Any]:
        """How the arms of a prefix-cache test were kept apart; empty outside one."""
        return _mapping(self.facts.get("isolation"))

    @property
    def traffic_classes(self) -> dict[str, dict[str, Any]]:
        """Traffic classes of the scenario by name."""
        classes = self.scenario.get("traffic")
        if not isinstance(classes, list):
            return {}
        return {str(item.get("name")): item for item in classes if isinstance(item, dict)}


def read_run(folder: Path) -> Run:
    """The run in ``folder``; raises ``RunFolderError`` with one line where it cannot be one."""
    facts = read_object(folder / "run.json", "the run.json of a run")
    if facts.get("format") != FORMAT:
        raise RunFolderError(f"{folder / 'run.json'}: wanted format {FORMAT}, found {facts.get('format')!r}")
    end_path = folder / "end.json"
    notes: list[str] = []

    def table(name: str, kinds: dict[str, str]) -> pd.DataFrame:
        file = _optional(folder / name, kinds, numbers=kinds is _ENGINE)
        notes.extend(file.notes)
        return file.frame

    workers = table("workers.csv", _WORKERS)
    pairs = zip(workers["worker"], workers["offset_s"].fillna(0.0), strict=True)
    offsets = {str(worker): float(offset) for worker, offset in pairs}
    requests = read_requests(folder / "requests.csv", offsets)
    notes.extend(requests.notes)
    return Run(
        path=folder,
        facts=facts,
        end=_end_of(end_path, notes),
        search=_search_of(folder / "search.json", notes),
        requests=requests.frame,
        levels=table("levels.csv", _LEVELS),
        timeline=table("timeline.csv", _TIMELINE),
        chunk_gaps=table("chunk_gaps.csv", _GAPS),
        engine=table("engine.csv", _ENGINE),
        health=_on_master_axis(table("health.csv", _HEALTH), offsets),
        unix_minus_master_s=_unix_minus_master(workers),
        notes=notes,
    )


def run_of_requests(path: Path) -> Run:
    """A lone ``requests.csv``: no plan, no level states, no timeline."""
    file = read_requests(path)
    return Run(
        path=path,
        facts={},
        end=None,
        requests=file.frame,
        levels=_empty(_LEVELS),
        timeline=_empty(_TIMELINE),
        chunk_gaps=_empty(_GAPS),
        engine=_empty(_ENGINE),
        health=_empty(_HEALTH),
        whole_folder=False,
        notes=file.notes,
    )


def _optional(path: Path, kinds: dict[str, str], *, numbers: bool = False) -> CsvFile:
    """The file, or an empty table where it is missing or was not begun. ``numbers``: any further columns hold some."""
    if not path.exists() or path.stat().st_size == 0:
        return CsvFile(_empty(kinds))
    further = {name: "float64" for name in header_of(path) if name not in kinds} if numbers else {}
    required = tuple(name for name in kinds if name not in _LATER)
    file = read_csv(path, kinds | further, required=required, wanted=f"the {path.name} of a run")
    for name in kinds:
        if name not in file.frame:
            file.frame[name] = pd.Series(index=file.frame.index, dtype=kinds[name])
    return file


def _on_master_axis(health: pd.DataFrame, offsets: dict[str, float]) -> pd.DataFrame:
    return health.assign(begin_s=health["begin_s"] + health["worker"].map(offsets).fillna(0.0).astype("float64"))


def _empty(kinds: dict[str, str]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})


def _end_of(path: Path, notes: list[str]) -> dict[str, Any] | None:
    """``end.json``; a half-written one counts as none, because it was being written when the run died."""
    if not path.exists():
        return None
    try:
        return read_object(path, "a file of a run")
    except RunFolderError as problem:
        notes.append(f"{problem}; the run counts as interrupted")
        return None


def _search_of(path: Path, notes: list[str]) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return read_object(path, "a file of a run")
    except RunFolderError as problem:
        notes.append(f"{problem}; why the search ended is unknown")
        return {}


def _unix_minus_master(workers: pd.DataFrame) -> float | None:
    """From the wall clock pair of the process without offset (the master), else of the first one."""
    known = workers.dropna(subset=["wall_s", "monotonic_s"])
    if known.empty:
        return None
    master = known[known.offset_s.fillna(0.0) == 0.0]
    row = (master if len(master) else known).iloc[0]
    offset = 0.0 if pd.isna(row.offset_s) else float(row.offset_s)
    return float(row.wall_s) - float(row.monotonic_s) - offset


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
