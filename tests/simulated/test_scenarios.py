"""What a scenario says is what the server gets: every file in git, several turns, prompt files, class mixes, URLs."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.simulated.conftest import ROOT, Run, Simulator, sessions_of
from tests.simulated.scripted import Handler, Scripted, good, scripted
from tokenswarm.scenario import load_scenario

SCENARIOS = [path for path in sorted((ROOT / "scenarios").rglob("*.yaml")) if "material" not in path.parts]
MIXED = ROOT / "locustfiles" / "mixed.py"


def _one_ticket_a_class(path: Path) -> str:
    """The file with one session of each class for its load, short pauses, and no target of its own."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content.get("target", {}).pop("simulator", None)
    for one in content["traffic"]:
        _shorten(one, path.parent)
    replay = content.get("load", {}).get("replay")
    if replay is None:
        content["load"] = {"closed": {"users": 1, "sessions": len(content["traffic"]), "tail": "drain"}}
    else:
        replay |= {"trace": str((path.parent / replay["trace"]).resolve()), "most_sessions": len(content["traffic"])}
    for key in ("objectives", "prefix_cache", "interference"):
        content.pop(key, None)
    return yaml.safe_dump(content)


def _shorten(traffic: dict[str, Any], folder: Path) -> None:
    traffic["weight"] = 1
    traffic.pop("objective", None)
    for pause in {"think_time_s", "tool_time_s"} & traffic.keys():
        traffic[pause] = 0.05
    prompts = traffic.get("prompts")
    files = [(traffic, "tools"), (traffic, "trajectories"), *([(prompts, "file")] if isinstance(prompts, dict) else [])]
    for place, key in files:
        if key in place:
            place[key] = str((folder / place[key]).resolve())


@pytest.mark.parametrize("path", SCENARIOS, ids=[str(path.relative_to(ROOT / "scenarios")) for path in SCENARIOS])
def test_every_scenario_in_git_runs_one_ticket_a_class(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], path: Path
) -> None:
    """It loads as it stands, and against the engine it is written for every class plays a session to its end."""
    scenario = load_scenario(path)
    server = simulator("--speed", "100", "--no-stall", preset=scenario.target.simulator or "demo")
    run = locust("-H", server.url, scenario=_one_ticket_a_class(path), locustfile=MIXED)
    assert run.good, run.output
    assert {row["traffic"] for row in run.measured()} == {one.name for one in scenario.traffic}
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    truth = {row["id"]: row for row in server.truth()}
    for row in run.rows:
        fact = truth[row["request_id"]]
        assert int(row["prompt_tokens"]) == fact["prompt_tokens"]
        assert int(row["output_tokens"]) == fact["output_tokens"] <= int(row["asked_output_tokens"])
        if row["turn"] == "0" and row["asked_input_tokens"]:
            assert fact["prompt_tokens"] == int(row["asked_input_tokens"])


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_the_history_grows_by_the_real_answer_and_the_next_message(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], api: str
) -> None:
    """Each prompt is the last one, the answer the server gave to it, and 25 tokens more; pauses are in no latency."""
    server = simulator("--speed", "10")
    scenario = (
        f"target: {{api: {api}}}\n"
        "traffic: [{turns: 4, input_tokens: 25, output_tokens: {uniform: [5, 40]}, think_time_s: 0.3}]\n"
        "load: {closed: {users: 3, sessions: 3, tail: drain}}\n"
    )
    run = locust("-H", server.url, "--csv", "out", scenario=scenario)
    assert run.good, run.output
    truth = {row["id"]: row for row in server.truth()}
    assert len(truth) == 12
    for rows in sessions_of(run.rows).values():
        assert [row["turn"] for row in rows] == ["0", "1", "2", "3"]
        facts = [truth[row["request_id"]] for row in rows]
        assert facts[0]["prompt_tokens"] == 25
        for earlier, later in pairwise(facts):
            grown = later["prompt_tokens"] - earlier["prompt_tokens"] - earlier["output_tokens"]
            assert grown == 25 if api == "chat" else 24 <= grown <= 25  # in a text, answer and prompt may join
            assert later["cached_tokens"] >= (earlier["prompt_tokens"] // 16 - 1) * 16, "the same words come first"
        for before, after in pairwise(rows):
            pause_s = float(after["sent_s"]) - float(before["finished_s"])
            assert 0.3 <= pause_s < 0.6
            assert float(after["sent_s"]) - float(after["scheduled_s"]) < 0.3
            assert float(after["finished_s"]) - float(after["sent_s"]) < 0.3
    (level,) = run.table()["levels"]
    assert level["figures"]["e2e_mean_s"]["value"] < 0.3
    assert level["requests"] == 12


def _bodies(server: Scripted) -> list[dict[str, Any]]:
    return [one["body"] for one in server.requests]


PROMPT_FILES = {
    "prompts.jsonl": '{"prompt": "First one"}\n{"text": "Second one"}\n"Third one"\n',
    "messages.jsonl": json.dumps(
        {"messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hello"}]}
    ),
    "sharegpt.json": json.dumps(
        [
            {"conversations": [
                {"from": "human", "value": "Question 1"}, {"from": "gpt", "value": "an old answer"},
                {"from": "human", "value": "Question 2"},
            ]},
        ]
    ),
}  # fmt: skip


