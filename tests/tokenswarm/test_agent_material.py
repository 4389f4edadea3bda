"""What jobs are made of is exact in the server's tokens, shared where the scenario says so, and new in every run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from word_server import WordServer

from tokenswarm.agent_files import AgentFiles
from tokenswarm.agent_material import AgentMaterial
from tokenswarm.counting import Server
from tokenswarm.errors import InputError, ScenarioError, TargetError
from tokenswarm.prompts import Material, session_rng, survey_scenario
from tokenswarm.scenario import AgenticTraffic, ChatTraffic, parse_scenario
from tokenswarm.tokens import TokenCounter, behind_nonce
from tokenswarm.traffic.agentic import AgentSession
from tokenswarm.traffic.turn import Turn

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SYSTEM = {"role": "system", "content": "you are an agent"}
TASK = {"role": "user", "content": "count the ships"}
ANSWER = {"role": "assistant", "content": "two ships"}


def surveyed(server: WordServer, *classes: dict[str, Any], **scenario: Any) -> tuple[list[Any], TokenCounter]:
    """The classes of a scenario and what a survey for them found out."""
    text = json.dumps({"traffic": [{"name": "a", "kind": "agentic"} | one for one in classes], **scenario})
    parsed = parse_scenario(text)
    return list(parsed.traffic), survey_scenario(parsed, Server(server.post, "m"))


def material(server: WordServer, run: str = "r", **traffic: Any) -> AgentMaterial:
    (agentic,), counter = surveyed(server, traffic)
    return AgentMaterial(agentic, counter, run=run)


def first_turn(made: AgentMaterial, ordinal: int, level: int | None = 0, run: str = "r") -> Turn:
    key = (7, level, "measured", ordinal)
    turn = AgentSession(made, session_rng(*key), session_rng(*key, run), ordinal=ordinal, level=level).next()
    assert turn is not None
    return turn


def ids(server: WordServer, turn: Turn) -> list[int]:
    assert turn.messages is not None
    offered = None if turn.tool_choice == "none" else turn.tools
    return server.ids(server.rendered(turn.messages, offered))


def alike(one: list[int], other: list[int]) -> int:
    """How many tokens both begin with."""
    return next(index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])


def recordings(path: Path, *jobs: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    return str(path)


@pytest.mark.parametrize("speaks", [("vllm", "usage"), ("llama.cpp", "usage"), ("sglang", "usage"), ("usage",)])
@pytest.mark.parametrize("place", ["behind", "first", "last"])
@pytest.mark.parametrize("system", [None, {"tokens": 700}, {"text": "You help people.\nBe brief."}])
def test_first_prompts_are_exact(speaks: tuple[str, ...], place: str, system: dict[str, Any] | None) -> None:
    """However a server counts and wherever its template puts tools, it bills the computed length."""
    server = WordServer(*speaks, tools=place)
    made = material(server, system_prompt=system, task_tokens={"uniform": [1, 300]})
    assert made.counter.exact
    for ordinal in range(6):
        turn = first_turn(made, ordinal)
        assert len(ids(server, turn)) == turn.input_tokens


def test_parts_of_a_first_prompt_add_up() -> None:
    """``< system \\n`` 50 words ``\\n \\n`` tools ``>``, ``< user \\n`` 20 words ``>``, ``< assi stant \\n``."""
    server = WordServer("vllm", "usage")
    turn = first_turn(material(server, system_prompt={"tokens": 50}, task_tokens=20), 0)
    tools = server.count(json.dumps(turn.tools))
    assert turn.input_tokens == (3 + 50 + 2 + tools + 1) + (3 + 20 + 1) + 4
    assert turn.prefix_tokens == (3 + 50 + 2 + tools + 1) + 3


@pytest.mark.parametrize("place", ["behind", "first", "last"])
@pytest.mark.parametrize("speaks", [("vllm", "usage"), ("usage",)])
def test_the_shared_prefix_is_as_long_as_told_and_no_longer(speaks: tuple[str, ...], place: str) -> None:
    """Two jobs share exactly what ids show before any load; without ids no more is claimed than is shared."""
    server = WordServer(*speaks, tools=place)
    made = material(server, system_prompt={"tokens": 300})
    one, other = first_turn(made, 0), first_turn(made, 1)
    shared = alike(ids(server, one), ids(server, other))
    assert one.prefix == other.prefix
    assert one.prefix_tokens == other.prefix_tokens
    assert one.prefix_tokens is not None
    if "vllm" in speaks:
        assert one.prefix_tokens == shared
    else:
        assert 300 <= one.prefix_tokens <= shared


@pytest.mark.parametrize(("place", "name"), [("behind", None), ("first", "tools")])
def test_a_share_of_jobs_has_a_prompt_of_its_own(place: str, name: str | None) -> None:
    """Of 400 jobs about 70 % share one prompt; the others have one as long, that nobody shares beyond the template."""
    server = WordServer("vllm", "usage", tools=place)
    made = material(server, system_prompt={"tokens": 100, "share": 0.7}, task_tokens=20)
    turns = [first_turn(made, ordinal) for ordinal in range(400)]
    own = [turn for turn in turns if turn.prefix != "prompt 0.0"]
    assert 90 <= len(own) <= 150
    assert {turn.input_tokens for turn in turns} == {len(ids(server, own[0]))}
    assert {turn.prefix for turn in own} == {name}
    shared = alike(ids(server, own[0]), ids(server, own[1]))
    assert own[0].prefix_tokens == (shared if name else None)
    assert len({turn.messages[0]["content"] for turn in own if turn.messages}) == len(own)


def test_a_pool_is_gone_round() -> None:
    """Jobs take the prompts of a pool in turn, the same in every process."""
    server = WordServer("vllm", "usage")
    turns = [first_turn(material(server, system_prompt={"tokens": 60, "pool": 3}), ordinal) for ordinal in range(7)]
    assert [turn.prefix for turn in turns] == [f"prompt 0.{place}" for place in (0, 1, 2, 0, 1, 2, 0)]
    texts = [turn.messages[0]["content"] for turn in turns if turn.messages]
    assert len(set(texts)) == 3
    assert texts[:3] == texts[3:6]


def test_shared_prompts_are_new_in_every_level_and_run() -> None:
    """Neither an earlier level nor an earlier run leaves anything of ours in a cache but the template's head."""
    server = WordServer("vllm", "usage")
    texts = []
    for run in ("r", "s"):
        made = material(server, run, system_prompt={"tokens": 60})
        texts += [made.prefix(level, 0) for level in (None, 0, 1)]
    assert len(texts) == len({tuple(text.split()[:5]) for text in texts}) == 6


