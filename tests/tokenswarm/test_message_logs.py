"""Import of logs as people have them: layouts, the chaining of calls into jobs, and what is told of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenswarm.trajectories import Trajectory, main, read_trajectories

SYSTEM = {"role": "system", "content": "You are an agent."}
TASK = {"role": "user", "content": "What is the weather in Ulm and Bonn?"}
DONE = {"role": "assistant", "content": "Rain in both."}


def calling(*cities: str, ids: bool = True) -> dict[str, Any]:
    calls = [
        {"type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}}
        | ({"id": f"id_{city}"} if ids else {})
        for city in cities
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(city: str, text: str = "rain") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"id_{city}", "content": text}


def response(message: dict[str, Any], tokens: int | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"object": "chat.completion", "choices": [{"index": 0, "message": message}]}
    return body if tokens is None else body | {"usage": {"prompt_tokens": 9, "completion_tokens": tokens}}


class Import:
    """Runs the import over lines and keeps what came out."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = tmp_path
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.code = -1
        self.told = ""

    def __call__(self, *lines: Any) -> list[Trajectory]:
        log = self._folder / "log.jsonl"
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        log.write_text("\n".join(texts), encoding="utf-8")
        self._monkeypatch.setattr("sys.argv", ["trajectories", "import", str(log)])
        self.code = main()
        out = self._capsys.readouterr()
        self.told = out.err.replace(str(log), "log")
        jobs = self._folder / "jobs.jsonl"
        jobs.write_text(out.out, encoding="utf-8")
        return read_trajectories(jobs) if out.out else []


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Import:
    return Import(tmp_path, monkeypatch, capsys)


TALK = [SYSTEM, TASK, calling("Ulm", "Bonn"), result("Ulm"), result("Bonn", "wet"), calling("Kiel"), result("Kiel")]


def calls_of_talk() -> list[tuple[list[dict[str, Any]], dict[str, Any], int]]:
    """Messages, answer and output tokens of the three calls behind ``TALK``."""
    return [(TALK[:2], TALK[2], 40), (TALK[:5], TALK[5], 22), (TALK, DONE, 5)]


def check_talk(jobs: list[Trajectory], *, tokens: bool = True) -> None:
    """The one job that ``TALK`` and its end stand for."""
    (job,) = jobs
    assert (job.system, job.task) == (SYSTEM["content"], TASK["content"])
    assert [[call.name for call in step.calls] for step in job.steps] == [["weather"] * 2, ["weather"], []]
    assert [json.loads(call.arguments)["city"] for step in job.steps for call in step.calls] == ["Ulm", "Bonn", "Kiel"]
    assert [step.results for step in job.steps] == [["rain", "wet"], ["rain"], []]
    assert job.steps[-1].text == DONE["content"]
    assert [step.output_tokens for step in job.steps] == ([40, 22, 5] if tokens else [None] * 3)


def test_conversations_a_line(importing: Import) -> None:
    """An object with messages and a bare list of messages are each one conversation."""
    jobs = importing({"messages": [*TALK, DONE], "tools": []}, [*TALK, DONE, TASK | {"content": "Thanks."}])
    assert importing.code == 0
    # the second begins like the first and goes on: the same conversation, seen again later
    assert [job.task for job in jobs] == [TASK["content"], "Thanks."]
    check_talk(jobs[:1], tokens=False)


