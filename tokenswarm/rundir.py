"""The run folder: the contract between a load run and its analysis. Format version 1.

======================  =================================================================================
``run.json``            what was asked: scenario, target, versions, planned levels. Written once, at the start
``workers.csv``         each process' (wall, monotonic) clock pair and its offsets to the master's clocks
``requests.csv``        one row a request, see ``records``
``late.csv``            rows of workers that had been given up, which no table counts; only where there are some
``levels.csv``          one row a level, appended when the level ends
``timeline.csv``        per second, class and phase; rows with equal keys are increments to be added
``chunk_gaps.csv``      histogram of the gaps between token events; increments likewise
``engine.csv``          what the engines said of themselves, see ``engine_metrics``; level edges and between
``health.csv``          how each load-generating process fared, a row a second, see ``health``
``search.json``         what a search for the highest load tried and found; only where there was one
``end.json``            how the run ended. Its absence means that the run was interrupted
``locust_*.csv``        Locust's own statistics
======================  =================================================================================

Files are appended and flushed as the run goes, and nothing is ever overwritten.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from tokenswarm import engine_metrics, health, records
from tokenswarm.errors import RunFolderError

FORMAT = 1

HEADERS: dict[str, tuple[str, ...]] = {
    "requests": records.COLUMNS,
    "late": records.COLUMNS,
    "workers": ("worker", "wall_s", "monotonic_s", "offset_s", "wall_offset_s", "round_trip_s"),
    "levels": (
        "level",
        "concurrency",
        "state",
        "reason",
        "started_s",
        "measured_started_s",
        "measured_ended_s",
        "ended_s",
        "planned_sessions",
        "measured_sessions",
        "arms",
        "rate_per_s",
        "scheduled",
        "not_admitted",
        "lost",
        "epoch",
        "label",
    ),
    "timeline": (
        "worker",
        "level",
        "traffic",
        "phase",
        "second",
        "tokens",
        "started",
        "finished",
        "failed",
        "in_flight_s",
    ),
    "chunk_gaps": ("level", "traffic", "phase", "bucket", "count"),
    "engine": engine_metrics.COLUMNS,
    "health": health.COLUMNS,
}


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """CSV text; blank for ``None``, floats with microseconds."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    for row in rows:
        write([f"{cell:.6f}" if isinstance(cell, float) else cell for cell in row])
    return out.getvalue()


def require_results_folder(results: Path) -> None:
    """Make the folder for run folders, so that one that cannot be written is told before any load."""
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{results}: cannot be created: {error.strerror}") from error
    if not os.access(results, os.W_OK | os.X_OK):
        raise RunFolderError(f"{results}: is not writable; name another folder with --results")


class RunFolder:
    """Appends to the files of one run.

    ``on_failure`` is told once, in one line, when a file cannot be written any more (a full disk); nothing more is
    added to such a file. Without it that raises ``RunFolderError``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on_failure: Callable[[str], None] | None = None
        self._open: dict[str, TextIO] = {}
        self._failed: set[str] = set()

    @classmethod
    def create(cls, results: Path, name: str) -> RunFolder:
        """Make ``results/<UTC time>-<name>``; a number is added where that exists.

        Raises ``RunFolderError`` when it cannot be written, before any load starts.
        """
        stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}"
        for attempt in range(1, 1000):
            path = results / (stem if attempt == 1 else f"{stem}-{attempt}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise RunFolderError(f"{path}: cannot be created: {error.strerror}") from error
            folder = cls(path)
            for file in HEADERS:
                if file != "late":  # there is one only where there is something in it
                    folder._begin(file)
            return folder
        raise RunFolderError(f"{results}: a thousand runs named {stem}")

    def _file(self, name: str) -> TextIO:
        handle = self._open.get(name)
        if handle is None:
            handle = self._open[name] = open(self.path / f"{name}.csv", "a", encoding="utf-8", newline="")  # noqa: SIM115
            if handle.tell() == 0:
                handle.write(",".join(HEADERS[name]) + "\n")
                handle.flush()
        return handle

    def append(self, file: str, text: str) -> None:
        """Add whole CSV lines to ``file`` and hand them to the operating system at once."""
        if not text or file in self._failed:
            return
        try:
            handle = self._file(file)
            handle.write(text)
            handle.flush()
        except OSError as error:
            self._fail(file, error)

    def _begin(self, file: str) -> None:
        try:
            self._file(file)
        except OSError as error:
            self._fail(file, error)

    def _fail(self, file: str, error: OSError) -> None:
        line = f"{self.path / file}.csv: cannot be written: {error.strerror}"
        told = bool(self._failed)
        self._failed.add(file)
        if self.on_failure is None:
            raise RunFolderError(line) from error
        if not told:
            self.on_failure(line)

    def append_row(self, file: str, row: Mapping[str, Any]) -> None:
        self.append(file, csv_lines([[row.get(column) for column in HEADERS[file]]]))

    def write_once(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file that must not exist yet; it appears whole or not at all."""
        target = self.path / name
        if target.exists():
            raise RunFolderError(f"{target}: exists already and is never overwritten")
        part = target.with_suffix(".part")
        try:
            part.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            os.replace(part, target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise RunFolderError(f"{target}: cannot be written: {error.strerror}") from error

    def close(self) -> None:
        for file, handle in self._open.items():
            with suppress(OSError) if file in self._failed else nullcontext():
                handle.close()
        self._open.clear()
