"""Seeded answers."""

from __future__ import annotations

import statistics

from simulator.answers import Answers
from simulator.settings import NaturalLength

NATURAL = NaturalLength(median=100, sigma=0.5, max=400)


def test_the_same_prompt_and_seed_get_the_same_answer_in_any_order() -> None:
    """Another prompt, another request seed or another simulator seed gets another one."""
    one, same, other = Answers(NATURAL, 1), Answers(NATURAL, 1), Answers(NATURAL, 2)
    same.compose([9], 50)
    answer = one.compose([1, 2], 50, ignore_eos=True)
    assert same.compose([1, 2], 50, ignore_eos=True) == answer
    assert one.compose([1, 3], 50, ignore_eos=True) != answer
    assert one.compose([1, 2], 50, ignore_eos=True, seed=5) != answer
    assert other.compose([1, 2], 50, ignore_eos=True) != answer


def test_ignore_eos_gives_exactly_the_limit() -> None:
    """Also far beyond the natural length."""
    tokens, reason = Answers(NATURAL, 1).compose([1], 20_000, ignore_eos=True)
    assert (len(tokens), reason) == (20_000, "length")


def test_natural_lengths_have_the_median_asked_for_and_respect_both_bounds() -> None:
    """A median of 100 +- 10 % over 500 prompts; at least ``min_tokens``, at most ``limit``."""
    answers = Answers(NATURAL, 1)
    free = [answers.compose([n], 1000) for n in range(500)]
    assert {reason for _, reason in free} == {"stop"}
    assert 90 < statistics.median(len(tokens) for tokens, _ in free) < 110
    assert max(len(tokens) for tokens, _ in free) <= 400
    cut = [answers.compose([n], 80, least=60) for n in range(500)]
    assert all(60 <= len(tokens) <= 80 for tokens, _ in cut)
    assert {reason for tokens, reason in cut if len(tokens) < 80} == {"stop"}
    assert "length" in {reason for tokens, reason in cut if len(tokens) == 80}
