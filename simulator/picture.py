"""What the simulated model needs of an image: how many tokens it has, and whether it is the same one as another."""

from __future__ import annotations

import msgspec


class Picture(msgspec.Struct, frozen=True):
    """``key`` is a hash of the decoded pixels: the same picture in another file is the same picture."""

    key: int
    width: int
    height: int
    tokens: int

    @property
    def token(self) -> int:
        """The id that stands for each of its tokens in a prompt. It is negative and made of the content, so that blocks
        of other pictures have other hashes.
        """
        return -1 - self.key


class Outcome(msgspec.Struct, omit_defaults=True):
    """What became of decoding one: a picture, or the fields of the ``ApiError`` that the request is answered with."""

    picture: Picture | None = None
    status: int = 400
    message: str = ""
    kind: str = "BadRequestError"
