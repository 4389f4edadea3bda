"""Tool calls put together from the pieces in which servers stream them."""

from __future__ import annotations

import json

import msgspec


class FunctionDelta(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class CallDelta(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class ToolCall(msgspec.Struct):
    """``arguments`` is the JSON text as the model wrote it; it need not be valid."""

    id: str | None
    name: str
    arguments: str


class _Growing:
    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id: str | None = None
        self.name = ""
        self.arguments = ""

    def continues(self, id_: str | None, name: str | None) -> bool:
        """False where a delta that points here is the start of another call.

        Servers that send whole calls leave the index out or repeat it; others repeat id or name with every piece.
        """
        if id_ and self.id:
            return id_ == self.id or not name
        if name and self.name:
            return name == self.name and not _is_json(self.arguments)
        return True


class ToolCalls:
    """The calls of one answer, in the order in which they began."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[_Growing] = []

    def add(self, deltas: list[CallDelta]) -> bool:
        """True where a delta had a name or arguments: only then is the event a token event."""
        told = False
        for delta in deltas:
            function = delta.function
            name = function.name if function else None
            arguments = function.arguments if function else None
            call = self._call(delta, name)
            call.id = call.id or delta.id or None
            call.name = call.name or name or ""
            if arguments:
                call.arguments += arguments
            told = told or bool(name or arguments)
        return told

    def finished(self) -> list[ToolCall]:
        return [ToolCall(call.id, call.name, call.arguments) for call in self._calls]

    def _call(self, delta: CallDelta, name: str | None) -> _Growing:
        for call in reversed(self._calls):
            if delta.index is None or call.index == delta.index:
                if call.continues(delta.id, name):
                    return call
                break
        self._calls.append(_Growing(delta.index))
        return self._calls[-1]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
