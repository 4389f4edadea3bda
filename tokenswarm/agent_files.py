"""What the files of one agentic class say: its tools, its recorded jobs, and what their first prompts begin with."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tokenswarm.errors import ScenarioError
from tokenswarm.toolset import ToolSet, builtin_tools, read_tools
from tokenswarm.traffic_settings import AgenticTraffic
from tokenswarm.trajectories import Trajectory, read_trajectories

_MOST_PROBLEMS = 20


class Opening(msgspec.Struct, frozen=True):
    """The head of a job's first prompt: a system text, or ``tokens`` tokens of a generated one, or none; and tools."""

    system: str | None
    tokens: int
    toolset: ToolSet
    tool_choice: str | dict[str, Any]

    @property
    def offer(self) -> dict[str, Any]:
        """The fields of a request that offer the tools."""
        return {"tools": self.toolset.definitions, "tool_choice": self.tool_choice}


class AgentFiles:
    """Reads the files that ``traffic`` names; small files, so every process reads them for itself.

    ``openings`` are all different ones; a generated job has the first, a recorded job the one of its number in
    ``opening_of``.
    """

    def __init__(self, traffic: AgenticTraffic) -> None:
        """Raises ``InputError`` where a file, or what it says together with the scenario, is wrong."""
        self._traffic = traffic
        self._named = None if traffic.tools is None else read_tools(traffic.tools)
        self._recorded: dict[str, ToolSet] = {}
        self.trajectories = [] if traffic.trajectories is None else read_trajectories(traffic.trajectories)
        self.openings: list[Opening] = []
        self.opening_of: list[int] = []
        self._numbers: dict[tuple[str | None, int], int] = {}  # of openings by system text and tools
        if not self.trajectories:
            self._add(None, self._named or builtin_tools())
        problems = self._without_tools() or list(filter(None, map(self._take, self.trajectories)))
        if problems:
            raise ScenarioError([f"{traffic.trajectories}: {problem}" for problem in problems[:_MOST_PROBLEMS]])

    def _without_tools(self) -> list[str]:
        bare = [] if self._named else [job.name for job in self.trajectories if not job.tools]
        more = f" and {len(bare) - 1} more" if len(bare) > 1 else ""
        wanted = "no tools are recorded; name a file of them with traffic[].tools, or record them"
        return [f"{bare[0]}{more}: {wanted}"] if bare else []

    def _take(self, job: Trajectory) -> str | None:
        """Note the opening of a recorded job; the text of a problem where none of its calls is one of its tools."""
        toolset = self._named or self._recorded_tools(job)
        called = {call.name for step in job.steps for call in step.calls}
        if called and not called & set(toolset.names):
            return (
                f"{job.name}: calls {', '.join(sorted(called))}; at least one of the tools of {toolset.source} "
                f"({', '.join(toolset.names)}) is wanted"
            )
        self.opening_of.append(self._add(job.system, toolset))
        return None

    def _recorded_tools(self, job: Trajectory) -> ToolSet:
        key = json.dumps(job.tools, sort_keys=True)
        if key not in self._recorded:
            self._recorded[key] = ToolSet(job.tools or [], f"{self._traffic.trajectories}: tools of {job.name}")
        return self._recorded[key]

    def _add(self, system: str | None, toolset: ToolSet) -> int:
        """The number of this opening. The scenario's system prompt takes the place of a recorded one."""
        own = self._traffic.system_prompt
        if own is not None:
            system = own.text
        choice = toolset.choice(self._traffic.tool_choice, self._traffic.name)
        number = self._numbers.setdefault((system, id(toolset)), len(self.openings))
        if number == len(self.openings):
            self.openings.append(Opening(system, self._traffic.first_tokens, toolset, choice))
        return number
