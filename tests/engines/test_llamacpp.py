"""llama.cpp's real server with SmolLM2-135M, on one core."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import takewhile
from statistics import median
from typing import Any

import pytest

from tests.engines import sweep as sweeps
from tests.engines.conftest import Engine, llamacpp_engine
from tests.engines.sweep import Sweep, seconds
from tests.locust_process import Run

pytestmark = pytest.mark.engine

PREDICTED = "llamacpp:tokens_predicted_total"
CACHED = "llamacpp:prompt_tokens_cached_total"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """One sweep at 1, 2, 4 and 8 users, looked at by several tests."""
    folder = tmp_path_factory.mktemp("llamacpp")
    with llamacpp_engine(folder) as engine:
        yield sweeps.play_sweep(engine, folder, (PREDICTED, CACHED))


def test_sweep_gives_a_table_without_failures(sweep: Sweep) -> None:
    """Exactly the planned requests at each level, none failed, figures in the table."""
    sweeps.assert_table_without_failures(sweep)


def test_output_tokens_are_the_servers_own_count(sweep: Sweep) -> None:
    """The rows add up to ``tokens_predicted_total``, and each agrees with its stream."""
    sweeps.assert_output_tokens_are_the_servers(sweep, PREDICTED)


def test_input_lengths_are_exact(sweep: Sweep) -> None:
    """The server bills each prompt as long as the scenario asked, chat template included."""
    sweeps.assert_input_lengths_are_exact(sweep)


def test_no_prompt_is_in_the_cache_from_an_earlier_one(sweep: Sweep) -> None:
    """All that comes from llama.cpp's cache is the head of its chat template, which every prompt begins with.

    A word or a few may follow it by chance: 24 openings and some frequent words meet in 50 prompts. Six in a row do
    not, and at least 30 tokens of each prompt are ours.
    """
    sweeps.assert_prompts_are_fresh(sweep)
    head = head_tokens(sweep.engine, "user", {})
    assert 10 < head < 30
    cached = [int(row["cached_tokens"]) for row in sweep.run.rows]
    assert max(cached) <= head + 6
    assert median(cached) <= head + 1
    assert sum(cached) == sweep.gained[CACHED]
    one = {**next(iter(sweep.exchanges.values())).request, "stream": False, "max_tokens": 1}
    _, again = (sweep.engine.post("/v1/chat/completions", one)["usage"] for _ in range(2))
    found = again["prompt_tokens_details"]["cached_tokens"]
    assert found >= again["prompt_tokens"] - 1 > head + 6, "this server's cache is off: the test proves nothing"


def test_latencies_agree_with_the_servers_own(sweep: Sweep) -> None:
    """TTFT and TPOT against ``timings`` of the same requests, as the wire carried them.

    The server's clock for a prompt starts when a slot takes it, after HTTP, template and tokenizer, and after the
    batch that was running; so with one user TTFT is a few milliseconds more than ``prompt_ms``, and never less.
    """
    rows = [row for row in sweep.run.rows if not row["error_kind"]]
    assert len(rows) == len(sweep.exchanges) > sum(sweeps.MEASURED.values())
    timings = {row["request_id"]: sweep.exchanges[row["request_id"]].last("timings") for row in rows}
    for row in rows:
        assert seconds(row, "sent_s", "first_token_s") > timings[row["request_id"]]["prompt_ms"] / 1e3 - 0.002
    alone = [row for row in rows if row["concurrency"] == "1"]
    theirs_s = median(timings[row["request_id"]]["prompt_ms"] / 1e3 for row in alone)
    ours_s = median(seconds(row, "sent_s", "first_token_s") for row in alone)
    assert ours_s == pytest.approx(theirs_s, rel=0.1, abs=0.02)
    for level in sweep.run.table()["levels"]:
        measured = [row for row in sweep.run.measured() if row["level"] == str(level["level"])]
        theirs = [
            timings[row["request_id"]]["predicted_ms"] / 1e3 / (int(row["output_tokens"]) - 1) for row in measured
        ]
        assert level["figures"]["tpot_p50_s"]["value"] == pytest.approx(median(theirs), rel=0.03, abs=0.001)


def test_several_turns_carry_the_models_own_answers(llamacpp: Engine, locust: Callable[..., Run]) -> None:
    """Turn by turn the history is what the server streamed before, and the server finds it in its cache."""
    scenario = """
traffic:
  - {name: talk, turns: 3, input_tokens: 60, output_tokens: 16}
load:
  closed: {users: [2], sessions: 4, warmup_sessions: 0, tail: drain}
