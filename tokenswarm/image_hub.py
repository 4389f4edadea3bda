"""Data sets of pictures straight from the Hugging Face hub, row by row, through the package ``datasets``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenswarm.errors import InputError
from tokenswarm.image_rows import Row, check_column
from tokenswarm.image_settings import HubImages

_KEPT = 64  # rows kept, for those that are asked for out of order


class HubRows:
    """The rows of one split, in their order. What lies behind is downloaded again, from the start."""

    def __init__(self, settings: HubImages) -> None:
        """Asks the hub. Raises ``InputError`` where ``datasets`` is missing or the data set cannot be had."""
        try:
            import datasets
        except ImportError:
            raise InputError(
                "images.hub needs the package datasets: pip install datasets, or download the Parquet files and name "
                "them with images.parquet"
            ) from None
        self._place = f"{settings.name} ({settings.split})"
        self._images, self._text = settings.image_column, settings.text_column
        try:
            rows = datasets.load_dataset(settings.name, split=settings.split, streaming=True)
            self._data: Any = rows.decode(False)  # the files as they are, not decoded pictures
            names = list(rows.features or next(iter(self._data)))
        except (OSError, ValueError, StopIteration) as error:
            raise InputError(f"{self._place}: cannot be loaded ({str(error) or 'it has no rows'})") from None
        for column in (self._images, self._text):
            if column is not None:
                check_column(self._place, column, names)
        split = (rows.info.splits or {}).get(settings.split)
        self._count: int | None = (split.num_examples or None) if split else None
        self._restart()

    @property
    def count(self) -> int | None:
        return self._count

    def row(self, number: int) -> Row:
        while True:
            number = number % self._count if self._count else number
            if number in self._kept:
                found = self._kept[number]
                text = None if self._text is None else found[self._text]
                return Row(found[self._images], text, f"{self._place}: row {number}", Path())
            if number < self._next:
                self._restart()
            self._read_one()

    def _restart(self) -> None:
        self._next = 0
        self._coming: Iterator[dict[str, Any]] = iter(self._data)
        self._kept: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def _read_one(self) -> None:
        """The next row; at the end it is known how many there are."""
        try:
            self._kept[self._next] = next(self._coming)
        except StopIteration:
            self._count = self._next
            return
        except (OSError, ValueError) as error:
            raise InputError(f"{self._place}: row {self._next}: cannot be loaded ({error})") from None
        self._next += 1
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
