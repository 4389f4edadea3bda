"""Finds out once, before any load, what words cost on this server, in a bounded number of questions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from random import Random

import msgspec

from tokenswarm.counting import Approximate, Counting, Prompt, Server
from tokenswarm.errors import TargetError
from tokenswarm.tokenize_api import find_counting
from tokenswarm.tokens import PARAGRAPH, TokenCounter

_HEADS = [
    *("The", "In", "When", "We", "They", "It", "This", "What", "How", "After", "Before", "While"),
    *("My", "Our", "Some", "Many", "Every", "Why", "Can", "Please", "Tell", "Most", "Each", "Then"),
]
_CHEAP_HEADS = 200  # with a local tokenizer
_ENOUGH_HEADS = 8
_SIFT_CALLS = 24  # spent on telling one-token words from others where no ids can be had
_SIFT_GROUP = 64
_IDS_GROUP = 200  # words in one question for ids: short enough for a small context
_CHECK_GROUP = 400  # words counted together to confirm what the ids said
_CHECKED_LENGTHS = (40, 100, 250)  # of three generated prompts
_VOCABULARY_SAMPLE = 3000
_PIECE = re.compile(r" ?[^\W\d_]+")  # letters alone: signs and digits may join with what stands next to them


@dataclass
class _Survey:
    """One conversation with one counter; ``base`` is the count of a prompt that holds only the first head."""

    counting: Counting
    api: str
    calls: int = 0
    base: int = 0
    heads: list[str] = field(default_factory=list)
    newline_id: int | None = None
    ids_seen: set[int] = field(default_factory=set)

    def prompt(self, *texts: str, system: str | None = None) -> Prompt:
        """``texts`` are a user's and a model's turns in alternation."""
        if self.api == "completions":
            return PARAGRAPH.join([system, *texts] if system else texts)
        roles = ("user", "assistant")
        messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
        return ([{"role": "system", "content": system}] if system else []) + messages

    def count(self, *texts: str, system: str | None = None) -> int:
        self.calls += 1
        return self.counting.count(self.prompt(*texts, system=system))

    def excess(self, words: list[str]) -> int:
        """How many tokens more than one each these words cost behind the first head."""
        return self.count(" ".join([self.heads[0], *words])) - self.base - len(words)

    def find_heads(self, words: list[str]) -> None:
        """Keep the openings that cost as little as any; that cost counts as one token."""
        candidates = list(_HEADS)
        if self.counting.cheap:
            candidates += [word.capitalize() for word in words[:_CHEAP_HEADS]]
        costs = {word: self.count(word) for word in dict.fromkeys(candidates)}
        self.base = min(costs.values())
        if list(costs.values()).count(self.base) < _ENOUGH_HEADS:  # a small vocabulary: try without capitals
            costs |= {word: self.count(word) for word in words[: len(_HEADS)]}
            self.base = min(costs.values())
        self.heads = [word for word, cost in costs.items() if cost == self.base]

    def costs_by_ids(self, words: list[str]) -> dict[str, int]:
        """Tokens of each word behind a space, read off the ids between line ends; empty where that does not work."""
        costs: dict[str, int] = {}
        for start in range(0, len(words), _IDS_GROUP):
            group = words[start : start + _IDS_GROUP]
            self.calls += 1
            ids = self._ids_of("".join(f"\n {word}" for word in group))
            self.ids_seen.update(ids)
            pieces = self._split_at_newlines(ids, len(group)) if ids else None
            if pieces is None:
                return {}
            costs |= {word: len(piece) for word, piece in zip(group, pieces, strict=True)}
        return costs

    def _ids_of(self, text: str) -> list[int]:
        try:
            return self.counting.ids(text) or []
        except TargetError:  # longer than this server takes: counting small groups remains
            return []

    def _split_at_newlines(self, ids: list[int], lines: int) -> list[list[int]] | None:
        newline, times = Counter(ids).most_common(1)[0]
        if times != lines:
            return None
        self.newline_id = newline
        pieces: list[list[int]] = []
        for token in ids[ids.index(newline) :]:
            if token == newline:
                pieces.append([])
            else:
                pieces[-1].append(token)
        return pieces if all(pieces) else None

    def one_token_words(self, words: list[str], group: int) -> list[str]:
        """The words that cost exactly one token, found by counting groups and halving those that cost more."""
        stop_at = self.calls + _SIFT_CALLS
        found: list[str] = []
        for start in range(0, len(words), group):
            if self.calls >= stop_at:
                break
            some = words[start : start + group]
            found += self._sift(some, self.excess(some), stop_at)
        return found

    def _sift(self, words: list[str], excess: int, stop_at: int) -> list[str]:
        """The halves' excesses add up, so only one of them is asked for; a few words are not worth a question."""
        if excess == 0:
            return words
        if len(words) <= 3 or self.calls >= stop_at:
            return []
        middle = len(words) // 2
        left = self.excess(words[:middle])
        return self._sift(words[:middle], left, stop_at) + self._sift(words[middle:], excess - left, stop_at)

    def sentence_starts(self, word: str) -> list[str]:
        """Capitalised words that cost one token behind a full stop that costs one; empty where stops are no extra."""
        starts = self.one_token_words([word for word in self.heads if word.istitle()], _CHECK_GROUP)
        if not starts:
            return []
        text = self.heads[0] + "".join(f" {word}. {start}" for start in starts)
        return starts if self.count(text) == self.base + 3 * len(starts) else []

    def vocabulary_words(self) -> list[str]:
        """Random pieces of the vocabulary that stand behind a space; empty where ids cannot be turned into text."""
        known = self.counting.vocabulary() or list(range(max(self.ids_seen, default=0)))
        sample = Random(0).sample(known, min(_VOCABULARY_SAMPLE, len(known)))
        pieces: dict[str, None] = {}
        for start in range(0, len(sample), _IDS_GROUP):
            group = sample[start : start + _IDS_GROUP]
            if self.newline_id is not None:  # one to a line, else spaces alone keep them apart
                group = [token for some in group for token in (self.newline_id, some)]
            self.calls += 1
            text = self.counting.decode(group)
            if text is None:
                return []
            found = text.split() if self.newline_id is None else text.split("\n")
            pieces |= dict.fromkeys(piece.strip() for piece in found if _PIECE.fullmatch(piece))
        return list(pieces)