def test_a_free_load_names_its_prompts_without_a_level() -> None:
    """Without levels there is one pool."""
    made = material(WordServer("vllm", "usage"), system_prompt={"tokens": 60})
    assert first_turn(made, 4, level=None).prefix == "prompt 0"


def test_a_text_of_ones_own_is_used_as_it_is() -> None:
    """The text of the scenario is every job's system message, and counts as the prefix that they share."""
    server = WordServer("vllm", "usage")
    made = material(server, system_prompt={"text": "Be kind.\nBe brief."})
    one, other = first_turn(made, 0), first_turn(made, 1, level=3)
    assert one.messages
    assert other.messages
    assert one.messages[0] == other.messages[0] == {"role": "system", "content": "Be kind.\nBe brief."}
    assert one.prefix == other.prefix == "system"
    assert one.prefix_tokens == alike(ids(server, one), ids(server, other))


def test_without_a_system_prompt_the_tools_are_shared() -> None:
    """What jobs without a system prompt have in common is the template's head and the tools."""
    server = WordServer("vllm", "usage", tools="first")
    made = material(server)
    one, other = first_turn(made, 0), first_turn(made, 1)
    assert one.prefix == "tools"
    assert one.prefix_tokens == alike(ids(server, one), ids(server, other))


def test_usage_of_a_real_answer_has_the_last_word() -> None:
    """A server that counts tools and leaves them out of what it runs (``tool_choice: none``) bills what is asked."""
    server = WordServer("vllm", "usage")
    turn = first_turn(material(server, tool_choice="none", system_prompt={"tokens": 100}, task_tokens=20), 0)
    assert turn.input_tokens == len(ids(server, turn)) == (3 + 100 + 1) + (3 + 20 + 1) + 4
    assert turn.prefix_tokens is not None
    assert turn.prefix_tokens <= 3 + 100 + 1 + 3


