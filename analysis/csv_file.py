"""Reads one CSV file that may be empty, foreign, cut off in its last line, or still being written."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from tokenswarm.errors import RunFolderError

_CHUNK = 1 << 20
LARGEST = 1e15  # no second, byte or token of a run has such a number, and floats still tell neighbours apart


@dataclass
class CsvFile:
    """``frame`` holds the asked columns that exist; ``notes`` say what was left out, one line each."""

    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)


def header_of(path: Path) -> list[str]:
    """Column names of the first line, without byte order mark; a clear error where there is no such line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise RunFolderError(f"{path}: wanted a CSV file: {_reason(problem)}") from problem
    if not names:
        raise RunFolderError(f"{path}: wanted a CSV file with a header line, but it is empty")
    return [name.strip() for name in names]


def read_csv(path: Path, kinds: Mapping[str, str], *, required: tuple[str, ...], wanted: str) -> CsvFile:
    """Columns named in ``kinds`` (name to pandas dtype) that the file has; ``wanted`` says what the file should be.

    A last line without its line end was cut while it was written: it is dropped and said.
    """
    names = header_of(path)
    missing = [name for name in required if name not in names]
    if missing:
        raise RunFolderError(f"{path}: wanted {wanted}, but it has no column {', '.join(missing)}")
    twice = [name for name in kinds if names.count(name) > 1]
    if twice:
        raise RunFolderError(f"{path}: wanted {wanted}, but it has more than one column {', '.join(twice)}")
    used = {name: kind for name, kind in kinds.items() if name in names}
    notes: list[str] = []
    keep = _complete_bytes(path)
    source: Path | io.BytesIO = path
    if keep is not None:
        notes.append(f"{path.name}: the last line is cut off and was left out")
        source = io.BytesIO(path.read_bytes()[:keep])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pd.errors.ParserWarning)
        frame = _parse(path, source, names, used, wanted)
    if any(issubclass(w.category, pd.errors.ParserWarning) for w in caught):
        notes.append(f"{path.name}: lines with too many fields were left out")
    return CsvFile(frame, notes)


def _parse(
    path: Path, source: Path | io.BytesIO, names: list[str], used: Mapping[str, str], wanted: str
) -> pd.DataFrame:
    try:
        frame = pd.read_csv(
            source,
            names=names,
            header=0,
            usecols=list(used),
            dtype=dict(used),
            encoding="utf-8-sig",
            encoding_errors="replace",
            keep_default_na=False,
            na_values=[""],
            on_bad_lines="warn",
            index_col=False,
        )
    except (ValueError, pd.errors.ParserError, OSError) as problem:
        raise RunFolderError(f"{path}: wanted {wanted}: {_parse_reason(problem, names)}") from problem
    for name in frame.columns[frame.dtypes == "float64"]:
        beyond = frame[name].abs() >= LARGEST
        if beyond.any():
            value = frame[name].to_numpy()[int(np.argmax(beyond))]
            raise RunFolderError(f"{path}: wanted {wanted}: column {name} has {value:g}, wanted less than {LARGEST:g}")
    return frame


def _parse_reason(problem: Exception, names: list[str]) -> str:
    """As ``_reason``, with the name of the column for which the library has a number only."""
    column = re.search(r"^cannot safely convert .* in column (\d+)", _reason(problem))
    if column is None or int(column[1]) >= len(names):
        return _reason(problem)
    return f"column {names[int(column[1])]} has text, wanted numbers"


def _complete_bytes(path: Path) -> int | None:
    """Length up to the end of the last complete record; ``None`` where the file ends with one.

    An odd number of quotes means that the cut fell inside a quoted text, which may itself contain line ends.
    """
    quotes, last = 0, b"\n"
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            quotes += chunk.count(b'"')
            last = chunk[-1:]
    if last == b"\n" and quotes % 2 == 0:
        return None
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    while end and data.count(b'"', 0, end) % 2:
        end = data.rfind(b"\n", 0, end - 1) + 1
    return end


def _reason(problem: Exception) -> str:
    """First line of the library's message: the rest is for programmers."""
    if isinstance(problem, UnicodeDecodeError):
        return "it is no text"
    if isinstance(problem, OSError):
        return problem.strerror or str(problem)
    return str(problem).strip().splitlines()[0]
