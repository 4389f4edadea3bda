"""Bytes of an answer, in the shapes vLLM 0.32 sends, put together from parts made once a request."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from simulator.tokenizer import FIRST_WORD
from simulator.vocabulary import WORDS

Api = Literal["chat", "completions"]

# Every answer is made of list words, which need no escaping; all but the first come with a space.
_SPACED = {FIRST_WORD + place: b" " + word.encode() for place, word in enumerate(WORDS)}

END_OF_STREAM = b"0\r\n\r\n"
DONE = b"e\r\ndata: [DONE]\n\n\r\n"


def framed(event: bytes) -> bytes:
    """One server-sent event as one chunk of HTTP/1.1's chunked coding."""
    return b"%x\r\n%b\r\n" % (len(event), event)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _event(value: Any) -> bytes:
    return framed(b"data: " + _json(value) + b"\n\n")


def error_event(message: str, kind: str, code: int) -> bytes:
    """An error inside a stream that began with status 200."""
    return _event({"error": {"message": message, "type": kind, "param": None, "code": code}})


def text_of(tokens: list[int], at_start: bool) -> bytes:
    """The text of ``tokens``; only the beginning of an answer has no space before it."""
    text = b"".join([_SPACED[token] for token in tokens])
    return text[1:] if at_start else text


def usage_of(
    prompt_tokens: int, output_tokens: int, prompt_details: dict[str, Any] | None, reasoning_tokens: int | None
) -> dict[str, Any]:
    """The usage object. ``None``: it does not say, as running counts inside a stream do not say what was cached, and
    servers that do not look for reasoning how much of it there was.
    """
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
    }
    if prompt_details is not None:
        usage["prompt_tokens_details"] = prompt_details
    if reasoning_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return usage


class Chunks:
    """Makes the chunks of one streamed answer."""

    def __init__(self, api: Api, request_id: str, model: str, created: int, prompt_tokens: int, running: bool) -> None:
        self._api = api
        self._prompt_tokens = prompt_tokens
        self._running = running  # usage on every chunk
        kind = "chat.completion.chunk" if api == "chat" else "text_completion"
        self._identity = {"id": request_id, "object": kind, "created": created, "model": model}
        start = _json(self._identity).decode()[:-1]
        self._choice = f'data: {start},"choices":[{{"index":0,'.encode()
        self._before = self._choice + (b'"delta":{"content":"' if api == "chat" else b'"text":"')
        self._after = (b'"}' if api == "chat" else b'"') + b',"logprobs":null,"finish_reason":null}]}\n\n'
        self._fixed_bytes = len(self._before) + len(self._after)

    def role(self, reasoning_tokens: int | None) -> bytes:
        """The first chunk of a chat answer, without a token."""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        chunk: dict[str, Any] = {**self._identity, "choices": [choice]}
        if self._running:
            chunk["usage"] = usage_of(self._prompt_tokens, 0, None, reasoning_tokens)
        return _event(chunk)

    def one(self, token: int) -> bytes:
        """The commonest chunk: one token, neither first nor last, no usage."""
        text = _SPACED[token]
        return b"%x\r\n%b%b%b\r\n" % (self._fixed_bytes + len(text), self._before, text, self._after)

    def some(
        self, delta: dict[str, Any], written: int, reasoning_tokens: int | None, finish_reason: str | None
    ) -> bytes:
        """A chunk of any kind; ``written`` and ``reasoning_tokens`` count the answer's tokens including these."""
        piece = b'"delta":' + _json(delta) if self._api == "chat" else b'"text":' + _json(delta.get("content", ""))
        after = b',"logprobs":null,"finish_reason":'
        after += b"null}]" if finish_reason is None else b'"%b","stop_reason":null}]' % finish_reason.encode()
        if self._running:
            after += b',"usage":' + _json(usage_of(self._prompt_tokens, written, None, reasoning_tokens))
        return framed(self._choice + piece + after + b"}\n\n")

    def usage(self, output_tokens: int, prompt_details: dict[str, Any] | None, reasoning_tokens: int | None) -> bytes:
        """The last chunk but [DONE], where the request asked for it."""
        usage = usage_of(self._prompt_tokens, output_tokens, prompt_details, reasoning_tokens)
        return _event({**self._identity, "choices": [], "usage": usage})


def whole_answer(
    api: Api,
    request_id: str,
    model: str,
    created: int,
    message: dict[str, Any],
    finish_reason: str,
    usage: dict[str, Any] | None,
) -> bytes:
    """The JSON body of an answer that is not streamed."""
    choice: dict[str, Any] = {"index": 0}
    if api == "chat":
        choice["message"] = message
    else:
        choice["text"] = message["content"]
    choice |= {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
    kind = "chat.completion" if api == "chat" else "text_completion"
    body = {"id": request_id, "object": kind, "created": created, "model": model, "choices": [choice]}
    return _json({**body, "usage": usage} if usage else body)
