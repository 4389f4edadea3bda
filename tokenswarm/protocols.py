"""What OpenAI-compatible servers speak: request bodies out; token events, usage, finish and errors in.

One decoder serves vLLM, SGLang, llama.cpp, TGI, Ollama, LiteLLM, TensorRT-LLM, Azure and transformers. Usual chunks
are decoded into typed structs; whatever does not fit those goes through plain JSON and is brought into their form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from tokenswarm.chunks import Choice, Chunk, Delta, Told, Usage, chunk_of, error_of, plain_text
from tokenswarm.endpoint import Api
from tokenswarm.sse import Event
from tokenswarm.toolcalls import CallDelta, ToolCall, ToolCalls


class _Head(msgspec.Struct, gc=False):
    id: str | None = None


_decode = msgspec.json.Decoder(Chunk).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_told = msgspec.json.Decoder(Told).decode
_NO_DELTA = Delta()
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class AnswerDecoder:
    """The facts of one streamed answer, from the events of :class:`tokenswarm.sse.EventDecoder`.

    A *token event* carries non-empty text, reasoning, or a tool-call delta with a name or arguments.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.finish_reason: str | None = None
        self.done = False  # [DONE] came
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.image_tokens: int | None = None
        self.output_tokens: int | None = None  # by usage
        self.reasoning_tokens: int | None = None
        self.server_queue_s: float | None = None  # durations as the server tells them
        self.server_prefill_s: float | None = None
        self.server_decode_s: float | None = None
        self.request_id: str | None = None
        self.error: str | None = None
        self.error_type: str | None = None
        self.malformed: str | None = None  # the beginning of the first event that is no JSON object
        self.events = 0  # JSON objects, besides plain text after the first output
        self.token_times: list[float] = []
        self.first_output_s: float | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: ToolCalls | None = None
        self._counted: list[int] = []  # completion_tokens of the running usage, one a token event that had it

    @property
    def text(self) -> str:
        return _joined(self._text)

    @property
    def reasoning(self) -> str:
        return _joined(self._reasoning)

    @property
    def tool_calls(self) -> list[ToolCall]:
        return self._calls.finished() if self._calls else []

    @property
    def per_event_tokens(self) -> list[int] | None:
        """Tokens of each token event, by the differences of a usage that came with every one of them."""
        if not self._counted or len(self._counted) != len(self.token_times):
            return None
        tokens = [after - before for before, after in zip([0, *self._counted], self._counted, strict=False)]
        return tokens if min(tokens) >= 0 else None

    @property
    def complete(self) -> bool:
        return self.done or self.finish_reason is not None

    def add(self, events: Iterable[Event]) -> None:
        """In the order of their arrival."""
        times, texts = self.token_times, self._text
        for at, payload in events:
            if payload == b"[DONE]":
                self.done = True
                continue
            try:
                chunk = _decode(payload)
            except _UNREADABLE:
                self._add_odd(at, payload)
                continue
            text = plain_text(chunk)
            if text and self.first_output_s is not None:
                times.append(at)
                texts.append(text)
            else:
                self._add_typed(at, chunk, payload)

    def _add_typed(self, at: float, chunk: Chunk, payload: bytes) -> None:
        if chunk.error is not None or not (chunk.choices or chunk.usage):
            self._add_odd(at, payload)
            return
        self.events += 1
        if self.request_id is None:
            self.request_id = _decode_id(payload)
        self._add_chunk(at, chunk)
        if (chunk.usage or self.finish_reason) and (b'"metrics"' in payload or b'"timings"' in payload):
            self._add_told(payload)

    def _add_chunk(self, at: float, chunk: Chunk) -> None:
        spoke = [self._add_choice(at, choice) for choice in chunk.choices or ()]
        if any(spoke):
            self.token_times.append(at)
        if chunk.usage is not None:
            self._add_usage(chunk.usage)
            if chunk.usage.completion_tokens is not None and any(spoke):
                self._counted.append(chunk.usage.completion_tokens)

    def _add_choice(self, at: float, choice: Choice) -> bool:
        """True where it makes its event a token event."""
        delta = choice.delta or _NO_DELTA
        content = delta.content or choice.text or ""
        called = delta.tool_calls is not None and self._add_calls(delta.tool_calls)
        thought = self._add_reasoning(delta)
        if content:
            self._text.append(content)
        if self.first_output_s is None and (content or called):
            self.first_output_s = at
        if choice.finish_reason:
            self.finish_reason = choice.finish_reason
        return bool(content or called or thought)

    def _add_reasoning(self, delta: Delta) -> bool:
        """Some gateways fill both fields with the same text; it counts once."""
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
        if delta.reasoning_content and delta.reasoning_content != delta.reasoning:
            self._reasoning.append(delta.reasoning_content)
        return bool(delta.reasoning or delta.reasoning_content)

    def _add_calls(self, deltas: list[CallDelta]) -> bool:
        if self._calls is None:
            self._calls = ToolCalls()
        return self._calls.add(deltas)

    def _add_usage(self, usage: Usage) -> None:
        """The latest usage holds: it is cumulative where it comes with every chunk."""
        before = usage.prompt_tokens_details
        after = usage.completion_tokens_details
        cached = before.cached_tokens if before else None
        reasoning = after.reasoning_tokens if after else None
        if before is not None and before.multimodal_tokens is not None:
            self.image_tokens = before.multimodal_tokens.get("image", self.image_tokens)
        self.prompt_tokens = _first(usage.prompt_tokens, self.prompt_tokens)
        self.output_tokens = _first(usage.completion_tokens, self.output_tokens)
        self.cached_tokens = _first(cached, usage.prompt_cache_hit_tokens, self.cached_tokens)
        self.reasoning_tokens = _first(reasoning, usage.reasoning_tokens, self.reasoning_tokens)

    def _add_told(self, payload: bytes) -> None:
        """Durations by the server's own clock. They may come with every chunk; the latest hold."""
        told = _decode_told_in(payload)
        metrics, timings = told.metrics, told.timings
        if metrics is not None:
            self.server_queue_s = _seconds(metrics.queue_time_ms)
            self.server_prefill_s = _seconds(metrics.time_to_first_token_ms)
            self.server_decode_s = _seconds(metrics.generation_time_ms)
        if timings is not None:
            self.server_prefill_s = _seconds(timings.prompt_ms)
            self.server_decode_s = _seconds(timings.predicted_ms)
            known = timings.cache_n is not None and timings.cache_n >= 0
            self.cached_tokens = _first(self.cached_tokens, timings.cache_n if known else None)

    def _add_odd(self, at: float, payload: bytes) -> None:
        """An event outside the usual form: errors, other field types, text that is not quite UTF-8, no JSON at all."""
        try:
            event = json.loads(payload.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            event = None
        if payload.strip() == b"[DONE]":
            self.done = True
            return
        if not isinstance(event, dict):
            if self.malformed is None:
                self.malformed = payload[:200].decode("utf-8", "replace")
            return
        if self.request_id is None and isinstance(event.get("id"), str):
            self.request_id = event["id"] or None
        self.events += 1
        error = error_of(event)
        if error is not None:
            self._add_error(error, event)
        self._add_chunk(at, chunk_of(event))
        self._add_told(payload)

    def _add_error(self, error: Any, event: dict[str, Any] | None) -> None:
        if self.error is None:
            self.error = error_text(error)
            source = error if isinstance(error, dict) else event or {}
            kind = source.get("type") or source.get("error_type") or source.get("code")
            self.error_type = str(kind) if kind else None


def error_text(error: Any) -> str:
    """One line out of the shapes in which servers put an error: text, ``message``, ``detail``, nested ``error``."""
    if isinstance(error, dict):
        for key in ("message", "detail", "error"):
            if error.get(key):
                return error_text(error[key])
    return error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)


