"""Streams recorded from vLLM, and what of a stream can be compared between a model and a simulated one."""

from __future__ import annotations

from typing import Any

from sim_process import ROOT, events

RECORDED = ROOT / "tests/data/simulator/vllm-0.32.0"


def recorded(name: str) -> list[Any]:
    """The events of a recorded stream."""
    return events((RECORDED / f"{name}.body").read_bytes())


def shape(stream: list[Any]) -> list[Any]:
    """Deltas with their texts left out, each with its finish reason; equal ones in a row are one."""
    shapes: list[Any] = []
    for chunk in stream[:-2]:
        (choice,) = chunk["choices"]
        each = (_shape(choice["delta"]), choice["finish_reason"], "stop_reason" in choice)
        if not shapes or shapes[-1] != each:
            shapes.append(each)
    assert stream[-2]["choices"] == []
    assert stream[-1] == "[DONE]"
    return shapes


def _shape(value: Any) -> Any:
    match value:
        case dict():
            return {key: _shape(part) for key, part in value.items()}
        case list():
            return [_shape(part) for part in value]
        case str():
            return "text" if value else ""
        case _:
            return value


def usages(stream: list[Any]) -> list[tuple[int, int]]:
    """(completion, reasoning) tokens of every chunk with usage."""
    found = [chunk["usage"] for chunk in stream[:-1] if chunk.get("usage")]
    return [(usage["completion_tokens"], usage["completion_tokens_details"]["reasoning_tokens"]) for usage in found]
