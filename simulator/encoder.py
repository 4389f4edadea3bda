"""The engine's image encoder: what it costs a step, and the encoded images that are kept for later prompts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple


class PlacedImage(NamedTuple):
    """An image in a prompt: its tokens are ``start`` to ``stop``, its content has the hash ``key``."""

    start: int
    stop: int
    key: int


class Encoder:
    """Encodes an image in the step that computes the first of its tokens, before the model runs: the step, and with it
    every stream, waits. Up to ``cache_tokens`` encoded tokens are kept and the least recently used given up first; in
    vLLM the oldest that no running request refers to.
    """

    def __init__(self, image_s: float, token_s: float, cache_tokens: int) -> None:
        self._image_s, self._token_s = image_s, token_s
        self._capacity = cache_tokens
        self._kept: OrderedDict[int, int] = OrderedDict()
        self._used = 0
        self._due_s = 0.0
        self.encoded = 0  # images

    def begin(self, images: Sequence[PlacedImage], done: int, computed: int, end: int) -> int:
        """Tokens ``computed`` to ``end`` of a prompt come into the step in preparation; ``done`` of its images were
        dealt with before. Returns how many are now.
        """
        while done < len(images) and images[done].start < end:
            image = images[done]
            done += 1
            if image.stop > computed:
                self._encode(image.key, image.stop - image.start)
        return done

    def take_s(self) -> float:
        """Seconds of work since this was asked last."""
        due_s, self._due_s = self._due_s, 0.0
        return due_s

    def clear(self) -> None:
        """Keeps no encoded image any longer."""
        self._kept.clear()
        self._used = 0

    def _encode(self, key: int, tokens: int) -> None:
        if key in self._kept:
            self._kept.move_to_end(key)
            return
        self.encoded += 1
        self._due_s += self._image_s + self._token_s * tokens
        if tokens <= self._capacity:
            self._kept[key] = tokens
            self._used += tokens
            while self._used > self._capacity:
                self._used -= self._kept.popitem(last=False)[1]
