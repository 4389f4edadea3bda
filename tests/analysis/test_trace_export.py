"""A run exported as a trace: what was due when, how long, and what was shared; read back it is the same load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from tests.analysis.conftest import write_run
from tokenswarm.records import RequestRecord
from tokenswarm.replay_load import Replay
from tokenswarm.trace import SharedText, TraceSession, TraceTurn
from tokenswarm.trace_files import Trace, read_trace

Export = Callable[..., Trace]


def request(session: str, scheduled_s: float, **facts: Any) -> RequestRecord:
    """A request sent 1 s after it was due, with 300 tokens in and 40 out as asked."""
    given: dict[str, Any] = {
        "level": 0, "concurrency": 2, "phase": "measured", "ticket": 0, "traffic": "chat", "session": session,
        "scheduled_s": scheduled_s, "sent_s": scheduled_s + 1, "first_token_s": scheduled_s + 2,
        "last_token_s": scheduled_s + 3, "finished_s": scheduled_s + 3, "prompt_tokens": 300, "output_tokens": 40,
        "asked_input_tokens": 290, "asked_output_tokens": 40,
    }  # fmt: skip
    return RequestRecord(**given | facts)


@pytest.fixture
def export(tmp_path: Path) -> Export:
    """``python -m analysis export-trace`` of a run with these rows, read back."""

    def run(*rows: RequestRecord, options: tuple[str, ...] = (), **facts: Any) -> Trace:
        folder, file = write_run(tmp_path / "run", rows, **facts), tmp_path / "trace.jsonl"
        assert main(["export-trace", str(folder), "-o", str(file), *options]) == 0
        return read_trace(Replay(trace=str(file)))

    return run


def test_times_lengths_and_pauses_come_back(export: Export) -> None:
    """Two sessions, one of three turns: due times from the first, the server's lengths, later turns by what they add.

    By hand: the second prompt of 420 tokens has 300 + 40 before it and adds 80; the third of 500 has 420 + 30 and adds
    50.
    """
    turns = [
        request("b", 107.25),
        request("b", 111, turn=1, pause_s=2.5, prompt_tokens=420, output_tokens=30),
        request("b", 119, turn=2, pause_s=6.0, prompt_tokens=500, output_tokens=20),
    ]
    trace = export(turns[2], request("a", 100.0, traffic="other", prompt_tokens=90), *turns[:2])
    assert trace.sessions == (
        TraceSession(0.0, (TraceTurn(90, 40),), (), "other"),
        TraceSession(7.25, (TraceTurn(300, 40), TraceTurn(80, 30, 2.5), TraceTurn(50, 20, 6.0)), (), "chat"),
    )


def test_a_shorter_history_does_not_shorten_later_prompts(export: Export) -> None:
    """A template that leaves thoughts out: the second prompt of 310 has fewer than 300 + 40 and adds at least 1; the
    third of 420 then needs 420 - (341 + 40)."""
    rows = [request("a", 0), request("a", 5, turn=1, prompt_tokens=310), request("a", 9, turn=2, prompt_tokens=420)]
    (session,) = export(*rows).sessions
    assert [turn.input_tokens for turn in session.turns] == [300, 1, 39]


def test_failures_count_as_they_were_asked_for(export: Export, capsys: pytest.CaptureFixture[str]) -> None:
    """A request that was cut, and one without an answer, are load too; what nobody knows the length of is told."""
    cut = {"error_kind": "cancelled", "output_tokens": 7, "finished_s": 9.0}
    refused = {"error_kind": "not_admitted", "sent_s": None, "first_token_s": None, "finished_s": None}
    nothing = {"prompt_tokens": None, "output_tokens": None}
    trace = export(
        request("a", 0, **cut),
        request("b", 1, error_kind="http_5xx", **nothing),
        request("c", 2, **refused, **nothing),
        request("d", 3, **refused, **nothing, asked_input_tokens=None, asked_output_tokens=None),
    )
    assert [(one.at_s, one.turns) for one in trace.sessions] == [
        (0.0, (TraceTurn(300, 40),)),
        (1.0, (TraceTurn(290, 40),)),
        (2.0, (TraceTurn(290, 40),)),
    ]
    assert capsys.readouterr().err == "3 sessions, 1 left out whose lengths are not known\n"


def test_shared_texts_keep_their_names_and_lengths(export: Export) -> None:
    """Pools of agents' prompts by class and name, chats by the text of their system prompt; cold arms share nothing."""
    rows = [
        request("a", 0, traffic="agent", prefix="prompt 0.1", prefix_tokens=200),
        request("b", 1, traffic="agent", prefix="prompt 0.1", prefix_tokens=200),
        request("c", 2, traffic="agent", prefix="prompt 0.1", prefix_tokens=200, arm="cold", pair=0),
        request("d", 3, traffic="one", prefix="system", prefix_tokens=50),
        request("e", 4, traffic="two", prefix="system", prefix_tokens=50),
        request("f", 5, traffic="three", prefix="system", prefix_tokens=50),
    ]
    texts = {"one": "Be brief.", "two": "Be brief.", "three": "Be kind."}
    traffic = [{"name": name, "system_prompt": text} for name, text in texts.items()]
    sessions = export(*rows, scenario={"traffic": traffic}).sessions
    assert [one.shared for one in sessions] == [
        (SharedText("agent prompt 0.1", 200),),
        (SharedText("agent prompt 0.1", 200),),
        (),
        (SharedText("one system", 50),),
        (SharedText("one system", 50),),
        (),  # alone with its text
    ]


