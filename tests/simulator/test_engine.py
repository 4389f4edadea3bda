"""The step loop against times and blocks worked out by hand."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from storm import survive_storm

from simulator.engine import Engine, Sequence, State
from simulator.settings import Curve, EngineSettings, Stall

# 10 ms without or with one decoding sequence, 14 with two, 22 with four; 1 ms for each prompt token; pieces of at most
# 4 tokens of one prompt and 6 tokens altogether.
SETTINGS = EngineSettings(
    decode_step_s=Curve({0: 0.010, 1: 0.010, 2: 0.014, 4: 0.022}),
    prefill_token_s=0.001,
    prefill_step_tokens=6,
    prefill_request_tokens=4,
    max_num_seqs=8,
    block_size=4,
    kv_blocks=100,
)
_first_tokens = itertools.count(1000)


def changed(**changes: object) -> EngineSettings:
    return msgspec.structs.replace(SETTINGS, **changes)


def sequence(prompt_tokens: int, output_tokens: int) -> Sequence:
    """One that shares its prefix with no other."""
    return Sequence([next(_first_tokens)] * prompt_tokens, list(range(output_tokens)))


def run(engine: Engine, steps: int = 10_000) -> list[float]:
    """Ends of the steps until the engine is idle."""
    ends: list[float] = []
    while engine.next_s is not None:
        ends.append(engine.complete_step().end_s)
        assert len(ends) <= steps
    return ends


def test_table_is_interpolated_and_continued() -> None:
    """Between points on the straight line, beyond the last one on its prolongation, below the first one flat."""
    curve = Curve({2: 0.014, 4: 0.022, 8: 0.030})
    assert [round(curve.at(n), 6) for n in (0, 2, 3, 4, 6, 8, 12)] == [0.014, 0.014, 0.018, 0.022, 0.026, 0.030, 0.038]


def test_one_request_alone() -> None:
    """7 prompt tokens take two pieces, 4 and 3: 14 + 13 ms to the first token; two decode steps of 10 ms follow."""
    engine = Engine(SETTINGS)
    one = sequence(7, 3)
    engine.submit(one, 1.0)
    assert run(engine) == pytest.approx([1.014, 1.027, 1.037, 1.047])
    assert one.first_token_s == pytest.approx(1.027)
    assert one.last_token_s == pytest.approx(1.047)
    assert one.state is State.FINISHED


def test_two_requests_share_steps() -> None:
    """The second arrives in the first step, is prefilled beside the first one's decoding, then both decode.

    Steps: 4 prompt tokens (14 ms) | 1 decodes + 3 prompt tokens (13) |
    2 decode (14) | the first is done, 1 decodes (10).
    """
    engine = Engine(SETTINGS)
    one, two = sequence(4, 3), sequence(3, 3)
    engine.submit(one, 0.0)
    engine.submit(two, 0.005)
    assert run(engine) == pytest.approx([0.014, 0.027, 0.041, 0.051])
    assert (one.first_token_s, one.last_token_s) == (pytest.approx(0.014), pytest.approx(0.041))
    assert (two.started_s, two.first_token_s) == (pytest.approx(0.014), pytest.approx(0.027))
    assert two.last_token_s == pytest.approx(0.051)


def test_prefill_is_capped_per_request_and_per_step() -> None:
    """Two prompts of 8 that begin together: 4 + 2, then 4 + 2, then the second one's last 4."""
    engine = Engine(SETTINGS)
    starter, left, right = sequence(1, 1), sequence(8, 1), sequence(8, 1)
    engine.submit(starter, 0.0)
    engine.submit(left, 0.0)
    engine.submit(right, 0.0)
    engine.complete_step()
    assert [engine.complete_step().prefill_tokens for _ in range(3)] == [6, 6, 4]
    assert left.first_token_s == pytest.approx(0.011 + 2 * 0.016)
    assert right.first_token_s == pytest.approx(0.011 + 2 * 0.016 + 0.014)


