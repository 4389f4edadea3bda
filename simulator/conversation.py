"""The messages of a chat request: their checks, and the prompt they make."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from simulator import tokenizer
from simulator.api_error import ApiError
from simulator.picture import Picture
from simulator.settings import Settings
from simulator.vision import Vision

Messages = list[dict[str, Any]]

_KNOWN_PARTS = {"input_audio": "audio", "audio_url": "audio", "video_url": "video"}


def chat_ids(
    messages: Messages,
    tools: list[Any] | None,
    settings: Settings,
    answer_follows: bool,
    pictures: Sequence[Picture] = (),
) -> list[int]:
    """Prompt of a conversation, tools first as a system message of their JSON text; ``pictures`` are those of
    :func:`image_urls`, which has checked the messages, in the same order. The id of an image's tokens is the picture's.

    A tool call is what the model wrote when it made it, so that prompt and answer are the beginning of the next
    prompt. Reasoning in the history is left out, as most chat templates do.
    """
    pairs: list[tuple[str, str | list[str | list[int]]]] = [("system", json.dumps(tools))] if tools else []
    left = iter(pictures)
    for message in messages:
        role = message.get("role")
        if role not in tokenizer.ROLES:
            raise ApiError(400, f"role must be one of {', '.join(tokenizer.ROLES)}, got {role!r}", param="messages")
        before, text = _pieces(message.get("content"), left)
        words = [text, *map(_call_text, _calls(message))]
        pairs.append((role, [*before, " ".join(words)]))
    constant, each = settings.template_constant_tokens, settings.template_message_tokens
    return tokenizer.encode_chat(pairs, constant, each, answer_follows)


def image_urls(messages: Messages, vision: Vision | None) -> list[str]:
    """The URLs of all images, in order; ``ApiError`` for parts that this model does not take."""
    parts = [part for message in messages for part in _parts(message.get("content"))]
    if vision is None:
        if not all(_is_text(part) for part in parts):
            raise ApiError(400, "this model takes text only")
        return []
    urls = [_image_url(part) for part in parts if not _is_text(part)]
    if len(urls) > vision.limit:
        message = f"At most {vision.limit} image(s) may be provided in one prompt. (parameter=image)"
        raise ApiError(400, message, param="image")
    return urls


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


def _parts(content: Any) -> list[dict[str, Any]]:
    """A message's content as parts; nothing and a string are text."""
    if content is None or isinstance(content, str):
        return [{"text": content or ""}]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise ApiError(400, "content must be a string or a list of parts", "Bad Request", "body.messages")
    return content


def _is_text(part: dict[str, Any]) -> bool:
    return isinstance(part.get("text"), str) and part.get("type", "text") in ("text", "input_text", "output_text")


def _image_url(part: dict[str, Any]) -> str:
    """The URL of an image's part; ``ApiError`` in the words of vLLM for a part of any other kind."""
    kind = part.get("type")
    if kind == "image_url":
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        if isinstance(url, str):
            return url
        raise ApiError(400, "image_url must be an object with a url", "Bad Request", "body.messages")
    if kind in _KNOWN_PARTS:
        medium = _KNOWN_PARTS[kind]
        message = f"At most 0 {medium}(s) may be provided in one prompt. (parameter={medium})"
        raise ApiError(400, message, param=medium)
    message = f"Unsupported chat content part type: {kind!r}. Supported types: image_url, text."
    raise ApiError(400, f"{message} (parameter=type, value={kind})", param="type")


def _pieces(content: Any, pictures: Iterator[Picture]) -> tuple[list[str | list[int]], str]:
    """Texts and the tokens of images in order, and the text after the last image; texts side by side are one."""
    before: list[str | list[int]] = []
    texts: list[str] = []
    for part in _parts(content):
        if _is_text(part):
            texts.append(part["text"])
        else:
            picture = next(pictures)
            before += ["\n".join(texts), [picture.token] * picture.tokens]
            texts = []
    return before, "\n".join(texts)


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
