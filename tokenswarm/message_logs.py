"""Logs of chat requests as people have them, turned into conversations that ``conversations`` can cut into jobs.

A line is a conversation (``{"messages": […]}`` or the list alone) or one API call with its answer, as proxies and
recorders write them. Calls whose messages extend those of an earlier call belong to one conversation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tokenswarm.errors import InputError
from tokenswarm.logged_call import LoggedCall, Unusable, logged_call
from tokenswarm.openai_messages import content_key, is_system, same_answer

_MOST_PLACES = 20


class _Chain:
    """A conversation as far as it is known: its latest call, and what earlier ones told about its messages."""

    def __init__(self, place: str, call: LoggedCall) -> None:
        self.place = place
        self.call = call
        self._facts: dict[int, dict[str, Any]] = {}  # by index of the message

    @property
    def known(self) -> int:
        """Messages, the answer of the latest call among them."""
        return len(self.call.messages) + (self.call.answer is not None)

    def fits(self, call: LoggedCall) -> tuple[bool, bool]:
        """How well a call whose messages begin with those of this one goes on with it; more is better."""
        at = len(self.call.messages)
        answered = at < len(call.messages) and self.call.answer is not None
        return answered and same_answer(self.call.answer, call.messages[at]), self.call.system == call.system

    def extend(self, call: LoggedCall) -> None:
        """Take a later call of the conversation; its messages stand for those of the earlier one."""
        earlier, at = self.call, len(self.call.messages)
        if earlier.answer is not None and call.messages[at].get("role") == "assistant":
            self._learn(at, "output_tokens", earlier.output_tokens)
            between = call.messages[at + 1 :]
            if between and all(message.get("role") == "tool" for message in between):
                self._learn(len(call.messages) - 1, "tool_time_s", _between(earlier.ended_s, call.started_s))
        self.call = msgspec.structs.replace(call, name=earlier.name or call.name, tools=call.tools or earlier.tools)

    def _learn(self, index: int, key: str, value: float | None) -> None:
        if value is not None:
            self._facts.setdefault(index, {})[key] = value

    def conversation(self) -> dict[str, Any]:
        call = self.call
        messages = [message | self._facts.get(index, {}) for index, message in enumerate(call.messages)]
        if call.answer is not None:
            told = {} if call.output_tokens is None else {"output_tokens": call.output_tokens}
            messages.append(call.answer | told)
        named = {"name": call.name or Path(self.place).name, "messages": messages}
        return named | ({"tools": call.tools} if call.tools else {})


class MessageLog:
    """Reads logs line by line. What calls repeat of earlier ones is kept once."""

    def __init__(self) -> None:
        self.lines = 0
        self._chains: list[_Chain] = []
        self._open: dict[bytes, list[_Chain]] = {}  # by digest of the messages of their latest call
        self._told: dict[str, list[str]] = {}

    def read(self, path: str | Path) -> None:
        """Take all lines of a file, which are in the order of time. Raises ``InputError`` where it cannot be read."""
        try:
            with Path(path).open("rb") as file:
                for number, line in enumerate(file, 1):
                    text = line.removeprefix(b"\xef\xbb\xbf").strip()
                    if text:
                        self._read_line(text, f"{path}:{number}")
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None

    def tell(self, place: str, reason: str) -> None:
        """Remember something that could not be used or was changed, for ``notes``."""
        self._told.setdefault(reason, []).append(place)

    def conversations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """``file:line`` where each began, and its content, in that order."""
        for chain in self._chains:
            yield chain.place, chain.conversation()

    def notes(self) -> list[str]:
        """A line for each kind of thing that was told, with its places."""
        return [_note(reason, places) for reason, places in self._told.items()]

    def _read_line(self, line: bytes, place: str) -> None:
        self.lines += 1
        try:
            call = logged_call(msgspec.json.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.tell(place, f"left out: no JSON ({error})")
        except Unusable as reason:
            self.tell(place, f"left out: {reason}")
        else:
            self._take(place, call)

    def _take(self, place: str, call: LoggedCall) -> None:
        digests = _digests(call.messages)
        chain = self._begun(call, digests)
        known = 0
        if chain is None:
            chain = _Chain(place, call)
            self._chains.append(chain)
        else:
            known = chain.known
            self._go_on(place, chain, call)
        for index, reason in call.notes:
            if index >= known:
                self.tell(place, reason)
        self._open.setdefault(digests[-1], []).append(chain)

    def _begun(self, call: LoggedCall, digests: list[bytes]) -> _Chain | None:
        """The conversation that a call goes on with; it is no longer open under its former digest."""
        for length in range(len(digests), 0, -1):
            found = self._open.get(digests[length - 1], [])
            if not found or (length == len(digests) and not call.repeats_an_answer):
                continue
            chain = max(reversed(found), key=lambda chain: chain.fits(call))
            found.remove(chain)
            return chain
        return None

    def _go_on(self, place: str, chain: _Chain, call: LoggedCall) -> None:
        if chain.call.system != call.system:
            self.tell(place, "the system prompt differs from that of the call before; the later one is kept")
        if len(chain.call.messages) == len(call.messages):
            self.tell(place, "the same request again; the later answer is kept")
            chain.call = call
        else:
            chain.extend(call)


def _digests(messages: list[Any]) -> list[bytes]:
    """One for each length of the conversation; the system prompt, which may tell the time, does not count."""
    digest = hashlib.blake2b(digest_size=16)
    digests = []
    for message in messages:
        digest.update(b"\n" + (b"system" if is_system(message) else content_key(message)))
        digests.append(digest.digest())
    return digests


def _between(ended_s: float | None, started_s: float | None) -> float | None:
    """Seconds from the end of one call to the start of the next; None where unknown or senseless."""
    if ended_s is None or started_s is None or not 0 <= started_s - ended_s <= 86_400:
        return None
    return round(started_s - ended_s, 3)


def _note(reason: str, places: list[str]) -> str:
    shown = ", ".join(dict.fromkeys(places[:_MOST_PLACES]))
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return f"{len(places)} × {reason}: {shown}{more}"
