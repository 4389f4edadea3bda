"""Data sets of pictures in Parquet files: the layout of lmarena-ai/VisionArena-Chat, and others like it.

Rows are read one after the other, a few at a time, and only the two columns that are wanted. What Parquet calls a page
is the least that can be read, and many writers make the pictures of a whole row group one page: memory is then about
three times the pictures of one row group (30 to 50 MB where the ``datasets`` library wrote the file), never the file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from tokenswarm.errors import InputError
from tokenswarm.image_rows import Row, check_column
from tokenswarm.image_settings import ParquetImages

_BATCH = 16  # rows read at once
_KEPT = 8  # batches kept, for rows that are asked for out of order


class _Group(NamedTuple):
    """A row group: its file, its number there, and the number of its first row in the whole data set."""

    file: Path
    number: int
    first: int


class ImageTable:
    """The rows of one Parquet file, or of all in a folder in the order of their names."""

    def __init__(self, settings: ParquetImages) -> None:
        """Reads only the description of each file. Raises ``InputError`` where one is not as it should be."""
        path = Path(settings.file)
        self._images, self._text = settings.image_column, settings.text_column
        self._columns = [name for name in dict.fromkeys((self._images, self._text)) if name is not None]
        self._groups: list[_Group] = []
        self._count = 0
        for file in _files(path):
            self._add(file)
        if not self._count:
            raise InputError(f"{path}: has no rows; at least one is wanted")
        self._at = (-1, -1)  # group and number of the next batch
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._kept: OrderedDict[tuple[int, int], pa.RecordBatch] = OrderedDict()

    def _add(self, file: Path) -> None:
        try:
            description = pq.read_metadata(file)
            schema = description.schema.to_arrow_schema()
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{file}: not a Parquet file ({_first_line(error)})") from None
        _check_kind(file, schema, self._images, _holds_images, "pictures are wanted: bytes, {bytes, path} or lists")
        if self._text is not None:
            _check_kind(file, schema, self._text, _holds_text, "text or a list of messages is wanted")
        for index in range(description.num_row_groups):
            if description.row_group(index).num_rows:
                self._groups.append(_Group(file, index, self._count))
                self._count += description.row_group(index).num_rows

    @property
    def count(self) -> int:
        return self._count

    def row(self, number: int) -> Row:
        number %= self._count
        group = bisect_right(self._groups, number, key=lambda one: one.first) - 1
        file, _, first = self._groups[group]
        batch = self._batch(group, (number - first) // _BATCH)
        values = {name: batch.column(name)[(number - first) % _BATCH].as_py() for name in self._columns}
        text = None if self._text is None else values[self._text]
        return Row(values[self._images], text, f"{file}: row {number}", file.parent)

    def _batch(self, group: int, wanted: int) -> pa.RecordBatch:
        """Reads on to the batch, from the start of its group where it lies behind."""
        key = (group, wanted)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if self._at[0] != group or self._at[1] > wanted:
            self._open(group)
        while self._at[1] <= wanted:
            self._read_one()
        return self._kept[key]

    def _open(self, group: int) -> None:
        file, index, _ = self._groups[group]
        self._batches = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False).iter_batches(
            batch_size=_BATCH, row_groups=[index], columns=self._columns, use_threads=False
        )
        self._at = (group, 0)

    def _read_one(self) -> None:
        group, number = self._at
        try:
            self._kept[self._at] = next(self._batches)
        except (OSError, pa.ArrowException, StopIteration) as error:
            file, index, _ = self._groups[group]
            raise InputError(f"{file}: row group {index} cannot be read ({_first_line(error)})") from None
        self._at = (group, number + 1)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
            pa.default_memory_pool().release_unused()


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob("*.parquet"))
    if not files:
        raise InputError(f"{path}: holds no file whose name ends in .parquet; at least one is wanted")
    return files


def _check_kind(file: Path, schema: pa.Schema, name: str, fits: Callable[[pa.DataType], bool], wanted: str) -> None:
    check_column(file, name, schema.names)
    kind = schema.field(name).type
    if not fits(kind):
        raise InputError(f"{file}: column {name!r} holds {kind}; {wanted}")


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _holds_images(kind: pa.DataType) -> bool:
    if _is_list(kind):
        return _holds_images(kind.value_type)
    if types.is_struct(kind):
        return any(kind.field(index).name == "bytes" for index in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _holds_text(kind: pa.DataType) -> bool:
    if _is_list(kind) or types.is_dictionary(kind):
        return _holds_text(kind.value_type)
    if types.is_struct(kind):
        names = {kind.field(index).name for index in range(kind.num_fields)}
        return "user" in names or {"role", "content"} <= names or {"from", "value"} <= names
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
