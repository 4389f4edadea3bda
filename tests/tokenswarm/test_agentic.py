"""A job goes its course in replay whatever the model says, and follows the model's calls when it is live."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_server import WordServer

from tokenswarm.agent_material import AgentMaterial
from tokenswarm.counting import Server
from tokenswarm.prompts import session_rng, survey_scenario
from tokenswarm.protocols import AnswerDecoder
from tokenswarm.records import Divergence, SessionEnd
from tokenswarm.scenario import parse_scenario
from tokenswarm.sse import EventDecoder
from tokenswarm.toolcalls import ToolCall
from tokenswarm.traffic.agentic import AgentSession, divergence
from tokenswarm.traffic.session import Answer, Heard
from tokenswarm.traffic.turn import Turn

CONTRACT = Path(__file__).parents[1] / "contract"
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": NUMBERS}} for name in ("add", "mul")]
ADD = ToolCall("call_7", "add", '{"a": 3, "b": 12}')
MIXED: dict[str, Any] = {
    "system_prompt": {"tokens": 40, "share": 0.5, "pool": 3},
    "task_tokens": {"uniform": [5, 50]},
    "output_tokens": {"uniform": [5, 500]},
    "tool_time_s": {"exponential": 3},
    "tool_result_tokens": {"uniform": [5, 80]},
}
SERVER = WordServer("vllm", "usage")


@pytest.fixture
def agent(tmp_path: Path) -> Callable[..., AgentMaterial]:
    """Material of an agent with the tools ``add`` and ``mul``."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))

    def make(run: str = "r", jobs: list[dict[str, Any]] | None = None, **traffic: Any) -> AgentMaterial:
        if jobs is not None:
            path = tmp_path / "jobs.jsonl"
            path.write_text("".join(json.dumps(job) + "\n" for job in jobs))
            traffic["trajectories"] = str(path)
        return material(run, tools=str(tools), **traffic)

    return make


def material(run: str = "r", **traffic: Any) -> AgentMaterial:
    scenario = parse_scenario(json.dumps({"traffic": [{"kind": "agentic", **traffic}]}))
    (agentic,) = scenario.traffic
    counter = survey_scenario(scenario, Server(SERVER.post, "m"))
    return AgentMaterial(agentic, counter, run=run)  # type: ignore[arg-type]


def session(made: AgentMaterial, ticket: int = 0, run: str = "r") -> AgentSession:
    key = (7, 0, "measured", ticket)
    return AgentSession(made, session_rng(*key), session_rng(*key, run), ordinal=ticket, level=0)


def played(job: AgentSession, *answers: Answer) -> tuple[list[Turn], list[Heard]]:
    """All turns and what was heard; the last answer is given again and again."""
    turns: list[Turn] = []
    heard: list[Heard] = []
    while (turn := job.next()) is not None:
        turns.append(turn)
        heard.append(job.hear(answers[min(len(heard), len(answers) - 1)]))
        assert len(turns) <= 60
    return turns, heard


def messages(turn: Turn | None) -> list[dict[str, Any]]:
    assert turn is not None
    assert turn.messages is not None
    return turn.messages


def lengths(turns: list[Turn]) -> list[Any]:
    """Everything about a course but its words."""
    called = [
        [[call["function"]["name"] for call in message.get("tool_calls", [])] for message in messages(turn)]
        for turn in turns
    ]
    counted = [[SERVER.count(message["content"] or "") for message in messages(turn)] for turn in turns]
    asked = [(turn.max_tokens, turn.input_tokens, turn.pause_s, turn.prefix, turn.prefix_tokens) for turn in turns]
    return [called, counted, asked]


# replay ---------------------------------------------------------------------------------


def test_a_call_that_our_own_length_cut_off_is_no_mistake_of_the_model(agent: Callable[..., AgentMaterial]) -> None:
    """In replay answers run to the asked length: half a call at its end says nothing. A whole malformed one does."""
    half = ToolCall("i", "add", '{"a": 3, "b')
    heard = [session(agent(steps=2)) for _ in range(3)]
    for job in heard:
        job.next()
    assert heard[0].hear(Answer("", [half], cut=True)).malformed_calls == 0
    assert heard[1].hear(Answer("", [half, ADD], cut=True)).malformed_calls == 1
    assert heard[2].hear(Answer("", [half])).malformed_calls == 1


