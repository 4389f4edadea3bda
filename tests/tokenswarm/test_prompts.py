"""Material of one class of traffic: fresh for each ticket, the same everywhere, from words or from a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from word_server import WordServer

from tokenswarm.counting import Server
from tokenswarm.errors import InputError, ScenarioError
from tokenswarm.promptfile import Conversation, read_prompts
from tokenswarm.prompts import Material, session_rng, survey_scenario
from tokenswarm.scenario import parse_scenario
from tokenswarm.survey import survey
from tokenswarm.traffic_settings import ChatTraffic, PromptFile


def words_material(**traffic: Any) -> Material:
    server = WordServer("vllm")
    systems = [traffic["system_prompt"]] if "system_prompt" in traffic else []
    return Material(ChatTraffic(**traffic), survey(Server(server.post, "m"), systems=systems))


def file_material(path: Path, seed: int = 7) -> Material:
    traffic = ChatTraffic(prompts=PromptFile(file=str(path)))
    return Material(traffic, survey(Server(WordServer().post, "m")), seed=seed)


def write_lines(path: Path, *entries: Any) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_tickets_have_the_same_chance_in_every_process() -> None:
    """Another process with another hash seed draws the same numbers for the same ticket."""
    code = "from tokenswarm.prompts import session_rng; print(session_rng(7, 2, 'measured', 41).random())"
    outs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert {float(out) for out in outs} == {session_rng(7, 2, "measured", 41).random()}


def test_every_part_of_a_ticket_changes_its_chance() -> None:
    """Run seed, level, phase and number each lead to other prompts."""
    tickets = [(7, 2, "measured", 41), (8, 2, "measured", 41), (7, 3, "measured", 41), (7, 2, "warmup", 41)]
    tickets += [(7, 2, "measured", 42), (7, None, "measured", 41), (7, 24, "measured", 1)]
    assert len({session_rng(*ticket).random() for ticket in tickets}) == len(tickets)  # type: ignore[arg-type]


def test_no_prompt_begins_like_another() -> None:
    """Over six levels of 300 tickets no two prompts share their first five words, let alone a cache block."""
    material = words_material()
    heads = set()
    for level in range(6):
        for ticket in range(300):
            text, _ = material.message(session_rng(7, level, "measured", ticket), 64, first=True)
            heads.add(tuple(text.split()[:5]))
    assert len(heads) == 6 * 300


def test_asked_length_is_the_whole_first_prompt() -> None:
    """The first message is what the template leaves of the asked length; a later one brings its share of template."""
    server = WordServer("vllm")
    material = Material(ChatTraffic(system_prompt="be brief"), survey(Server(server.post, "m"), systems=["be brief"]))
    text, tokens = material.message(Random(1), 100, first=True)
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]
    assert server.count(messages) == tokens == 100
    more, added = material.message(Random(2), 50, first=False)
    messages += [{"role": "assistant", "content": "yes it is"}, {"role": "user", "content": more}]
    assert server.count(messages) == 100 + 3 + 50
    assert added == 50


def test_too_short_a_length_gives_the_shortest_prompt() -> None:
    """Fewer tokens than the template and one word need is answered with that minimum, and says so."""
    server = WordServer("vllm")
    material = Material(ChatTraffic(), survey(Server(server.post, "m")))
    text, tokens = material.message(Random(1), 3, first=True)
    assert tokens == 9
    assert server.count([{"role": "user", "content": text}]) == 9


def test_scenario_is_surveyed_for_all_its_classes() -> None:
    """Every system prompt of a scenario is measured, and random ids are looked for when a class wants them."""
    scenario = parse_scenario(
        "target: {url: 'http://127.0.0.1:1'}\n"
        "traffic:\n"
        "- {name: a, system_prompt: be brief}\n"
        "- {name: b, prompts: random_ids}\n"
    )
    counter = survey_scenario(scenario, Server(WordServer("vllm").post, "m"))
    assert list(counter.system_overheads) == ["be brief"]
    assert counter.random_words
    assert counter.token_ids


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_random_ids_need_ids(api: str) -> None:
    """Random ids on a server that shows none are refused, naming what would help."""
    counter = survey(Server(WordServer("usage").post, "m"), api=api, random=True)
    with pytest.raises(InputError, match=r"'bots'.*target\.tokenizer.*/tokenize and /detokenize"):
        Material(ChatTraffic(name="bots", prompts="random_ids"), counter, api=api)


def test_file_layouts(tmp_path: Path) -> None:
    """All layouts give the user's side of the talk; what models said and empty user messages are left out."""
    path = write_lines(
        tmp_path / "p.jsonl",
        {"prompt": "one"},
        {"text": "two"},
        "three",
        {
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "four"}]},
                {"role": "assistant", "content": "no"},
                {"role": "user", "content": "five"},
            ]
        },
        {"conversations": [{"from": "gpt", "value": "hi"}, {"from": "human", "value": "six"}]},
        {"id": "empty", "conversations": []},
    )
    found = read_prompts(path)
    assert found.conversations == [
        Conversation(None, ("one",)),
        Conversation(None, ("two",)),
        Conversation(None, ("three",)),
        Conversation("be brief", ("four", "five")),
        Conversation(None, ("six",)),
    ]
    assert found.skipped == 1