def test_more_than_max_num_seqs_wait_in_order() -> None:
    """With one place the second starts when the first has ended, the third after it."""
    engine = Engine(changed(max_num_seqs=1))
    three = [sequence(4, 2) for _ in range(3)]
    for each in three:
        engine.submit(each, 0.0)
    assert len(engine.running) == 1
    assert len(engine.waiting) == 2
    run(engine)
    assert [each.started_s for each in three] == pytest.approx([0.0, 0.024, 0.048])


def test_a_prompt_that_finds_no_blocks_waits() -> None:
    """3 blocks of 4: a sequence of 8 + 2 tokens fills them, so one of 5 tokens waits for its end."""
    engine = Engine(changed(kv_blocks=3))
    big, small = sequence(8, 2), sequence(5, 1)
    engine.submit(big, 0.0)
    engine.submit(small, 0.0)
    engine.complete_step()
    assert (len(engine.running), len(engine.waiting)) == (1, 1)
    assert engine.pool.usage == pytest.approx(2 / 3)
    run(engine)
    assert big.last_token_s == small.started_s == pytest.approx(0.014 + 0.014 + 0.010)


def test_the_youngest_gives_way_when_blocks_run_out_and_is_computed_again() -> None:
    """4 blocks of 4, two sequences of 4 + 9: both get their second block, then the younger one loses both."""
    engine = Engine(changed(kv_blocks=4, prefix_cache=False, prefill_request_tokens=100, prefill_step_tokens=100))
    old, young = sequence(4, 9), sequence(4, 9)
    engine.submit(old, 0.0)
    engine.submit(young, 0.0)
    steps = []
    while engine.next_s is not None:
        steps.append(engine.complete_step())
    assert engine.preemptions == 1
    assert old.generated == young.generated == 9
    (back,) = [step for step in steps if step.resumed]
    assert back.resumed == [young]
    # old has its first token after step 1, decodes 5..8 with its second block and needs a third for token 9: step 6.
    # young is one step behind: 4 tokens are out when it is thrown out, and 4 + 4 tokens are computed again after old.
    assert back.prefill_tokens == 8
    assert back.start_s == old.last_token_s
    assert engine.pool.usage == 0.0


def test_a_known_prefix_is_not_computed_again() -> None:
    """Of 10 equal prompt tokens in blocks of 4, two blocks are cached: 2 tokens are left, one piece, 12 ms."""
    engine = Engine(SETTINGS)
    first, second = Sequence([5] * 10, [1, 2]), Sequence([5] * 10, [1])
    engine.submit(first, 0.0)
    run(engine)
    engine.submit(second, 1.0)
    run(engine)
    assert (first.cached_tokens, second.cached_tokens) == (0, 8)
    assert second.first_token_s == pytest.approx(1.012)
    assert (engine.prefix_queries, engine.prefix_hits) == (20, 8)


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    """A prompt of exactly two known blocks takes one of them anew, since something must be computed."""
    engine = Engine(SETTINGS)
    for at in (0.0, 1.0):
        last = Sequence([5] * 8, [1])
        engine.submit(last, at)
        run(engine)
    assert last.cached_tokens == 4


def test_the_next_turn_finds_prompt_and_answer_of_the_last_one() -> None:
    """6 prompt + 7 answer tokens leave 12 with keys and values (the last is never computed): 3 blocks of 4."""
    engine = Engine(SETTINGS)
    first = Sequence([1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16, 17])
    engine.submit(first, 0.0)
    run(engine)
    second = Sequence([*first.prompt, *first.answer, 99, 98], [1])
    engine.submit(second, 1.0)
    run(engine)
    assert second.cached_tokens == 12