def test_a_drawn_course_has_the_shape_of_the_api(agent: Callable[..., AgentMaterial]) -> None:
    """Four model calls: each but the last is followed by one call of a known tool and its result."""
    turns, heard = played(session(agent(steps=4, tool_result_tokens=30)), Answer("never mind"))
    assert len(turns) == 4
    assert [len(messages(turn)) for turn in turns] == [1, 3, 5, 7]
    for before, after in pairwise(turns):
        assert messages(after)[: len(messages(before))] == messages(before)
        call, result = messages(after)[-2:]
        assert call["role"] == "assistant"
        assert call["content"] is None
        (made,) = call["tool_calls"]
        assert made["type"] == "function"
        assert made["function"]["name"] in ("add", "mul")
        assert set(json.loads(made["function"]["arguments"])) == {"a", "b"}
        assert result["role"] == "tool"
        assert result["tool_call_id"] == made["id"]
        assert SERVER.count(result["content"]) == 30
    assert [each.end for each in heard] == [None, None, None, SessionEnd.DONE]
    assert all(turn.tools == TOOLS and turn.tool_choice == "auto" for turn in turns)


def test_ids_are_nine_letters_and_digits_and_never_come_twice(agent: Callable[..., AgentMaterial]) -> None:
    """Some chat templates refuse any other form of an id."""
    turns, _ = played(session(agent(steps=30)), Answer(""))
    ids = [call["id"] for message in messages(turns[-1]) for call in message.get("tool_calls", [])]
    assert len(set(ids)) == len(ids) == 29
    assert all(len(each) == 9 and each.isalnum() for each in ids)


def test_tool_time_comes_after_each_call_and_never_first(agent: Callable[..., AgentMaterial]) -> None:
    """A job begins at once; each further model call waits for the tool."""
    turns, _ = played(session(agent(steps=3, tool_time_s=2.5)), Answer(""))
    assert [turn.pause_s for turn in turns] == [0, 2.5, 2.5]


def test_only_the_first_prompt_has_a_known_length(agent: Callable[..., AgentMaterial]) -> None:
    """What calls and results cost in a template is not computed; it is not guessed either."""
    turns, _ = played(session(agent(steps=3, task_tokens=20)), Answer(""))
    assert [turn.input_tokens is None for turn in turns] == [False, True, True]


@settings(deadline=None, max_examples=30)
@given(
    ticket=st.integers(0, 10_000),
    answers=st.lists(
        st.builds(Answer, st.text(), st.lists(st.builds(ToolCall, st.none() | st.text(), st.text(), st.text())))
    ),
)
def test_same_ticket_same_course_whatever_the_answers(ticket: int, answers: list[Answer]) -> None:
    """Everything sent comes from the ticket and the run; another run changes the words and nothing else."""
    one, _ = played(session(MIXED_MATERIAL[0], ticket), Answer("yes"))
    two, _ = played(session(MIXED_MATERIAL[0], ticket), *answers, Answer("no"))
    assert one == two
    other, _ = played(session(MIXED_MATERIAL[1], ticket, "s"), Answer("yes"))
    assert lengths(other) == lengths(one)
    assert messages(other[0])[-1] != messages(one[0])[-1]


MIXED_MATERIAL = [material(run, **MIXED) for run in ("r", "s")]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=2, unique=True))
def test_two_jobs_share_their_prefix_and_nothing_more(tickets: list[int]) -> None:
    """Prompts of two jobs are alike up to the end of what they share on purpose, by ids, in every step."""
    one, other = (played(session(MIXED_MATERIAL[0], ticket), Answer(""))[0] for ticket in tickets)
    same = one[0].prefix == other[0].prefix and one[0].prefix is not None
    for left, right in zip(one, other, strict=False):
        ids = [SERVER.ids(SERVER.rendered(messages(turn), turn.tools)) for turn in (left, right)]
        shared = next(at for at, pair in enumerate(zip(*ids, strict=False)) if pair[0] != pair[1])
        template = 3  # < system \n
        wanted = left.prefix_tokens if same else template
        assert wanted is not None
        assert wanted <= shared <= wanted + 2  # two words may be the same by chance