def test_counts_that_do_not_add_up_with_a_system_prompt_are_marked() -> None:
    """Where the text behind a system prompt joins it, lengths are marked as inexact, with the class named."""
    (_,), counter = surveyed(WordServer("vllm", "usage", glue=r"[a-m]\n\n\["), {"system_prompt": {"tokens": 100}})
    assert not counter.exact
    assert counter.note == "tokens of the first prompts of a are not the sum of their parts"


REFUSALS: list[tuple[Callable[[dict[str, Any]], str | None], str, str]] = [
    (
        lambda body: (
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            if body.get("tool_choice") == "auto"
            else None
        ),
        "auto",
        "start vLLM with --enable-auto-tool-choice --tool-call-parser NAME, or set tool_choice: required (a call at "
        "every step but the last) or none (no calls)",
    ),
    (
        lambda body: (
            'tool_choice="required" requires --tool-call-parser to be set'
            if body.get("tool_choice") not in (None, "none")
            else None
        ),
        "required",
        "start vLLM with --enable-auto-tool-choice --tool-call-parser NAME, or set tool_choice: none (no calls)",
    ),
    (
        lambda body: "tools param requires --jinja flag" if "tools" in body else None,
        "auto",
        "start llama.cpp's server with --jinja",
    ),
    (
        lambda body: "registry.ollama.ai/library/m does not support tools" if "tools" in body else None,
        "auto",
        "start it with tool calling enabled",
    ),
    (
        lambda body: "Extra inputs are not permitted" if body.get("tool_choice") == "auto" else None,
        "auto",
        "start it with tool calling enabled, or set tool_choice: required (a call at every step but the last) or none "
        "(no calls)",
    ),
]


@pytest.mark.parametrize(("refuses", "choice", "advice"), REFUSALS)
def test_a_server_that_refuses_tools_is_told_before_any_load(
    refuses: Callable[[dict[str, Any]], str | None], choice: str, advice: str
) -> None:
    """One line with the class, what was refused and why, the flag to set, and what the server does take."""
    server = WordServer("vllm", "usage", refuses=refuses)
    with pytest.raises(TargetError) as caught:
        material(server, name="agent", tool_choice=choice)
    line = str(caught.value)
    assert line.startswith(f"traffic 'agent': the server does not take tools with tool_choice: {choice} (/v1/chat")
    assert line.endswith(f"); {advice}")
    assert "answered 400: " in line
    assert "\n" not in line


def test_a_server_that_refuses_everything_is_left_to_the_load() -> None:
    """A failure that has nothing to do with tools does not pass for one that has."""
    server = WordServer("vllm", "usage", refuses=lambda body: "the tool shed is full")
    assert first_turn(material(server), 0).input_tokens is not None


def test_a_server_that_fails_once_does_take_tools() -> None:
    """The second try decides."""
    failures = iter(["Internal error"])
    server = WordServer("vllm", "usage", refuses=lambda body: next(failures, None) if "tools" in body else None)
    assert first_turn(material(server), 0).input_tokens is not None
    assert next(failures, None) is None


def test_only_the_classes_that_are_played_are_asked_about() -> None:
    """A chat run of a mixed scenario does not need a server that takes tools."""
    text = json.dumps({"traffic": [{"name": "c"}, {"name": "a", "kind": "agentic"}]})
    server = WordServer("vllm", "usage", refuses=lambda body: "no tools here" if "tools" in body else None)
    assert survey_scenario(parse_scenario(text), Server(server.post, "m"), "chat").openings == {}
    with pytest.raises(TargetError):
        survey_scenario(parse_scenario(text), Server(server.post, "m"))


@pytest.mark.parametrize("speaks", [("vllm", "usage"), ("usage",), ()])
def test_a_server_is_asked_little(speaks: tuple[str, ...]) -> None:
    """Three classes need some twenty further questions, and a server that answers none of them is no obstacle."""
    server = WordServer(*speaks)
    classes = [{"name": f"a{n}", "system_prompt": {"tokens": 500}} for n in range(3)]
    _, counter = surveyed(server, *classes)
    assert list(counter.openings) == ["a0", "a1", "a2"]
    assert len(server.asked) <= 75 + 3 * 12


PREFIX_TEST = {"prefix_cache": {}, "load": {"closed": {"users": 1, "sessions": 2}}}


