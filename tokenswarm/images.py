"""Pictures to ask a model about: which ones a session has, and their files."""

from __future__ import annotations

import base64
from random import Random

import msgspec

from tokenswarm.image_settings import Images, SyntheticImages


class Picture(msgspec.Struct, frozen=True):
    """One encoded file. ``width`` and ``height`` in pixels; ``origin`` is ``synthetic``, a file's name or a row."""

    data: bytes
    media_type: str
    width: int
    height: int
    origin: str


class Order(msgspec.Struct, frozen=True, array_like=True):
    """What decides one picture: the number of the drawing and its sides in pixels, or the number of a file or row,
    which starts again from the first one where it is too large."""

    number: int
    width: int = 0
    height: int = 0


class Exhibit(msgspec.Struct, frozen=True):
    """What an order has become: pictures, at least one, and what the data set asks about them, if it does."""

    pictures: list[Picture]
    questions: list[str] = []


def data_url(picture: Picture) -> str:
    """The picture as ``data:image/jpeg;base64,...``."""
    return f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode('ascii')}"


class ImageSource:
    """The pictures of one class of traffic.

    Sizes are decided by the seed and the session alone; what drawings show differs from run to run too, because a
    server may still have the last run's pictures in its cache. Ordering is quick and touches no file; ``exhibit`` is
    work for another process.
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
        synthetic = self.images.synthetic
        rows = synthetic is None and self.images.folder is None
        first = None if ordinal is None else ordinal * (1 if rows else count)
        numbers = [rng.getrandbits(32) if first is None else first + index for index in range(1 if rows else count)]
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
        synthetic = self.images.synthetic
        assert synthetic is not None
        return Exhibit([drawing(order, synthetic)])

    def picture(self, rng: Random, ordinal: int | None) -> Picture:
        """The first picture of one session."""
        return self.exhibit(self.orders(rng, rng, ordinal)[0]).pictures[0]


def drawing(order: Order, synthetic: SyntheticImages) -> Picture:
    from tokenswarm.drawings import draw, encoded  # numpy and Pillow: not in a process that only orders

    data = encoded(draw(order.number, order.width, order.height), synthetic.format, synthetic.quality)
    return Picture(data, f"image/{synthetic.format}", order.width, order.height, "synthetic")
