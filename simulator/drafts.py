"""Speculative decoding: how many draft tokens of a step turn out to be right."""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq

_DRAWS = 65_521  # prime; as many places of texts are told apart


class Drafts:
    """The draft tokens of one engine, ``len(rates)`` in each decode step of a sequence.

    ``rates[i]`` is the share of drafts that are right up to and including position ``i``, as vLLM prints it by
    position. Whether a draft is right depends on the text and the place in it, never on who else runs meanwhile: the
    same request takes the same number of steps at any load.
    """

    def __init__(self, rates: Seq[float], seed: int) -> None:
        self.tokens = len(rates)
        self._by_accepted = [0] * (len(rates) + 1)  # drafts of which so many tokens were right
        rng = random.Random(f"drafts {seed}")
        self._accepted = [sum(draw < rate for rate in rates) for draw in (rng.random() for _ in range(_DRAWS))]

    @property
    def verified(self) -> int:
        """Drafts that were checked, one a sequence and step; each has ``tokens`` tokens."""
        return sum(self._by_accepted)

    @property
    def accepted_at(self) -> list[int]:
        """Draft tokens that were right, by position; those beyond the end of an answer count, as in vLLM."""
        return [sum(self._by_accepted[position + 1 :]) for position in range(self.tokens)]

    @staticmethod
    def place(prompt: Seq[int]) -> int:
        """Where the text after ``prompt`` begins among all texts."""
        return hash(tuple(prompt)) % _DRAWS

    def verify(self, place: int) -> int:
        """Tokens accepted of the draft at ``place``: 0 to ``tokens``."""
        accepted = self._accepted[place % _DRAWS]
        self._by_accepted[accepted] += 1
        return accepted
