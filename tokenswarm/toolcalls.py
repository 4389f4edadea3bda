"""Tool calls put together from the pieces in which servers stream them."""

from __future__ import annotations

import json

import msgspec

_FEW_PARTS = 8  # of arguments that may be any JSON


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
    __slots__ = ("id", "index", "name", "parts")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id: str | None = None
        self.name = ""
        self.parts: list[str] = []  # of the arguments

    @property
    def arguments(self) -> str:
        return "".join(self.parts)

    def continues(self, id_: str | None, name: str | None) -> bool:
        """False where a delta that points here is the start of another call.

        Servers that send whole calls leave the index out or repeat it; others repeat id or name with every piece.
        """
        if id_ and self.id:
            return id_ == self.id or not name
        if name and self.name:
            return name == self.name and not self._is_whole()
        return True

    def _is_whole(self) -> bool:
        """Whether the arguments are JSON already. Long ones are looked at only where an object ends."""
        if len(self.parts) > _FEW_PARTS and not self.parts[-1].rstrip().endswith("}"):
            return False
        return _is_json(self.arguments)


class ToolCalls:
    """The calls of one answer, in the order in which they began."""

    __slots__ = ("_calls", "_latest")

    def __init__(self) -> None:
        self._calls: list[_Growing] = []
        self._latest: dict[int | None, _Growing] = {}  # the newest call of each index

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
                call.parts.append(arguments)
            told = told or bool(name or arguments)
        return told

    def finished(self) -> list[ToolCall]:
        return [ToolCall(call.id, call.name, call.arguments) for call in self._calls]

    def _call(self, delta: CallDelta, name: str | None) -> _Growing:
        newest = self._calls[-1] if self._calls else None
        call = newest if delta.index is None else self._latest.get(delta.index)
        if call is None or not call.continues(delta.id, name):
            call = self._latest[delta.index] = _Growing(delta.index)
            self._calls.append(call)
        return call


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