def test_prompts_come_from_files_with_their_own_turns(locust: Callable[..., Run], tmp_path: Path) -> None:
    """JSONL in three layouts and ShareGPT: texts as they stand, the model's own answers instead of the file's."""
    for name, text in PROMPT_FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def scenario(name: str, sessions: int) -> str:
        return (
            f"traffic: [{{prompts: {{file: {name}}}, output_tokens: 9, ignore_eos: false}}]\n"
            f"load: {{closed: {{users: 1, sessions: {sessions}, tail: drain}}}}\n"
        )

    def answer(http: Handler, number: int) -> None:
        http.stream(*good(("My", " own")))

    with scripted(answer) as server:
        assert locust("-H", server.url, scenario=scenario("prompts.jsonl", 3)).good
        texts = [body["messages"] for body in _bodies(server)]
        assert sorted(one[0]["content"] for one in texts) == ["First one", "Second one", "Third one"]
        assert all(len(one) == 1 for one in texts)
        assert [body["max_tokens"] for body in _bodies(server)] == [9, 9, 9]
        assert not any(body.get("ignore_eos") for body in _bodies(server))
        server.requests.clear()
        assert locust("-H", server.url, scenario=scenario("messages.jsonl", 1)).good
        (body,) = _bodies(server)
        assert body["messages"] == [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hello"}]
        server.requests.clear()
        assert locust("-H", server.url, scenario=scenario("sharegpt.json", 1)).good
        first, second = _bodies(server)
        assert first["messages"] == [{"role": "user", "content": "Question 1"}]
        assert second["messages"] == [
            {"role": "user", "content": "Question 1"},
            {"role": "assistant", "content": "My own"},
            {"role": "user", "content": "Question 2"},
        ]


def test_unusable_prompts_are_told_before_the_load(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], tmp_path: Path
) -> None:
    """Each bad line of the file is one line of the message; nothing is sent."""
    (tmp_path / "bad.jsonl").write_text('{"prompt": "good"}\n{"prompt": 5}\nno json\n')
    server = simulator()
    run = locust("-H", server.url, scenario="traffic: [{prompts: {file: bad.jsonl}}]\n")
    assert run.code == 2, run.output
    told = [line for line in run.errors.splitlines() if "bad.jsonl:" in line]
    assert ["bad.jsonl:2:" in told[0], "bad.jsonl:3:" in told[1], len(told)] == [True, True, 2]
    assert "Traceback" not in run.output
    assert server.truth() == []


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "forked"])
def test_classes_are_mixed_by_their_weights_exactly(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], processes: tuple[str, ...]
) -> None:
    """Weights 6:3:1 over 40 sessions are 24, 12 and 4, at every level, whoever plays them; each has its own lengths."""
    server = simulator("--speed", "20")
    scenario = (
        "traffic:\n"
        "  - {name: short, weight: 6, input_tokens: 20, output_tokens: 4}\n"
        "  - {name: system, weight: 3, input_tokens: 60, output_tokens: 6, system_prompt: You are a helpful clerk.}\n"
        "  - {name: random, weight: 1, input_tokens: 40, output_tokens: 8, prompts: random_ids}\n"
        "load: {closed: {users: [1, 4], sessions: 40, tail: drain}}\n"
    )
    run = locust("-H", server.url, *processes, scenario=scenario)
    assert run.good, run.output
    counts = Counter((row["level"], row["traffic"]) for row in run.measured())
    assert counts == {(level, name): n for level in "01" for name, n in (("short", 24), ("system", 12), ("random", 4))}
    truth = {row["id"]: row for row in server.truth()}
    wanted = {"short": (20, 4), "system": (60, 6), "random": (40, 8)}
    for row in run.measured():
        fact = truth[row["request_id"]]
        assert (fact["prompt_tokens"], fact["output_tokens"]) == wanted[row["traffic"]]
    table = run.table()
    assert {(row["concurrency"], row["traffic"], row["requests"]) for row in table["classes"]} == {
        (users, name, n) for users in (1, 4) for name, n in (("short", 24), ("system", 12), ("random", 4))
    }


