"""What the simulated model says: a seeded run of words, the same for the same prompt and request seed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from simulator.settings import NaturalLength
from simulator.tokenizer import FIRST_WORD
from simulator.vocabulary import WORDS

_RING = 4093  # prime, so that neighbouring offsets do not fall into step


class Answers:
    """Composes answers as token ids."""

    def __init__(self, natural: NaturalLength, seed: int) -> None:
        self._natural = natural
        self._seed = seed
        rng = random.Random(f"words {seed}")
        self._ring = [FIRST_WORD + rng.randrange(len(WORDS)) for _ in range(_RING)]

    def compose(
        self, prompt: Sequence[int], limit: int, *, least: int = 0, ignore_eos: bool = False, seed: int | None = None
    ) -> tuple[list[int], str]:
        """Ids of one answer and its finish reason: ``length`` after ``limit`` tokens, ``stop`` where it ends itself."""
        rng = random.Random(hash((self._seed, seed or 0, *prompt)))
        offset = rng.randrange(_RING)
        natural = limit if ignore_eos else max(least, natural_length(self._natural, rng))
        length = min(limit, natural)
        repeated = self._ring * (1 + (offset + length) // _RING)
        return repeated[offset : offset + length], "stop" if not ignore_eos and natural < limit else "length"


def natural_length(natural: NaturalLength, rng: random.Random) -> int:
    """A number of tokens drawn from ``natural``."""
    length = round(rng.lognormvariate(math.log(natural.median), natural.sigma))
    return max(1, min(natural.max, length))
