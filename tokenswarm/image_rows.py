"""Rows of data sets: pictures in one column, and what a user asked about them in another.

Columns may have any of the forms that public data sets have. Pictures: the bytes of a file, or a struct ``{bytes,
path}`` as the Hugging Face hub stores them, or a list of either. Questions: text, a list of messages ``{role,
content}`` or ``{from, value}`` or ``{user, assistant}``, or a list of such lists, one for each turn, as
lmarena-ai/VisionArena-Chat has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tokenswarm.errors import InputError
from tokenswarm.image_files import picture_of
from tokenswarm.pictures import Exhibit, Picture
from tokenswarm.wanted import did_you_mean

_USERS = ("user", "human")
_TURNS = (("role", "content"), ("from", "value"))


_MOST_NAMED = 20  # columns in one line
_MOST_SKIPPED = 100  # rows in a row without a usable picture


class Row(NamedTuple):
    """One row as it is stored. ``place`` names it in errors; ``folder`` is where files are that it only names."""

    images: Any
    text: Any
    place: str
    folder: Path


class Rows(Protocol):
    """A data set that is read row by row, best in order."""

    @property
    def count(self) -> int | None:
        """How many rows there are; None where that is not known."""

    def row(self, number: int) -> Row:
        """Row ``number``; after the last one comes the first again. Raises ``InputError`` where it cannot be read."""


class RowExhibits:
    """What the rows of a data set show and ask."""

    def __init__(self, rows: Rows, looked_at: int) -> None:
        """``looked_at``: how many rows are decoded before a run."""
        self._rows = rows
        self._looked_at = looked_at

    def check(self) -> tuple[int | None, list[str]]:
        """How many rows there are, and what is to be said of the first ones.

        Raises ``InputError`` where none of these has a usable picture.
        """
        looked_at = min(self._looked_at, self._rows.count or self._looked_at)
        problems = []
        for number in range(looked_at):
            try:
                _exhibit(self._rows.row(number), decode=True)
            except InputError as error:
                problems.append(str(error))
        if len(problems) == looked_at:
            raise InputError(problems[0])
        if not problems:
            return self._rows.count, []
        rows = f"{len(problems)} of the first {looked_at:,} rows have no usable picture and are passed over"
        return self._rows.count, [f"{rows}; {problems[0]}"]

    def exhibit(self, number: int) -> Exhibit:
        """Row ``number``, or the next one with a usable picture. Raises ``InputError`` where the next 100 have none."""
        problem = None
        for skipped in range(_MOST_SKIPPED):
            try:
                return _exhibit(self._rows.row(number + skipped), skipped=skipped)
            except InputError as error:
                problem = problem or error
        raise problem or InputError("no rows")


def _exhibit(row: Row, *, decode: bool = False, skipped: int = 0) -> Exhibit:
    pictures = [_picture(value, row, decode) for value in _values(row.images)]
    if not pictures:
        raise InputError(f"{row.place}: has no picture; at least one is wanted")
    return Exhibit(pictures, list(questions(row.text)), skipped)


def check_column(place: Path | str, name: str, columns: Sequence[str]) -> None:
    """Raises ``InputError`` where ``columns`` have no such name."""
    if name not in columns:
        shown = ", ".join(columns[:_MOST_NAMED]) + (", …" if len(columns) > _MOST_NAMED else "")
        raise InputError(f"{place}: has no column {name!r}; one of {shown} is wanted{did_you_mean(name, columns)}")


def _values(images: Any) -> list[Any]:
    values = images if isinstance(images, list) else [images]
    return [value for value in values if value is not None]


def _picture(value: Any, row: Row, decode: bool) -> Picture:
    data = value.get("bytes") if isinstance(value, dict) else value
    name = value.get("path") if isinstance(value, dict) else None
    if not data and name:
        try:
            data = (row.folder / name).read_bytes()
        except OSError as error:
            raise InputError(f"{row.place}: {row.folder / name}: cannot be read ({error.strerror})") from None
    if not isinstance(data, bytes) or not data:
        raise InputError(f"{row.place}: a picture without bytes; the bytes of an image file are wanted")
    return picture_of(data, row.place, decode=decode)


def questions(value: Any) -> Iterator[str]:
    """What the user said, in order; nothing where there is no text."""
    match value:
        case str(text):
            if text.strip():
                yield text
        case list():
            for item in value:
                yield from _said(item) if isinstance(item, dict) else questions(item)


def _said(message: dict[str, Any]) -> Iterator[str]:
    if "user" in message:
        yield from questions(message["user"])
    for role, content in _TURNS:
        if message.get(role) in _USERS:
            yield from questions(message.get(content))
    if message.get("type") == "text":  # a part of a message whose other parts are pictures
        yield from questions(message.get("text"))
