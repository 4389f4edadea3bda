"""One answer token by token: what the engine steps, and what of it a client gets to see."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

import msgspec

from simulator import tokenizer
from simulator.chunks import text_of

Kind = Literal["content", "reasoning", "call", "silent"]


class Call(msgspec.Struct, frozen=True):
    """A tool call: one token for its name, then one for each piece of its arguments' text."""

    id: str
    name: str
    index: int
    pieces: tuple[str, ...]

    @property
    def arguments(self) -> str:
        """The whole text of the arguments."""
        return "".join(self.pieces)

    @property
    def complete(self) -> bool:
        """Whether the arguments are JSON."""
        try:
            json.loads(self.arguments)
        except json.JSONDecodeError:
            return False
        return True


class Run(NamedTuple):
    """Tokens ``start`` to ``stop`` of an answer, all of one kind; ``call`` is whose they are.

    ``silent``: special tokens and what the client asked not to see; no chunk is sent for them.
    """

    kind: Kind
    start: int
    stop: int
    call: Call | None = None


class Reply:
    """An answer put together run by run, then cut to what the request allows.

    ``reasoning_tokens`` is ``None`` on a server that tells no reasoning from content. ``named``: the call was asked
    for by its name, which changes the finish reason.
    """

    def __init__(self, *, reasoning_field: str | None = None, hides_reasoning: bool = False) -> None:
        self.tokens: list[int] = []
        self.runs: list[Run] = []
        self.finish_reason = "length"
        self.reasoning_tokens: int | None = None if reasoning_field is None else 0
        self._field = reasoning_field or "reasoning"
        self._hides = hides_reasoning

    # -- putting it together ---------------------------------------------------------------------------------------

    def add(self, kind: Kind, tokens: list[int], call: Call | None = None) -> None:
        """One run more."""
        start = len(self.tokens)
        self.tokens += tokens
        self.runs.append(Run(kind, start, len(self.tokens), call))

    def add_reasoning(self, tokens: list[int]) -> None:
        """The reasoning, its end a token of its own that nobody sees, as in vLLM."""
        self.reasoning_tokens = len(tokens)
        self.add("silent" if self._hides else "reasoning", tokens)
        self.add("silent", [tokenizer.REASONING_END])

    def cut(self, limit: int) -> None:
        """Drops what is beyond ``limit`` tokens."""
        del self.tokens[limit:]
        runs = [run._replace(stop=min(run.stop, limit)) for run in self.runs if run.start < limit]
        self.runs = [run._replace(call=_cut_call(run)) for run in runs]
        if self.reasoning_tokens is not None:
            self.reasoning_tokens = min(self.reasoning_tokens, limit)

    # -- what it looks like ----------------------------------------------------------------------------------------

    @property
    def calls(self) -> list[Call]:
        """The tool calls, as far as they were made."""
        return [run.call for run in self.runs if run.call is not None]

    @property
    def engine_reason(self) -> str:
        """How the engine counts the end: it knows no tool calls."""
        return "length" if self.finish_reason == "length" else "stop"

    @property
    def plain_from(self) -> int:
        """From which token on there is nothing but content, each token a word with a space before it."""
        last = self.runs[-1]
        return last.start + 1 if last.kind == "content" and not self._hides else len(self.tokens)

    def reasoning_among(self, tokens: int) -> int | None:
        """Reasoning tokens among the first ``tokens``."""
        return None if self.reasoning_tokens is None else min(self.reasoning_tokens, tokens)

    def delta(self, start: int, stop: int) -> dict[str, Any]:
        """What tokens ``start`` to ``stop`` add to the message; empty where they are all silent."""
        delta: dict[str, Any] = {}
        calls: list[dict[str, Any]] = []
        for run in self.runs:
            first, end = max(start, run.start), min(stop, run.stop)
            if first >= end or run.kind == "silent":
                continue
            if run.call is not None:
                calls += _call_deltas(run.call, first - run.start, end - run.start)
            else:
                text = text_of(self.tokens[first:end], at_start=first == run.start).decode()
                delta["content" if run.kind == "content" else self._field] = text
        if calls:
            return {"content": None, **delta, "tool_calls": calls}
        if delta and self._hides:
            delta[self._field] = None
        return delta

    def message(self, *, forced: bool) -> dict[str, Any]:
        """The message of an answer that is not streamed. Calls that are no JSON come as the text they are, as in vLLM;
        ``forced``: the request left no choice but to call.
        """
        delta = self.delta(0, len(self.tokens))
        calls = self.calls
        message: dict[str, Any] = {"role": "assistant", "content": delta.get("content")}
        if calls and all(call.complete for call in calls):
            message["content"] = message["content"] or ("" if forced else None)
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
        elif calls:
            message["content"] = " ".join(f"{tokenizer.call_word(call.name)} {call.arguments}" for call in calls)
        if self.reasoning_tokens is not None:
            message[self._field] = delta.get(self._field)
        return message


def _cut_call(run: Run) -> Call | None:
    """Only the pieces whose tokens are left; the first token is the name."""
    if run.call is None:
        return None
    return msgspec.structs.replace(run.call, pieces=run.call.pieces[: run.stop - run.start - 1])


def _call_deltas(call: Call, start: int, stop: int) -> list[dict[str, Any]]:
    """Name and arguments in deltas of their own, as vLLM sends them."""
    deltas: list[dict[str, Any]] = []
    if start == 0:
        deltas.append({"id": call.id, "type": "function", "index": call.index, "function": {"name": call.name}})
        start = 1
    if start < stop:
        arguments = "".join(call.pieces[start - 1 : stop - 1])
        deltas.append({"index": call.index, "function": {"arguments": arguments}})
    return deltas
