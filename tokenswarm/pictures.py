"""A picture as it is sent, and the order from which it is made."""

from __future__ import annotations

import base64

import msgspec


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
    skipped: int = 0  # rows passed over because they have no usable picture


def data_url(picture: Picture) -> str:
    """The picture as ``data:image/jpeg;base64,...``."""
    return f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode('ascii')}"