"""
    run = locust("-H", llamacpp.wire.url, scenario=scenario)
    assert run.good, run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    assert Counter(row["turn"] for row in run.rows) == {"0": 4, "1": 4, "2": 4}
    exchanges = {one.id: one for one in llamacpp.wire.exchanges()}
    played = {(row["session"], int(row["turn"])): row for row in run.rows}
    for (session, turn), row in played.items():
        exchange = exchanges[row["request_id"]]
        messages = exchange.request["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant"] * turn + ["user"]
        assert int(row["prompt_tokens"]) == exchange.last("usage")["prompt_tokens"]
        if turn == 0:
            assert int(row["prompt_tokens"]) == 60
            continue
        before = played[session, turn - 1]
        asked = exchanges[before["request_id"]]
        assert messages[:-2] == asked.request["messages"]
        assert messages[-2]["content"] == asked.text != ""
        # the answer is read again as text, so that it may make a token more or less than were generated
        grown = int(row["prompt_tokens"]) - int(before["prompt_tokens"])
        assert abs(grown - int(before["output_tokens"]) - int(row["asked_input_tokens"])) <= 3
        assert int(row["cached_tokens"]) >= int(before["prompt_tokens"]) - 8


@pytest.mark.parametrize(
    ("api", "prompts"), [("chat", "random_ids"), ("completions", "random_ids"), ("completions", "words")]
)
def test_other_prompts_are_as_long_as_asked(
    llamacpp: Engine, locust: Callable[..., Run], api: str, prompts: str
) -> None:
    """Random tokens in chats, as ids and as words in completions: lengths exact, no failure, nothing from the cache."""
    scenario = f"""
target: {{api: {api}}}
traffic:
  - {{name: one, prompts: {prompts}, input_tokens: {{uniform: [50, 70]}}, output_tokens: 8}}
load:
  closed: {{users: [2], sessions: 6, warmup_sessions: 0, tail: drain}}
"""
    run = locust("-H", llamacpp.wire.url, scenario=scenario)
    assert run.good, run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    assert len(run.rows) == 6
    exchanges = {one.id: one for one in llamacpp.wire.exchanges()}
    sends_ids = (api, prompts) == ("completions", "random_ids")
    head = 30 if api == "chat" else 6
    for row in run.rows:
        exchange = exchanges[row["request_id"]]
        assert exchange.path == ("/v1/chat/completions" if api == "chat" else "/v1/completions")
        assert isinstance(exchange.request.get("prompt"), list) == sends_ids
        assert int(row["asked_input_tokens"]) == int(row["prompt_tokens"]) == exchange.last("usage")["prompt_tokens"]
        assert int(row["output_tokens"]) == exchange.last("usage")["completion_tokens"] == 8
        assert int(row["cached_tokens"]) <= head
    assert len({int(row["prompt_tokens"]) for row in run.rows}) > 1


def test_a_server_killed_in_the_middle(llamacpp: Engine, locust: Callable[..., Run]) -> None:
    """Streams that were cut are rows, so are the refused ones after them; the run ends by itself and says so."""
    scenario = """
traffic:
  - {name: chat, input_tokens: 60, output_tokens: 300}
load:
  closed: {users: [4], sessions: 12, warmup_sessions: 0, tail: drain}
"""

    def kill_when_answering(_locust: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 90
        while llamacpp.counter("llamacpp:n_decode_total") < 30 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(llamacpp.process.pid, signal.SIGKILL)

    run = locust("-H", llamacpp.url, scenario=scenario, watch=kill_when_answering)
    assert len(run.measured()) == 12, run.output
    cut = [row for row in run.rows if row["headers_s"]]
    assert 1 <= len(cut) <= 4
    assert {row["error_kind"] for row in cut} <= {"truncated", "reset"}
    # a dying process may still take a connection, so that not each of the others is refused
    assert {row["error_kind"] for row in run.rows if not row["headers_s"]} <= {"refused", "reset"}
    assert any(row["first_token_s"] and int(row["chunks"]) > 1 for row in cut)
    assert all(row["output_tokens"] == "" for row in run.rows), "a count that the server never gave"
    assert run.code not in (0, -9), run.output
    (level,) = run.table()["levels"]
    assert (level["requests"], level["failed"]) == (12, 12)


def head_tokens(engine: Engine, role: str, fields: dict[str, Any]) -> int:
    """Leading tokens that two requests have in common whose first messages differ; as the server renders them."""
    one, other = (_prompt_ids(engine, {**fields, "messages": [{"role": role, "content": text}]}) for text in "Az")
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _prompt_ids(engine: Engine, request: dict[str, Any]) -> list[int]:
    rendered = engine.post("/apply-template", request)["prompt"]
    answer = engine.post("/tokenize", {"content": rendered, "add_special": True, "parse_special": True})
    return list(answer["tokens"])