def test_sharegpt_list_with_lines(tmp_path: Path) -> None:
    """A ShareGPT file is one JSON list; an unusable item is named by the line it starts on."""
    talk = [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi"}]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([{"conversations": talk}] * 3, indent=1))
    assert [each.users for each in read_prompts(path).conversations] == [("hello",)] * 3
    path.write_text('[\n {"conversations": []},\n\n {"wrong": 1},\n 5\n]\n')
    with pytest.raises(ScenarioError) as caught:
        read_prompts(path)
    assert [problem.split(";")[0] for problem in caught.value.problems] == [
        f"{path}:4: an object with wrong",
        f"{path}:5: a JSON int",
    ]


def test_every_bad_line_is_named(tmp_path: Path) -> None:
    """All unusable lines are told at once, with file, line, what is wrong and what is wanted."""
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"prompt": "good"}\n{"prompt": \n{"prompt": ""}\n{"question": "x"}\n\n'
        '{"messages": [{"role": "assistant", "content": "x"}]}\n{"messages": [{"role": "user", "content": 5}]}\n'
    )
    with pytest.raises(ScenarioError) as caught:
        read_prompts(path)
    told = caught.value.problems
    assert [int(line.removeprefix(f"{path}:").split(":")[0]) for line in told] == [2, 3, 4, 6, 7]
    assert all('wanted is {"prompt": "…"}' in line for line in told)
    for line, wrong in zip(told, ["no JSON", "an empty prompt", "question", "one of the user", "no text"], strict=True):
        assert wrong in line


@pytest.mark.parametrize("content", ["", "\n\n", "[]"])
def test_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    """A file without a prompt is a mistake, not an endless run of nothing."""
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(ScenarioError, match="holds no prompt"):
        read_prompts(path)


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are told as such."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        read_prompts(path)


def test_file_is_used_once_in_a_seeded_order(tmp_path: Path) -> None:
    """Sessions take conversations in an order that the seed decides, each once, then again, which is counted."""
    path = write_lines(tmp_path / "p.jsonl", *[f"prompt {number}" for number in range(40)])
    one, same, other = file_material(path), file_material(path), file_material(path, seed=8)
    order = [one.conversation(Random(0), ordinal) for ordinal in range(40)]
    assert len(set(order)) == 40
    assert one.reused == 0
    assert order == [same.conversation(Random(1), ordinal) for ordinal in range(40)]
    assert order != [other.conversation(Random(0), ordinal) for ordinal in range(40)]
    assert one.conversation(Random(0), 40) == order[0]
    assert one.reused == 1


def test_too_small_a_file_is_told_before_the_run(tmp_path: Path) -> None:
    """How many sessions would share conversations can be asked before any load."""
    material = file_material(write_lines(tmp_path / "p.jsonl", "one", "two"))
    assert material.shortage(2) is None
    assert "2 conversations for 3 sessions" in (material.shortage(3) or "")
    assert words_material().shortage(10**6) is None
