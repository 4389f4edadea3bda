"""Recorded jobs: the strict reader of the JSONL format and its command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenswarm import trajectories
from tokenswarm.errors import InputError, ScenarioError
from tokenswarm.toolcalls import ToolCall
from tokenswarm.trajectories import main, read_trajectories

DOCUMENTATION = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
SYSTEM = {"role": "system", "content": "You fix code."}
TASK = {"role": "user", "content": "Make the test pass."}
DONE = {"role": "assistant", "content": "Fixed."}


def call(id_: Any, name: Any = "read_file", arguments: Any = '{"path": "a.py"}') -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)} | more


def result(id_: Any, text: Any = "x = 1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text} | more


def write(path: Path, *entries: Any) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def read(tmp_path: Path, *messages: Any, **more: Any) -> list[trajectories.Trajectory]:
    return read_trajectories(write(tmp_path / "jobs.jsonl", {"messages": list(messages)} | more))


def test_a_job_with_calls_at_once_and_all_facts(tmp_path: Path) -> None:
    """Results come in the order of the calls whatever their order in the file; the slowest tool gives the tool time."""
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
    both = calling(call("a"), call("b", "run", {"command": "pytest -q"}), content="Look.", output_tokens=41)
    results = (result("b", "1 failed", tool_time_s=2.5), result("a", "x = 1", tool_time_s=0.1))
    more = {"name": "fix", "tools": tools, "model": "any", "temperature": 0}
    (job,) = read(tmp_path, SYSTEM, TASK, both, *results, DONE | {"output_tokens": 7}, **more)
    assert (job.name, job.system, job.task, job.tools, job.history) == (
        "fix",
        "You fix code.",
        "Make the test pass.",
        tools,
        [],
    )
    first, last = job.steps
    assert first.text == "Look."
    assert first.calls == [
        ToolCall("a", "read_file", '{"path": "a.py"}'),
        ToolCall("b", "run", '{"command":"pytest -q"}'),
    ]
    assert first.results == ["x = 1", "1 failed"]
    assert (first.tool_time_s, first.output_tokens) == (2.5, 41)
    assert (last.text, last.calls, last.results, last.tool_time_s, last.output_tokens) == ("Fixed.", [], [], None, 7)


def test_several_conversations_and_forms_of_content(tmp_path: Path) -> None:
    """Blank lines, a byte-order mark, developer messages, parts of text and missing names are all read."""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    lines = [
        {"messages": [{"role": "developer", "content": "Be brief."}, SYSTEM, {"role": "user", "content": parts}, DONE]},
        {"name": "second", "messages": [TASK, DONE]},
    ]
    path = tmp_path / "jobs.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\n\n".join(json.dumps(line).encode() for line in lines))
    first, second = read_trajectories(path)
    assert (first.name, first.system, first.task) == ("line 1", "Be brief.\n\nYou fix code.", "one\ntwo")
    assert (second.name, second.system) == ("second", None)


def test_the_next_message_of_the_user_begins_the_next_job(tmp_path: Path) -> None:
    """A later job keeps everything that was said before it as its history, so that its context is as long."""
    more = {"role": "user", "content": "Now the docs."}
    talk = [calling(call("a")), result("a"), DONE]
    first, second = read(tmp_path, SYSTEM, TASK, *talk, more, calling(call("a")), result("a"), DONE, name="both")
    assert (first.name, first.task, first.history, len(first.steps)) == ("both", TASK["content"], [], 2)
    assert (second.name, second.task, second.system) == ("both (2)", "Now the docs.", "You fix code.")
    assert [message["role"] for message in second.history] == ["user", "assistant", "tool", "assistant"]
    assert second.history[1]["tool_calls"] == talk[0]["tool_calls"]
    assert len(second.steps) == 2


def test_a_word_between_results_and_answer_belongs_to_the_last_result(tmp_path: Path) -> None:
    """A user or system message inside the loop goes on as text of the result before it; the job goes on."""
    hint = {"role": "user", "content": "Hurry."}
    (job,) = read(tmp_path, TASK, hint, calling(call("a")), result("a"), hint, DONE)
    assert job.task == "Make the test pass.\n\nHurry."
    assert job.steps[0].results == ["x = 1\n\nHurry."]
    assert len(job.steps) == 2


def test_a_greeting_stands_in_the_history(tmp_path: Path) -> None:
    """What the assistant says before anybody asked is sent, and is no step."""
    (job,) = read(tmp_path, SYSTEM, {"role": "assistant", "content": "Hello!"}, TASK, DONE)
    assert job.history == [{"role": "assistant", "content": "Hello!"}]
    assert [step.text for step in job.steps] == ["Fixed."]


def test_two_answers_in_a_row_are_one_step(tmp_path: Path) -> None:
    """Text and calls that a framework has split are put together, and their tokens added."""
    (job,) = read(
        tmp_path,
        TASK,
        {"role": "assistant", "content": "I look.", "output_tokens": 3},
        calling(call("a"), output_tokens=20),
        result("a"),
        DONE,
    )
    assert (job.steps[0].text, job.steps[0].output_tokens, len(job.steps[0].calls)) == ("I look.", 23, 1)


def test_recordings_that_break_off(tmp_path: Path) -> None:
    """After results or a task an answer without text is added; calls that were never run stay, without results."""
    (asked,) = read(tmp_path, TASK)
    assert [(step.text, step.calls) for step in asked.steps] == [("", [])]
    (ran,) = read(tmp_path, TASK, calling(call("a")), result("a"))
    assert [len(step.calls) for step in ran.steps] == [1, 0]
    assert ran.steps[-1].output_tokens is None
    (called,) = read(tmp_path, TASK, calling(call("a")), result("a"), calling(call("b")))
    assert [(len(step.calls), len(step.results)) for step in called.steps] == [(1, 1), (1, 0)]


def test_longest_context_is_what_the_last_call_sends(tmp_path: Path) -> None:
    """Counted by hand: 13 of system, 19 of task, 4 of text, 9 + 16 of the call, 5 of its result; no last answer."""
    (job,) = read(tmp_path, SYSTEM, TASK, calling(call("a"), content="Look"), result("a"), DONE)
    assert job.context_characters == 13 + 19 + 4 + 9 + 16 + 5


MISTAKES: dict[str, tuple[Any, str]] = {
    "no object": ([TASK], 'line: value .*: an object with "messages" is wanted'),
    "no messages": ({"prompt": "hi"}, "import makes one from logs of API calls"),
    "no user": ({"messages": [SYSTEM, DONE]}, "messages: at least one message of the user is wanted"),
    "blank task": ({"messages": [{"role": "user", "content": " "}, DONE]}, "at least one message of the user"),
    "call before task": ({"messages": [SYSTEM, calling(call("a"))]}, r"messages\[1\]: a message of the user is wanted"),
    "no message": ({"messages": [TASK, "hi"]}, r"messages\[1\]: value hi: an object with role and content"),
    "role": ({"messages": [{"role": "robot", "content": ""}]}, r"messages\[0\]\.role: value robot: system, developer"),
    "function role": ({"messages": [{"role": "function"}]}, r"role: value function: .*import converts function"),
    "content": ({"messages": [{"role": "user", "content": 5}]}, r"messages\[0\]\.content: value 5: text, or a list"),
    "no content": ({"messages": [{"role": "user"}]}, r"messages\[0\]\.content: value null: text"),
    "picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        r"messages\[0\]\.content\[0\]: value .*image_url.*: a part with text is wanted; pictures",
    ),
    "unknown id": (
        {"messages": [TASK, calling(call("a")), result("b")]},
        r"messages\[2\]\.tool_call_id: value b: the id of a call in the assistant's message before it is wanted",
    ),
    "result of an earlier step": (
        {"messages": [TASK, calling(call("a")), result("a"), calling(call("b")), result("a")]},
        r"messages\[4\]\.tool_call_id: value a: the id of a call",
    ),
    "result without a call": ({"messages": [TASK, result("a")]}, r"messages\[1\]\.tool_call_id: value a"),
    "two results": (
        {"messages": [TASK, calling(call("a")), result("a"), result("a")]},
        r"messages\[3\]\.tool_call_id: value a: a second result",
    ),
    "no result": (
        {"messages": [TASK, calling(call("a"), call("b")), result("a"), DONE]},
        r"messages\[3\]: value b: a tool message with the result of this call is wanted before it",
    ),
    "no result at the end": (
        {"messages": [TASK, calling(call("a"), call("b")), result("a")]},
        "messages: the end: value b: a tool message",
    ),
    "calls": ({"messages": [TASK, DONE | {"tool_calls": {}}]}, r"messages\[1\]\.tool_calls: value {}: a list"),
    "call": ({"messages": [TASK, calling("a")]}, r"tool_calls\[0\]\.function: value null: an object with name"),
    "id": ({"messages": [TASK, calling(call(None))]}, r"tool_calls\[0\]\.id: value null: text is wanted .*import"),
    "same id": ({"messages": [TASK, calling(call("a"), call("a"))]}, r"tool_calls\[1\]\.id: value a: an id of its own"),
    "tool's name": ({"messages": [TASK, calling(call("a", ""))]}, r'function\.name: value "": the name of a tool'),
    "arguments": (
        {"messages": [TASK, calling(call("a", arguments=[1]))]},
        r"messages\[1\]\.tool_calls\[0\]\.function\.arguments: value \[1\]: JSON text, or an object, is wanted",
    ),
    "name": ({"name": 5, "messages": [TASK, DONE]}, "name: value 5: text is wanted"),
    "tools": ({"messages": [TASK], "tools": "all"}, "tools: value all: a list of tool definitions"),
    "tool": ({"messages": [TASK], "tools": [{"name": "x"}]}, r"tools\[0\]: value .*: {\"type\": \"function\""),
    "tokens": ({"messages": [TASK, DONE | {"output_tokens": 0}]}, r"\[1\]\.output_tokens: value 0: a whole number"),
    "tokens as truth": ({"messages": [TASK, DONE | {"output_tokens": True}]}, "output_tokens: value true: a whole"),
    "time": (
        {"messages": [TASK, calling(call("a")), result("a", tool_time_s=-1)]},
        r"messages\[2\]\.tool_time_s: value -1: seconds from 0 to 86400 are wanted",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_every_mistake_is_one_line_with_its_place(tmp_path: Path, case: str) -> None:
    """File, line of the file, place in the conversation, value and what is wanted, on one line."""
    entry, expected = MISTAKES[case]
    path = write(tmp_path / "jobs.jsonl", {"messages": [TASK, DONE]}, entry)
    with pytest.raises(ScenarioError, match=rf"jobs\.jsonl:2: .*{expected}") as caught:
        read_trajectories(path)
    assert len(caught.value.problems) == 1
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "holds no job"),
        (b" \n\n", "holds no job"),
        (b'{"messages": \n', r":1: no JSON \("),
        (b"[" * 100_000, ":1: no JSON"),
        (b'{"messages": "\xff"}', ":1: no JSON"),
    ],
)
def test_files_without_jobs(tmp_path: Path, raw: bytes, expected: str) -> None:
    """Empty files and lines that are no JSON are told in one line that says what is wanted."""
    path = tmp_path / "jobs.jsonl"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=expected + r".*is wanted, one conversation a line$"):
        read_trajectories(path)


STRANGE = [
    None,
    True,
    0,
    10**400,
    2.5,
    "",
    "a",
    "user",
    [],
    [None],
    ["a"],
    {},
    {"a": []},
    [{"type": "text", "text": 5}],
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield from places(below, (*path, key))


def test_no_shape_of_data_makes_a_traceback(tmp_path: Path) -> None:
    """Whatever stands in any place of a conversation, it is read or refused in one line."""
    tools = [{"type": "function", "function": {"name": "read_file"}}]
    whole = {
        "name": "x",
        "messages": [SYSTEM, TASK, calling(call("a")), result("a", tool_time_s=1), DONE],
        "tools": tools,
    }
    told: list[list[str]] = []
    for path in places(whole):
        for strange in STRANGE:
            entry: Any = {"entry": json.loads(json.dumps(whole))}
            holder = entry
            for key in ("entry", *path)[:-1]:
                holder = holder[key]
            holder[("entry", *path)[-1]] = strange
            try:
                read_trajectories(write(tmp_path / "jobs.jsonl", entry["entry"]))
            except ScenarioError as error:
                told.append(error.problems)
    assert len(told) > 100
    assert [problems for problems in told if len(problems) != 1 or "\n" in problems[0]] == []


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file and one that is too large for every process to keep are refused before reading."""
    with pytest.raises(InputError, match=r"none\.jsonl: cannot be read: No such file"):
        read_trajectories(tmp_path / "none.jsonl")
    path = write(tmp_path / "large.jsonl", {"messages": [TASK, DONE]})
    monkeypatch.setattr(trajectories, "LARGEST_FILE", 10)
    with pytest.raises(InputError, match=r"large\.jsonl: \d+ bytes; at most 10 are wanted"):
        read_trajectories(path)


