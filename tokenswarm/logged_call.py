"""One line of a log: a conversation, or an API call with its request, its answer and its times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from tokenswarm.openai_messages import Messages, is_system

_REQUESTS = ("request", "body", "kwargs", "input", "request_body")
_RESPONSES = ("response", "output", "response_body")
_BODIES = ("body", "json")
_SETTINGS = ("optional_params", "model_parameters", "kwargs")  # where some recorders keep the tools
_STARTS = ("startTime", "start_time", "requestedAt", "requested_at")
_ENDS = ("endTime", "end_time", "receivedAt", "received_at")


class Unusable(Exception):
    """Why a line gives no conversation."""


class LoggedCall(msgspec.Struct, frozen=True, kw_only=True):
    """``messages`` and ``answer`` are in today's form. ``answer`` is None for a line that is a conversation.

    Times are seconds of the recorder's clock. ``notes``: what was left out, by index of the message; the answer's index
    is the number of messages.
    """

    name: str | None
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    answer: dict[str, Any] | None
    output_tokens: int | None
    started_s: float | None
    ended_s: float | None
    notes: list[tuple[int, str]] = []

    @property
    def system(self) -> list[Any]:
        """What the system and developer messages say."""
        return [message["content"] for message in self.messages if is_system(message)]

    @property
    def repeats_an_answer(self) -> bool:
        """Whether the same messages again can only be a second try: they hold an answer already."""
        return self.answer is not None and any(message.get("role") == "assistant" for message in self.messages)


def logged_call(entry: Any) -> LoggedCall:
    """Read one line. Raises ``Unusable``."""
    if isinstance(entry, list):
        entry = {"messages": entry}
    if not isinstance(entry, dict):
        raise Unusable("neither an object nor a list of messages")
    request = _request(entry)
    raw = request.get("messages")
    if not isinstance(raw, list) or not all(isinstance(message, dict) for message in raw):
        raise Unusable("no list of messages in it, nor in its request, body, kwargs or input")
    if not any(message.get("role") == "user" for message in raw):
        raise Unusable("no message of the user")
    reader = Messages()
    messages = [reader.take(message) for message in raw]
    body = next((_inner(_object(entry[key])) for key in _RESPONSES if key in entry), entry)
    answer = None if body is entry else reader.take(_answer(body, reader))
    name = entry.get("name")
    return LoggedCall(
        name=name if isinstance(name, str) and name else None,
        messages=messages,
        tools=_tools([request, entry]),
        answer=answer,
        output_tokens=None if answer is None else _output_tokens([body, entry]),
        started_s=_time_s(entry, _STARTS),
        ended_s=_time_s(entry, _ENDS),
        notes=reader.notes,
    )


def _object(value: Any) -> Any:
    """The value, decoded where it is JSON in a text."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return value


def _inner(value: Any) -> Any:
    """The body of an HTTP request or answer, or the value itself where it is the body."""
    if isinstance(value, dict):
        for key in _BODIES:
            body = _object(value.get(key))
            if isinstance(body, dict):
                return body
    return value


def _request(entry: dict[str, Any]) -> dict[str, Any]:
    for key in _REQUESTS:
        body = _inner(_object(entry.get(key)))
        if isinstance(body, dict) and "messages" in body:
            return body
    return entry


def _answer(body: Any, reader: Messages) -> dict[str, Any]:
    """The message of the first choice. Raises ``Unusable``."""
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices:
        raise Unusable("a call without an answer: no choices in its response")
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise Unusable("a call whose first choice has no message")
    if len(choices) > 1:
        reader.tell("choices after the first are not kept")
    return message | {"role": "assistant"}


def _tools(places: list[dict[str, Any]]) -> list[Any] | None:
    """Tool definitions from the first place that has some; ``functions``, as they were once called, too."""
    settings = [_object(place.get(key)) for place in places for key in _SETTINGS]
    for place in [*places, *settings]:
        if not isinstance(place, dict):
            continue
        if isinstance(place.get("tools"), list) and place["tools"]:
            return list(place["tools"])
        if isinstance(place.get("functions"), list) and place["functions"]:
            return [{"type": "function", "function": function} for function in place["functions"]]
    return None


def _output_tokens(places: list[Any]) -> int | None:
    """What the server counted, reasoning included; None where it did not, or counted nothing."""
    for place in places:
        if isinstance(place, dict):
            usage = place.get("usage")
            count = usage.get("completion_tokens") if isinstance(usage, dict) else place.get("completion_tokens")
            if type(count) is int and count > 0:
                return count
    return None


def _time_s(entry: dict[str, Any], keys: tuple[str, ...]) -> float | None:
    """A time in seconds, from a number of seconds or milliseconds or an ISO 8601 text; None where there is none."""
    value = next((entry[key] for key in keys if entry.get(key) is not None), None)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e14:
        return value / 1000 if value > 1e11 else float(value)
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
