"""Image tokens, the multimodal cache and the encoder, without a server."""

from __future__ import annotations

import pytest

from simulator.encoder import Encoder, PlacedImage
from simulator.engine import Engine, Sequence
from simulator.mm_cache import MultimodalCache
from simulator.settings import load_settings
from simulator.vision import Vision

QWEN3 = {"patch": 16, "min_pixels": 65_536, "max_pixels": 16_777_216}


@pytest.mark.parametrize(
    ("settings", "size", "resized"),
    [
        ({}, (224, 224), (224, 224)),  # 8 * 8 tokens of 28 pixels
        ({"max_pixels": 200_704}, (640, 480), (504, 364)),  # 644 * 476 is too large; 234 tokens, as vLLM counted
        ({}, (10, 10), (56, 56)),  # enlarged to the least
        (QWEN3, (1024, 768), (1024, 768)),
        (QWEN3, (56, 56), (256, 256)),  # Qwen3-VL enlarges more
        (QWEN3, (1000, 500), (992, 512)),  # 31.25 and 15.6 tokens, rounded
        ({**QWEN3, "min_pixels": 3_136, "max_pixels": 500_000}, (3000, 2000), (864, 576)),
    ],
)
def test_an_image_is_resized_to_whole_tokens_within_the_limits(
    settings: dict[str, int], size: tuple[int, int], resized: tuple[int, int]
) -> None:
    """Sizes worked out by hand from the rule of Qwen2-VL, one of them counted by vLLM."""
    vision = Vision(**settings)
    assert vision.resized(*size) == resized
    side = vision.patch * vision.merge
    assert vision.tokens(*size) == (resized[0] // side) * (resized[1] // side)


def test_an_image_may_be_two_hundred_times_as_long_as_broad() -> None:
    """And no longer, as in Qwen2-VL."""
    assert Vision().tokens(2000, 10) > 0
    with pytest.raises(ValueError, match=r"aspect ratio must be smaller than 200, got 200\.1"):
        Vision().tokens(2001, 10)


@pytest.mark.parametrize("wrong", [{"patch": 0}, {"max_pixels": 100}, {"limit": 0}, {"encoder_token_s": -1.0}])
def test_settings_of_vision_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    """In one line."""
    with pytest.raises(ValueError, match="vision"):
        load_settings("demo", vision=wrong)


def test_the_cache_keeps_the_images_used_last() -> None:
    """Room for three of a third of a GiB: after A B C A D it is B that is gone."""
    cache = MultimodalCache(1.0)
    third = (1 << 30) // 3
    for key in (1, 2, 3, 1, 4):
        cache.look_up([(key, third)])
    assert (cache.queries, cache.hits) == (5, 1)
    assert [cache.look_up([(key, third)]) for key in (1, 3, 4, 2)] == [1, 1, 1, 0]


def test_an_image_twice_in_a_prompt_is_asked_for_before_it_is_kept() -> None:
    """Two queries and no hit the first time, two hits the second."""
    cache = MultimodalCache(1.0)
    assert [cache.look_up([(7, 10), (7, 10)]) for _ in range(2)] == [0, 2]
    assert (cache.queries, cache.hits) == (4, 2)
    cache.clear()
    assert cache.look_up([(7, 10)]) == 0


def test_a_cache_without_room_keeps_nothing() -> None:
    """As vLLM with a cache of 0 GiB."""
    cache = MultimodalCache(0.0)
    assert [cache.look_up([(7, 10)]) for _ in range(3)] == [0, 0, 0]


def test_the_encoder_works_on_what_a_step_comes_to_and_keeps_it() -> None:
    """An image is encoded with the first of its tokens, again only when it was pushed out, and never if its tokens come
    from the prefix cache.
    """
    encoder = Encoder(image_s=1.0, token_s=0.01, cache_tokens=150)
    a, b = PlacedImage(10, 110, 1), PlacedImage(120, 170, 2)
    assert encoder.begin([a, b], 0, 0, 10) == 0
    assert encoder.take_s() == 0.0
    assert encoder.begin([a, b], 0, 10, 64) == 1
    assert encoder.take_s() == pytest.approx(2.0)
    assert encoder.begin([a, b], 1, 64, 180) == 2
    assert encoder.take_s() == pytest.approx(1.5)
    assert encoder.begin([a, b], 0, 0, 180) == 2
    assert encoder.take_s() == 0.0, "100 and 50 tokens are kept"
    assert encoder.begin([PlacedImage(0, 60, 3)], 0, 0, 60) == 1
    assert encoder.take_s() == pytest.approx(1.6)
    assert encoder.begin([b], 0, 0, 180) == 1
    assert encoder.take_s() == 0.0, "b fits beside the third"
    assert encoder.begin([a], 0, 110, 180) == 1
    assert encoder.take_s() == 0.0, "all of a was cached as a prefix"
    assert encoder.begin([a], 0, 64, 180) == 1
    assert encoder.take_s() == pytest.approx(2.0), "a was pushed out"
    assert encoder.encoded == 4


def test_encoding_delays_the_step_and_every_stream_in_it() -> None:
    """Steps of 10 ms: one with an image of 100 tokens takes 10 + 5 + 100 * 0.2 = 35 ms, for the neighbour as well."""
    vision = {"encoder_image_s": 0.005, "encoder_token_s": 0.0002}
    settings = load_settings("demo", decode_step_s={0: 0.010}, prefill_token_s=0.0, step_jitter=0.0, vision=vision)
    engine = Engine(settings.engine())
    engine.submit(Sequence([1] * 20, [0] * 5, "neighbour"), 0.0)
    assert engine.complete_step().end_s == pytest.approx(0.010)
    engine.submit(Sequence([2] * 120, [0] * 5, "image", images=(PlacedImage(10, 110, 99),)), 0.011)
    assert engine.complete_step().end_s == pytest.approx(0.020), "it comes into the next step"
    step = engine.complete_step()
    assert step.end_s == pytest.approx(0.055)
    assert [sequence.owner for sequence in (*step.first, *step.decoded)] == ["image", "neighbour"]
    assert engine.complete_step().end_s == pytest.approx(0.065)
