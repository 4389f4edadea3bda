"""A streamed chunk in typed form, and how chunks of another form are brought into it."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from tokenswarm.toolcalls import CallDelta, FunctionDelta


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallDelta] | None = None


class Choice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    multimodal_tokens: dict[str, int] | None = None  # of vLLM, by kind: image, ...


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None  # SGLang
    prompt_cache_hit_tokens: int | None = None  # DeepSeek
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None


class Metrics(msgspec.Struct, gc=False):
    """vLLM with --enable-per-request-metrics, in milliseconds; the first two begin one after the other."""

    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None  # since the request left the queue
    generation_time_ms: float | None = None  # from the first token to the last


class Timings(msgspec.Struct, gc=False):
    """llama.cpp; the times are in milliseconds."""

    cache_n: int | None = None
    prompt_ms: float | None = None
    predicted_ms: float | None = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None


class Told(msgspec.Struct, gc=False):
    """What engines add to their last chunk. Not in ``Chunk``, since more fields would slow the decoding of each."""

    metrics: Metrics | None = None
    timings: Timings | None = None


def plain_text(chunk: Chunk) -> str | None:
    """The text of a chunk that has nothing else: the fast way for nearly all of them."""
    choices = chunk.choices
    if not choices or chunk.usage is not None or chunk.error is not None or len(choices) > 1:
        return None
    delta = choices[0].delta
    if delta is None or choices[0].finish_reason or delta.tool_calls or delta.reasoning or delta.reasoning_content:
        return None
    return delta.content


def error_of(event: dict[str, Any]) -> Any:
    """The error an event without usable choices tells of, ``None`` where it is something else."""
    if event.get("error") is not None:
        return event["error"]
    if event.get("object") == "error":
        return event
    if not event.get("choices") and isinstance(event.get("message"), str) and ("code" in event or "type" in event):
        return event
    return event.get("detail") if not event.get("choices") and "id" not in event else None


def chunk_of(event: dict[str, Any]) -> Chunk:
    choices = event.get("choices")
    usage = event.get("usage")
    return Chunk(
        choices=[_choice_of(choice) for choice in choices if isinstance(choice, dict)]
        if isinstance(choices, list)
        else None,
        usage=_usage_of(usage) if isinstance(usage, dict) else None,
    )


def _choice_of(choice: dict[str, Any]) -> Choice:
    delta = choice.get("delta")
    finish = choice.get("finish_reason")
    return Choice(
        delta=_delta_of(delta) if isinstance(delta, dict) else None,
        text=_text_of(choice.get("text")),
        finish_reason=None if finish is None else str(finish),
    )


def _delta_of(delta: dict[str, Any]) -> Delta:
    calls = delta.get("tool_calls")
    if isinstance(calls, dict):  # older TGI
        calls = [calls]
    return Delta(
        content=_text_of(delta.get("content")),
        reasoning=_text_of(delta.get("reasoning")),
        reasoning_content=_text_of(delta.get("reasoning_content")),
        tool_calls=[_call_of(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else None,
    )


def _text_of(value: Any) -> str | None:
    """Text as such or as a list of parts."""
    if isinstance(value, list):
        parts = (part.get("text") if isinstance(part, dict) else part for part in value)
        return "".join(part for part in parts if isinstance(part, str))
    return value if isinstance(value, str) else None


def _call_of(call: dict[str, Any]) -> CallDelta:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    index, identity, arguments = call.get("index"), call.get("id"), function.get("arguments")
    return CallDelta(
        index=index if isinstance(index, int) else None,
        id=None if identity is None else str(identity),
        function=FunctionDelta(
            name=_text_of(function.get("name")),
            arguments=arguments if arguments is None or isinstance(arguments, str) else json.dumps(arguments),
        ),
    )


def _usage_of(usage: dict[str, Any]) -> Usage:
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        reasoning_tokens=_count(usage.get("reasoning_tokens")),
        prompt_cache_hit_tokens=_count(usage.get("prompt_cache_hit_tokens")),
        prompt_tokens_details=_details_of(usage.get("prompt_tokens_details")),
        completion_tokens_details=_details_of(usage.get("completion_tokens_details")),
    )


def _details_of(details: Any) -> Details | None:
    if not isinstance(details, dict):
        return None
    return Details(
        cached_tokens=_count(details.get("cached_tokens")), reasoning_tokens=_count(details.get("reasoning_tokens"))
    )


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None
