"""Which blocks a sequence finds, and when, worked out by hand."""

from __future__ import annotations

import pytest
from test_engine import SETTINGS, changed, run, sequence

from simulator.engine import Engine, Sequence
from simulator.settings import Drift

WIDE = {"prefill_step_tokens": 1000, "prefill_request_tokens": 1000}


def test_equal_prompts_taken_in_by_one_step_are_computed_once() -> None:
    """Both wait for the first step; the second finds the two full blocks the first one computes: 10 + 2 tokens."""
    engine = Engine(changed(**WIDE))
    engine.submit(sequence(1, 1), 0.0)
    left, right = Sequence([5] * 10, [1]), Sequence([5] * 10, [1])
    engine.submit(left, 0.001)
    engine.submit(right, 0.002)
    engine.complete_step()
    step = engine.complete_step()
    assert step.prefill_tokens == 12
    assert step.first == [left, right]
    assert step.end_s == pytest.approx(0.011 + 0.010 + 0.012)
    assert (left.cached_tokens, right.cached_tokens) == (0, 8)


def test_a_block_is_not_found_before_the_step_that_computes_it() -> None:
    """Pieces of 4, two steps: of 16 equal tokens 8 are there or in the making when the second prompt is taken in."""
    engine = Engine(SETTINGS)
    first, second = Sequence([5] * 16, [1]), Sequence([5] * 16, [1])
    engine.submit(first, 0.0)
    engine.submit(second, 0.001)
    steps = [engine.complete_step() for _ in range(4)]
    assert second.cached_tokens == 8
    assert [step.prefill_tokens for step in steps] == [4, 4 + 2, 4 + 2, 4 + 2]
    run(engine)
    assert (engine.prefix_queries, engine.prefix_hits) == (32, 8)


def test_a_prompt_that_cannot_begin_looks_for_its_prefix_only_when_it_can() -> None:
    """The first prompt takes all 4 tokens of each of 4 steps; the second begins after them and finds 3 blocks."""
    engine = Engine(changed(prefill_step_tokens=4))
    first, second = Sequence([5] * 16, [1, 2]), Sequence([5] * 16, [1])
    engine.submit(first, 0.0)
    engine.submit(second, 0.001)
    run(engine)
    assert second.started_s == first.first_token_s == pytest.approx(4 * 0.014)
    assert second.cached_tokens == 12


@pytest.mark.parametrize(("salt", "cached"), [("A", 8), ("B", 0), (None, 0)])
def test_a_salt_separates_from_the_first_block_on(salt: str | None, cached: int) -> None:
    """3 prompt and 7 answer tokens, 9 of them with keys and values: the first block reaches into the answer."""
    engine = Engine(SETTINGS)
    engine.submit(Sequence([1, 2, 3], [4, 5, 6, 7, 8, 9, 10], salt="A"), 0.0)
    run(engine)
    second = Sequence([*range(1, 11), 99], [1], salt=salt)
    engine.submit(second, 1.0)
    run(engine)
    assert second.cached_tokens == cached


def test_an_inert_cache_costs_what_no_cache_costs_and_counts_its_lookups() -> None:
    """Twice the same 10 tokens: no hit in either; only the inert one has asked."""
    off, inert = Engine(changed(prefix_cache=False)), Engine(changed(inert_cache=True))
    for engine in (off, inert):
        for at in (0.0, 1.0):
            engine.submit(Sequence([5] * 10, [1]), at)
            assert run(engine)[-1] == pytest.approx(at + 0.014 + 0.014 + 0.012)
    assert (off.prefix_queries, off.prefix_hits) == (0, 0)
    assert (inert.prefix_queries, inert.prefix_hits) == (20, 0)


def test_a_drift_begins_with_the_first_step_and_ends_at_its_factor() -> None:
    """Threefold after 40 ms: steps of 10 ms take 1, 1 + 2 x 10/40, 1 + 2 x 25/40 times that, then 3 times."""
    engine = Engine(changed(drift=Drift(until_s=0.040, factor=3.0), prefill_token_s=0.0))
    engine.submit(sequence(1, 5), 5.0)
    assert run(engine) == pytest.approx([5.010, 5.025, 5.0475, 5.0775, 5.1075])
