"""``TokenCounter``: texts of an exact length in the server's tokens, without asking the server for each.

A text is a *head* (its first word, whose cost was measured where it will stand) and words that each cost exactly one
token behind a space. Which words do is found out once, before the clock starts, by ``survey.survey``.
"""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Any, TypeVar

import msgspec

Item = TypeVar("Item")

PARAGRAPH = "\n\n"  # between the turns of a completion's text
_FREQUENT = 24  # of the words, which come in the order of how common they are
_FREQUENT_SHARE = 0.4  # of the words of English prose, roughly
_NONCE_WORDS = 12  # of some hundreds: two nonces are never equal
_ENOUGH_WORDS = 64  # with fewer one-token words, longer ones are mixed in
_SENTENCE_WORDS = (6, 15)  # shortest and longest, in words


class OpeningCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What the first prompt of an agent's job costs beside the text that is generated for it, in tokens.

    ``shared``: what two prompts with the same system prompt and different tasks begin with, template and tools
    included. ``common``: the same of two prompts with system prompts of their own. Never too large; None where unknown.
    """

    overhead: int
    shared: int | None = None
    common: int | None = None


class TokenCounter(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """What a survey found out about one server. Plain data: ``msgspec`` carries it to other processes.

    By convention a head counts as one token, so that ``overhead + tokens`` of ``make_text`` is the whole prompt.
    """

    source: str  # tokenizer, server, calibrated or approximate
    exact: bool  # three generated prompts counted as computed
    note: str = ""  # why the source is no better, or why it is not exact
    calls: int = 0  # counts made, of which each is a request unless the tokenizer is local
    overhead: int = 0  # what the chat template adds to a one-message prompt (for a completion: a start token)
    pair_overhead: int = 0  # what it adds for one answer and one further message
    system_overheads: dict[str, int] = {}  # text of a system prompt -> overhead with it
    system_prefixes: dict[str, int | None] = {}  # text of a system prompt -> tokens that prompts with it begin with
    openings: dict[str, list[OpeningCosts]] = {}  # name of an agentic class -> each of its openings
    template_prefix: int | None = None  # tokens that every prompt without a system prompt begins with: no reuse of ours
    nonce_tokens: int = 0  # what a nonce adds to a prompt; measured where a scenario needs one
    before_nonce: int | None = None  # tokens that two prompts begin with for all the nonces at their heads, at most
    heads: list[str] = []
    words: list[str] = []  # one token each behind a space, the most frequent first
    longer: list[tuple[str, int]] = []  # words of 2 or 3 tokens, used where one-token words are few
    capitals: list[str] = []  # one token each behind a full stop and a space, the stop being another
    random_words: list[str] = []  # pieces of the vocabulary, one token each behind a space
    token_ids: list[int] = []

    def prompt_overhead(self, system: str | None) -> int:
        """Tokens around a one-message prompt, system prompt included. ``KeyError`` if that text was not surveyed."""
        return self.overhead if system is None else self.system_overheads[system]

    @property
    def common_prefix(self) -> int | None:
        """Tokens that all prompts begin with, whatever we put into them: template, and tools where they come first."""
        known = [self.template_prefix, *(one.common for costs in self.openings.values() for one in costs)]
        return max((tokens for tokens in known if tokens is not None), default=None)

    def make_text(self, rng: Random, tokens: int, *, stop: bool = True) -> str:
        """Sentences of exactly ``tokens`` tokens (at least 1).

        ``stop=False``: no full stop at the end, which could melt into what a chat template puts behind it.
        """
        head = _one_of(self.heads, rng)
        if len(self.words) < _ENOUGH_WORDS and self.longer:
            return head + self._mixed(rng, tokens - 1)
        parts = rng.choices(self._population, k=tokens - 1)
        if self.capitals:
            self._punctuate(parts, rng)
            if not stop and parts and parts[-1] == ".":
                parts[-1] = self._population[0]
        return head + "".join(parts)

    def make_nonce(self, rng: Random) -> str:
        """Words for the very head of a prompt, ``nonce_tokens`` more tokens whatever the words; ends with its gap."""
        words = [_one_of(self.heads, rng), *rng.choices(self.words, k=_NONCE_WORDS - 1)]
        return " ".join(words) + PARAGRAPH

    def make_random_text(self, rng: Random, tokens: int) -> str:
        """``tokens`` random pieces of the vocabulary behind one word."""
        return _one_of(self.heads, rng) + "".join(rng.choices(self._random_population, k=tokens - 1))

    def make_ids(self, rng: Random, tokens: int) -> list[int]:
        """``tokens`` random token ids."""
        return rng.choices(self.token_ids, k=tokens)

    def _punctuate(self, parts: list[str], rng: Random) -> None:
        """Put full stops and capitals in place of words: two tokens that were two words."""
        shortest, longest = _SENTENCE_WORDS
        spread, uniform, starts = longest - shortest + 1, rng.random, self._starts
        at = int(shortest + spread * uniform())
        while at + 2 < len(parts):
            parts[at] = "."
            parts[at + 1] = starts[int(len(starts) * uniform())]
            at += 1 + int(shortest + spread * uniform())
        if len(parts) > shortest and parts[-2] != ".":
            parts[-1] = "."

    def _mixed(self, rng: Random, tokens: int) -> str:
        """Words of one to three tokens that together make ``tokens``."""
        parts = []
        candidates = [(word, 1) for word in self.words] + self.longer
        while tokens > 0:
            word, cost = _one_of(candidates, rng)
            if cost > tokens:
                word, cost = _one_of(self.words, rng), 1
            parts.append(word)
            tokens -= cost
        return "".join(" " + part for part in parts)

    @cached_property
    def _population(self) -> list[str]:
        """Words with a space before them, frequent ones repeated, so that drawing evenly sounds like English."""
        frequent, rare = self.words[:_FREQUENT], self.words[_FREQUENT:]
        times = round(len(rare) * _FREQUENT_SHARE / (1 - _FREQUENT_SHARE) / _FREQUENT)
        frequent = frequent * max(1, times)
        return [" " + word for word in frequent + rare]

    @cached_property
    def _random_population(self) -> list[str]:
        return [" " + word for word in self.random_words]

    @cached_property
    def _starts(self) -> list[str]:
        return [" " + word for word in self.capitals]


def behind_nonce(nonce: str, prompt: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """The prompt with ``nonce`` at its very head."""
    return nonce + prompt if isinstance(prompt, str) else messages_behind(nonce, prompt)


def messages_behind(nonce: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with ``nonce`` at its very head: before the pictures, where the first message has some."""
    content = messages[0]["content"]
    text_first = [{"type": "text", "text": nonce}, *content] if isinstance(content, list) else f"{nonce}{content}"
    return [{**messages[0], "content": text_first}, *messages[1:]]


def _one_of(items: list[Item], rng: Random) -> Item:
    return items[int(len(items) * rng.random())]