def test_the_step_limit_ends_a_longer_course(agent: Callable[..., AgentMaterial]) -> None:
    """A job of ten steps with a limit of three has three, the last of which is not an answer."""
    turns, heard = played(session(agent(steps=10, step_limit=3)), Answer(""))
    assert [each.end for each in heard] == [None, None, SessionEnd.STEP_LIMIT]
    assert len(turns) == 3
    _, heard = played(session(agent(steps=3, step_limit=3)), Answer(""))
    assert heard[-1].end == SessionEnd.DONE


@pytest.mark.parametrize(("choice", "sent"), [("required", "required"), ("mul", TOOLS[1]), ("none", "none")])
@pytest.mark.parametrize("mode", ["replay", "live"])
def test_the_last_call_of_a_forced_course_may_answer(
    agent: Callable[..., AgentMaterial], mode: str, choice: str, sent: Any
) -> None:
    """Calls are forced at every step but the last, which is told to make none, so that a live job ends too."""
    form = {"type": "function", "function": {"name": "mul"}} if isinstance(sent, dict) else sent
    forced = mode == "live" and choice != "none"
    answers = [Answer("", [ADD]), Answer("", [ADD]), Answer("done")] if forced else [Answer("done")]
    turns, heard = played(session(agent(mode=mode, steps=3, tool_choice=choice)), *answers)
    count = 1 if (mode, choice) == ("live", "none") else 3
    assert [turn.tool_choice for turn in turns] == [*[form] * (count - 1), "none"]
    assert heard[-1].end == SessionEnd.DONE


def test_replay_ignores_stops_and_live_does_not(agent: Callable[..., AgentMaterial]) -> None:
    """A replayed answer has its drawn length; a live one ends where the model ends it, or as the scenario says."""
    asked: list[dict[str, Any]] = [{"mode": "replay"}, {"mode": "live"}, {"mode": "live", "ignore_eos": True}]
    turns = [session(agent(**{"output_tokens": 77, **one})).next() for one in asked]
    assert [(turn.max_tokens, turn.ignore_eos) for turn in turns if turn] == [(77, True), (77, False), (77, True)]


# recorded jobs --------------------------------------------------------------------------


def call(name: str, arguments: str, id_: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


JOB = {
    "name": "sums",
    "messages": [
        {"role": "system", "content": "you can count"},
        {"role": "user", "content": "three and twelve, and twice that"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [call("add", '{"a": 3, "b": 12}', "x"), call("add", '{"a": 1,"b":1}', "y")],
            "output_tokens": 33,
        },
        {"role": "tool", "tool_call_id": "y", "content": "2"},
        {"role": "tool", "tool_call_id": "x", "content": "15", "tool_time_s": 1.5},
        {"role": "assistant", "content": None, "tool_calls": [call("mul", '{"a": 15, "b": 2}', "x")]},
        {"role": "tool", "tool_call_id": "x", "content": "30"},
        {"role": "assistant", "content": "15 and 30"},
    ],
}


def test_a_recorded_job_is_played_as_recorded(agent: Callable[..., AgentMaterial]) -> None:
    """Texts, calls, results, times and lengths are the recording's; what it does not tell is drawn."""
    made = agent(jobs=[JOB], output_tokens=99, tool_time_s=7)
    turns, heard = played(session(made), Answer("whatever"))
    assert [turn.max_tokens for turn in turns] == [33, 99, 99]
    assert [turn.pause_s for turn in turns] == [0, 1.5, 7]
    system, task, first, one, two, second, three = messages(turns[2])
    assert system == {"role": "system", "content": "you can count"}
    assert task["content"].endswith("\n\nthree and twelve, and twice that")
    assert first["content"] == "Let me see."
    assert second["content"] is None
    calls = [*first["tool_calls"], *second["tool_calls"]]
    assert [json.loads(made["function"]["arguments"]) for made in calls] == [
        {"a": 3, "b": 12},
        {"a": 1, "b": 1},
        {"a": 15, "b": 2},
    ]
    assert [message["content"] for message in (one, two, three)] == ["15", "2", "30"]
    assert [message["tool_call_id"] for message in (one, two, three)] == [made["id"] for made in calls]
    assert len({made["id"] for made in calls}) == 3
    assert [each.end for each in heard] == [None, None, SessionEnd.DONE]


def test_divergence_from_the_recording_is_told_at_each_step(agent: Callable[..., AgentMaterial]) -> None:
    """The same calls in another spelling are the same; other ones, none, or one too many are told apart."""
    same = [ToolCall("1", "add", '{"b":12, "a":3}'), ToolCall("2", "add", '{"a": 1, "b": 1}')]
    _, heard = played(session(agent(jobs=[JOB])), Answer("", same), Answer("30"), Answer("", [ADD]))
    assert [each.divergence for each in heard] == [Divergence.SAME, Divergence.NO_CALL, Divergence.CALLED]
    _, heard = played(session(agent(jobs=[JOB])), Answer("", same[:1]), Answer("", [ADD]), Answer("15 and 30"))
    assert [each.divergence for each in heard] == [Divergence.OTHER_TOOLS, Divergence.OTHER_TOOLS, Divergence.SAME]
    assert [each.malformed_calls for each in heard] == [0, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"a":3,"b":12}', Divergence.SAME),
        ('{"a": 3, "b": 12.0}', Divergence.OTHER_ARGUMENTS),
        ('{"a": 3, "b": true}', Divergence.OTHER_ARGUMENTS),
        ('{"a": 3, "b": 12', Divergence.OTHER_ARGUMENTS),
        ("", Divergence.OTHER_ARGUMENTS),
    ],
)
def test_arguments_are_compared_by_their_meaning(arguments: str, told: Divergence) -> None:
    """White space and the order of keys mean nothing; 12 is not 12.0, 1 not true, and broken JSON is no JSON."""
    assert divergence([ADD], [ToolCall(None, "add", arguments)]) == told


