"""What becomes of a prompt's images before the engine has it, in vLLM's API server: decoded, then looked up in the
multimodal cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from simulator.api_error import ApiError
from simulator.engine_log import EngineLog
from simulator.mm_cache import MultimodalCache
from simulator.picture import Picture
from simulator.picture_reader import PictureReader
from simulator.truth import Row
from simulator.vision import Vision


class Processor:
    """One server's."""

    def __init__(self, vision: Vision, log: EngineLog | None) -> None:
        self.cache = MultimodalCache(vision.mm_cache_gib)
        self._vision = vision
        self._reader = PictureReader(vision)
        self._log = log

    def read(self, urls: list[str], then: Callable[[list[Picture] | ApiError], None]) -> None:
        """Calls ``then`` with the pictures or what is wrong with them: later, but at once where there are none."""
        if urls:
            self._reader.read(urls, then)
        else:
            then([])

    def look_up(self, pictures: list[Picture], row: Row) -> None:
        """Asks the cache for the pictures of one prompt."""
        row.decoding_s = time.perf_counter() - row.arrival_s
        row.images, row.image_tokens = len(pictures), sum(picture.tokens for picture in pictures)
        row.image_hits = self.cache.look_up(
            [(picture.key, self._vision.cached_bytes(picture.tokens)) for picture in pictures]
        )
        if self._log is not None:
            self._log.images.note(row.images, row.image_hits)

    def clear(self) -> None:
        """Empties the cache; a log's hit rate begins anew."""
        self.cache.clear()
        if self._log is not None:
            self._log.images.clear()

    def close(self) -> None:
        """Decodes nothing more."""
        self._reader.close()