def test_many_mistakes_are_counted(tmp_path: Path) -> None:
    """The first twenty lines that cannot be used are told, the others counted."""
    with pytest.raises(ScenarioError) as caught:
        read_trajectories(write(tmp_path / "jobs.jsonl", *([{"messages": []}] * 33)))
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1].endswith("13 more lines cannot be used")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> int:
    monkeypatch.setattr("sys.argv", ["trajectories", *map(str, arguments)])
    return main()


def test_check_tells_what_is_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a file with counts; a bad file gives its mistakes and exit code 2, the good one is told all the same."""
    step = [calling(call("a"), output_tokens=9), result("a", tool_time_s=1.5)]
    good = write(tmp_path / "good.jsonl", {"messages": [TASK, *step, DONE]}, {"messages": [TASK, DONE]})
    bad = write(tmp_path / "bad.jsonl", {"messages": []})
    assert run(monkeypatch, "check", bad, good) == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"{bad}:1: messages: ")
    assert told.out == (
        f"{good}: 2 jobs, 3 steps (1 to 2 a job), 1 call, longest context 49 characters; "
        "output_tokens known for 1 of 3 steps, tool_time_s for 1 of 1\n"
    )
    assert run(monkeypatch, "check", good) == 0


def test_the_example_in_the_documentation_is_a_job(tmp_path: Path) -> None:
    """The job that docs/agents.md shows is read when put on one line: two calls at once, the slower tool's time."""
    example = re.search(r"```json\n(.*?)```", DOCUMENTATION, re.DOTALL)
    assert example
    (job,) = read_trajectories(write(tmp_path / "jobs.jsonl", json.loads(example[1])))
    assert [len(step.calls) for step in job.steps] == [2, 0]
    assert job.steps[0].tool_time_s == 1.1
    assert job.tools


def test_the_mistake_in_the_documentation_is_what_one_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sample message of docs/agents.md is the real one."""
    sample = re.search(r"```text\n(jobs\.jsonl:3: .*?)\n```", DOCUMENTATION)
    assert sample
    good = {"messages": [TASK, DONE]}
    write(
        tmp_path / "jobs.jsonl",
        good,
        good,
        {"messages": [SYSTEM, TASK, calling(call("a")), result("a"), result("call_9")]},
    )
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "check", "jobs.jsonl") == 2
    assert capsys.readouterr().err.strip() == sample[1]
