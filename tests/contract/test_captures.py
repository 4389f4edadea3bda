"""Every recorded stream of real engines, decoded by the product and by a naive reader written here."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.contract.clients import send
from tests.contract.replay import Replay
from tokenswarm.failures import answer_failure
from tokenswarm.protocols import AnswerDecoder
from tokenswarm.sse import EventDecoder

CAPTURES = Path(__file__).parent / "captures"
NAMES = sorted(f"{path.parent.name}/{path.stem}" for path in CAPTURES.glob("*/*.body"))

# Worked out by reading the recordings: name -> kind and words of the failure.
FAILURES = {
    "vllm-0.32.0-text/f_bad_schema": ("stream_error", "BadRequestError"),
    "vllm-0.32.0-text/f_logprobs_too_many": ("stream_error", "logprobs"),
    "sglang/c_tool_required": ("stream_error", "BAD_REQUEST"),
    "vllm-0.32.0-reasoning/g_engine_killed_midstream": ("stream_error", "InternalServerError"),
    "llamacpp-xllamacpp/g_sigkill_midstream": ("truncated", "without finish_reason"),
    "llamacpp-xllamacpp/f_client_abort": ("truncated", "without finish_reason"),
}


def body_of(name: str) -> bytes:
    return (CAPTURES / f"{name}.body").read_bytes()


def is_ours(name: str) -> bool:
    request = (CAPTURES / f"{name}.request.json").read_text()  # long ones were cut when they were recorded
    return re.search(r'"path": "/v1/(chat/)?completions"', request) is not None


def reads_of(name: str) -> list[tuple[float, bytes]]:
    """The recorded reads as (seconds, bytes); one read where none are recorded."""
    body = body_of(name)
    path = CAPTURES / f"{name}.times.tsv"
    if not path.exists():
        return [(1.0, body)]
    rows = [line.split("\t")[:2] for line in path.read_text(errors="replace").splitlines() if line[:1].isdigit()]
    ends = [0, *(int(end) for _, end in rows)]
    reads = [(float(ms) / 1000, body[a:b]) for (ms, _), (a, b) in zip(rows, pairwise(ends), strict=True)]
    rest = body[ends[-1] :]
    return [*reads, (reads[-1][0] + 1, rest)] if rest else reads


def decoded(name: str, reads: list[tuple[float, bytes]]) -> AnswerDecoder:
    events, answer = EventDecoder(), AnswerDecoder("chat")
    for at, data in reads:
        answer.add(events.feed(data, at))
    answer.add(events.close())
    return answer


class Naive:
    """The same facts by the shortest reading of the format: one line, one JSON value."""

    def __init__(self, reads: list[tuple[float, bytes]]) -> None:
        body = b"".join(data for _, data in reads)
        self.text = self.reasoning = self.arguments = ""
        self.names: list[str] = []
        self.times: list[float] = []
        self.usage: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        self.timings: dict[str, Any] = {}
        self.finish: str | None = None
        self.errors: list[Any] = []
        for match in re.finditer(rb"^data: (\{.*\})$", body, re.MULTILINE):
            event = json.loads(match[1])
            self.errors += [event["error"]] if event.get("error") else []
            self.usage = event.get("usage") or self.usage
            self.metrics = event.get("metrics") or self.metrics
            self.timings = event.get("timings") or self.timings
            if any([self._choice(choice) for choice in event.get("choices", [])]):
                self.times.append(arrival(reads, match.end() + 2))

    def _choice(self, choice: dict[str, Any]) -> bool:
        delta = choice.get("delta") or {}
        text = delta.get("content") or choice.get("text") or ""
        thought = delta.get("reasoning") or delta.get("reasoning_content") or ""
        functions = [call.get("function") or {} for call in delta.get("tool_calls") or []]
        arguments = "".join(function.get("arguments") or "" for function in functions)
        names = [function["name"] for function in functions if function.get("name")]
        self.text += text
        self.reasoning += thought
        self.arguments += arguments
        self.names += names
        self.finish = choice.get("finish_reason") or self.finish
        return bool(text or thought or arguments or names)


def arrival(reads: list[tuple[float, bytes]], end: int) -> float:
    """Stamp of the read that brought the byte before ``end``."""
    size = 0
    for at, data in reads:
        size += len(data)
        if size >= end:
            return at
    return reads[-1][0]


def test_the_recordings_are_there() -> None:
    """130 streams of five engines."""
    assert len(NAMES) == 130
    assert sum(map(is_ours, NAMES)) == 123


@pytest.mark.parametrize("name", [name for name in NAMES if is_ours(name)])
def test_stream(name: str) -> None:
    """Text, counts, calls, finish, errors and the stamp of every token event agree with the naive reader."""
    reads = reads_of(name)
    answer, naive = decoded(name, reads), Naive(reads)
    assert answer.text == naive.text
    assert answer.reasoning == naive.reasoning
    assert answer.token_times == naive.times
    assert answer.output_tokens == naive.usage.get("completion_tokens")
    assert answer.prompt_tokens == naive.usage.get("prompt_tokens")
    details = naive.usage.get("prompt_tokens_details") or {}
    assert answer.cached_tokens == details.get("cached_tokens", naive.timings.get("cache_n"))
    assert answer.finish_reason == naive.finish
    assert [call.name for call in answer.tool_calls] == naive.names
    assert sorted("".join(call.arguments for call in answer.tool_calls)) == sorted(naive.arguments)
    assert (answer.error is not None) == bool(naive.errors)
    assert answer.done == (b"\ndata: [DONE]" in body_of(name) or body_of(name).startswith(b"data: [DONE]"))
    assert answer.malformed is None


@pytest.mark.parametrize("name", [name for name in NAMES if is_ours(name)])
def test_durations_that_servers_tell(name: str) -> None:
    """vLLM's and llama.cpp's own, in seconds; none where they tell none, and no time in a queue from llama.cpp."""
    reads = reads_of(name)
    answer, naive = decoded(name, reads), Naive(reads)
    told = (
        naive.metrics.get("queue_time_ms"),
        naive.metrics.get("time_to_first_token_ms", naive.timings.get("prompt_ms")),
        naive.metrics.get("generation_time_ms", naive.timings.get("predicted_ms")),
    )
    ours = (answer.server_queue_s, answer.server_prefill_s, answer.server_decode_s)
    assert ours == tuple(None if ms is None else pytest.approx(ms / 1000) for ms in told)


def test_time_in_the_queue_is_not_in_the_prefill() -> None:
    """Read off the recordings: one of twelve requests for four places waited 613 ms and was then prefilled in 2.4 ms.

    That shows that vLLM's time to first token begins when the request leaves the queue: nothing is to be subtracted.
    """
    waited = decoded("x", reads_of("vllm-0.32.0-reasoning/f_overload_07"))
    assert waited.server_queue_s == pytest.approx(0.6133, abs=1e-4)
    assert waited.server_prefill_s == pytest.approx(0.0024, abs=1e-4)
    assert waited.server_decode_s == pytest.approx(0.7044, abs=1e-4)
    found = decoded("x", reads_of("llamacpp-xllamacpp/p_long_2_same"))
    assert (found.server_queue_s, found.server_prefill_s, found.cached_tokens) == (None, pytest.approx(0.000693), 680)


@pytest.mark.parametrize("name", [name for name in NAMES if not is_ours(name)])
def test_other_apis_do_no_harm(name: str) -> None:
    """Streams of APIs that are not asked for have no token events and no crash."""
    answer = decoded(name, reads_of(name))
    assert answer.token_times == []
    assert answer_failure(answer, b"") is not None


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures(name: str) -> None:
    """Streams that failed under status 200 are failures of the right kind."""
    kind, words = FAILURES[name]
    failure = answer_failure(decoded(name, reads_of(name)), b"")
    assert failure is not None
    assert failure[0] == kind
    assert words.lower() in failure[1].lower()


def test_tokens_of_each_chunk_by_continuous_usage() -> None:
    """vLLM with a stream interval of 5: one token first, then five a chunk (the running count says 1, 6, 11, ...)."""
    answer = decoded("x", reads_of("vllm-0.32.0-smallkv/h_stream_interval_5"))
    tokens = answer.per_event_tokens
    assert tokens is not None
    assert tokens[:4] == [1, 5, 5, 5]
    assert sum(tokens) == answer.output_tokens


def test_all_recordings_through_a_socket(tmp_path: Path) -> None:
    """Sent with their recorded pieces as one chunk each, the client gives the decoder's facts."""
    names = [name for name in NAMES if is_ours(name) and b'"error"' not in body_of(name)]
    answers = {f"/{name}/v1/chat/completions": _answer(name) for name in names}
    with Replay(tmp_path, answers) as server:
        for name in names:
            exchange = send(f"{server.url}/{name}")
            naive = Naive(reads_of(name))
            complete = naive.finish is not None or b"[DONE]" in body_of(name)
            assert exchange.error_kind == (("empty", None)[bool(naive.times)] if complete else "truncated"), name
            assert exchange.server_decode_s == decoded(name, reads_of(name)).server_decode_s, name
            assert (exchange.text, exchange.reasoning, exchange.chunks) == (
                naive.text,
                naive.reasoning,
                len(naive.times),
            ), name


def _answer(name: str) -> dict[str, Any]:
    segments = [{"at_ms": 0, "data": data.decode("latin-1")} for _, data in reads_of(name) if data]
    headers = [["Content-Type", "text/event-stream"], ["Transfer-Encoding", "chunked"]]
    return {"status": 200, "headers": headers, "framing": "chunked", "segments": segments, "end": {"how": "clean"}}


@pytest.mark.parametrize(
    ("name", "tokens"), [("vllm-0.32.0-mm-tiny-qwen2-vl/e_image_1", 64), ("vllm-0.32.0-text/a_plain", None)]
)
def test_image_tokens_are_the_servers_own(name: str, tokens: int | None) -> None:
    """A picture of 224 by 224 pixels is 64 tokens for Qwen2-VL; without pictures there is no count."""
    assert decoded(name, reads_of(name)).image_tokens == tokens