TOOLS = [{"type": "function", "function": {"name": "weather"}}]
LAYOUTS: dict[str, Any] = {
    "request": lambda messages, answer, tokens: {
        "request": {"model": "m", "messages": messages, "tools": TOOLS},
        "response": response(answer, tokens),
    },
    "http": lambda messages, answer, tokens: {
        "request": {"url": "/v1/chat/completions", "body": {"messages": messages, "tools": TOOLS}},
        "response": {"status": 200, "body": response(answer, tokens)},
    },
    "batch": lambda messages, answer, tokens: {
        "custom_id": "x",
        "body": {"messages": messages, "tools": TOOLS},
        "response": {"status_code": 200, "body": response(answer, tokens)},
    },
    "kwargs": lambda messages, answer, tokens: {
        "kwargs": {"messages": messages, "tools": TOOLS},
        "response": response(answer, tokens),
    },
    "input and output": lambda messages, answer, tokens: {
        "input": {"messages": messages, "tools": TOOLS},
        "output": response(answer, tokens),
    },
    "gateway": lambda messages, answer, tokens: {
        "messages": messages,
        "model_parameters": {"tools": TOOLS},
        "response": response(answer),
        "completion_tokens": tokens,
    },
    "texts": lambda messages, answer, tokens: {
        "request_body": json.dumps({"messages": messages, "tools": TOOLS}),
        "response_body": json.dumps(response(answer, tokens)),
    },
    "functions": lambda messages, answer, tokens: {
        "request": {"messages": messages, "functions": [TOOLS[0]["function"]]},
        "response": response(answer, tokens),
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_calls_a_line_become_one_job(importing: Import, layout: str) -> None:
    """Three calls, each with the messages of the one before it, are one job with the tokens that usage told."""
    jobs = importing(*[LAYOUTS[layout](*call) for call in calls_of_talk()])
    check_talk(jobs)
    assert jobs[0].tools == TOOLS
    assert "log:" not in importing.told  # nothing was left out
    assert "3 lines: 1 job, 3 steps (3 a job), 3 calls" in importing.told
    assert "read them before you share them" in importing.told


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(100.0, 101.5), (103.75, 104.0), (104.5, 105.0)], [2.25, 0.5]),
        ([(1700000000100, 1700000001100), (1700000003100, 1700000004100), (1700000004850, 1700000005000)], [2.0, 0.75]),
        (
            [
                ("2025-03-01T10:00:00Z", "2025-03-01T10:00:01Z"),
                ("2025-03-01T10:00:03.250000+00:00", "2025-03-01T11:00:04+01:00"),
                ("2025-03-01 10:00:04.5", "2025-03-01 10:00:05"),
            ],
            [2.25, 0.5],
        ),
        ([(100.0, 101.5), (101.0, 104.0), (None, 105.0)], [None, None]),
        ([("soon", "later"), (103.0, True), (104.5, 105.0)], [None, None]),
    ],
)
def test_tool_time_is_from_one_call_to_the_next(importing: Import, times: list[Any], expected: list[Any]) -> None:
    """Seconds, milliseconds and ISO 8601; overlapping or unknown times give none."""
    lines = [
        {"request": {"messages": messages}, "response": response(answer, tokens), "startTime": start, "endTime": end}
        for (messages, answer, tokens), (start, end) in zip(calls_of_talk(), times, strict=True)
    ]
    jobs = importing(*lines)
    check_talk(jobs)
    assert [step.tool_time_s for step in jobs[0].steps] == [*expected, None]


def test_the_time_of_a_user_is_no_tool_time(importing: Import) -> None:
    """Where a person spoke between two calls, the time between them is not taken for the tool's."""
    first = {"messages": [TASK], "response": response(calling("Ulm")), "start_time": 0, "end_time": 1}
    hurry = {"role": "user", "content": "Hurry."}
    second = {
        "messages": [TASK, calling("Ulm"), result("Ulm"), hurry],
        "response": response(DONE),
        "start_time": 60,
        "end_time": 61,
    }
    (job,) = importing(first, second)
    assert job.steps[0].results == ["rain\n\nHurry."]
    assert job.steps[0].tool_time_s is None


def test_conversations_that_run_at_the_same_time_stay_apart(importing: Import) -> None:
    """Calls of two agents with the same first request are told apart by the answers in their history."""
    other = calling("Rome")
    lines = [
        {"messages": [SYSTEM, TASK], "response": response(other, 11)},
        {"messages": TALK[:2], "response": response(TALK[2], 40)},
        {"messages": [SYSTEM, TASK, other, result("Rome", "sun")], "response": response(DONE, 12)},
        {"messages": TALK[:5], "response": response(TALK[5], 22)},
        {"messages": TALK, "response": response(DONE, 5)},
    ]
    rome, talk = importing(*lines)
    check_talk([talk])
    assert [(step.results, step.output_tokens) for step in rome.steps] == [(["sun"], 11), ([], 12)]


def test_messages_written_otherwise_are_the_same_messages(importing: Import) -> None:
    """Layout of arguments, parts instead of text, white space and null instead of empty text break no chain."""
    logged = calling("Ulm") | {"content": ""}
    sent = calling("Ulm")
    sent["tool_calls"][0]["function"]["arguments"] = '{ "city":"Ulm" }'
    parts = [{"type": "text", "text": TASK["content"], "cache_control": {"type": "ephemeral"}}]
    lines = [
        {"messages": [SYSTEM, TASK], "response": response(logged, 8)},
        {"messages": [SYSTEM, {"role": "user", "content": parts}, sent, result("Ulm")], "response": response(DONE, 9)},
    ]
    (job,) = importing(*lines)
    assert [step.output_tokens for step in job.steps] == [8, 9]


def test_a_system_prompt_that_tells_the_time_breaks_no_chain(importing: Import) -> None:
    """The later system prompt is kept, and it is told that it changed."""
    later = SYSTEM | {"content": "You are an agent. It is 10:01."}
    (job,) = importing(
        {"messages": TALK[:2], "response": response(TALK[2], 40)},
        {"messages": [later, *TALK[1:5]], "response": response(DONE, 5)},
    )
    assert job.system == later["content"]
    assert (
        "1 × the system prompt differs from that of the call before; the later one is kept: log:2\n" in importing.told
    )


def test_a_second_try_of_one_call_takes_the_place_of_the_first(importing: Import) -> None:
    """The same messages with an answer in them are the same step again, not another job; it is told."""
    calls = calls_of_talk()
    lines = [{"messages": messages, "response": response(answer, tokens)} for messages, answer, tokens in calls]
    again = {"messages": TALK[:5], "response": response(DONE, 99)}
    jobs = importing(lines[0], again, *lines[1:])
    check_talk(jobs)
    assert "1 × the same request again; the later answer is kept: log:3\n" in importing.told