@cache
def english_words() -> list[str]:
    """Plain English words, the most frequent first."""
    return (files("tokenswarm") / "material" / "words.txt").read_text("utf-8").split()


def survey(
    server: Server,
    *,
    api: str = "chat",
    tokenizer: str | None = None,
    systems: Iterable[str] = (),
    random: bool = False,
) -> TokenCounter:
    """Measure ``server`` (or ``tokenizer``) for prompts of ``api`` with these system prompts.

    ``random``: also look for token ids and pieces of the vocabulary. Raises ``InputError`` for an unusable tokenizer.
    Never raises because a server cannot count: then ``source`` is ``approximate`` and ``note`` says why.
    """
    counting, note = find_counting(server, api, tokenizer)
    return survey_with(counting, note, api=api, systems=systems, random=random)


def survey_with(
    counting: Counting, note: str, *, api: str = "chat", systems: Iterable[str] = (), random: bool = False
) -> TokenCounter:
    """The same with a way to count that was found already; ``note`` says why it is no better one.

    The result's ``source`` is ``approximate`` where the server refused a question in the middle.
    """
    texts = list(dict.fromkeys(systems))
    try:
        return _surveyed(_Survey(counting, api), texts, random, note)
    except TargetError as error:  # it answered the first question and refused a later one
        return _surveyed(_Survey(Approximate(), api), texts, random, str(error))


