"""Chat messages as clients and logs have them, in today's OpenAI form: text content, ``tool_calls`` with ids."""

from __future__ import annotations

from typing import Any

import msgspec

_KEPT = ("output_tokens", "tool_time_s")
_REASONING = ("reasoning_content", "reasoning", "thinking_blocks")


class Messages:
    """Takes the messages of one conversation in their order; ``notes`` tells by message what of it was left out."""

    def __init__(self) -> None:
        self.notes: list[tuple[int, str]] = []  # number of the message, from 0, and a reason
        self._taken = 0
        self._open: list[tuple[str, str, str]] = []  # id as logged, id as given, tool: calls without a result

    def take(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message in today's form. What is wrong with it stays, for the one who checks the conversation."""
        match message.get("role"):
            case "assistant":
                taken = self._answer(message)
            case "tool" | "function":
                taken = self._result(message)
            case role:
                taken = {"role": role, "content": self._content(message)}
        self._taken += 1
        return taken

    def tell(self, reason: str) -> None:
        """Add a note about the message that comes next."""
        self.notes.append((self._taken, reason))

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if any(message.get(key) for key in _REASONING):
            self.tell("reasoning of an answer is not kept in the history")
        answer = {"role": "assistant", "content": self._content(message) or message.get("refusal") or ""}
        self._open = []
        calls = [self._call(call) for call in _logged_calls(message)]
        if calls:
            answer["tool_calls"] = calls
        return answer | _kept(message)

    def _call(self, call: Any) -> Any:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            return call
        logged, name = _id(call.get("id")), function.get("name")
        used = {given for _, given, _ in self._open}
        given = logged if logged and logged not in used else f"call_{self._taken}_{len(self._open)}"
        self._open.append((logged, given, str(name)))
        arguments = function.get("arguments")
        if arguments is None:
            arguments = "{}"
        return {"id": given, "type": "function", "function": {"name": name, "arguments": _as_text(arguments)}}

    def _result(self, message: dict[str, Any]) -> dict[str, Any]:
        logged, name = _id(message.get("tool_call_id")), message.get("name")
        given = logged
        for call in self._open:
            if call[0] == logged if logged else name in (None, "", call[2]):
                self._open.remove(call)
                given = call[1]
                break
        return {"role": "tool", "tool_call_id": given, "content": self._content(message) or ""} | _kept(message)

    def _content(self, message: dict[str, Any]) -> Any:
        content = message.get("content")
        if not isinstance(content, list):
            return content
        texts = []
        for part in content:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                texts.append(part["text"])
            else:
                kind = part.get("type") if isinstance(part, dict) else type(part).__name__
                self.tell(f"a part of type {kind} is no text and is not kept")
        return "\n".join(texts)


def _logged_calls(message: dict[str, Any]) -> list[Any]:
    """Calls of an answer; the one of the older ``function_call`` in the form of the newer."""
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        return calls
    return [{"function": message["function_call"]}] if message.get("function_call") else []


def _id(value: Any) -> str:
    """An id as text; empty where there is none."""
    return value if isinstance(value, str) else ""


def _kept(message: dict[str, Any]) -> dict[str, Any]:
    return {key: message[key] for key in _KEPT if message.get(key) is not None}


def _as_text(arguments: Any) -> Any:
    return msgspec.json.encode(arguments).decode() if isinstance(arguments, dict) else arguments


def is_system(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in ("system", "developer")


def same_answer(one: Any, other: Any) -> bool:
    """Whether two answers have the same text and calls, however their ids and JSON are written."""
    return bool(content_key(one) == content_key(other))


def content_key(message: Any) -> bytes:
    """The same for messages with the same content; ids and the layout of arguments do not count."""
    if not isinstance(message, dict):
        return msgspec.json.encode(message)
    calls = [_call_key(call) for call in message.get("tool_calls", [])]
    content = message.get("content") or ""
    return msgspec.json.encode([message.get("role"), content.strip() if isinstance(content, str) else content, calls])


def _call_key(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
    return [function.get("name"), msgspec.json.encode(arguments, order="sorted").decode()]