@pytest.mark.parametrize("speaks", ["vllm", "usage"])
def test_every_nonce_costs_the_same_at_every_head(speaks: str) -> None:
    """Twelve words and two line ends: at the head of a system message, of a user's message, and with tools."""
    server = WordServer(speaks, "usage")
    chat = {"name": "c", "kind": "chat", "system_prompt": "Be brief."}
    _, counter = surveyed(server, chat, {"name": "d", "kind": "chat"}, {"system_prompt": {"tokens": 90}}, **PREFIX_TEST)
    assert counter.exact
    assert counter.nonce_tokens == 12 + 2
    tools = [TOOL]
    for system in ("Be brief.", None, counter.make_text(Random(1), 90, stop=False)):
        prompt: Any = [{"role": "system", "content": system}] if system else []
        prompt.append({"role": "user", "content": counter.make_text(Random(2), 30)})
        for seed in range(50):
            with_nonce = behind_nonce(counter.make_nonce(Random(seed)), prompt)
            assert server.count(with_nonce, tools) == server.count(prompt, tools) + 14


@pytest.mark.parametrize("place", ["behind", "first", "last"])
@pytest.mark.parametrize("system", [None, {"text": "you are an agent of some kind"}, {"tokens": 50}])
def test_what_stands_before_a_nonce_is_known(place: str, system: dict[str, Any] | None) -> None:
    """A template that writes tools before the first message, or in a system message of its own, puts them before the
    nonce: as many tokens as two prompts with other nonces and tasks begin with alike."""
    server = WordServer("vllm", "usage", tools=place)
    (traffic,), counter = surveyed(server, {"system_prompt": system} if system else {}, **PREFIX_TEST)
    offered = AgentFiles(traffic).openings[0].toolset.definitions
    own = [{"role": "system", "content": "you are an agent of some kind"}] if system else []
    prompts = [
        behind_nonce(counter.make_nonce(Random(seed)), [*own, {"role": "user", "content": text}])
        for seed, text in ((1, "count"), (2, "the ships"))
    ]
    one, other = (server.ids(server.rendered(prompt, offered)) for prompt in prompts)  # type: ignore[arg-type]
    assert counter.before_nonce == alike(one, other)
    assert (counter.before_nonce > 300) == (place == "first" or (place == "behind" and system is None))


def test_where_no_ids_can_be_had_the_tools_may_stand_before_a_nonce() -> None:
    """Then as many tokens as the whole of the shortest first prompt has are allowed, so that no arm is called mixed
    because of its tools."""
    server = WordServer("usage", tools="first")
    (traffic,), counter = surveyed(server, {}, **PREFIX_TEST)
    offered = AgentFiles(traffic).openings[0].toolset.definitions
    assert (counter.before_nonce or 0) >= server.count("\n\n" + json.dumps(offered))


def test_every_nonce_costs_the_same_before_a_completion() -> None:
    """Plain text too."""
    server = WordServer("vllm")
    scenario = {"target": {"api": "completions"}, **PREFIX_TEST}
    _, counter = surveyed(server, {"name": "c", "kind": "chat"}, **scenario)
    assert (counter.exact, counter.nonce_tokens) == (True, 14)
    text = counter.make_text(Random(2), 30)
    costs = {server.count(counter.make_nonce(Random(seed)) + text) - 30 for seed in range(50)}
    assert costs == {14}


@pytest.mark.parametrize("kind", ["captioning", "prompts of a file"])
def test_a_nonce_is_measured_whatever_stands_behind_it(tmp_path: Path, kind: str) -> None:
    """Where no first prompt is made of words the nonce costs as much all the same, and is not told to cost nothing."""
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "count the ships"}\n')
    prompts = {"kind": "chat", "prompts": {"file": str(file)}, "system_prompt": "Be brief."}
    _, counter = surveyed(
        WordServer("vllm"), {"kind": "captioning"} if kind == "captioning" else prompts, **PREFIX_TEST
    )
    assert (counter.exact, counter.nonce_tokens) == (True, 14)


