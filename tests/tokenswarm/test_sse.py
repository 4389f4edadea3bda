"""Server-sent events, whatever the chunking or line ends."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenswarm.protocols import AnswerDecoder
from tokenswarm.sse import EventDecoder

CASES = Path(__file__).parents[1] / "contract" / "cases"


def payloads(*reads: bytes) -> list[bytes]:
    decoder = EventDecoder()
    found = [event for number, data in enumerate(reads) for event in decoder.feed(data, float(number))]
    return [payload for _, payload in found + decoder.close()]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\ndata:  b\n\n", [b"a", b" b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b": ping\n\n:\n\ndata: a\n\n", [b"a"]),
        (b"event: message\nid: 7\nretry: 10\ndata: a\n\n", [b"a"]),
        (b"data\n\ndata:\n\ndata: a\n\n", [b"a"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"\n\n\ndata: a\n\n\n\n", [b"a"]),
        (b"data: x: data: y\n\n", [b"x: data: y"]),
        (b'error: {"code":500}\n\n', [b'{"error": {"code":500}}']),
        (b"", []),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 3, 5, 1000])
def test_forms(text: bytes, wanted: list[bytes], step: int) -> None:
    """Line ends, spaces, comments, fields and a missing end, in reads of any size."""
    assert payloads(*(text[start : start + step] for start in range(0, len(text), step))) == wanted


def test_stamp_is_that_of_the_completing_read() -> None:
    """An event that came in two reads has the second one's stamp; two in one read share it."""
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\n\ndata: ", 1.0) == [(1.0, b"a")]
    assert decoder.feed(b"b\n\ndata: c\n\n", 2.0) == [(2.0, b"b"), (2.0, b"c")]


def test_parts_of_one_event_each_are_taken_at_once() -> None:
    """The usual form goes the short way, anything else is left untouched for the long one."""
    plain = EventDecoder().plain
    assert plain([b"data: a\n\n", b"data: bc\n\n"]) == [b"a", b"bc"]
    for parts in (
        [b"data: a\n\ndata: b\n\n"],
        [b"data: a\n\nda", b"ta: b\n\n"],
        [b"data: a\n\n", b": ping\n\n"],
        [b"data: a\ndata: b\n\n"],
        [b"data: a\r\n\r\n"],
        [b"event: x\ndata: a\n\n"],
        [b"data: a\n\ndata: b\n\n", b"data: c"],
        [b"data: a\n", b"\ndata: b\n\n"],
        [b"data:a\n\n"],
    ):
        assert plain(parts) is None, parts


def test_nothing_is_taken_at_once_behind_an_unfinished_event() -> None:
    """What came before belongs to the event."""
    decoder = EventDecoder()
    decoder.feed(b"data: a\n", 1.0)
    assert decoder.plain([b"data: b\n\n"]) is None
    assert decoder.feed(b"data: b\n\n", 2.0) == [(2.0, b"a\nb")]


def _line_ends(body: bytes, crlf: bool, space: bool) -> bytes:
    if not space:
        body = body.replace(b"\ndata: ", b"\ndata:").removeprefix(b"data: ")
        body = body if body[:5] == b"data:" else b"data:" + body
    return body.replace(b"\n", b"\r\n") if crlf else body


STREAMS = [
    (CASES / name / "body.bin").read_bytes()
    for name in ("A01", "A03", "A08", "A09", "A15", "A19", "A24", "A25", "A28", "A37", "A40")
]
MADE_UP = st.lists(st.text(max_size=12), max_size=8).map(
    lambda texts: (
        b"".join(
            b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}, ensure_ascii=False).encode() + b"\n\n"
            for text in texts
        )
        + b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
)


def _facts(reads: list[bytes]) -> tuple[object, ...]:
    decoder, answer = EventDecoder(), AnswerDecoder("chat")
    for number, data in enumerate(reads):
        answer.add(decoder.feed(data, float(number)))
    answer.add(decoder.close())
    calls = [(call.id, call.name, call.arguments) for call in answer.tool_calls]
    counts = (answer.output_tokens, answer.prompt_tokens, answer.reasoning_tokens, answer.per_event_tokens)
    outcome = (answer.finish_reason, answer.done, answer.error, answer.malformed, answer.request_id)
    return answer.text, answer.reasoning, calls, counts, outcome, len(answer.token_times)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(STREAMS) | MADE_UP, st.booleans(), st.booleans(), st.lists(st.integers(0, 4000), max_size=40))
@example(STREAMS[0], True, False, [190, 191, 192, 193, 194])
@example(STREAMS[0], True, True, list(range(400)))
def test_any_split_gives_the_same_facts(body: bytes, crlf: bool, space: bool, cuts: list[int]) -> None:
    """Cut anywhere into reads, with LF or CRLF, with or without the space: text, counts and outcome stay the same."""
    sent = _line_ends(body, crlf, space)
    ends = sorted({cut % (len(sent) + 1) for cut in cuts} | {0, len(sent)})
    reads = [sent[start:end] for start, end in itertools.pairwise(ends)]
    assert b"".join(reads) == sent
    assert _facts(reads) == _facts([body])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STREAMS), st.lists(st.integers(0, 4000), max_size=20))
def test_any_split_keeps_the_stamps(body: bytes, cuts: list[int]) -> None:
    """The k-th event has the number of the read in which its blank line ended, counted independently."""
    ends = sorted({cut % (len(body) + 1) for cut in cuts} | {0, len(body)})
    reads = [body[start:end] for start, end in itertools.pairwise(ends)]
    decoder = EventDecoder()
    events = [event for number, data in enumerate(reads) for event in decoder.feed(data, float(number))]
    closes = [at + 2 for at in range(len(body)) if body[at : at + 2] == b"\n\n"]
    wanted = [next(float(n) for n, end in enumerate(ends[1:]) if end >= close) for close in closes]
    assert [at for at, _ in events] == wanted


def test_long_lines_in_many_reads_take_linear_time() -> None:
    """A megabyte in one event, a hundred bytes a read: no copying of all that came before at each read."""
    text = b"data: " + b"x" * 1_000_000 + b"\n\n"
    assert payloads(*(text[start : start + 100] for start in range(0, len(text), 100))) == [b"x" * 1_000_000]
