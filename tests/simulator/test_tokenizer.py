"""The simulator's documented tokenisation rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import tokenizer
from simulator.vocabulary import WORDS


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("  \n ", 0),
        ("one", 1),
        ("two  words\n", 2),
        ("twelveletter", 1),
        ("thirteenlette", 2),
        ("x" * 36, 3),
        ("x" * 37, 4),
        ("tok7 tok31999 tok32000", 3),
    ],
)
def test_one_token_a_word_and_twelve_characters(text: str, count: int) -> None:
    """Counted by hand."""
    assert len(tokenizer.encode(text)) == count


def test_a_chat_prompt_costs_four_tokens_a_message_and_three_for_the_answer_to_come() -> None:
    """Two messages of 2 and 3 words: 2 + 4 + 3 + 4 + 3."""
    messages = [("system", "be kind"), ("user", "what is it")]
    assert len(tokenizer.encode_chat(messages)) == 16
    assert len(tokenizer.encode_chat(messages, answer_follows=False)) == 13
    assert len(tokenizer.encode_chat(messages, constant_tokens=5, message_tokens=7)) == 5 + 2 * 7 + 5


def test_history_and_answer_are_a_prefix_of_the_next_prompt() -> None:
    """So that a prefix cache can work."""
    answer = "apple able"
    first = tokenizer.encode_chat([("user", "hi")]) + tokenizer.encode(answer)
    second = tokenizer.encode_chat([("user", "hi"), ("assistant", answer), ("user", "more")])
    assert second[: len(first)] == first


@given(st.lists(st.integers(0, tokenizer.VOCABULARY - 1), max_size=50))
def test_ids_survive_the_way_into_text_and_back(ids: list[int]) -> None:
    """Random ids are as good a prompt as text."""
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


@given(st.text(max_size=200))
def test_ids_of_any_text_are_in_the_vocabulary(text: str) -> None:
    """And stable from call to call."""
    ids = tokenizer.encode(text)
    assert all(0 <= each < tokenizer.VOCABULARY for each in ids)
    assert tokenizer.encode(text) == ids


def test_the_word_list_is_fit_for_use() -> None:
    """Distinct words of one token each, plain enough to stand in JSON as they are."""
    assert len(set(WORDS)) == len(WORDS) > 500
    assert all(word.isascii() and word.isalpha() and len(word) <= tokenizer.PIECE_CHARACTERS for word in WORDS)
