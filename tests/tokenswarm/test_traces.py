"""Trace files of four formats: what is read of each, what is left out, and what is said of one that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenswarm.errors import InputError
from tokenswarm.replay_load import Replay
from tokenswarm.session_trace import recorded_sessions, session_line
from tokenswarm.trace import SharedText, TraceSession, TraceTurn
from tokenswarm.trace_files import Trace, read_trace

# First rows of the published files: Mooncake conversation trace, BurstGPT 1 and 3, Azure code 2023 and 2024.
MOONCAKE = """\
{"timestamp": 0, "input_length": 2290, "output_length": 316, "hash_ids": [0, 42, 43, 44, 45]}
{"timestamp": 3000, "input_length": 2012, "output_length": 354, "hash_ids": [0, 427, 428, 429]}
{"timestamp": 3000, "input_length": 915, "output_length": 355, "hash_ids": [0, 462]}
{"timestamp": 5999, "input_length": 1053, "output_length": 26, "hash_ids": [0, 773, 774]}
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,276,693,Conversation log
121,GPT-4,300,0,300,API log
"""
BURSTGPT_3 = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
19440110.0,1722ac82-0a46-4bf0-aa08-89794e7a2b3f,43,GPT-4,906,446,1352,Conversation log
19440161.0,d5983bf9-4b48-497b-892b-a58995247443,2,ChatGPT,36,29,65,Conversation log
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.0781490,110,27
"""
AZURE_2024 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,2399,6
"""
OWN = """\
{"at_s": 100.5, "turns": [{"input_tokens": 900, "output_tokens": 120}, {"input_tokens": 60, "output_tokens": 80, \
"pause_s": 4}], "shared": [{"name": "system", "tokens": 400}], "traffic": "support"}
{"at_s": 100, "turns": [{"input_tokens": 500, "output_tokens": 9}], "shared": [{"name": "system", "tokens": 400}]}
"""


def read(folder: Path, text: str, **options: Any) -> Trace:
    file = folder / f"trace-{len(list(folder.iterdir()))}"
    file.write_text(text, encoding="utf-8")
    return read_trace(Replay(trace=str(file), **options))


def told(trace: Trace) -> list[tuple[float, int, int]]:
    """Time, prompt and answer of each session of one turn."""
    return [(round(one.at_s, 6), one.turns[0].input_tokens, one.turns[0].output_tokens) for one in trace.sessions]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (MOONCAKE, "mooncake", [(0, 2290, 316), (3, 2012, 354), (3, 915, 355), (5.999, 1053, 26)]),
        (BURSTGPT, "burstgpt", [(0, 472, 18), (40, 1087, 230), (113, 417, 276)]),
        (BURSTGPT_3, "burstgpt", [(0, 906, 446), (51, 36, 29)]),
        (AZURE, "azure", [(0, 4808, 10), (0.052, 3180, 8), (0.098189, 110, 27)]),
        (AZURE_2024, "azure", [(0, 2162, 5), (0.99007, 2399, 6)]),
    ],
)
def test_published_layouts_are_known_by_their_content(text, name, expected, tmp_path: Path):
    """Times in seconds from the first request, lengths as written, whatever the columns beside them."""
    trace = read(tmp_path, text)
    assert (trace.format, told(trace)) == (name, expected)
    assert told(read(tmp_path, "\ufeff" + text.replace("\n", "\r\n"), format=name)) == expected


def test_a_trace_of_our_own(tmp_path: Path):
    """Turns, pauses, classes and shared pieces; the earlier session comes first and the times begin with it."""
    shared = (SharedText("system", 400),)
    assert list(read(tmp_path, OWN).sessions) == [
        TraceSession(0.0, (TraceTurn(500, 9),), shared, None, "0@400"),
        TraceSession(0.5, (TraceTurn(900, 120), TraceTurn(60, 80, 4.0)), shared, "support", "0@400"),
    ]


def test_speed_divides_times_and_pauses(tmp_path: Path):
    """At twice the speed sessions come after half the time, and users think half as long."""
    later = read(tmp_path, OWN, speed=2).sessions[1]
    assert (later.at_s, later.turns[1].pause_s) == (0.25, 2.0)


def test_classes_of_burstgpt_are_its_models(tmp_path: Path):
    """The model of each row is the name of its class; a note tells what has no class of that name."""
    trace = read(tmp_path, BURSTGPT)
    assert [session.traffic for session in trace.sessions] == ["ChatGPT", "ChatGPT", "GPT-4"]
    assert trace.unnamed_classes(["GPT-4", "ChatGPT"]) is None
    assert trace.unnamed_classes(["GPT-4"]) == (
        "sessions of the trace's classes ChatGPT are played as GPT-4: no traffic class has their name"
    )


def test_hash_ids_are_blocks_of_512_tokens(tmp_path: Path):
    """A session keeps the blocks that another one begins with too, named by the places at which the others part.

    By hand: a and b share two whole blocks and c one with both; d is like a up to its 88 tokens of block 2; e is alone.
    """
    lines = [
        (2000, [0, 1, 2, 3]),
        (1100, [0, 1, 9]),
        (600, [0, 7]),
        (1112, [0, 1, 2]),
        (700, [50, 51]),
    ]
    text = "".join(
        json.dumps({"timestamp": 0, "input_length": n, "output_length": 1, "hash_ids": ids}) + "\n" for n, ids in lines
    )
    sessions = read(tmp_path, text).sessions
    assert [[(piece.name, piece.tokens) for piece in one.shared] for one in sessions] == [
        [("0", 512), ("1", 512), ("2", 512)],
        [("0", 512), ("1", 512)],
        [("0", 512)],
        [("0", 512), ("1", 512), ("2", 88)],
        [],
    ]
    assert [one.prefix for one in sessions] == [
        "0@512/1@1024/2@1536",
        "0@512/1@1024",
        "0@512",
        "0@512/1@1024/2@1112",
        None,
    ]


@pytest.mark.parametrize(
    ("options", "kept", "reason"),
    [
        ({"from_s": 3}, [2012, 915, 1053], "1 outside from_s and to_s"),
        ({"to_s": 3}, [2290], "3 outside from_s and to_s"),
        ({"from_s": 1, "to_s": 4}, [2012, 915], "2 outside from_s and to_s"),
        ({"input_tokens": {"min": 1053, "max": 2012}}, [2012, 1053], "2 outside input_tokens"),
        ({"output_tokens": {"max": 316}}, [2290, 1053], "2 outside output_tokens"),
        ({"most_sessions": 3}, [2290, 2012, 915], "1 after most_sessions"),
        ({"most_sessions": 4}, [2290, 2012, 915, 1053], None),
        (
            {"to_s": 5, "input_tokens": {"max": 2100}, "most_sessions": 1},
            [2012],
            "1 outside input_tokens, 1 outside from_s and to_s, 1 after most_sessions",
        ),
    ],
)
def test_filters_choose_and_count(options, kept, reason, tmp_path: Path):
    """What is left out is counted by its reason; the times begin with the first session that is left."""
    trace = read(tmp_path, MOONCAKE, **options)
    assert [one.turns[0].input_tokens for one in trace.sessions] == kept
    assert trace.sessions[0].at_s == 0
    left_out = f"the trace has {len(kept)} sessions to play; left out were {reason}"
    assert trace.notes() == ([left_out] if reason else [])


def test_the_window_counts_from_the_first_request_even_if_it_stands_last(tmp_path: Path):
    """Rows need not be in order: the window begins with the earliest one."""
    lines = MOONCAKE.splitlines()
    text = "\n".join([*lines[1:], lines[0]])
    assert told(read(tmp_path, text, to_s=3.5)) == [(0, 2290, 316), (3, 2012, 354), (3, 915, 355)]


def test_lengths_of_later_turns_are_those_of_whole_prompts(tmp_path: Path):
    """The second prompt of 900 + 120 + 60 tokens decides, and one answer out of range is enough."""
    for options, kept in (
        ({"input_tokens": {"max": 1080}}, 2),
        ({"input_tokens": {"max": 1079}}, 1),
        ({"output_tokens": {"min": 9, "max": 120}}, 2),
        ({"output_tokens": {"min": 9, "max": 119}}, 1),
    ):
        assert len(read(tmp_path, OWN, **options).sessions) == kept, options


def test_requests_without_an_answer_are_left_out(tmp_path: Path):
    """BurstGPT lists failures with 0 response tokens; they are no load that can be sent."""
    assert read(tmp_path, BURSTGPT).left_out == {"without a prompt or an answer": 1}


@pytest.mark.parametrize(
    ("text", "options", "line"),
    [
        ("", {}, ": is empty; a trace of tokenswarm or Mooncake (JSON lines), BurstGPT or Azure (CSV with a header) is "
                 "wanted"),
        ("a,b\n1,2\n", {}, ":1: value a,b: a trace of tokenswarm or Mooncake (JSON lines), BurstGPT or Azure (CSV with "
                           "a header) is wanted"),
        ('{"prompt": "hi"}\n', {}, ':1: value {"prompt": "hi"}: a trace of tokenswarm or Mooncake (JSON lines), '
                                   "BurstGPT or Azure (CSV with a header) is wanted"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:4b\n", {},
         ":1: a pointer of Git LFS, not the trace itself; fetch it with git lfs pull"),
        (MOONCAKE + "{}\n", {}, ":5: Object missing required field `timestamp`; {\"timestamp\": ms, \"input_length\": "
                                "tokens, \"output_length\": tokens, \"hash_ids\": [whole numbers]} is wanted"),
        ('{"timestamp": 0, "input_length": 1000, "output_length": 1, "hash_ids": [1, 2, 3]}\n', {},
         ":1: 3 hash_ids for 1000 tokens; one for each 512 tokens is wanted"),
        (BURSTGPT + "130,GPT-4,12,x,13,API log\n", {},
         ":6: '130' '12' 'x' for Timestamp, Request tokens, Response tokens: seconds and whole numbers are wanted"),
        (BURSTGPT + "130,GPT-4\n", {},
         ":6: '130' '' '' for Timestamp, Request tokens, Response tokens: seconds and whole numbers are wanted"),
        (BURSTGPT + "nan,GPT-4,1,1\n", {},
         ":6: 'nan' '1' '1' for Timestamp, Request tokens, Response tokens: seconds and whole numbers are wanted"),
        (AZURE + "yesterday,1,1\n", {}, ":5: 'yesterday' '1' '1' for TIMESTAMP, ContextTokens, GeneratedTokens: a time "
                                        "and whole numbers are wanted"),
        (AZURE, {"format": "burstgpt"}, ":1: no column 'Timestamp'; wanted is a header with Timestamp, Request tokens, "
                                        "Response tokens"),
        ("TIMESTAMP,ContextTokens\n", {}, ":1: no column 'GeneratedTokens'; wanted is a header with TIMESTAMP, "
                                          "ContextTokens, GeneratedTokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", {}, ": no session is left to play: it has none"),
        ("\x1b[31mred\x07,1\n", {}, ":1: value \ufffd[31mred\ufffd,1: a trace of tokenswarm or Mooncake (JSON lines), "
                                    "BurstGPT or Azure (CSV with a header) is wanted"),
        (MOONCAKE + '{"timestamp": 1209600000, "input_length": 1, "output_length": 1}\n', {},
         ": sessions arrive for 1,209,600 s, longer than 604,800 s; take a part of it (load.replay.from_s, to_s, "
         "most_sessions) or a higher speed"),
        (MOONCAKE, {"from_s": 60}, ": no session is left to play: 4 outside from_s and to_s"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_with_file_and_line(text, options, line, tmp_path: Path):
    """Foreign, empty and damaged files are told with their place, the value and what is wanted."""
    file = tmp_path / "t"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_trace(Replay(trace=str(file), **options))
    assert str(caught.value) == f"{file}{line}"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"at_s": -1}, "Expected `float` >= 0.0 - at `$.at_s`"),
        ({"turns": []}, "Expected `array` of length >= 1 - at `$.turns`"),
        ({"turns": [{"input_tokens": 0, "output_tokens": 1}]}, "Expected `int` >= 1 - at `$.turns[0].input_tokens`"),
        ({"shard": []}, "Object contains unknown field `shard`"),
        ({"shared": [{"name": "a", "tokens": 1.5}]}, "Expected `int`, got `float` - at `$.shared[0].tokens`"),
        ({"shared": [{"name": "a", "tokens": 8}, {"name": "b", "tokens": 3}]},
         "shared has 11 tokens, but the first turn's input_tokens are 10"),
    ],
)  # fmt: skip
def test_mistakes_in_a_trace_of_our_own(change, problem, tmp_path: Path):
    """Unknown keys, wrong types and lengths that cannot be are told with the key's place."""
    line = {"at_s": 0, "turns": [{"input_tokens": 10, "output_tokens": 1}]}
    with pytest.raises(InputError) as caught:
        read(tmp_path, OWN + json.dumps(line | change))
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}/trace-0:3: {problem}")
    assert "\n" not in text