def test_random_ids_go_out_as_ids_to_completions(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """Token ids need no words: the prompt has exactly as many tokens as were asked for, and none is cached."""
    server = simulator("--speed", "20")
    scenario = (
        "target: {api: completions}\n"
        "traffic: [{prompts: random_ids, input_tokens: {uniform: [90, 110]}, output_tokens: 5}]\n"
        "load: {closed: {users: 2, sessions: 12, tail: drain}}\n"
    )
    run = locust("-H", server.url, scenario=scenario)
    assert run.good, run.output
    truth = {row["id"]: row for row in server.truth()}
    lengths = {truth[row["request_id"]]["prompt_tokens"] == int(row["asked_input_tokens"]) for row in run.rows}
    assert lengths == {True}
    assert len({row["asked_input_tokens"] for row in run.rows}) > 3
    assert {row["cached_tokens"] for row in server.truth()} == {0}


def test_bodies_have_the_scenarios_fields_and_headers(locust: Callable[..., Run]) -> None:
    """Extra request fields, headers, lengths and the wish for usage stand in every body; nothing is invented."""
    scenario = (
        "target:\n"
        "  request: {temperature: 0.5, chat_template_kwargs: {enable_thinking: false}}\n"
        "  headers: {X-Team: load-tests}\n"
        "traffic: [{input_tokens: 30, output_tokens: 3, system_prompt: Be kind.}]\n"
        "load: {closed: {users: 1, sessions: 2, tail: drain}}\n"
    )
    with scripted(lambda http, number: http.stream(*good())) as server:
        run = locust("-H", server.url, "--model", "scripted", scenario=scenario)
    assert run.good, run.output
    for one in server.requests:
        body = one["body"]
        assert one["headers"]["X-Team"] == "load-tests"
        assert (body["model"], body["max_tokens"], body["temperature"]) == ("scripted", 3, 0.5)
        assert body["chat_template_kwargs"] == {"enable_thinking": False}
        assert body["stream_options"] == {"include_usage": True}
        assert body["messages"][0] == {"role": "system", "content": "Be kind."}
    assert server.requests[0]["body"]["messages"][1] != server.requests[1]["body"]["messages"][1]


@pytest.mark.parametrize("tail", ["/", "/v1"])
def test_the_base_url_may_end_in_v1(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str], tail: str
) -> None:
    """With and without /v1 and a slash: the same server."""
    server = simulator("--speed", "20")
    run = locust("-H", server.url + tail, scenario=closed_scenario("users: 1, sessions: 2"))
    assert run.good, run.output
    assert len(run.measured()) == 2


def _ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _ipv6_loopback(), reason="no IPv6 loopback")
def test_ipv6(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """An address in brackets, with and without /v1."""
    server = simulator("--host", "::1", "--speed", "20")
    assert server.url.startswith("http://[::1]:")
    run = locust("-H", f"{server.url}/v1", scenario=closed_scenario("users: 2, sessions: 4"))
    assert run.good, run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    assert len(run.measured()) == 4
