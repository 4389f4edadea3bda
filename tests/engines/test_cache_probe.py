"""The cache probe, the samples of ``/metrics`` and the durations of requests, with real engines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.contract.clients import client
from tests.engines.conftest import Engine, llamacpp_engine, vllm_engine
from tokenswarm.cache_probe import CacheProbe, probe_cache
from tokenswarm.endpoint import Endpoint
from tokenswarm.protocols import chat_body
from tokenswarm.scenario import Target
from tokenswarm.survey import survey
from tokenswarm.target import Caller, counting_server, prober
from tokenswarm.telemetry import EngineSampler
from tokenswarm.tokens import TokenCounter

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """As it is by default, with short slots: the probe takes prompts as long as fit into one."""
    with llamacpp_engine(tmp_path_factory.mktemp("llamacpp"), "--slot-tokens", "256") as engine:
        yield engine


def surveyed(engine: Engine, model: str) -> TokenCounter:
    return survey(counting_server(Endpoint.parse(engine.url), Target(), {}, model))


def probed(engine: Engine, model: str) -> CacheProbe:
    """As before a run."""
    endpoint, target = Endpoint.parse(engine.url), Target()
    return probe_cache(prober(endpoint, target, {}, model), surveyed(engine, model))


def test_cache_probe_on_vllm(vllm: Engine) -> None:
    """Caching on in blocks of 32, the salt isolates, ``cached_tokens`` are reported; the engine's settings agree."""
    before = vllm.counter("vllm:request_success_total")
    found = probed(vllm, "tiny")
    assert found == CacheProbe(
        state="on",
        block_tokens=32,
        salt="isolates",
        nonce_isolates=True,
        reports_cached_tokens=True,
        flag=None,
        line="on, blocks of 32 tokens, cache_salt isolates, a nonce isolates, cached_tokens reported",
    )
    assert vllm.counter("vllm:request_success_total") - before == 8
    (settings,) = re.findall(r"^vllm:cache_config_info\{(.*)\}", vllm.get("/metrics"), re.MULTILINE)
    assert 'block_size="32"' in settings
    assert 'enable_prefix_caching="True"' in settings


def test_cache_probe_on_llamacpp(llamacpp: Engine) -> None:
    """Caching on to the token; the salt is ignored, the nonce isolates though every prompt begins with the template."""
    found = probed(llamacpp, "smollm2")
    assert (found.state, found.block_tokens, found.salt, found.nonce_isolates) == ("on", 1, "ignored", True)
    assert (found.reports_cached_tokens, found.flag) == (True, None)


def test_cache_probe_on_vllm_without_a_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The engine says that it is off, and nothing is found."""
    options = ("--no-enable-prefix-caching", "--enable-prompt-tokens-details")
    with vllm_engine(tmp_path_factory.mktemp("off"), options) as engine:
        found = probed(engine, "tiny")
        assert (found.state, found.block_tokens, found.salt) == ("off", None, None)


@pytest.mark.parametrize(("name", "model"), [("vllm", "tiny"), ("llamacpp", "smollm2")])
def test_cache_probe_samples(name: str, model: str, request: pytest.FixtureRequest) -> None:
    """What the samples at two edges gained is what the answers between them said: prompt, cached and answer tokens."""
    engine: Engine = request.getfixturevalue(name)
    rows: list[dict[str, Any]] = []
    caller = Caller({}, Target(), timeout_s=5)
    sampler = EngineSampler(lambda: caller.get(engine.url + "/metrics"), rows.append, interval_s=60)
    text = surveyed(engine, model).make_text(Random(name), 200)
    sampler.edge(0, "start")
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 8}
    told = [engine.post("/v1/chat/completions", body)["usage"] for _ in range(3)]
    sampler.edge(0, "end")
    assert [(row["level"], row["edge"]) for row in rows] == [(0, "start"), (0, "end")]
    assert sampler.note is None
    gained = {field: rows[1][field] - rows[0][field] for field in rows[0] if isinstance(rows[0][field], int | float)}
    cached = sum(one["prompt_tokens_details"]["cached_tokens"] for one in told)
    assert cached >= 2 * 192
    assert gained["prompt_tokens"] == sum(one["prompt_tokens"] for one in told)
    assert gained["cached_prompt_tokens"] == cached
    assert gained["generation_tokens"] == sum(one["completion_tokens"] for one in told)
    assert rows[1]["running"] == rows[1]["waiting"] == 0
    if name == "vllm":
        assert (gained["prefix_queries"], gained["prefix_hits"]) == (gained["prompt_tokens"], cached)
        assert gained["requests_ok"] == gained["ttft_count"] == gained["queue_count"] == gained["e2e_count"] == 3
        assert 0 < gained["prefill_sum_s"] < gained["ttft_sum_s"] < gained["e2e_sum_s"]
    else:
        assert rows[1]["kv_usage"] is rows[1]["ttft_count"] is rows[1]["requests_ok"] is None


@pytest.mark.parametrize(("name", "model"), [("vllm", "tiny"), ("llamacpp", "smollm2")])
def test_cache_probe_durations(name: str, model: str, request: pytest.FixtureRequest) -> None:
    """The server's own durations of a request are within what the client saw, and are those that the wire carried."""
    engine: Engine = request.getfixturevalue(name)
    one = client(engine.wire.url)
    exchange = one.send(chat_body(model, [{"role": "user", "content": "Tell me more"}], max_tokens=24, ignore_eos=True))
    one.close()
    assert exchange.ok, exchange.error
    assert exchange.first_token_s is not None
    assert exchange.sent_s is not None
    assert exchange.server_prefill_s is not None
    assert exchange.server_decode_s is not None
    queue_s = exchange.server_queue_s or 0.0
    assert (exchange.server_queue_s is None) == (name == "llamacpp")
    assert 0 < queue_s + exchange.server_prefill_s < exchange.first_token_s - exchange.sent_s + 0.002
    (streamed,) = [said for said in engine.wire.exchanges() if said.id == exchange.request_id]
    told = streamed.last("metrics" if name == "vllm" else "timings")
    decode_ms = told["generation_time_ms" if name == "vllm" else "predicted_ms"]
    assert exchange.server_decode_s == pytest.approx(decode_ms / 1000)