def test_a_nonce_that_varies_in_length_is_told() -> None:
    """Where the last word melts into the gap and the word behind it, the arms would differ: the lengths are marked."""
    server = WordServer("vllm", glue=r" [a-m]\w*\n\n")
    _, counter = surveyed(server, {"name": "c", "kind": "chat"}, **PREFIX_TEST)
    assert not counter.exact
    assert counter.note == "the nonce that keeps cold prompts apart costs 11 to 14 tokens"


def test_the_system_prompt_of_a_chat_is_measured_by_ids() -> None:
    """``< system \\n be brief > < user \\n``: nine tokens are shared; without ids only the system message is sure."""
    for speaks, tokens in (("vllm", 9), ("usage", 6)):
        traffic = ChatTraffic(system_prompt="be brief")
        text = json.dumps({"traffic": [{"system_prompt": "be brief"}]})
        counter = survey_scenario(parse_scenario(text), Server(WordServer(speaks).post, "m"))
        assert Material(traffic, counter).system_tokens == tokens


def test_recorded_jobs_bring_system_prompt_and_tools(tmp_path: Path) -> None:
    """Each job plays what was recorded; two kinds of openings have two prefixes of their own length."""
    other = {"type": "function", "function": {"name": "listen"}}
    path = recordings(
        tmp_path / "t.jsonl",
        {"name": "one", "messages": [SYSTEM, TASK, ANSWER], "tools": [TOOL]},
        {"name": "two", "messages": [TASK, ANSWER], "tools": [TOOL, other]},
        {"name": "three", "messages": [SYSTEM, TASK, ANSWER], "tools": [TOOL]},
    )
    server = WordServer("vllm", "usage")
    made = material(server, trajectories=path)
    turns = [first_turn(made, ordinal) for ordinal in range(6)]
    assert all(turn.input_tokens is None for turn in turns)
    by_prefix: dict[str | None, list[Turn]] = {}
    for turn in turns:
        by_prefix.setdefault(turn.prefix, []).append(turn)
    assert {len(alike_ones) for alike_ones in by_prefix.values()} == {2, 4}
    for alike_ones in by_prefix.values():
        counted = [ids(server, turn) for turn in alike_ones]
        assert {turn.prefix_tokens for turn in alike_ones} == {
            alike(one, other) for index, one in enumerate(counted) for other in counted[index + 1 :]
        }


def test_each_recorded_job_is_played_once_and_then_again_with_a_head_of_its_own(tmp_path: Path) -> None:
    """The order is the seed's; a job that comes again has new words before its task."""
    tasks = [{"role": "user", "content": f"task {number}"} for number in range(20)]
    path = recordings(tmp_path / "t.jsonl", *[{"messages": [task, ANSWER], "tools": [TOOL]} for task in tasks])
    made = material(WordServer("vllm", "usage"), trajectories=path)
    texts = [first_turn(made, ordinal).messages[-1]["content"] for ordinal in range(40)]  # type: ignore[index]
    ends = [text.rpartition("\n\n")[2] for text in texts]
    assert sorted(ends[:20]) == sorted(task["content"] for task in tasks)
    assert ends[:20] == ends[20:]
    assert ends[:20] != [task["content"] for task in tasks]
    assert made.reused == 20
    assert len({tuple(text.split()[:5]) for text in texts}) == 40


def test_too_few_recordings_are_told_before_the_run(tmp_path: Path) -> None:
    """How many sessions would share recordings can be asked before any load; generated jobs never run out."""
    path = recordings(tmp_path / "t.jsonl", {"messages": [TASK, ANSWER], "tools": [TOOL]})
    made = material(WordServer("vllm", "usage"), trajectories=path)
    assert made.shortage(1) is None
    assert "1 recorded jobs for 2 sessions" in (made.shortage(2) or "")
    assert material(WordServer("vllm", "usage")).shortage(10**6) is None


