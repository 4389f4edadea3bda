"""Prompts for the sessions of a trace: shared pieces word for word, words of their own for the rest."""

from __future__ import annotations

import re
from functools import lru_cache
from random import Random

from tokenswarm.tokens import TokenCounter
from tokenswarm.trace import TraceSession

_KEPT_PIECES = 4096  # of 512 tokens each about 10 MB
_CHUNK_TOKENS = 512  # made at once, so that a shorter piece of a name is the beginning of a longer one
_PART = re.compile(r" ?[^ .]+|\.")  # of a text: a word with the space before it, or a full stop


class TraceMaterial:
    """Makes the texts of one run's sessions: the same in every process. No request, no file access.

    A piece's text depends on the seed, the run and its name. The chat template takes the place of as many tokens at the
    head of the first piece as all prompts begin with, and of the rest at the end of the prompt: so the whole prompt has
    the trace's length, and what sessions share ends where it does in the trace.
    """

    def __init__(self, counter: TokenCounter, *, seed: int, run: str, api: str) -> None:
        self.counter = counter
        self.api = api
        self._name = f"{seed}/{run}"
        self._costs = dict(counter.longer)
        self._piece = lru_cache(maxsize=_KEPT_PIECES)(self._made)

    def first_prompt(self, session: TraceSession, text_rng: Random) -> tuple[str, int]:
        """The first message, and the tokens of the whole prompt with it: those of the trace where they are enough for
        the chat template and one word."""
        left = max(1, session.turns[0].input_tokens - self.counter.overhead)
        made = self.counter.overhead + left
        texts: list[str] = []
        covered = self._before  # tokens at the head of the pieces whose place the template has
        for piece in session.shared:
            tokens = min(max(0, piece.tokens - covered), left)
            covered = max(0, covered - piece.tokens)
            left -= tokens
            if tokens:
                texts.append(self._piece(piece.name, tokens, not texts))
        if left:
            texts.append(self._flow(text_rng, left) if texts else self.counter.make_text(text_rng, left))
        return "".join(texts), made

    def later_message(self, asked_tokens: int, text_rng: Random) -> tuple[str, int]:
        """A message for ``asked_tokens`` more in the prompt beside the answer, and the tokens that it really adds."""
        tokens = max(1, asked_tokens - self.counter.pair_overhead)
        return self.counter.make_text(text_rng, tokens), self.counter.pair_overhead + tokens

    def prefix_tokens(self, session: TraceSession) -> int | None:
        """Tokens that the session's prompts begin with in common with another's, never too many; None without any."""
        if not session.shared:
            return None
        shared = sum(piece.tokens for piece in session.shared)
        after = self.counter.overhead - self._before
        unknown = self._before if self.counter.template_prefix is None else 0
        return max(0, min(shared, session.turns[0].input_tokens - after) - unknown)

    @property
    def _before(self) -> int:
        """Tokens of the chat template before the text; all of them where nobody could tell."""
        before = self.counter.template_prefix
        return self.counter.overhead if before is None else min(before, self.counter.overhead)

    def _made(self, name: str, tokens: int, first: bool) -> str:
        """The first ``tokens`` of a piece. ``first`` in the prompt is a word whose cost was measured there."""
        rng = Random(f"piece {self._name}/{name}")
        if not first:
            return self._flow(rng, tokens)
        head = self.counter.make_text(rng, 1)
        return head + (self._flow(rng, tokens - 1) if tokens > 1 else "")

    def _flow(self, rng: Random, tokens: int) -> str:
        """Text of ``tokens`` tokens that stands behind other text."""
        chunks = []
        while tokens >= _CHUNK_TOKENS:
            chunks.append(self._chunk(rng))
            tokens -= _CHUNK_TOKENS
        if tokens:
            chunks.append(self._cut(self._chunk(rng), tokens))
        return "".join(chunks)

    def _chunk(self, rng: Random) -> str:
        text = self.counter.make_text(rng, _CHUNK_TOKENS + 1, stop=False)
        return text[text.index(" ") :]

    def _cut(self, text: str, tokens: int) -> str:
        """The first ``tokens`` of a text; a short word stands for a full stop, or part of a long word, at its end."""
        kept: list[str] = []
        for part in _PART.findall(text):
            cost = self._costs.get(part[1:], 1)
            if cost > tokens:
                break
            kept.append(part)
            tokens -= cost
        filler = " " + self.counter.words[0]
        if not tokens and kept[-1] == ".":
            kept[-1] = filler
        return "".join(kept + [filler] * tokens)
