"""The paired test recovers what cached prompts really save, in virtual time on an engine of known prefill cost."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from statistics import mean, median

import pytest

from analysis.__main__ import main
from analysis.benefit import Answer, cached_tokens_of, differences_of
from analysis.pairs import Pairs, pairs_of
from simulator.engine import Engine
from tests.statistics.conftest import BUSY, JITTER, Flips
from tests.statistics.rows import frame_of, write_run
from tests.statistics.virtual_level import (
    BLOCK_TOKENS,
    PREFILL_TOKEN_S,
    Traffic,
    VirtualLevel,
    engine_settings,
    paired_level,
)
from tokenswarm import arms
from tokenswarm.arms import COLD, WARM, Isolation
from tokenswarm.schedule import Ticket

CACHED = 400  # tokens of the shared head, whole blocks
SAVING_S = CACHED * PREFILL_TOKEN_S


def play(users: int, sessions: int, seed: int, traffic: Traffic = BUSY, jitter: float = JITTER) -> VirtualLevel:
    engine = Engine(engine_settings(step_jitter=jitter), seed)
    return VirtualLevel(engine, traffic, paired_level(users, sessions), seed).run()


def pairs_in(level: VirtualLevel) -> Pairs:
    pairs = pairs_of(frame_of(level.rows))
    assert len(pairs) == (level.level.sessions or 0) // 2
    assert pairs.incomplete == 0
    return pairs


def test_one_user_recovers_cached_tokens_times_their_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through the files of a run and the command: 400 tokens at 0.4 ms are 160 ms a session, 400 ms for 1,000."""
    level = play(1, 60, seed=1)
    assert {row.cached_tokens for row in level.rows if row.turn == 0 and row.arm == COLD} == {0}
    assert CACHED % BLOCK_TOKENS == 0
    assert main(["prefix-cache", str(write_run(tmp_path / "run", [level])), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["levels"]
    assert (found["pairs"], found["verdict"]) == (30, "benefit")
    saved = {name: one["saved_median_s"]["value"] for name, one in found["differences"].items()}
    assert saved["first_ttft"] == pytest.approx(SAVING_S, rel=0.05)
    assert saved["ttft"] == pytest.approx(SAVING_S / 3, rel=0.05)  # one of three requests
    assert saved["e2e"] == pytest.approx(SAVING_S / 3, rel=0.05)
    assert saved["job"] == pytest.approx(SAVING_S, rel=0.05)
    for name in ("saved_ms_per_1000", "saved_ms_per_1000_overall"):
        assert found["cached_tokens"][name]["value"] == pytest.approx(1e6 * PREFILL_TOKEN_S, rel=0.05)


def test_one_user_with_cold_requests_recovers_all_reuse() -> None:
    """Cold for a request: the saving is what the warm session found, request by request, its own prompt included."""
    isolation = Isolation(by="salt", cold="request")
    level = VirtualLevel(Engine(engine_settings(), 1), BUSY, paired_level(1, 60), 1, isolation=isolation).run()
    assert {row.cached_tokens for row in level.rows if row.arm == COLD} == {0}
    truth = [
        sum(row.cached_tokens or 0 for row in level.measured(number)) * PREFILL_TOKEN_S / 3
        for number in range(60)
        if level.measured(number)[0].arm == WARM
    ]
    saved = differences_of(pairs_in(level), 1)["ttft"]
    assert saved.median.value == pytest.approx(sorted(truth)[15], rel=0.05)
    assert saved.mean.value == pytest.approx(sum(truth) / 30, rel=0.01)


@pytest.mark.slow
def test_sixteen_users_agree_with_the_counterfactual(sixteen_users: Flips) -> None:
    """Median over 320 pairs against 960 sessions played again in the other arm: within 5 % for the TTFT."""
    pairs = pairs_in(play(16, 640, seed=1))
    saved = differences_of(pairs, 16)
    for measure in ("first_ttft", "ttft"):
        assert sixteen_users.error(measure) < 0.015, "the truth itself must be known well"
        assert saved[measure].median.value == pytest.approx(sixteen_users.mean(measure), rel=0.05)
        assert saved[measure].answer == Answer.BENEFIT
    for measure, one in saved.items():
        truth = sixteen_users.mean(measure)
        for figure in (one.median, one.mean):
            assert figure.low is not None
            assert figure.high is not None
            assert figure.low < truth < figure.high, (measure, figure)
    per_token = cached_tokens_of(pairs, 1.0).saved_s_per_token
    assert per_token.value == pytest.approx(PREFILL_TOKEN_S, rel=0.05)


def test_median_and_mean_differ_where_jobs_do() -> None:
    """Jobs of 1 to 5 requests save their head once: a third of it a request in the median, 37 % more in the mean.
    Each statistic recovers its own truth."""
    level = play(1, 240, seed=1, traffic=Traffic(steps=(1, 5), tool_s=(2.0, 8.0)))
    truth = [SAVING_S / len(level.measured(number)) for number in range(240)]
    assert mean(truth) > 1.2 * median(truth)
    saved = differences_of(pairs_in(level), 1)["ttft"]
    assert saved.median.value == pytest.approx(median(truth), rel=0.05)
    assert saved.mean.value == pytest.approx(mean(truth), rel=0.05)


def test_pairs_side_by_side_would_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why partners are as many tickets apart as there are users: with equal lengths and pauses, two that start together
    run in step, are taken in by the same steps of the engine, and wait for each other's prompts."""

    def arm_of(ticket: Ticket, seed: int) -> str:
        swapped = Random(f"{seed}/{ticket.phase}/{ticket.number // 2}").random() < 0.5
        return (COLD, WARM)[(ticket.number + swapped) % 2]

    monkeypatch.setattr(arms, "pair_of", lambda ticket: ticket.number // 2)
    monkeypatch.setattr(arms, "arm_of", arm_of)
    saved = differences_of(pairs_in(play(16, 160, seed=1)), 16)["first_ttft"]
    assert saved.median.value is not None
    assert saved.median.value < 0.2 * SAVING_S
