"""Draft tokens as a client sees them: several tokens a chunk, exact counts, vLLM's counters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sim_process import STEADY, Simulator, ask, events, running_simulator

CHAT = "/v1/chat/completions"

# Steps of 10 ms; of two draft tokens the first is always right and the second never: two tokens a step.
DRAFTS = STEADY + "speculative: {acceptance: [1.0, 0.0], step_s: {0: 0.010}}\n"

# The names a vLLM 0.32 with speculative decoding was seen to serve.
COUNTERS = [
    "vllm:spec_decode_num_drafts",
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens",
    "vllm:spec_decode_num_accepted_tokens_per_pos",
]


@pytest.fixture(scope="module")
def preset(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("presets") / "drafts.yaml"
    path.write_text(DRAFTS)
    return str(path)


@pytest.fixture
def drafting(preset: str) -> Iterator[Simulator]:
    with running_simulator("--preset", preset, "--truth", "tokens") as simulator:
        yield simulator


def deltas(simulator: Simulator, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks with text of a streamed answer."""
    status, _, raw = simulator.call("POST", CHAT, body)
    assert status == 200
    chunks = [event for event in events(raw) if event != "[DONE]"]
    return [chunk for chunk in chunks if chunk.get("choices") and chunk["choices"][0]["delta"]["content"]]


def words_of(chunks: list[dict[str, Any]]) -> list[int]:
    """Words a chunk; the simulated model's tokens are words."""
    return [len(chunk["choices"][0]["delta"]["content"].split()) for chunk in chunks]


def counters(simulator: Simulator) -> dict[str, list[float]]:
    """Totals by name without ``_total``, in the order of their positions where they have one."""
    found: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(simulator.call("GET", "/metrics")[2].decode()):
        found[family.name] = [sample.value for sample in family.samples if sample.name.endswith(("_total", "_count"))]
    return found


def test_the_tokens_of_a_step_come_in_one_chunk(drafting: Simulator) -> None:
    """8 tokens: one from the prompt, two a step, the last one alone; its chunk says why the answer ended."""
    chunks = deltas(drafting, ask(8))
    assert words_of(chunks) == [1, 2, 2, 2, 1]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["length"]


def test_counts_are_those_of_tokens_and_not_of_chunks(drafting: Simulator) -> None:
    """Usage at the end and on every chunk, and the same text as without streaming."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = deltas(drafting, ask(8, stream_options=options))
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [1, 3, 5, 7, 8]
    last = [e for e in events(drafting.call("POST", CHAT, ask(8, stream_options=options))[2]) if e != "[DONE]"][-1]
    assert last["usage"]["completion_tokens"] == 8
    whole = json.loads(drafting.call("POST", CHAT, ask(8, stream=False))[2])
    assert whole["usage"]["completion_tokens"] == 8
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert whole["choices"][0]["message"]["content"] == text
    assert len(text.split()) == 8


def test_the_record_has_every_token_at_the_end_of_its_step(drafting: Simulator) -> None:
    """5 steps of 10 ms for 8 tokens; both tokens of a step have one stamp."""
    deltas(drafting, ask(8))
    (row,) = drafting.truth()
    assert (row["output_tokens"], row["chunks"], row["ended"]) == (8, 5, "length")
    assert row["planned_first_token_s"] - row["arrival_s"] == pytest.approx(0.010, abs=1e-6)
    assert row["planned_last_token_s"] - row["arrival_s"] == pytest.approx(0.050, abs=1e-6)
    stamps = row["token_s"]
    assert len(stamps) == 8
    assert [stamps.count(stamp) for stamp in dict.fromkeys(stamps)] == [1, 2, 2, 2, 1]


def test_metrics_count_drafts_under_vllm_s_names(drafting: Simulator) -> None:
    """4 drafts of 2 tokens, the first one of each right; a step is one latency, whatever tokens it gave, as in vLLM."""
    deltas(drafting, ask(8))
    found = counters(drafting)
    assert [found[name] for name in COUNTERS] == [[4], [8], [4], [4, 0]]
    assert found["vllm:generation_tokens"] == [8]
    assert found["vllm:inter_token_latency_seconds"] == [4]


def test_without_drafts_there_are_no_such_counters(steady: Simulator) -> None:
    """Absent, not 0, as in vLLM."""
    assert not [name for name in counters(steady) if "spec_decode" in name]


def test_chunks_of_several_tokens_hold_whole_steps(preset: str) -> None:
    """With three tokens a chunk and two a step, a chunk waits for its second step and carries both."""
    with running_simulator("--preset", preset, "--tokens-per-chunk", "3") as simulator:
        assert words_of(deltas(simulator, ask(8))) == [1, 4, 3]


def test_a_failure_after_so_many_tokens_lets_none_beyond_it_out(preset: str) -> None:
    """After 4 tokens: 1 and 2 are out, and the step that would make it 5 fails."""
    with running_simulator("--preset", preset, "--fault", "error-in-stream:after_tokens=4") as simulator:
        deltas(simulator, ask(8))
        (row,) = simulator.truth()
        assert (row["output_tokens"], row["ended"]) == (3, "error-in-stream")
