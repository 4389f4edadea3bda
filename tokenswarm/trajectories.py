"""Recorded jobs of agents: what was asked, which tools were called, and what they answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tokenswarm.toolcalls import ToolCall


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One model call and what followed it.

    ``results``: one for each call, in the order of the calls. ``tool_time_s``: from the answer to the last result, in
    seconds. ``output_tokens``: length of the answer as recorded. None where the recording does not tell.
    """

    text: str = ""
    calls: list[ToolCall] = []
    results: list[str] = []
    tool_time_s: float | None = None
    output_tokens: int | None = None


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded job, at least one step long.

    The last step has no calls, but where the recording broke off before they were run: then it has no ``results``.
    Every earlier one has calls. ``history``: messages between the system prompt and ``task``, in the OpenAI format, of
    earlier jobs in the same conversation. ``tools``: definitions in the OpenAI format; None where none were recorded.
    """

    name: str
    system: str | None
    history: list[dict[str, Any]] = []
    task: str
    tools: list[dict[str, Any]] | None = None
    steps: list[Step]


def read_trajectories(path: str | Path) -> list[Trajectory]:
    """All jobs of a JSONL file, in its order.

    Raises ``ScenarioError`` (an ``InputError``) with one line a mistake: ``file:line: place: value; wanted is …``.
    """
    raise NotImplementedError
