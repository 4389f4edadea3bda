"""Planned times, stamps, counters: the server's own record against counting by hand and against the client's clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from sim_process import Simulator, ask, figures

CHAT = "/v1/chat/completions"


def exchange(simulator: Simulator, tokens: int, name: str) -> tuple[float, float]:
    """Sends one request under its own id; when it was sent and when it was complete, on this process' clock."""
    connection = simulator.connect()
    connection.connect()
    sent_s = time.perf_counter()
    connection.request("POST", CHAT, json.dumps(ask(tokens)), {"X-Request-Id": name})
    connection.getresponse().read()
    done_s = time.perf_counter()
    connection.close()
    return sent_s, done_s


def row_of(simulator: Simulator, name: str) -> dict[str, Any]:
    (row,) = (row for row in simulator.truth() if row["client_id"] == name)
    return row


def test_planned_times_are_the_engine_s_and_do_not_drift(steady: Simulator) -> None:
    """100 steps of 10 ms after the arrival, to the microsecond, however late single wake-ups were."""
    exchange(steady, 100, "drift")
    row = row_of(steady, "drift")
    assert row["planned_first_token_s"] - row["arrival_s"] == pytest.approx(0.010, abs=1e-6)
    assert row["planned_last_token_s"] - row["arrival_s"] == pytest.approx(1.000, abs=1e-6)
    assert row["queue_wait_s"] == 0.0


def test_stamps_lie_between_the_client_s_own(steady: Simulator) -> None:
    """One clock for both processes: sent, arrived, role, tokens in order; received after the last write began."""
    sent_s, done_s = exchange(steady, 20, "clock")
    row = row_of(steady, "clock")
    moments = [sent_s, row["arrival_s"], row["first_token_begun_s"], row["role_s"], *row["token_s"]]
    assert moments == sorted(moments)
    assert row["token_s"][-2] < row["last_token_begun_s"] < row["token_s"][-1]
    assert row["last_token_begun_s"] < done_s
    assert (row["token_s"][0], row["token_s"][-1]) == (row["first_token_s"], row["last_token_s"])
    assert row["id"] == "chatcmpl-clock"
    assert (row["prompt_tokens"], row["output_tokens"], row["ended"]) == (11, 20, "length")


def test_tokens_are_written_when_they_are_due(steady: Simulator) -> None:
    """Never early; half of them within 5 ms, which a busy machine of two cores still gives."""
    exchange(steady, 60, "due")
    row = row_of(steady, "due")
    late = np.array(row["token_s"]) - (row["arrival_s"] + 0.010 * np.arange(1, 61))
    assert late.min() > -1e-6
    assert np.median(late) < 0.005
    assert row["max_late_s"] == pytest.approx(late.max(), abs=1e-6)


def test_speed_divides_every_time(start: Callable[..., Any]) -> None:
    """At speed 10 the 100 steps take 0.1 s."""
    with start("--speed", "10") as simulator:
        exchange(simulator, 100, "fast")
        row = row_of(simulator, "fast")
        assert row["planned_first_token_s"] - row["arrival_s"] == pytest.approx(0.001, abs=1e-6)
        assert row["planned_last_token_s"] - row["arrival_s"] == pytest.approx(0.100, abs=1e-6)
        assert row["token_s"] is None
        assert simulator.get_json("/truth")["speed"] == 10.0


def test_role_chunk_at_acceptance_comes_a_step_before_the_token(start: Callable[..., Any]) -> None:
    """The first event is then not the first token; in a cold start it is half a second too early."""
    with start("--role-chunk", "at-acceptance", "--cold-start", "0.5") as simulator:
        exchange(simulator, 2, "early")
        row = row_of(simulator, "early")
        assert row["role_s"] < row["arrival_s"] + 0.4
        assert row["first_token_s"] >= row["arrival_s"] + 0.51 - 1e-6


def test_truth_comes_in_pages(steady: Simulator) -> None:
    """``since`` and ``limit`` cut it; the numbers go on."""
    exchange(steady, 1, "page 1")
    exchange(steady, 1, "page 2")
    total = steady.get_json("/truth")["total"]
    page = steady.get_json(f"/truth?since={total - 2}&limit=1")
    assert [row["client_id"] for row in page["rows"]] == ["page 1"]
    assert page["next"] == total - 1
    assert [row["number"] for row in steady.get_json(f"/truth?since={page['next']}")["rows"]] == [total - 1]
    assert steady.get_json(f"/truth?since={total + 5}")["rows"] == []
    assert steady.call("GET", "/truth?since=x")[0] == 400


