"""The multimodal cache: which images the server has preprocessed before, the least recently used given up first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

_GIB = 1 << 30


class MultimodalCache:
    """Images by the hash of their content, up to ``capacity_gib``; counts items asked for and items found."""

    def __init__(self, capacity_gib: float) -> None:
        self._capacity = int(capacity_gib * _GIB)
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._used = 0
        self.queries = 0
        self.hits = 0

    def look_up(self, images: Iterable[tuple[int, int]]) -> int:
        """Asks for all ``(hash, bytes)`` of one prompt, then keeps them; how many were there. An image that stands in
        the prompt twice is found twice or not at all, as in vLLM.
        """
        wanted = list(images)
        found = sum(key in self._sizes for key, _ in wanted)
        self.queries += len(wanted)
        self.hits += found
        for key, size in wanted:
            self._keep(key, size)
        return found

    def clear(self) -> None:
        """Forgets all images; the counters go on."""
        self._sizes.clear()
        self._used = 0

    def _keep(self, key: int, size: int) -> None:
        if key in self._sizes:
            self._sizes.move_to_end(key)
        elif size <= self._capacity:
            self._sizes[key] = size
            self._used += size
            while self._used > self._capacity:
                self._used -= self._sizes.popitem(last=False)[1]