def _surveyed(asked: _Survey, systems: list[str], random: bool, note: str) -> TokenCounter:
    words = english_words()
    asked.find_heads(words)
    counter = _with_words(asked, words, note)
    counter = msgspec.structs.replace(counter, **_overheads(asked, systems))
    counter = _checked(asked, counter)
    if random:
        counter = _with_random(asked, counter)
    return msgspec.structs.replace(counter, calls=asked.calls)


def _with_words(asked: _Survey, words: list[str], note: str) -> TokenCounter:
    costs = asked.costs_by_ids(words)
    group = _CHECK_GROUP if costs or asked.counting.cheap else _SIFT_GROUP
    ones = asked.one_token_words([word for word in words if costs.get(word, 1) == 1], group)
    return TokenCounter(
        source=asked.counting.source,
        exact=asked.counting.source != "approximate",
        note=note,
        heads=asked.heads,
        words=ones,
        longer=[(word, cost) for word, cost in costs.items() if cost in (2, 3)],
        capitals=asked.sentence_starts(ones[0]) if ones else [],
        overhead=asked.base - 1,
    )


def _overheads(asked: _Survey, systems: list[str]) -> dict[str, object]:
    head = asked.heads[0]
    texts = [head, head] if asked.api == "completions" else [head, head, head]  # an answer continues a completion
    return {
        "pair_overhead": asked.count(*texts) - asked.base - len(texts) + 1,
        "system_overheads": {text: asked.count(head, system=text) - 1 for text in systems},
        "template_prefix": _shared_tokens(asked, None),
        "system_prefixes": {text: _shared_tokens(asked, text) for text in systems},
    }


def _shared_tokens(asked: _Survey, system: str | None) -> int | None:
    """Tokens that two prompts with nothing in common but ``system`` begin with."""
    pair = [asked.prompt(head, system=system) for head in asked.heads[:2]]
    found = None if len(pair) < 2 else first_difference(asked.counting, *pair)
    asked.calls += 0 if found is None else 2
    return found


def first_difference(counting: Counting, one: Prompt, other: Prompt) -> int | None:
    """How many tokens the two begin with alike; None where their ids cannot be had."""
    ids, others = counting.prompt_ids(one), counting.prompt_ids(other)
    if ids is None or others is None:
        return None
    return next((at for at, pair in enumerate(zip(ids, others, strict=False)) if pair[0] != pair[1]), None)


def _checked(asked: _Survey, counter: TokenCounter) -> TokenCounter:
    """Count three generated prompts; without a match give up punctuation, then exactness."""
    if not counter.words:
        some = [word for word, _ in counter.longer] or english_words()
        return msgspec.structs.replace(
            counter, words=some, longer=[], exact=False, note="no word costs exactly one token on this server"
        )
    if not counter.exact or _adds_up(asked, counter, counter.make_text):
        return counter
    plain = msgspec.structs.replace(counter, capitals=[])
    if counter.capitals and _adds_up(asked, plain, plain.make_text):
        return plain
    return msgspec.structs.replace(
        plain, exact=False, note="tokens of generated prompts are not the sum of their words"
    )


def _adds_up(asked: _Survey, counter: TokenCounter, make: Callable[[Random, int], str]) -> bool:
    return all(asked.count(make(Random(length), length)) == counter.overhead + length for length in _CHECKED_LENGTHS)


def _with_random(asked: _Survey, counter: TokenCounter) -> TokenCounter:
    """Add token ids, and pieces of the vocabulary for chats; ``prompts.Material`` refuses to go without."""
    pieces = asked.vocabulary_words()
    costs = asked.costs_by_ids(pieces)
    found = asked.one_token_words([piece for piece in pieces if costs.get(piece, 1) == 1], _CHECK_GROUP)
    ids = asked.counting.vocabulary() or sorted(asked.ids_seen)
    counter = msgspec.structs.replace(counter, token_ids=ids, random_words=found)
    if found and not _adds_up(asked, counter, counter.make_random_text):
        return msgspec.structs.replace(counter, exact=False, note="tokens of random text are not the sum of its pieces")
    return counter