def test_nothing_diverges_where_nothing_is_recorded_or_no_call_is_possible(
    agent: Callable[..., AgentMaterial],
) -> None:
    """A drawn course is no recording; with ``none`` the model could not have called; forced steps are compared."""
    _, heard = played(session(agent(steps=2)), Answer("", [ADD]))
    assert [each.divergence for each in heard] == [None, None]
    _, heard = played(session(agent(jobs=[JOB], tool_choice="none")), Answer("x"))
    assert [each.divergence for each in heard] == [None, None, None]
    _, heard = played(session(agent(jobs=[JOB], tool_choice="required")), Answer("", [ADD]))
    assert [each.divergence for each in heard] == [Divergence.OTHER_TOOLS, Divergence.OTHER_TOOLS, None]


def test_a_recording_that_breaks_off_with_calls_ends_there(agent: Callable[..., AgentMaterial]) -> None:
    """The last recorded answer calls a tool whose result is missing: forced calls stay forced, and the job is done."""
    job = {"messages": JOB["messages"][:-2]}
    turns, heard = played(session(agent(jobs=[job], tool_choice="required")), Answer("", [ADD]))
    assert [turn.tool_choice for turn in turns] == ["required", "required"]
    assert heard[-1].end == SessionEnd.DONE


# live -----------------------------------------------------------------------------------


def test_a_live_job_follows_the_models_calls(agent: Callable[..., AgentMaterial]) -> None:
    """The model's call stands in the history with its id and text, a result of the drawn length behind it."""
    job = session(agent(mode="live", tool_time_s=2.5, tool_result_tokens=40))
    first = job.next()
    heard = job.hear(Answer("I add.", [ADD]))
    assert heard == Heard(end=None, divergence=None, malformed_calls=0)
    second = job.next()
    assert second is not None
    assert second.pause_s == 2.5
    assert messages(second)[:-2] == messages(first)
    sent, result = messages(second)[-2:]
    assert sent == {"role": "assistant", "content": "I add.", "tool_calls": [call("add", ADD.arguments, "call_7")]}
    assert (result["role"], result["tool_call_id"]) == ("tool", "call_7")
    assert SERVER.count(result["content"]) == 40
    assert job.hear(Answer("15")).end == SessionEnd.DONE
    assert job.next() is None
    assert job.keeps_answers


