"""Text to token ids and back, by a rule that can be checked by eye.

* Text is split at white space; a word is one token, a longer word one token for each 12 characters begun.
* A word of the simulator's own list (the only words it answers with) has the id ``FIRST_WORD + its place``.
* ``tok123`` is token 123, so that ids without a word survive the way into text and back.
* ``<call:NAME>`` is one token: the beginning of a tool call, whose arguments follow as their JSON text.
* Any other piece is hashed into the ids above the list; different pieces may share an id.
* An image is ``<image start>``, as many tokens as it has, ``<image end>``.
* A chat message costs ``<start> role <newline> ... <end>``, the whole prompt ends with ``<start> assistant <newline>``;
  presets can ask for more. The history of a conversation is therefore a prefix of its next prompt.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

from simulator.vocabulary import WORDS

VOCABULARY = 32_000
PIECE_CHARACTERS = 12
START, END, NEWLINE, PADDING = 0, 1, 2, 3
REASONING_END = 9
IMAGE_START, IMAGE_END, IMAGE = 10, 11, 12
ROLES = {"system": 4, "developer": 5, "user": 6, "assistant": 7, "tool": 8}
FIRST_WORD = 100
FIRST_HASHED = FIRST_WORD + len(WORDS)

_ID_OF = {word: FIRST_WORD + place for place, word in enumerate(WORDS)}
_CALL = re.compile(r"<call:[^\s<>]+>")
_NOT_IN_CALL = re.compile(r"[\s<>]")
_SPACED = re.compile(r"\s*\S+")
_BY_NUMBER = re.compile(r"tok(0|[1-9]\d{0,4})")


def _piece_id(piece: str) -> int:
    numbered = _BY_NUMBER.fullmatch(piece)
    if numbered and int(numbered[1]) < VOCABULARY:
        return int(numbered[1])
    return FIRST_HASHED + zlib.crc32(piece.encode()) % (VOCABULARY - FIRST_HASHED)


def _cut(word: str) -> list[str]:
    if _CALL.fullmatch(word):
        return [word]
    return [word[start : start + PIECE_CHARACTERS] for start in range(0, len(word), PIECE_CHARACTERS)]


def _word_ids(word: str) -> list[int]:
    return [_ID_OF.get(piece) or _piece_id(piece) for piece in _cut(word)]


def pieces(text: str) -> list[str]:
    """``text`` cut into what each of ``encode(text)`` stands for, with the white space before it."""
    cut: list[str] = []
    for spaced in _SPACED.findall(text):
        first, *others = _cut(spaced.lstrip())
        cut += [spaced[: len(spaced) - len(spaced.lstrip())] + first, *others]
    return cut


def call_word(name: str) -> str:
    """What a tool call begins with in a prompt and in an answer."""
    return f"<call:{_NOT_IN_CALL.sub('_', name)}>"


def encode(text: str) -> list[int]:
    """Token ids of plain text, without any template."""
    known = _ID_OF
    ids: list[int] = []
    for word in text.split():
        word_id = known.get(word)
        if word_id is None:
            ids += _word_ids(word)
        else:
            ids.append(word_id)
    return ids


@lru_cache(maxsize=1024)
def _message_ids(text: str) -> tuple[int, ...]:
    """Ids of a message, kept because a conversation comes again with every turn."""
    return tuple(encode(text))


def word(token: int) -> str:
    """The word of one token id, ``tokN`` where there is none."""
    place = token - FIRST_WORD
    return WORDS[place] if 0 <= place < len(WORDS) else f"tok{token}"


def decode(tokens: Sequence[int]) -> str:
    """Words joined by a space; ``encode`` gives the same ids again."""
    return " ".join(map(word, tokens))


def encode_chat(
    messages: Sequence[tuple[str, str | Sequence[str | list[int]]]],
    constant_tokens: int = 3,
    message_tokens: int = 4,
    answer_follows: bool = True,
) -> list[int]:
    """Token ids of ``(role, content)`` pairs in the chat template; content is text, or pieces of text and the tokens of
    images.

    ``constant_tokens`` and ``message_tokens`` are what the whole prompt and each message cost beyond the content.
    """
    ids = [PADDING] * (constant_tokens - 3)
    for role, content in messages:
        ids += [PADDING] * (message_tokens - 4)
        ids += [START, ROLES.get(role, ROLES["user"]), NEWLINE]
        for piece in (content,) if isinstance(content, str) else content:
            ids += _message_ids(piece) if isinstance(piece, str) else [IMAGE_START, *piece, IMAGE_END]
        ids.append(END)
    if answer_follows:
        ids += [START, ROLES["assistant"], NEWLINE]
    return ids
