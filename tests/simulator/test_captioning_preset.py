"""The preset of the published captioning run, held to the one line of the engine's log that was published: 1,301 prompt
and 1,924 generated tok/s, 30 running, 0 waiting, KV usage 4.8 %, prefix cache 0.0 %, multimodal cache 50.1 %.

How long the questions and answers were is not published; the scenario says how they were inferred from the two rates.
"""

from __future__ import annotations

import numpy as np
import pytest
from captioners import Captioners, Line

SEEDS = range(3)


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    return [Captioners(seed).run() for seed in SEEDS]


def test_thirty_streams_give_the_published_rates(lines: list[Line]) -> None:
    """Each run alone: prompt tok/s within 5 %, generated tok/s within 2 %."""
    for line in lines:
        assert line.prompt_tok_s == pytest.approx(1301, rel=0.05)
        assert line.generated_tok_s == pytest.approx(1924, rel=0.02)


def test_the_inferred_length_of_answers_gives_the_published_ratio(lines: list[Line]) -> None:
    """0.676 prompt tokens for each generated one, within 2 % in the mean of the runs."""
    ratio = np.mean([line.prompt_tok_s / line.generated_tok_s for line in lines])
    assert ratio == pytest.approx(1301 / 1924, rel=0.02)


def test_thirty_streams_fill_the_engine_as_published(lines: list[Line]) -> None:
    """30 running but for the moments between two questions, none waiting, 4.8 % of the KV memory, within 0.3 points."""
    for line in lines:
        assert line.running == pytest.approx(30, abs=0.1)
        assert line.waiting == 0
        assert line.kv_usage == pytest.approx(0.048, abs=0.003)


def test_the_image_of_every_second_question_is_in_the_cache_and_no_prefix(lines: list[Line]) -> None:
    """50 % of the look-ups within a point, and an enabled prefix cache that never finds anything."""
    for line in lines:
        assert line.image_share == pytest.approx(0.50, abs=0.01)
        assert line.prefix_share == 0
