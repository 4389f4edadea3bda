"""Draft tokens in the step loop, against steps and tokens counted by hand."""

from __future__ import annotations

import msgspec
import pytest
from storm import survive_storm

from simulator.engine import Engine, Sequence
from simulator.settings import Curve, EngineSettings, load_settings

# Steps of 10 ms whatever they hold; prompts cost nothing and are computed in one piece.
PLAIN = EngineSettings(
    decode_step_s=Curve({0: 0.010}),
    prefill_token_s=0.0,
    prefill_step_tokens=1000,
    prefill_request_tokens=1000,
    max_num_seqs=8,
    block_size=4,
    kv_blocks=10_000,
)


def drafting(*acceptance: float, **changes: object) -> EngineSettings:
    return msgspec.structs.replace(PLAIN, acceptance=acceptance, **changes)


def run(engine: Engine, sequence: Sequence) -> list[int]:
    """Tokens of the sequence at each step that gave it some, until the engine is idle."""
    gained: list[int] = []
    while engine.next_s is not None:
        step = engine.complete_step()
        if sequence in step.first or sequence in step.decoded or sequence in step.resumed:
            gained.append(sequence.gained)
    return gained


def test_every_draft_token_that_is_right_is_one_more_token_of_the_step() -> None:
    """One draft token, always right: 1 from the prompt, then 2 a step; the last step stops at the end of the answer."""
    engine = Engine(drafting(1.0))
    one = Sequence([1] * 4, list(range(6)))
    engine.submit(one, 0.0)
    assert run(engine, one) == [1, 2, 2, 1]
    assert one.generated == 6
    assert (one.first_token_s, one.last_token_s) == (pytest.approx(0.010), pytest.approx(0.040))


def test_the_extra_tokens_of_a_step_are_told() -> None:
    """Two drafts that are right: an answer of 6 tokens comes as 1 + 3 + 2, the second one a step after the first."""
    engine = Engine(drafting(1.0, 1.0))
    for _ in range(2):
        engine.submit(Sequence([1] * 4, list(range(6))), 0.0)
    engine.complete_step()
    accepted = []
    while engine.next_s is not None:
        step = engine.complete_step()
        accepted.append((len(step.decoded), step.accepted))
    assert accepted == [(1, 2), (2, 1 + 2), (1, 1)]


def test_drafts_that_are_never_right_change_nothing_but_the_step_time() -> None:
    """A token a step, as without drafts."""
    engine = Engine(drafting(0.0, 0.0))
    one = Sequence([1] * 4, list(range(5)))
    engine.submit(one, 0.0)
    assert run(engine, one) == [1] * 5
    assert engine.drafts is not None
    assert (engine.drafts.verified, engine.drafts.accepted_at) == (4, [0, 0])


def test_drafts_are_counted_by_position_as_vllm_does() -> None:
    """Positions 0 and 1 always right, 2 never: 8 tokens after the first are 3 + 3 + 2; what the last draft had right
    beyond the end of the answer counts as accepted, as it does in vLLM.
    """
    engine = Engine(drafting(1.0, 1.0, 0.0))
    one = Sequence([1] * 4, list(range(9)))
    engine.submit(one, 0.0)
    assert run(engine, one) == [1, 3, 3, 2]
    assert engine.drafts is not None
    assert engine.drafts.tokens == 3
    assert engine.drafts.verified == 3
    assert engine.drafts.accepted_at == [3, 3, 0]


def test_shares_by_position_come_out_as_asked() -> None:
    """Over 20,000 tokens within one and a half points; tokens a step are 1 + the sum of the shares."""
    engine = Engine(drafting(0.8, 0.5, 0.2), seed=3)
    one = Sequence([1] * 4, list(range(20_000)))
    engine.submit(one, 0.0)
    gained = run(engine, one)
    drafts = engine.drafts
    assert drafts is not None
    shares = [count / drafts.verified for count in drafts.accepted_at]
    assert shares == pytest.approx([0.8, 0.5, 0.2], abs=0.015)
    assert sum(gained) / len(gained) == pytest.approx(2.5, abs=0.04)
    assert sum(gained) == one.generated == 20_000


def test_a_request_takes_the_same_steps_at_any_load() -> None:
    """Whether a draft is right depends on the text only: alone and among seven others, the same tokens a step."""

    def gains(others: int) -> list[int]:
        engine = Engine(drafting(0.7), seed=5)
        one = Sequence([77] * 10, list(range(200)))
        for other in range(others):
            engine.submit(Sequence([other] * 10, list(range(300))), 0.0)
        engine.submit(one, 0.0)
        return run(engine, one)

    alone = gains(0)
    assert {1, 2} == set(alone)
    assert gains(7) == alone


