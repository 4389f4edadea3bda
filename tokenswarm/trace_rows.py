"""The lines and columns of a trace file, and what is said of one that cannot be used."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from tokenswarm.errors import InputError

_BOM = b"\xef\xbb\xbf"
_LONGEST_LINE = 64_000_000  # bytes
_SHOWN = 60  # characters of a value


def bad_row(path: str | Path, line: int, problem: str) -> InputError:
    """``FILE:LINE: problem``."""
    return InputError(f"{path}:{line}: {problem}")


def shown(value: str) -> str:
    """A value in the space that one line has for it."""
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(value.split()))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def lines_of(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Line numbers from 1 and lines, empty ones left out. Raises ``InputError`` where the file cannot be read."""
    try:
        with open(path, "rb") as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                text = (line.removeprefix(_BOM) if number == 1 else line).strip()
                if text:
                    yield number, text
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


class Table:
    """A CSV file with a header: ``rows`` gives the line number and the cells of ``wanted`` and ``optional`` columns.

    Cells of columns that the file lacks, or that are missing at the end of a row, are empty.
    """

    def __init__(self, path: str | Path, wanted: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
        self._path = path
        self._wanted = wanted
        self._optional = optional

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Raises ``InputError`` where a wanted column is missing or the file is no text."""
        reader = csv.reader(self._text())
        try:
            places = self._places(next(reader, []), reader.line_num)
            for row in reader:
                if row:
                    yield reader.line_num, [row[at] if at is not None and at < len(row) else "" for at in places]
        except (csv.Error, UnicodeDecodeError) as error:
            raise bad_row(self._path, reader.line_num + 1, f"no CSV text: {error}") from error

    def _text(self) -> Iterator[str]:
        try:
            with open(self._path, encoding="utf-8-sig", newline="") as file:
                yield from file
        except OSError as error:
            raise InputError(f"{self._path}: cannot be read: {error.strerror}") from error

    def _places(self, header: list[str], line: int) -> list[int | None]:
        names = {name.strip(): at for at, name in enumerate(header)}
        missing = [name for name in self._wanted if name not in names]
        if missing:
            raise bad_row(
                self._path, max(1, line), f"no column {missing[0]!r}; wanted is a header with {', '.join(self._wanted)}"
            )
        return [names.get(name) for name in (*self._wanted, *self._optional)]
