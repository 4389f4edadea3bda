"""Who shares cached blocks with whom, over real sockets, and what the server says about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sim_process import ROOT, Simulator, ask, events, figures, running_simulator

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LABELS = "vllm:cache_config_info"
KNOWN = ROOT / "tests/data/simulator/known-prefill.yaml"


def long_ask(words: str, **more: Any) -> dict[str, Any]:
    """100 words in a message: 107 prompt tokens, of which 6 blocks of 16 can be cached."""
    return ask(1, messages=[{"role": "user", "content": f"{words} " * 100}], stream=False, **more)


def cached(simulator: Simulator, body: dict[str, Any], path: str = CHAT) -> int:
    """Prompt tokens from the cache as usage and the server's own record tell, which must agree."""
    status, _, raw = simulator.call("POST", path, body)
    assert status == 200, raw
    told: int = json.loads(raw)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert simulator.truth()[-1]["cached_tokens"] == told
    return told


def test_only_equal_salts_share_blocks(start: Callable[..., Any]) -> None:
    """As recorded from vLLM: same 736, salt A 0, again 736, salt B 0. Here 96 of 107, and the counters add up."""
    with start() as simulator:
        got = [cached(simulator, long_ask("same", cache_salt=salt)) for salt in (None, None, "A", "A", "B", None)]
        assert got == [0, 96, 0, 96, 0, 96]
        counted = figures(simulator)
    assert counted["vllm:prefix_cache_queries_total"] == 6 * 107
    assert counted["vllm:prefix_cache_hits_total"] == 3 * 96


def test_the_salt_separates_text_completions_too(start: Callable[..., Any]) -> None:
    """33 tokens of text: two blocks."""
    with start() as simulator:
        body = {"prompt": "word " * 33, "max_tokens": 1}
        got = [cached(simulator, {**body, "cache_salt": salt}, TEXT) for salt in ("A", "A", "B")]
    assert got == [0, 32, 0]


@pytest.mark.parametrize("salt", ["", 7, ["A"], True, "a/b", "x" * 129])
def test_a_salt_that_is_no_salt_is_a_400(steady: Simulator, salt: Any) -> None:
    """The empty string as recorded from vLLM; the other conditions are those of its validation."""
    for path, body in ((CHAT, long_ask("w", cache_salt=salt)), (TEXT, {"prompt": "w", "cache_salt": salt})):
        status, _, raw = steady.call("POST", path, body)
        error = json.loads(raw)["error"]
        assert (status, error["code"], error["type"], error["param"]) == (400, 400, "BadRequestError", "cache_salt")


def test_a_server_can_ignore_the_salt(start: Callable[..., Any]) -> None:
    """As llama.cpp does, which takes even an empty one."""
    with start("--set", "salt=ignored") as simulator:
        assert [cached(simulator, long_ask("same", cache_salt=salt)) for salt in ("A", "B", "")] == [0, 96, 96]


def test_cached_tokens_can_be_kept_from_the_client(start: Callable[..., Any]) -> None:
    """A vLLM without --enable-prompt-tokens-details: no details, streamed or not, while the cache works."""
    with start("--set", "report_cached_tokens=false") as simulator:
        for _ in range(2):
            assert "prompt_tokens_details" not in json.loads(simulator.call("POST", CHAT, long_ask("w"))[2])["usage"]
        body = {**long_ask("w"), "stream": True, "stream_options": {"include_usage": True}}
        usage = events(simulator.call("POST", CHAT, body)[2])[-2]["usage"]
        assert usage == {"prompt_tokens": 107, "completion_tokens": 1, "total_tokens": 108}
        assert [row["cached_tokens"] for row in simulator.truth()] == [0, 96, 96]


def test_metrics_can_be_left_out(start: Callable[..., Any]) -> None:
    """404 with the body vLLM's web framework gives."""
    with start("--set", "metrics=false") as simulator:
        assert simulator.call("GET", "/metrics")[::2] == (404, b'{"detail":"Not Found"}')
        assert simulator.call("GET", "/health")[0] == 200


@pytest.mark.parametrize(
    ("preset", "enabled", "queries"), [("cache-off", "False", 0), ("cache-inert", "True", 214), ("demo", "True", 214)]
)
def test_presets_without_a_working_cache_say_so_or_not(preset: str, enabled: str, queries: int) -> None:
    """Two equal requests of 107 tokens: off looks nothing up, inert looks and finds nothing, the demo finds 96."""
    with running_simulator("--preset", preset, "--speed", "20") as simulator:
        got = [cached(simulator, long_ask("same")) for _ in range(2)]
        now = figures(simulator)
    hits = 96 if preset == "demo" else 0
    assert got == [0, hits]
    assert (now["vllm:prefix_cache_queries_total"], now["vllm:prefix_cache_hits_total"]) == (queries, hits)
    assert (
        json.loads(next(name for name in now if name.startswith(LABELS))[len(LABELS) :])["enable_prefix_caching"]
        == enabled
    )


def test_the_known_prefill_arithmetic_holds() -> None:
    """2,007 prompt tokens cold: 5 + 200.7 ms; the same again computes 2,007 - 2,000: 5 + 0.7 ms; each token 5 ms."""
    with running_simulator("--preset", str(KNOWN), "--speed", "10") as simulator:
        body = ask(3, messages=[{"role": "user", "content": "word " * 2000}])
        for _ in range(2):
            simulator.call("POST", CHAT, body)
        cold, warm = simulator.truth()
    assert (cold["prompt_tokens"], cold["cached_tokens"], warm["cached_tokens"]) == (2007, 0, 2000)
    for row, ttft_s in ((cold, 0.2057), (warm, 0.0057)):
        assert (row["planned_first_token_s"] - row["arrival_s"]) * 10 == pytest.approx(ttft_s, abs=1e-5)
        assert (row["planned_last_token_s"] - row["planned_first_token_s"]) * 10 == pytest.approx(0.010, abs=1e-5)
