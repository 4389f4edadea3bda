"""How a model takes images: how many tokens one becomes, and what its encoder costs."""

from __future__ import annotations

import math

import msgspec

_BYTES_A_PATCH_PIXEL = 3 * 2 * 2  # colours, frames of a still image (it is doubled), bytes of bfloat16
_WIDEST = 200  # most of the longer side over the shorter one


class Vision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a preset about images. The defaults are Qwen2-VL's; Qwen3-VL has patches of 16 pixels."""

    patch: int = 14  # pixels along the side of a patch
    merge: int = 2  # patches along the side of a token
    min_pixels: int = 3_136  # smaller images are enlarged
    max_pixels: int = 1_003_520  # larger ones are made smaller
    limit: int = 999  # most images of one prompt
    encoder_image_s: float = 0.0  # added to a step for each image encoded in it
    encoder_token_s: float = 0.0  # and for each of its tokens
    encoder_cache_tokens: int | None = None  # of encoded images that are kept; None: the most prompt tokens of a step
    mm_cache_gib: float = 4.0  # of preprocessed images that are kept

    def __post_init__(self) -> None:
        sizes = (self.patch, self.merge, self.min_pixels, self.limit)
        if min(sizes) < 1 or self.max_pixels < self.min_pixels:
            raise ValueError("vision needs patch, merge, min_pixels and limit from 1 on, and max_pixels >= min_pixels")
        if min(self.encoder_image_s, self.encoder_token_s, self.mm_cache_gib, self.encoder_cache_tokens or 0) < 0:
            raise ValueError("times and sizes of vision must not be negative")

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """Width and height in pixels that the model sees: whole tokens along both sides, about the same shape, the
        area between the limits. ``ValueError`` for an image that is too long for its breadth.
        """
        if max(width, height) > _WIDEST * min(width, height):
            share = max(width, height) / min(width, height)
            raise ValueError(f"absolute aspect ratio must be smaller than {_WIDEST}, got {share}")
        side = self.patch * self.merge
        wide, high = round(width / side) * side, round(height / side) * side
        if wide * high > self.max_pixels:
            scale = math.sqrt(width * height / self.max_pixels)
            wide, high = (max(side, math.floor(length / scale / side) * side) for length in (width, height))
        elif wide * high < self.min_pixels:
            scale = math.sqrt(self.min_pixels / (width * height))
            wide, high = (math.ceil(length * scale / side) * side for length in (width, height))
        return wide, high

    def tokens(self, width: int, height: int) -> int:
        """Tokens of an image of so many pixels, without the two that enclose it."""
        wide, high = self.resized(width, height)
        return wide * high // (self.patch * self.merge) ** 2

    def cached_bytes(self, tokens: int) -> int:
        """Bytes of an image's patches, which are what the multimodal cache keeps."""
        return tokens * (self.patch * self.merge) ** 2 * _BYTES_A_PATCH_PIXEL