def test_the_same_first_request_twice_is_two_jobs(importing: Import) -> None:
    """Two people may ask the same question."""
    line = {"messages": [SYSTEM, TASK], "response": response(DONE, 3)}
    assert len(importing(line, line)) == 2


def test_older_and_incomplete_messages(importing: Import) -> None:
    """function_call messages, calls and results without ids, arguments as objects and refusals become today's form."""
    old = [
        TASK,
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": '{"city": "Ulm"}'}},
        {"role": "function", "name": "weather", "content": "rain"},
        {"role": "assistant", "content": None, "refusal": "I cannot say."},
    ]
    nameless = calling("Ulm", "Bonn", ids=False)
    nameless["tool_calls"][1]["function"] = {"name": "pollen", "arguments": {"city": "Bonn"}}
    results = [{"role": "tool", "name": "pollen", "content": "grass"}, {"role": "tool", "content": "rain"}]
    first, second = importing(old, [TASK, nameless, *results, DONE])
    assert [call.name for call in first.steps[0].calls] == ["weather"]
    assert (first.steps[0].results, first.steps[1].text) == (["rain"], "I cannot say.")
    assert second.steps[0].results == ["rain", "grass"]
    assert second.steps[0].calls[1].arguments == '{"city":"Bonn"}'


def test_repeated_ids_are_told_apart(importing: Import) -> None:
    """Servers that call every call call_0 get new ids, and results are taken in order."""
    answer = calling("Ulm", "Bonn")
    results = []
    for number, one in enumerate(answer["tool_calls"]):
        one["id"] = "call_0"
        results.append({"role": "tool", "tool_call_id": "call_0", "content": str(number)})
    (job,) = importing([TASK, answer, *results, DONE])
    assert job.steps[0].results == ["0", "1"]
    assert len({call.id for call in job.steps[0].calls}) == 2


def test_what_cannot_be_used_is_told_with_its_lines(importing: Import) -> None:
    """Every line that gives no job, and every part that is left out, is counted with its line."""
    picture = {"role": "user", "content": [{"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {}}]}
    thinking = DONE | {"reasoning_content": "Hm."}
    first = {"messages": [picture], "response": response(calling("Ulm") | {"reasoning": "Hm."}, 3)}
    second = {"messages": [picture, calling("Ulm"), result("Ulm")], "response": response(thinking, 4)}
    two = response(DONE)
    two["choices"].append({"index": 1, "message": DONE})
    jobs = importing(
        first,
        second,
        "{",
        "[1]",
        5,
        {"prompt": "hi"},
        {"messages": [TASK], "response": None},
        {"messages": [TASK], "response": {"error": {"message": "overloaded"}}},
        {"messages": "redacted", "response": response(DONE)},
        [SYSTEM],
        [TASK, calling("Ulm"), DONE],
        {"messages": [SYSTEM, TASK], "response": two},
    )
    assert [job.task for job in jobs] == ["See:", TASK["content"]]
    notes = importing.told.splitlines()
    assert notes[:-2] == [
        "1 × a part of type image_url is no text and is not kept: log:1",
        "2 × reasoning of an answer is not kept in the history: log:1, log:2",
        "1 × left out: no JSON (Input data was truncated): log:3",
        "3 × left out: no list of messages in it, nor in its request, body, kwargs or input: log:4, log:6, log:9",
        "1 × left out: neither an object nor a list of messages: log:5",
        "2 × left out: a call without an answer: no choices in its response: log:7, log:8",
        "1 × left out: no message of the user: log:10",
        "1 × choices after the first are not kept: log:12",
        "1 × left out: messages[2]: value id_Ulm: a tool message with the result of this call is wanted before it: "
        "log:11",
    ]
    assert notes[-2].startswith("12 lines: 2 jobs, 3 steps")
    assert importing.code == 0


def test_many_places_are_counted(importing: Import) -> None:
    """Twenty places are named and the others counted; a log without a job gives exit code 2."""
    assert importing(*["{}"] * 25) == []
    assert importing.told.splitlines()[0].endswith("log:19, log:20 and 5 more")
    assert "25 lines: no job" in importing.told
    assert importing.code == 2


def test_a_log_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line and exit code 2."""
    monkeypatch.setattr("sys.argv", ["trajectories", "import", "/nowhere/log.jsonl"])
    assert main() == 2
    assert capsys.readouterr().err == "/nowhere/log.jsonl: cannot be read: No such file or directory\n"


def test_jobs_can_be_imported_again(importing: Import, tmp_path: Path) -> None:
    """The import of a file of jobs is the same jobs, facts included."""
    lines = [
        {"messages": messages, "response": response(answer, tokens), "startTime": start, "endTime": start + 1}
        for (messages, answer, tokens), start in zip(calls_of_talk(), (0, 3, 6), strict=True)
    ]
    once = importing(*lines)
    again = importing(*(tmp_path / "jobs.jsonl").read_text(encoding="utf-8").splitlines())
    assert once == again
    assert [step.tool_time_s for step in once[0].steps] == [2.0, 2.0, None]
