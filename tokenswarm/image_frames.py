"""What a load process and the process that makes its pictures tell each other, over two pipes.

A frame is its length, four bytes with the smallest first, and a msgpack message. The first frame is the list of
sources; then every order is answered, in turn.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tokenswarm.images import ImageFacts
from tokenswarm.pictures import Order

HEAD = 4  # bytes

encode = msgspec.msgpack.Encoder().encode


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """The pictures of one session. ``source``: number of its class in the first frame."""

    ticket: int
    source: int
    orders: list[Order]


class Shown(msgspec.Struct, frozen=True, array_like=True):
    """A picture ready to be sent. ``url``: its data URL with the quotes around it, as it stands in JSON; base64 has
    nothing that JSON escapes. ``width``, ``height`` in pixels; ``file_bytes`` before base64."""

    url: bytes
    width: int
    height: int
    file_bytes: int
    origin: str

    @property
    def json(self) -> msgspec.Raw:
        """The data URL for a place in a message: JSON is made of it by copying, not by looking at every character."""
        return msgspec.Raw(self.url)


class Made(msgspec.Struct, frozen=True, array_like=True):
    """The answer to an order. ``made_s``: seconds from reading the order to here. ``skipped``: rows passed over.

    ``problem`` is a line for a person; then there are no pictures.
    """

    ticket: int
    pictures: list[Shown] = []
    questions: list[str] = []
    made_s: float = 0.0
    skipped: int = 0
    problem: str | None = None


class Checked(msgspec.Struct, frozen=True):
    """What a look at a source before a run found: facts, or lines about what is wrong."""

    facts: ImageFacts | None = None
    problems: list[str] = []


READY = -1  # the ticket of the maker's first frame


def frame(message: Any) -> bytes:
    content = encode(message)
    return len(content).to_bytes(HEAD, "little") + content