def test_several_calls_of_one_answer_run_at_the_same_time(agent: Callable[..., AgentMaterial]) -> None:
    """Each gets a result; the pause is the longest of their times, which are those of single calls drawn one by one."""
    made = agent(mode="live", tool_time_s={"uniform": [1, 9]}, tool_result_tokens={"uniform": [5, 500]})
    single, _ = played(session(made), *[Answer("", [ADD])] * 3, Answer(""))
    times_s = [turn.pause_s for turn in single[1:]]
    together, _ = played(session(made), Answer("", [ADD, ToolCall("b", "mul", "{}"), ADD]), Answer(""))
    assert together[1].pause_s == max(times_s[0], times_s[2])
    good = [SERVER.count(message["content"]) for message in messages(together[1])[-3:]]
    alone = [SERVER.count(message["content"]) for message in messages(single[3])[-5::2]]
    assert (good[0], good[2]) == (alone[0], alone[2])
    ids = [made["id"] for made in messages(together[1])[-4]["tool_calls"]]
    assert ids[:2] == ["call_7", "b"]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("bad", "told", "sent"),
    [
        (ToolCall("i", "add", '{"a": 3, "b'), "not valid JSON", '{"malformed": "{\\"a\\": 3, \\"b"}'),
        (ToolCall("i", "add", "7"), "a JSON number", '{"malformed": "7"}'),
        (ToolCall("i", "add", '{"a": 3}'), "'b' is a required property", '{"a": 3}'),
        (ToolCall("i", "add", ""), "'a' is a required property", "{}"),
        (ToolCall("i", "sub", '{"a": 3}'), "no tool 'sub'. The tools are: add, mul.", '{"a": 3}'),
        (ToolCall(None, "", ""), "no tool ''", "{}"),
    ],
)
def test_a_malformed_call_is_counted_and_answered_with_the_problem(
    agent: Callable[..., AgentMaterial], bad: ToolCall, told: str, sent: str
) -> None:
    """No tool runs and no time passes; what goes back is JSON of an object, which every template can take."""
    turns, heard = played(session(agent(mode="live", tool_time_s=5)), Answer("", [bad]), Answer("sorry"))
    assert [each.malformed_calls for each in heard] == [1, 0]
    assert turns[1].pause_s == 0
    made, result = messages(turns[1])[-2:]
    assert made["content"] is None
    assert made["tool_calls"][0]["function"] == {"name": bad.name or "unknown", "arguments": sent}
    assert result["content"].startswith("Error: ")
    assert told in result["content"]


def test_halves_of_characters_do_not_stop_the_job(agent: Callable[..., AgentMaterial]) -> None:
    """Two halves of an emoji in a name or in arguments become one, a single half a sign; the next body is UTF-8."""
    halves = ToolCall("\ud83e", "cr\ud83e\udd80b", '{"a": "\ud83e\udd80", "b": "\ud83e"}')
    turns, heard = played(session(agent(mode="live")), Answer("", [halves]), Answer(""))
    assert heard[0].malformed_calls == 1
    (made,) = messages(turns[1])[-2]["tool_calls"]
    assert made["function"] == {"name": "cr🦀b", "arguments": '{"a": "🦀", "b": "\ufffd"}'}
    assert json.dumps(messages(turns[1]), ensure_ascii=False).encode()


def test_only_good_calls_take_time(agent: Callable[..., AgentMaterial]) -> None:
    """One good and one bad call: the pause is the good one's."""
    turns, heard = played(
        session(agent(mode="live", tool_time_s=5)), Answer("", [ToolCall("x", "sub", "{}"), ADD]), Answer("")
    )
    assert heard[0].malformed_calls == 1
    assert turns[1].pause_s == 5


def test_a_live_job_that_goes_on_calling_ends_at_the_limit(agent: Callable[..., AgentMaterial]) -> None:
    """The model calls for ever: six steps, and the end says why."""
    turns, heard = played(session(agent(mode="live", step_limit=6)), Answer("", [ADD]))
    assert len(turns) == 6
    assert heard[-1].end == SessionEnd.STEP_LIMIT
    _, heard = played(session(agent(mode="live", step_limit=2)), Answer("", [ADD]), Answer("15"))
    assert heard[-1].end == SessionEnd.DONE


# recorded streams -----------------------------------------------------------------------


def decoded(body: bytes) -> tuple[Answer, str | None]:
    events, answer = EventDecoder(), AnswerDecoder("chat")
    answer.add(events.feed(body, 1.0))
    answer.add(events.close())
    return Answer(answer.text, answer.tool_calls), answer.finish_reason