def test_with_the_cache_off_everything_is_computed() -> None:
    """The same prompt twice, no hit."""
    engine = Engine(changed(prefix_cache=False))
    for at in (0.0, 1.0):
        last = Sequence([5] * 10, [1])
        engine.submit(last, at)
        run(engine)
    assert last.cached_tokens == 0
    assert engine.prefix_hits == 0


def test_a_sequence_larger_than_the_memory_is_refused() -> None:
    """Two blocks of 4 hold 8 tokens, not 9."""
    engine = Engine(changed(kv_blocks=2))
    engine.submit(sequence(4, 4), 0.0)
    with pytest.raises(ValueError, match="KV memory"):
        engine.submit(sequence(4, 5), 0.0)


def test_cancelling_frees_the_blocks_and_stops_the_tokens() -> None:
    """A running and a waiting sequence leave; the step in progress still takes its time."""
    engine = Engine(changed(max_num_seqs=1))
    one, two = sequence(4, 100), sequence(4, 100)
    engine.submit(one, 0.0)
    engine.submit(two, 0.0)
    engine.complete_step()
    engine.cancel(two)
    engine.cancel(one)
    engine.cancel(one)
    assert engine.pool.usage == 0.0
    assert run(engine) == pytest.approx([0.024])
    assert (one.generated, two.generated) == (1, 0)
    assert (one.state, two.state) == (State.CANCELLED, State.CANCELLED)


def test_a_stall_hits_once_the_step_in_which_so_many_run_first() -> None:
    """Two running make one step 5 s longer, the first time only."""
    engine = Engine(changed(stall=Stall(at_running=2, seconds=5.0), prefill_token_s=0.0))
    for at in (0.0, 100.0):
        engine.submit(sequence(1, 1), at)
        engine.submit(sequence(1, 1), at)
        ends = run(engine)
        engine.submit(sequence(1, 2), at + 50.0)
        engine.submit(sequence(1, 2), at + 50.0)
        pair = run(engine)
        expected = 5.010 if at == 0.0 else 0.010
        assert ends == pytest.approx([at + 0.010, at + 0.020])
        assert pair[1] - pair[0] == pytest.approx(expected)


def test_a_repeating_stall_hits_again_after_fewer_ran() -> None:
    """``once: false``, as a switch for tests of a server that chokes at every burst."""
    engine = Engine(changed(stall=Stall(at_running=1, seconds=5.0, once=False)))
    for at in (0.0, 100.0):
        engine.submit(sequence(1, 2), at)
        assert run(engine) == pytest.approx([at + 5.011, at + 5.021])


def test_only_the_first_request_pays_the_cold_start() -> None:
    """The whole first step is late, nothing after it."""
    engine = Engine(changed(cold_start_s=9.0))
    one = sequence(1, 2)
    engine.submit(one, 0.0)
    assert run(engine) == pytest.approx([9.011, 9.021])


def test_admission_cost_by_number_of_requests_that_begin() -> None:
    """One begins: 100 ms more; the two that waited begin together: 150 ms more."""
    engine = Engine(changed(admission_s=Curve({1: 0.1, 2: 0.15}), prefill_token_s=0.0))
    for _ in range(3):
        engine.submit(sequence(1, 1), 0.0)
    assert run(engine) == pytest.approx([0.110, 0.110 + 0.160])


def test_jitter_is_seeded() -> None:
    """The same seed gives the same times, another one others; the mean stays."""

    def ends(seed: int) -> list[float]:
        engine = Engine(changed(step_jitter=0.1, kv_blocks=600), seed)
        engine.submit(Sequence([1], list(range(2000))), 0.0)
        return run(engine)

    assert ends(1) == ends(1)
    assert ends(1) != ends(2)
    assert ends(1)[-1] == pytest.approx(2000 * 0.010, rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_all_end_and_no_block_is_lost(seed: int) -> None:
    """Random arrivals and departures on few blocks: every sequence that was not cancelled gets all its tokens."""
    survive_storm(Engine(changed(kv_blocks=12, max_num_seqs=5)), seed)