def test_bytes_that_are_no_text(tmp_path: Path):
    """A packed file, and a CSV with bytes of another encoding in the middle, are told in one line."""
    packed, foreign = tmp_path / "t.gz", tmp_path / "t.csv"
    packed.write_bytes(b"\x1f\x8b\x08\x00rest")
    foreign.write_bytes(AZURE.encode() + b"\xff\xfe,1,1\n")
    for file, place in ((packed, f"{packed}: is compressed with gzip; unpack it (gunzip)"), (foreign, f"{foreign}:")):
        with pytest.raises(InputError) as caught:
            read_trace(Replay(trace=str(file)))
        assert str(caught.value).startswith(place)
        assert "\n" not in str(caught.value)


def test_a_file_that_is_gone(tmp_path: Path):
    """A trace that was there when the scenario was checked, and is no longer, is one line."""
    file = tmp_path / "t"
    file.write_text(MOONCAKE)
    replay = Replay(trace=str(file))
    file.unlink()
    with pytest.raises(InputError, match=r"t: cannot be read: No such file or directory"):
        read_trace(replay)


def test_a_file_that_changed_is_read_again(tmp_path: Path):
    """The last trace is kept only as long as its file stays the same."""
    file = tmp_path / "t"
    file.write_text(MOONCAKE)
    replay = Replay(trace=str(file))
    assert read_trace(replay) is read_trace(replay)
    file.write_text(MOONCAKE + MOONCAKE)
    assert len(read_trace(replay).sessions) == 8


def test_a_written_line_is_read_as_the_session(tmp_path: Path):
    """The format of our own loses nothing but the name that reading gives to what is shared."""
    session = TraceSession(
        1.5, (TraceTurn(90, 7), TraceTurn(4, 2, 0.25)), (SharedText("a", 20), SharedText("b", 30)), "x"
    )
    file = tmp_path / "t"
    file.write_bytes(session_line(session))
    assert list(recorded_sessions(str(file))) == [session]