def test_texts_and_seeds_differ() -> None:
    """Another prompt and another seed have other draft tokens right."""

    def gains(seed: int, word: int) -> list[int]:
        engine = Engine(drafting(0.5), seed)
        one = Sequence([word] * 10, list(range(200)))
        engine.submit(one, 0.0)
        return run(engine, one)

    assert gains(1, 1) == gains(1, 1)
    assert gains(1, 1) != gains(1, 2)
    assert gains(1, 1) != gains(2, 1)


def test_a_step_has_room_for_all_its_draft_tokens() -> None:
    """Blocks of 4: after a prompt of 4 a step writes the last token and 5 drafts, which takes two blocks more."""
    engine = Engine(drafting(*[0.0] * 5, kv_blocks=10))
    engine.submit(Sequence([1] * 4, list(range(20))), 0.0)
    assert engine.pool.usage == pytest.approx(0.1)
    engine.complete_step()
    assert engine.pool.usage == pytest.approx(0.3)


def test_drafts_never_need_room_beyond_the_end_of_the_answer() -> None:
    """4 + 12 tokens in four blocks of 4, the whole memory: nobody gives way."""
    engine = Engine(drafting(*[0.5] * 5, kv_blocks=4))
    one = Sequence([1] * 4, list(range(12)))
    engine.submit(one, 0.0)
    run(engine, one)
    assert (one.generated, engine.preemptions, engine.pool.usage) == (12, 0, 0.0)


def test_the_next_turn_finds_prompt_and_answer() -> None:
    """As without drafts: of 6 + 7 tokens 12 have keys and values, three blocks of 4; rejected drafts leave nothing."""
    engine = Engine(drafting(0.6, 0.3))
    first = Sequence([1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16, 17])
    engine.submit(first, 0.0)
    run(engine, first)
    second = Sequence([*first.prompt, *first.answer, 99, 98], [1])
    engine.submit(second, 1.0)
    run(engine, second)
    assert second.cached_tokens == 12


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_all_answers_are_complete_and_no_block_is_lost(seed: int) -> None:
    """Random arrivals and departures on few blocks, with three draft tokens: no answer is too long or too short."""
    survive_storm(Engine(drafting(0.8, 0.6, 0.4, kv_blocks=12, max_num_seqs=5), seed), seed)


MISTAKES = [
    ("acceptance: [0.2, 0.5], step_s: {0: 0.01}", "acceptance"),
    ("acceptance: [], step_s: {0: 0.01}", "acceptance"),
    ("acceptance: [1.2], step_s: {0: 0.01}", "acceptance"),
    ("acceptance: [-0.1], step_s: {0: 0.01}", "acceptance"),
    ("acceptance: [0.5]", "step_s"),
    ("acceptance: [0.5], step_s: {0: 0.01}, draft: 2", "draft"),
]


@pytest.mark.parametrize(("keys", "named"), MISTAKES)
def test_what_a_preset_says_of_drafts_is_checked(
    tmp_path_factory: pytest.TempPathFactory, keys: str, named: str
) -> None:
    """One line that names the key: shares must lie from 1 down to 0 and fall, and steps have a table of their own."""
    path = tmp_path_factory.mktemp("preset") / "drafts.yaml"
    path.write_text(preset_text(keys))
    with pytest.raises(ValueError, match=rf"drafts.yaml: .*{named}") as raised:
        load_settings(str(path))
    assert "\n" not in str(raised.value)


def test_steps_with_drafts_have_a_table_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It takes the place of the table without drafts, which stays in force when the drafts are taken out."""
    path = tmp_path_factory.mktemp("preset") / "drafts.yaml"
    path.write_text(preset_text("acceptance: [0.5, 0.25], step_s: {0: 0.03}"))
    with_drafts = load_settings(str(path)).engine()
    without = load_settings(str(path), speculative=None).engine()
    assert (with_drafts.decode_step_s.at(3), with_drafts.acceptance) == (0.03, (0.5, 0.25))
    assert (without.decode_step_s.at(3), without.acceptance) == (0.01, ())


def preset_text(drafts: str) -> str:
    return f"""
model: drafts
max_model_len: 4096
decode_step_s: {{0: 0.010}}
speculative: {{{drafts}}}
prefill_token_s: 0.0
prefill_step_tokens: 1000
prefill_request_tokens: 1000
max_num_seqs: 8
kv_blocks: 10000
"""