def test_a_client_that_leaves_ends_its_request(start: Callable[..., Any]) -> None:
    """The row says so, the engine is free, and no counter of finished requests moves, as in vLLM."""
    with start() as simulator:
        connection = simulator.connect()
        connection.request("POST", CHAT, json.dumps(ask(4000)))
        connection.getresponse().read(10)
        connection.close()
        until = time.monotonic() + 5
        while simulator.truth()[0]["ended"] is None and time.monotonic() < until:
            time.sleep(0.01)
        assert simulator.truth()[0]["ended"] == "client-left"
        counted = figures(simulator)
        assert counted["vllm:num_requests_running"] == 0
        assert counted["vllm:kv_cache_usage_perc"] == 0
        assert counted['vllm:request_success_total{"finished_reason": "abort"}'] == 0


def test_metrics_count_what_happened(start: Callable[..., Any]) -> None:
    """Two equal requests of 51 + 7 prompt and 3 output tokens: 48 tokens come from the cache the second time."""
    with start() as simulator:
        body = ask(3, messages=[{"role": "user", "content": "same " * 51}])
        for _ in range(2):
            simulator.call("POST", CHAT, body)
        simulator.call("POST", CHAT, ask(0))
        counted = figures(simulator)
    expected = {
        "vllm:prompt_tokens_total": 2 * 58,
        "vllm:generation_tokens_total": 2 * 3,
        "vllm:prefix_cache_queries_total": 2 * 58,
        "vllm:prefix_cache_hits_total": 48,
        'vllm:request_success_total{"finished_reason": "length"}': 2,
        'vllm:request_success_total{"finished_reason": "stop"}': 0,
        "vllm:time_to_first_token_seconds_count": 2,
        "vllm:inter_token_latency_seconds_count": 4,
        "vllm:e2e_request_latency_seconds_count": 2,
        "vllm:request_queue_time_seconds_count": 2,
        "vllm:num_preemptions_total": 0,
    }
    assert {name: counted[name] for name in expected} == expected
    (cache,) = (json.loads(name.partition("info")[2]) for name in counted if name.startswith("vllm:cache_config_info"))
    assert (cache["block_size"], cache["num_gpu_blocks"], cache["enable_prefix_caching"]) == ("16", "10000", "True")
    assert counted["vllm:time_to_first_token_seconds_sum"] == pytest.approx(2 * 0.010, abs=1e-6)
    assert counted["vllm:inter_token_latency_seconds_sum"] == pytest.approx(4 * 0.010, abs=1e-6)
    assert counted["vllm:e2e_request_latency_seconds_sum"] == pytest.approx(2 * 0.030, abs=1e-6)
    assert counted['vllm:e2e_request_latency_seconds_bucket{"le": "0.3"}'] == 2


def test_waiting_requests_show_in_gauges_and_queue_wait(start: Callable[..., Any]) -> None:
    """One place, three requests of 100 tokens: one runs, two wait, the last one for two others."""
    with start("--max-num-seqs", "1") as simulator, ExitStack() as stack:
        answers = []
        for _ in range(3):
            connection = simulator.connect()
            stack.callback(connection.close)
            connection.request("POST", CHAT, json.dumps(ask(100)))
            answers.append(connection.getresponse())  # headers come at acceptance: all three are in the queue
        counted = figures(simulator)
        assert (counted["vllm:num_requests_running"], counted["vllm:num_requests_waiting"]) == (1, 2)
        assert counted["vllm:kv_cache_usage_perc"] > 0
        for answer in answers:
            answer.read()
        first, second, third = simulator.truth()
        assert first["queue_wait_s"] == 0.0
        assert second["planned_first_token_s"] - first["planned_last_token_s"] == pytest.approx(0.010, abs=1e-6)
        waited = first["planned_last_token_s"] + 1.0 - third["arrival_s"]
        assert third["queue_wait_s"] == pytest.approx(waited, abs=1e-6)
