"""Real vLLM on the CPU with a tiny Qwen2 of random weights."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import pytest

from tests.engines import sweep as sweeps
from tests.engines.conftest import Engine, wired_anew
from tests.engines.sweep import Sweep, seconds

pytestmark = pytest.mark.engine

GENERATED = "vllm:generation_tokens_total"
PROMPTED = "vllm:prompt_tokens_total"
HITS = "vllm:prefix_cache_hits_total"


@pytest.fixture(scope="module")
def sweep(vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """One sweep at 1, 2, 4 and 8 users, looked at by several tests."""
    with wired_anew(vllm) as engine:
        yield sweeps.play_sweep(engine, tmp_path_factory.mktemp("sweep"), (GENERATED, PROMPTED, HITS))


def test_sweep_gives_a_table_without_failures(sweep: Sweep) -> None:
    """Exactly the planned requests at each level, none failed, figures in the table."""
    sweeps.assert_table_without_failures(sweep)


def test_output_tokens_are_the_servers_own_count(sweep: Sweep) -> None:
    """The rows add up to ``generation_tokens_total``, though not every token of a random model makes text."""
    sweeps.assert_output_tokens_are_the_servers(sweep, GENERATED)


def test_input_lengths_are_exact(sweep: Sweep) -> None:
    """The server bills each prompt as long as the scenario asked, and counts the same in ``prompt_tokens_total``."""
    sweeps.assert_input_lengths_are_exact(sweep)
    assert sum(int(row["prompt_tokens"]) for row in sweep.run.rows) == sweep.gained[PROMPTED]


def test_no_prompt_hits_the_prefix_cache(sweep: Sweep) -> None:
    """Four levels, no block of 32 tokens from the cache; the same prompt sent again does hit."""
    sweeps.assert_prompts_are_fresh(sweep)
    assert sweep.gained[HITS] == 0
    assert {row["cached_tokens"] for row in sweep.run.rows} == {"0"}
    first = next(iter(sweep.exchanges.values())).request
    before = sweep.engine.counter(HITS)
    sweep.engine.post("/v1/chat/completions", {**first, "stream": False, "stream_options": None, "max_tokens": 1})
    assert sweep.engine.counter(HITS) >= before + 32, "this server's prefix cache is off: the test proves nothing"


def test_latencies_agree_with_the_servers_own(sweep: Sweep) -> None:
    """Against ``metrics`` in the last chunk of the same requests, as the wire carried it.

    The engine stamps tokens before its API server, a busy Python process, sends them: no answer can be seen to end
    earlier than the engine says. What it sends together is seen together; where it kept up with the engine, so that no
    read had more than one token, the time of the answer is the engine's.
    """
    rows = [row for row in sweep.run.rows if not row["error_kind"]]
    assert len(rows) == len(sweep.exchanges) > sum(sweeps.MEASURED.values())
    told: list[tuple[float, float]] = []
    for row in rows:
        metrics = sweep.exchanges[row["request_id"]].last("metrics")
        first_s, rest_s = metrics["time_to_first_token_ms"] / 1e3, metrics["generation_time_ms"] / 1e3
        assert seconds(row, "sent_s", "first_token_s") > first_s - 0.002
        assert seconds(row, "sent_s", "last_token_s") > first_s + rest_s - 0.002
        if row["merged_reads"] == "0":
            told.append((seconds(row, "first_token_s", "last_token_s"), rest_s))
    if len(told) < 3:
        pytest.skip("vLLM's API server kept up with its engine in too few requests: the machine is busy")
    assert median(ours for ours, _ in told) == pytest.approx(median(theirs for _, theirs in told), rel=0.1, abs=0.005)
