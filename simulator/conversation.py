"""The messages of a chat request: their checks, and the prompt they make."""

from __future__ import annotations

import json
from typing import Any

from simulator import tokenizer
from simulator.api_error import ApiError
from simulator.settings import Settings

Messages = list[dict[str, Any]]


def chat_ids(messages: Messages, tools: list[Any] | None, settings: Settings, answer_follows: bool) -> list[int]:
    """Prompt of a conversation, tools first as a system message of their JSON text.

    A tool call is what the model wrote when it made it, so that prompt and answer are the beginning of the next
    prompt. Reasoning in the history is left out, as most chat templates do.
    """
    pairs: list[tuple[str, str]] = [("system", json.dumps(tools))] if tools else []
    for message in messages:
        role = message.get("role")
        if role not in tokenizer.ROLES:
            raise ApiError(400, f"role must be one of {', '.join(tokenizer.ROLES)}, got {role!r}", param="messages")
        words = [_text(message.get("content")), *map(_call_text, _calls(message))]
        pairs.append((role, " ".join(words)))
    constant, each = settings.template_constant_tokens, settings.template_message_tokens
    return tokenizer.encode_chat(pairs, constant, each, answer_follows)


def tool_results(messages: Messages) -> int:
    """Results of tools since the user last said something."""
    count = 0
    for message in messages:
        match message.get("role"):
            case "user":
                count = 0
            case "tool":
                count += 1
    return count


def _text(content: Any) -> str:
    """The text of a message's content: a string, text parts, or nothing."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise ApiError(400, "content must be a string or a list of parts", "Bad Request", "body.messages")
    texts: list[str] = []
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            raise ApiError(400, "this model takes text only")
        texts.append(part["text"])
    return "\n".join(texts)


def _calls(message: dict[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise ApiError(400, "tool_calls must be a list", "Bad Request", "body.messages")
    return calls


def _call_text(call: Any) -> str:
    """The call as the model wrote it; arguments that are no JSON are taken as they are, as they may be the model's."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise ApiError(400, "an entry of tool_calls is an object of type function", param="tool_calls")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        raise ApiError(400, "a call names its function", "Bad Request", "body.messages")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return f"{tokenizer.call_word(name)} {text}"