def test_calls_decide_and_not_the_finish_reason(agent: Callable[..., AgentMaterial]) -> None:
    """A26: whole calls without index that end with ``stop`` are a tool turn of two calls, each with its result."""
    folder = CONTRACT / "cases" / "A26"
    answer, finish_reason = decoded((folder / "body.bin").read_bytes())
    assert finish_reason == "stop"
    job = session(agent(mode="live", tool_time_s=1))
    job.next()
    assert job.hear(answer) == Heard(end=None, divergence=None, malformed_calls=0)
    made, *results = messages(job.next())[-3:]
    expected = json.loads((folder / "expected.json").read_text())["tool_calls"]
    assert [
        {"id": one["id"], "name": one["function"]["name"], "arguments": json.loads(one["function"]["arguments"])}
        for one in made["tool_calls"]
    ] == expected
    assert [result["tool_call_id"] for result in results] == ["call_1", "call_2"]


def test_interleaved_calls_go_back_whole(agent: Callable[..., AgentMaterial]) -> None:
    """A25: two calls whose arguments came in turns are two calls; tools that the agent lacks are told to the model."""
    answer, _ = decoded((CONTRACT / "cases" / "A25" / "body.bin").read_bytes())
    job = session(agent(mode="live"))
    job.next()
    assert job.hear(answer).malformed_calls == 2
    made = messages(job.next())[-3]
    assert [json.loads(one["function"]["arguments"]) for one in made["tool_calls"]] == [{"city": "Oslo"}, {"tz": "CET"}]


# Worked out by reading the recordings: name -> its calls, and how many of them an agent could not run, because the
# answer was cut in the middle of the last one or because arguments are no object.
CAPTURED = {
    "vllm-0.32.0-text/c_tool_auto": (0, 0),
    "vllm-0.32.0-text/c_tool_none": (0, 0),
    "vllm-0.32.0-text/c_tool_required": (2, 2),
    "vllm-0.32.0-text/c_tool_named": (1, 1),
    "vllm-0.32.0-reasoning/c_tool_named_strict": (1, 0),
    "vllm-0.32.0-reasoning/c_tool_required_strict": (1, 0),
    "vllm-0.32.0-reasoning/c_tool_required_parallel": (2, 1),
    "vllm-0.32.0-reasoning/c_tool_after_reasoning": (1, 0),
    "llamacpp-smollm2/c_tool_auto": (0, 0),
    "llamacpp-smollm2/c_tool_required": (0, 0),
    "llamacpp-xllamacpp/c_tool_required_biased": (3, 1),
    "llamacpp-xllamacpp/c_tool_parallel_biased": (5, 1),
    "sglang/c_tool_auto": (0, 0),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_recorded_answers_of_real_engines_are_tool_turns_where_they_call(tmp_path: Path, name: str) -> None:
    """With the tools that the recorded request offered, a job goes on where the model called and ends where not."""
    tools = tmp_path / "tools.json"
    request = json.loads((CONTRACT / "captures" / f"{name}.request.json").read_text())["body"]
    tools.write_text(json.dumps(request["tools"]))
    answer, _ = decoded((CONTRACT / "captures" / f"{name}.body").read_bytes())
    calls, malformed = CAPTURED[name]
    assert len(answer.calls) == calls
    job = session(material(tools=str(tools), mode="live"))
    job.next()
    heard = job.hear(answer)
    assert heard.malformed_calls == malformed
    assert heard.end == (None if calls else SessionEnd.DONE)
    turn = job.next()
    assert (turn is None) == (calls == 0)
    sent = messages(turn)[-1 - calls]["tool_calls"] if calls else []
    assert [one["function"]["name"] for one in sent] == [call.name for call in answer.calls]
    assert all(isinstance(json.loads(one["function"]["arguments"]), dict) for one in sent)


def test_a_first_prompt_of_6000_tokens_is_made_quickly() -> None:
    """With the shared prompt at hand, a job and its first turn take less than 1 ms of this thread's time."""
    made = material(system_prompt={"tokens": 6000})
    session(made).next()
    took_s = []
    for ticket in range(50):
        rng, texts = Random(ticket), Random(ticket)
        begun = time.thread_time()
        turn = AgentSession(made, rng, texts, ordinal=ticket, level=0).next()
        took_s.append(time.thread_time() - begun)
        assert turn is not None
        assert (turn.prefix_tokens or 0) > 6000
    assert min(took_s) < 1e-3
