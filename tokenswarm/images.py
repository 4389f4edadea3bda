"""Which pictures the sessions of one class have: drawn ones, files of a folder, or rows of a data set."""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import TYPE_CHECKING

import msgspec

from tokenswarm.image_settings import Images, SyntheticImages
from tokenswarm.pictures import Exhibit, Order, Picture

if TYPE_CHECKING:  # numpy, Pillow and pyarrow are not loaded in a process that only orders
    from tokenswarm.image_files import ImageFolder
    from tokenswarm.image_rows import RowExhibits

_FILE_ROWS, _HUB_ROWS = 1000, 16  # looked at before a run; those of the hub are downloads


class ImageFacts(msgspec.Struct, frozen=True):
    """What was found out before a run. ``count``: of files or rows, None where pictures have no end."""

    count: int | None = None
    notes: list[str] = []


class ImageSource:
    """The pictures of one class of traffic.

    Sizes are decided by the seed and the session alone; what drawings show differs from run to run too, because a
    server may still have the last run's pictures in its cache. Ordering is quick and touches no file; ``exhibit`` and
    ``check`` are work for another process.
    """

    def __init__(self, images: Images, *, name: str, seed: int, run: str = "") -> None:
        """``name``: of the class, so that no other class has the same pictures."""
        self.images = images
        self._name = f"{seed}/{name}"
        self._run = run

    def orders(self, rng: Random, text_rng: Random, ordinal: int | None, count: int = 1) -> list[Order]:
        """The pictures of the session that is the ``ordinal``-th of its class in the run, from 0.

        ``rng`` decides sizes and ``text_rng`` contents. Without an ordinal a file or a repeated drawing is drawn by
        chance. A row of a data set brings all its pictures with one order, whatever ``count`` says.
        """
        synthetic = self.images.made_up
        per_session = count if self.images.columns is None else 1
        first = rng.getrandbits(32) if ordinal is None else ordinal * per_session
        numbers = range(first, first + per_session)
        if synthetic is None:
            return [Order(number) for number in numbers]
        return [self._drawing(synthetic, rng, text_rng, number) for number in numbers]

    def _drawing(self, synthetic: SyntheticImages, rng: Random, text_rng: Random, number: int) -> Order:
        if synthetic.distinct is not None:
            number %= synthetic.distinct
            rng = Random(f"{self._name}/{number}")
            text_rng = Random(f"{self._name}/{number}/{self._run}")
        width, height = synthetic.sides(rng)
        return Order(text_rng.getrandbits(64), width, height)

    def exhibit(self, order: Order) -> Exhibit:
        """Draws or reads what was ordered; takes milliseconds. Raises ``InputError`` where a file is unusable."""
        synthetic = self.images.made_up
        if synthetic is not None:
            return Exhibit([_drawn(order, synthetic)])
        return self._collection.exhibit(order.number)

    def picture(self, rng: Random, ordinal: int | None) -> Picture:
        """The first picture of one session."""
        return self.exhibit(self.orders(rng, rng, ordinal)[0]).pictures[0]

    def check(self) -> ImageFacts:
        """Looks at the pictures before a run; may take seconds. Raises ``InputError`` where none can be had, and
        ``ScenarioError`` with a line for each unusable file of a folder."""
        synthetic = self.images.made_up
        if synthetic is not None:
            return ImageFacts(synthetic.distinct)
        count, notes = self._collection.check()
        return ImageFacts(count, notes)

    @cached_property
    def _collection(self) -> ImageFolder | RowExhibits:
        from tokenswarm.image_files import ImageFolder
        from tokenswarm.image_rows import RowExhibits

        images = self.images
        if images.folder is not None:
            return ImageFolder(images.folder)
        if images.parquet is not None:
            from tokenswarm.image_table import ImageTable

            return RowExhibits(ImageTable(images.parquet), _FILE_ROWS)
        from tokenswarm.image_hub import HubRows

        assert images.hub is not None, "one source is named; the settings see to that"
        return RowExhibits(HubRows(images.hub), _HUB_ROWS)

    def shortage(self, facts: ImageFacts, sessions: int, count: int = 1) -> str | None:
        """One line where so many sessions of ``count`` pictures have some of them again."""
        rows = self.images.columns is not None
        if facts.count is None or sessions * (1 if rows else count) <= facts.count:
            return None
        have = f"{self._place} has {facts.count:,} {'rows' if rows else 'images'}"
        return f"{have} for {sessions:,} sessions: images repeat and may be served from an image cache"

    @property
    def _place(self) -> str:
        images = self.images
        if images.parquet is not None:
            return images.parquet.file
        if images.hub is not None:
            return images.hub.name
        return images.folder or "images: synthetic"


def _drawn(order: Order, synthetic: SyntheticImages) -> Picture:
    from tokenswarm.drawings import draw, encoded

    data = encoded(draw(order.number, order.width, order.height), synthetic.format, synthetic.quality)
    return Picture(data, f"image/{synthetic.format}", order.width, order.height, "synthetic")