def test_earlier_jobs_of_a_conversation_stand_before_the_task(tmp_path: Path) -> None:
    """A second job of one conversation carries the first as its history, with words of its own at the very head."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{oops"}}
    talk = [
        TASK,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sea"},
        ANSWER,
        {"role": "user", "content": "and boats?"},
        {"role": "assistant", "content": "none"},
    ]
    made = material(
        WordServer("vllm", "usage"),
        trajectories=recordings(tmp_path / "t.jsonl", {"messages": talk, "tools": [TOOL]}),
    )
    second = max((first_turn(made, ordinal) for ordinal in range(2)), key=lambda turn: len(turn.messages or []))
    assert second.messages is not None
    assert [message["role"] for message in second.messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert second.messages[0]["content"].endswith("\n\ncount the ships")
    assert second.messages[1]["content"] is None
    assert json.loads(second.messages[1]["tool_calls"][0]["function"]["arguments"]) == {"malformed": "{oops"}
    assert second.messages[4] == {"role": "user", "content": "and boats?"}


def test_arguments_of_an_earlier_job_may_be_an_object(tmp_path: Path) -> None:
    """A call in the history is sent in the API's form, whether its arguments were recorded as text or as an object."""
    bare = {"id": "c1", "function": {"name": "look", "arguments": {"where": "west"}}, "index": 0}
    talk = [
        TASK,
        {"role": "assistant", "content": "", "tool_calls": [bare]},
        {"role": "tool", "tool_call_id": "c1", "content": "sea"},
        ANSWER,
        {"role": "user", "content": "and boats?"},
        ANSWER,
    ]
    path = recordings(tmp_path / "t.jsonl", {"messages": talk, "tools": [TOOL]})
    made = material(WordServer("vllm", "usage"), trajectories=path)
    second = max((first_turn(made, ordinal) for ordinal in range(2)), key=lambda turn: len(turn.messages or []))
    (sent,) = second.messages[1]["tool_calls"]  # type: ignore[index]
    assert json.loads(sent["function"].pop("arguments")) == {"where": "west"}
    assert sent == {"id": "c1", "type": "function", "function": {"name": "look"}}


def test_many_recordings_with_system_prompts_of_their_own_are_read_in_proportion(tmp_path: Path) -> None:
    """A system prompt that tells the time makes 5,000 openings of 5,000 jobs; each is looked up, not searched for."""
    system = {"role": "system", "content": "x" * 5000}
    jobs = [{"messages": [system | {"content": f"{system['content']}{i}"}, TASK, ANSWER]} for i in range(5000)]
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([TOOL]))
    path = recordings(tmp_path / "t.jsonl", *jobs, jobs[7])
    started = time.process_time()
    files = AgentFiles(AgenticTraffic(kind="agentic", trajectories=path, tools=str(tools)))
    assert time.process_time() - started < 3
    assert files.opening_of == [*range(5000), 7]


def test_a_recording_whose_tools_are_missing_or_others_is_refused(tmp_path: Path) -> None:
    """Jobs without tools want a file; a file that knows none of the recorded calls is the wrong one."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    talk = [
        TASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sea"},
        ANSWER,
    ]
    path = recordings(tmp_path / "t.jsonl", {"name": "ships", "messages": talk}, {"name": "more", "messages": talk})
    counter = TokenCounter(source="server", exact=True)
    with pytest.raises(ScenarioError, match=r"t\.jsonl: ships and 1 more: no tools are recorded; name a file") as told:
        AgentMaterial(AgenticTraffic(kind="agentic", trajectories=path), counter)
    assert len(told.value.problems) == 1
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "listen"}}]))
    with pytest.raises(ScenarioError, match=r"ships: calls look; at least one of the tools of .*\(listen\) is wanted"):
        AgentMaterial(AgenticTraffic(kind="agentic", trajectories=path, tools=str(tools)), counter)


def test_a_tool_whose_arguments_cannot_be_made_up_is_refused(tmp_path: Path) -> None:
    """A pattern without examples is beyond made-up arguments: told before the load, with the way out."""
    schema = {"type": "object", "properties": {"id": {"type": "string", "pattern": "^[A-Z]{9}$"}}, "required": ["id"]}
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "find", "parameters": schema}}]))
    with pytest.raises(InputError, match=r"^traffic 'a': no arguments can be made up for the tool 'find' .*\$\.id:"):
        material(WordServer("vllm", "usage"), tools=str(tools))
    assert material(WordServer("vllm", "usage"), tools=str(tools), mode="live").tools(None)[0].names == ["find"]


def test_an_unknown_tool_as_choice_is_refused() -> None:
    """``tool_choice`` names one of the tools."""
    with pytest.raises(InputError, match=r"traffic 'a': tool_choice: value serch: .*did you mean 'search'"):
        material(WordServer("vllm", "usage"), tool_choice="serch")
