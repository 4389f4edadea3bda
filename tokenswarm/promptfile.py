"""Prompts that people bring: JSONL in three layouts, and ShareGPT as JSONL or as one JSON list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenswarm.errors import InputError, ScenarioError

_WANTED = 'wanted is {"prompt": "…"}, {"text": "…"}, {"messages": […]}, {"conversations": […]} or "…"'
_MOST_PROBLEMS = 20
_USERS = ("human", "user")
_SYSTEMS = ("system", "developer")


class Conversation(NamedTuple):
    """The user's side of a talk; the model under test gives the answers."""

    system: str | None
    users: tuple[str, ...]


class PromptList(NamedTuple):
    """``skipped``: ShareGPT entries in which no user speaks, as published files have them."""

    conversations: list[Conversation]
    skipped: int


class _Bad(Exception):
    """What is wrong with one entry."""


def read_prompts(path: str | Path) -> PromptList:
    """All prompts of a file. Raises ``ScenarioError`` with every unusable entry as ``file:line``."""
    try:
        text = Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    found: list[Conversation] = []
    problems: list[str] = []
    skipped = 0
    for line, entry in _entries(text):
        try:
            conversation = _conversation(entry)
        except _Bad as bad:
            problems.append(f"{path}:{line}: {bad}; {_WANTED}")
            continue
        if conversation.users:
            found.append(conversation)
        else:
            skipped += 1
    if len(problems) > _MOST_PROBLEMS:
        problems[_MOST_PROBLEMS:] = [f"{path}: {len(problems) - _MOST_PROBLEMS} more entries are unusable"]
    if not found and not problems:
        problems = [f"{path}: holds no prompt; {_WANTED}"]
    if problems:
        raise ScenarioError(problems)
    return PromptList(found, skipped)


def _entries(text: str) -> Iterator[tuple[int, Any]]:
    """Line number and content; a line that is no JSON comes as a ``_Bad``."""
    if text.lstrip().startswith("["):
        yield from _list_entries(text)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                yield number, _Bad(f"no JSON ({error})")


def _list_entries(text: str) -> Iterator[tuple[int, Any]]:
    """The items of one JSON list, each with the line it starts on."""
    decode = json.JSONDecoder().raw_decode
    at = text.index("[") + 1
    line, counted = 1, 0
    while True:
        at = _skip(text, at)
        line, counted = line + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            return
        try:
            entry, at = decode(text, at)
        except ValueError as error:
            yield line, _Bad(f"no JSON ({error})")
            return
        yield line, entry


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _conversation(entry: Any) -> Conversation:
    match entry:
        case _Bad():
            raise entry
        case str(text) | {"prompt": str(text)} | {"text": str(text)}:
            if not text.strip():
                raise _Bad("an empty prompt")
            return Conversation(None, (text,))
        case {"messages": list(messages)}:
            talk = _talk(messages, "role", "content")
            if not talk.users:
                raise _Bad("messages without one of the user")
            return talk
        case {"conversations": list(messages)} | {"conversation": list(messages)}:
            return _talk(messages, "from", "value")
        case dict():
            raise _Bad(f"an object with {', '.join(map(str, entry)) or 'no keys'}")
        case _:
            raise _Bad(f"a JSON {type(entry).__name__}")


def _talk(messages: list[Any], role_key: str, text_key: str) -> Conversation:
    """Users' texts in order and the system's; what models said is left out."""
    system: str | None = None
    users = []
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or not isinstance(message.get(role_key), str):
            raise _Bad(f"message {number} has no {role_key}")
        if message[role_key] in _USERS:
            users.append(_text(message, text_key, number))
        elif message[role_key] in _SYSTEMS and system is None:
            system = _text(message, text_key, number)
    return Conversation(system, tuple(text for text in users if text.strip()))


def _text(message: dict[str, Any], key: str, number: int) -> str:
    match message.get(key):
        case str(text):
            return text
        case list(parts) if all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
            return "\n".join(part["text"] for part in parts)
        case _:
            raise _Bad(f"message {number}: {key} is no text")