def chat_body(
    model: str,
    messages: list[dict[str, Any]],
    *,
    max_tokens: int,
    ignore_eos: bool = False,
    extra: dict[str, Any] | None = None,
) -> bytes:
    """JSON of a streaming chat completion; ``extra`` comes last and wins."""
    return _body({"model": model, "messages": messages}, max_tokens, ignore_eos, extra)


def completion_body(
    model: str,
    prompt: str | list[int],
    *,
    max_tokens: int,
    ignore_eos: bool = False,
    extra: dict[str, Any] | None = None,
) -> bytes:
    """JSON of a streaming completion; the prompt is text or token ids."""
    return _body({"model": model, "prompt": prompt}, max_tokens, ignore_eos, extra)


def _body(start: dict[str, Any], max_tokens: int, ignore_eos: bool, extra: dict[str, Any] | None) -> bytes:
    body = start | {"max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}}
    if ignore_eos:
        body["ignore_eos"] = True
    return msgspec.json.encode(body | extra if extra else body)


def _decode_id(payload: bytes) -> str | None:
    try:
        return _decode_head(payload).id or None
    except _UNREADABLE:
        return None


def _decode_told_in(payload: bytes) -> Told:
    """Nothing where it is of another form than the engines' that are known."""
    try:
        return _decode_told(payload)
    except _UNREADABLE:
        return Told()


def _first(*values: int | None) -> int | None:
    """The first that is told; some servers tell -1 where they do not know."""
    return next((value for value in values if value is not None and value >= 0), None)


def _seconds(ms: float | None) -> float | None:
    return None if ms is None or ms < 0 else ms / 1000


def _joined(parts: list[str]) -> str:
    """Two halves of a surrogate pair, sent in two events as ``\\ud83e`` and ``\\udd80``, become one character."""
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
