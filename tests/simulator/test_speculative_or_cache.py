"""One draft token or prefix caching? Agents on the engines fitted to the published table, in virtual time.

The model of the write-up cannot have both. Prefill, one user: a piece of at most 144 prompt tokens takes 62 ms and
0.22 ms a token, so that 6,000 shared tokens are 42 pieces and 3.9 s a call, unless they are cached. Decoding, one user:
an answer of 121 tokens takes 120 times 37 ms with the draft token; without it 47.8 ms by the primary sweep and 30 ms by
the table of draft tokens.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from closed_loop import CLIENT_S, Agents, Call, Job, coding_jobs

from simulator.engine import Engine
from simulator.settings import load_settings

DRAFT = "spark-qwen3.6-35b-fp8-mtp1"
CACHE = "spark-qwen3.6-35b-fp8-30ms"
CACHE_BY_THE_SWEEP = "spark-qwen3.6-35b-fp8"
SIX_CALLS = (Call(200, 121), *[Call(424, 121)] * 5)


def play(preset: str, jobs: list[Job], users: int, **changes: object) -> Agents:
    """Without the stall of the sweep, which is no property of its steps."""
    engine = Engine(load_settings(preset, stall=None, **changes).engine(), seed=1)
    agents = Agents(engine, jobs, users).run()
    assert len(agents.job_s) == len(jobs)
    return agents


def prefill_s(tokens: int) -> float:
    return math.ceil(tokens / 144) * 0.062 + tokens * 0.00022


def test_a_job_takes_what_its_prefill_and_its_tokens_cost() -> None:
    """Six calls of one user, by hand: with the draft token all of every prompt is computed; with the cache, in the
    second job, what goes beyond the whole blocks of 16 of the shared prompt or of the call before.
    """
    prompts = [6200 + 424 * call for call in range(6)]
    between_s = 5 * CLIENT_S
    with_draft = sum(prefill_s(tokens) for tokens in prompts) + 6 * 120 * 0.063 / 1.70 + between_s
    (drafted,) = play(DRAFT, [Job(6000, SIX_CALLS)], 1).job_s
    assert drafted == pytest.approx(with_draft, rel=0.02)
    known = [6000, *[tokens // 16 * 16 for tokens in prompts[:-1]]]
    computed = [tokens - cached for tokens, cached in zip(prompts, known, strict=True)]
    with_cache = sum(prefill_s(tokens) for tokens in computed) + 6 * 120 * 0.030 + between_s
    agents = play(CACHE, [Job(6000, SIX_CALLS)] * 2, 1)
    assert agents.job_s[1] == pytest.approx(with_cache, abs=1e-6)


@pytest.mark.parametrize("users", [1, 4, 8])
def test_for_coding_agents_the_cache_is_worth_more_than_the_draft_token(users: int) -> None:
    """At every level of the table. A call without cache computes 6,000 tokens more, 3.9 s at one user; the draft token
    saves 16 and 22 ms a token at 4 and 8 users, less than 3 s on an answer of about 120, and nothing at one.
    """
    jobs = coding_jobs(random.Random(5), max(16, 4 * users))
    drafted, cached = play(DRAFT, jobs, users), play(CACHE, jobs, users)
    assert drafted.cached_tokens == 0
    assert cached.cached_tokens > 0.8 * cached.prompt_tokens
    assert drafted.prompt_tokens == cached.prompt_tokens
    assert np.median(cached.job_s) < np.median(drafted.job_s)
    assert cached.jobs_per_hour > drafted.jobs_per_hour


def test_at_one_user_the_answer_holds_with_either_baseline_and_with_large_blocks() -> None:
    """By the sweep's 48 ms the cache still saves more than the draft token; so it does if a hybrid model's blocks have
    1,056 tokens, of which half a one is lost in each call.
    """
    jobs = coding_jobs(random.Random(5), 16)
    drafted = play(DRAFT, jobs, 1)
    own_table = play(CACHE, jobs, 1)
    by_the_sweep = play(CACHE_BY_THE_SWEEP, jobs, 1)
    large_blocks = play(CACHE_BY_THE_SWEEP, jobs, 1, block_size=1056, kv_blocks=802)
    assert by_the_sweep.cached_tokens > large_blocks.cached_tokens
    hours = [agents.jobs_per_hour for agents in (own_table, by_the_sweep, large_blocks, drafted)]
    assert hours == sorted(hours, reverse=True)


@pytest.mark.parametrize(("shared", "draft_wins"), [(500, True), (4000, False)])
def test_the_draft_token_wins_where_little_is_shared(shared: int, draft_wins: bool) -> None:
    """One user, one call of 100 own tokens and an answer of 121, against the sweep's 47.8 ms.

    500 shared: 5 pieces, 0.44 s, and 4.45 s of tokens make 4.9 s; cached, one piece of 0.08 s and 5.74 s make 5.8 s.
    4,000 shared: 29 pieces, 2.7 s, and 4.45 s make 7.1 s, against 5.8 s again. Equal at about 2,000.
    """
    jobs = [Job(shared, (Call(100, 121),))] * 12
    drafted = float(np.median(play(DRAFT, jobs, 1).job_s))
    cached = float(np.median(play(CACHE_BY_THE_SWEEP, jobs, 1).job_s))
    assert drafted == pytest.approx(prefill_s(shared + 100) + 120 * 0.063 / 1.70, rel=0.05)
    assert cached == pytest.approx(prefill_s(100 + shared % 16) + 120 * 0.0478, rel=0.01)
    assert (drafted < cached) is draft_wins


def test_by_the_table_of_draft_tokens_the_draft_token_never_pays_at_one_user() -> None:
    """Not even where nothing is shared: 37 ms a token against 30."""
    jobs = [Job(500, (Call(100, 121),), shared=False)] * 12
    drafted, cached = play(DRAFT, jobs, 1), play(CACHE, jobs, 1)
    assert cached.cached_tokens == 0
    assert np.median(drafted.job_s) > np.median(cached.job_s)