def test_the_paths_of_a_replay_come_back(export: Export) -> None:
    """A replayed trace exported and read again shares what it shared, though pieces are merged and named anew."""
    paths = [("0@512/1@1024", 1024), ("0@512/2@2048", 2048), ("0@512/1@1024", 1020), ("0@512/2@2048", 2048)]
    rows = [
        request(f"s{at}", at, traffic="trace", prefix=path, prefix_tokens=tokens, prompt_tokens=3000)
        for at, (path, tokens) in enumerate(paths)
    ]
    sessions = export(*rows).sessions
    assert [[piece.tokens for piece in one.shared] for one in sessions] == [
        [512, 512], [512, 1536], [512, 508], [512, 1536],
    ]  # fmt: skip
    assert [one.prefix for one in sessions] == ["0@512/1@1024", "0@512/2@2048", "0@512/1@1020", "0@512/2@2048"]


def test_one_level_alone(export: Export) -> None:
    """Only the sessions of the level that is asked for, from its first one on."""
    rows = [request("0.measured.0", 0), request("1.measured.0", 60, level=1), request("1.measured.1", 61, level=1)]
    assert [one.at_s for one in export(*rows, options=("--level", "1")).sessions] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nowhere"], "nowhere: wanted a run folder or a requests.csv"),
        (["RUN", "--level", "3"], "RUN: has no session to export in level 3"),
        (["RUN", "-o", "RUN"], "RUN: cannot be written: Is a directory"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that is not there, a level without sessions, a file that cannot be written."""
    run = str(write_run(tmp_path / "run", [request("a", 0)]))
    assert main(["export-trace", *(argument.replace("RUN", run) for argument in arguments)]) == 2
    assert capsys.readouterr().err == line.replace("RUN", run) + "\n"


def test_without_a_file_it_goes_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a session, with no key that says nothing; what is said beside it goes to standard error."""
    run = write_run(tmp_path / "run", [request("a", 3.5), request("b", 5, prefix="system", prefix_tokens=44)])
    assert main(["export-trace", str(run / "requests.csv")]) == 0
    captured = capsys.readouterr()
    assert captured.out == (
        '{"at_s":0.0,"turns":[{"input_tokens":300,"output_tokens":40}],"traffic":"chat"}\n'
        '{"at_s":1.5,"turns":[{"input_tokens":300,"output_tokens":40}],'
        '"shared":[{"name":"chat system","tokens":44}],"traffic":"chat"}\n'
    )
    assert captured.err == "2 sessions\n"
