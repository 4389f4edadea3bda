"""Locust's ``--csv`` files of any version, read by column name into the rows they contain."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tokenswarm.errors import RunFolderError

_SUFFIXES = (
    "_stats.csv",
    "_stats_history.csv",
    "_failures.csv",
    "_exceptions.csv",
    "_requests.csv",
    "_distribution.csv",
)
_WANTED = "statistics that Locust wrote with --csv"

# Column names of Locust 0.8 to 0.14 beside today's.
_TODAY = {
    "Method": "Type",
    "# requests": "Request Count",
    "# failures": "Failure Count",
    "Median response time": "Median Response Time",
    "Average response time": "Average Response Time",
    "Min response time": "Min Response Time",
    "Max response time": "Max Response Time",
    "Requests Failed/s": "Failures/s",
    "99.999": "99.999%",
}


@dataclass(frozen=True)
class StatsRow:
    """One row of ``_stats.csv``; times in milliseconds as written, ``None`` where the file gives none."""

    kind: str
    name: str
    requests: int
    failures: int
    is_total: bool
    cells: dict[str, float]

    def ms(self, column: str) -> float | None:
        """A time; 0 with a smallest value above 0 is a rounded-off percentile and says nothing."""
        value = self.cells.get(column)
        rounded_off = value == 0 and self.cells.get("Min Response Time", 0.0) > 0
        return None if not self.requests or rounded_off else value

    def per_s(self, column: str) -> float | None:
        return self.cells.get(column)

    @property
    def total_ms(self) -> float | None:
        """Exact sum of all values."""
        mean = self.ms("Average Response Time")
        return None if mean is None else mean * self.requests


@dataclass(frozen=True)
class LocustFailure:
    """One row of ``_failures.csv``; the times (since Locust 2.44) as written."""

    kind: str
    name: str
    text: str
    count: int
    first_seen: str | None = None
    last_seen: str | None = None


@dataclass
class LocustFiles:
    """What lies beside one prefix."""

    path: Path
    rows: list[StatsRow]
    failures: list[LocustFailure] = field(default_factory=list)
    most_users: int | None = None
    exceptions: list[tuple[str, int]] = field(default_factory=list)  # of the locustfile itself: message, count


def is_locust_name(path: Path) -> bool:
    return path.name.endswith(_SUFFIXES)


def prefix_of(path: Path) -> str:
    """``out`` for ``out_stats.csv`` and the files beside it; the path itself when it has none of the suffixes."""
    for suffix in _SUFFIXES:
        if path.name.endswith(suffix):
            return str(path)[: -len(suffix)]
    return str(path)


def stats_file_of(prefix: str) -> Path | None:
    """The file with the counts: ``_stats.csv``, or ``_requests.csv`` of Locust before 0.13."""
    for suffix in ("_stats.csv", "_requests.csv"):
        path = Path(prefix + suffix)
        if path.is_file():
            return path
    return None


def read_locust(prefix: str, stats: Path | None = None) -> LocustFiles:
    """Raises ``RunFolderError`` with one line where there is no usable statistics file."""
    path = stats or stats_file_of(prefix)
    if path is None:
        raise RunFolderError(f"{prefix}_stats.csv: wanted {_WANTED}, but there is no such file")
    rows = list(_stats_rows(path))
    if not rows:
        raise RunFolderError(f"{path}: wanted {_WANTED}: it holds no requests, only the header")
    distribution = Path(prefix + "_distribution.csv")
    if path.name.endswith("_requests.csv") and distribution.is_file():
        rows = _with_percentiles(rows, distribution)
    return LocustFiles(
        path,
        rows,
        _failures(Path(prefix + "_failures.csv")),
        _users(Path(prefix + "_stats_history.csv")),
        _exceptions(Path(prefix + "_exceptions.csv")),
    )


def _stats_rows(path: Path) -> Iterator[StatsRow]:
    records = list(records_of(path, required=("Name", "Request Count")))
    total = max((i for i, record in enumerate(records) if _is_total(record)), default=None)
    for i, record in enumerate(records):
        count = number_of(record.get("Request Count"))
        if count is None:
            raise RunFolderError(f"{path}: wanted {_WANTED}: Request Count is {record.get('Request Count')!r}")
        yield StatsRow(
            kind="" if i == total else record.get("Type", ""),
            name="Aggregated" if i == total else record["Name"],
            requests=int(count),
            failures=int(number_of(record.get("Failure Count")) or 0),
            is_total=i == total,
            cells={name: value for name, cell in record.items() if (value := number_of(cell)) is not None},
        )


def _is_total(record: dict[str, str]) -> bool:
    """A request may be called Aggregated too; the total has no method, or (edited files) its own name as one."""
    return record["Name"] in ("Aggregated", "Total") and record.get("Type", "") in ("", "None", "Aggregated", "Total")


def _with_percentiles(rows: list[StatsRow], path: Path) -> list[StatsRow]:
    """Locust before 0.13 wrote percentiles to a second file, where method and name are one column."""
    found = {record["Name"]: record for record in records_of(path, required=("Name",))}
    for row in rows:
        record = found.get(f"{row.kind} {row.name}") or (
            found.get("Aggregated") or found.get("Total") if row.is_total else None
        )
        for name, cell in (record or {}).items():
            if name.endswith("%") and (value := number_of(cell)) is not None:
                row.cells[name] = value
    return rows


def _failures(path: Path) -> list[LocustFailure]:
    if not path.is_file() or path.stat().st_size == 0:
        return []
    return [
        LocustFailure(
            record.get("Type", ""),
            record["Name"],
            record["Error"],
            int(number_of(record["Occurrences"]) or 0),
            record.get("First Seen") or None,
            record.get("Last Seen") or None,
        )
        for record in records_of(path, required=("Name", "Error", "Occurrences"))
    ]


def _exceptions(path: Path) -> list[tuple[str, int]]:
    if not path.is_file() or path.stat().st_size == 0:
        return []
    return [
        (record["Message"], int(number_of(record["Count"]) or 0))
        for record in records_of(path, required=("Count", "Message"))
    ]


def _users(path: Path) -> int | None:
    """Largest user count of the history; ``None`` where the version wrote none."""
    if not path.is_file() or path.stat().st_size == 0:
        return None
    counts = [number_of(record.get("User Count")) for record in records_of(path, required=("Name",))]
    return max((int(count) for count in counts if count is not None), default=None)


def records_of(path: Path, required: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Rows by today's column names; a last row that was cut off is left out where it lacks cells."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [_TODAY.get(name.strip(), name.strip()) for name in next(reader, [])]
            if not any(header):
                raise RunFolderError(f"{path}: wanted {_WANTED}, but it is empty")
            missing = [name for name in required if name not in header]
            if missing:
                raise RunFolderError(f"{path}: wanted {_WANTED}, but it has no column {', '.join(missing)}")
            for cells in reader:
                if len(cells) == len(header):
                    yield dict(zip(header, cells, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is no CSV text"
        raise RunFolderError(f"{path}: wanted {_WANTED}: {reason}") from problem


def number_of(cell: str | None) -> float | None:
    """``None`` for blank, ``N/A`` and anything else that is no finite number."""
    try:
        value = float(cell) if cell else None
    except ValueError:
        return None
    return value if value is not None and abs(value) != float("inf") and value == value else None
