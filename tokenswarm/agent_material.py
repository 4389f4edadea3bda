"""What the jobs of one agentic class are made of: system prompts, tools, tasks, tool results and recordings."""

from __future__ import annotations

import json
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from tokenswarm.agent_files import AgentFiles, Opening
from tokenswarm.agent_survey import first_prompt
from tokenswarm.arguments import make_arguments
from tokenswarm.errors import InputError
from tokenswarm.tokens import OpeningCosts, TokenCounter
from tokenswarm.toolcalls import ToolCall
from tokenswarm.toolset import Tool, ToolSet, sendable_arguments
from tokenswarm.traffic_settings import AgenticTraffic
from tokenswarm.trajectories import Trajectory

_KEPT_TOKENS = 5_000_000  # of shared system prompts that a process keeps, about 30 MB
_TRIALS = 5  # arguments made up for each tool before any load


class Head(NamedTuple):
    """The system text of one job; ``name`` and ``tokens`` are those of the head that other jobs' prompts have too."""

    system: str | None
    name: str | None
    tokens: int | None


class AgentMaterial:
    """Makes the messages of one class. Small and quick: no request, no file access once it exists.

    ``reused`` counts the jobs that got a recording which had been used up.
    """

    def __init__(self, traffic: AgenticTraffic, counter: TokenCounter, *, seed: int = 7, run: str = "") -> None:
        """Reads the class' files; raises ``InputError`` where one is unusable. ``run`` makes its texts new."""
        files = AgentFiles(traffic)
        self.traffic = traffic
        self.counter = counter
        self.reused = 0
        self._openings = files.openings
        self._costs = counter.openings.get(traffic.name, [])
        self._opening_of = files.opening_of
        self._recorded = files.trajectories
        self._order = list(range(len(self._recorded)))
        Random(f"{seed}/{traffic.name}").shuffle(self._order)
        self._used: set[int] = set()
        self._name = f"{seed}/{run}/{traffic.name}"
        tokens = traffic.first_tokens
        self.prefix = lru_cache(maxsize=_KEPT_TOKENS // tokens + 1 if tokens else 0)(self._prefix)
        if not self._recorded and traffic.mode == "replay":
            self._try_arguments()

    def shortage(self, sessions: int) -> str | None:
        """One line where there are fewer recorded jobs than ``sessions`` of this class would need."""
        have = len(self._recorded)
        if not have or sessions <= have:
            return None
        return f"there are {have} recorded jobs for {sessions} sessions: some repeat, each with a task head of its own"

    def recording(self, rng: Random, ordinal: int | None) -> int | None:
        """Number of the recorded job for the session that is the ``ordinal``-th of its class in the run, from 0.

        Without an ordinal one is drawn, so that it may come twice. None where no jobs are recorded.
        """
        if not self._recorded:
            return None
        have = len(self._recorded)
        index = self._order[rng.randrange(have) if ordinal is None else ordinal % have]
        self.reused += index in self._used if ordinal is None else ordinal >= have
        self._used.add(index)
        return index

    def trajectory(self, recording: int) -> Trajectory:
        return self._recorded[recording]

    def tools(self, recording: int | None) -> tuple[ToolSet, str | dict[str, Any]]:
        """The tools of a job and the ``tool_choice`` of its requests."""
        opening, _ = self._opening(recording)
        return opening.toolset, opening.tool_choice

    def first_tokens(self, recording: int | None, task_tokens: int) -> int | None:
        """Tokens of a generated job's first prompt; None where it is recorded."""
        opening, costs = self._opening(recording)
        return None if costs is None or recording is not None else costs.overhead + opening.tokens + task_tokens

    def _opening(self, recording: int | None) -> tuple[Opening, OpeningCosts | None]:
        """What a job begins with, and what that costs; None where it was not measured."""
        index = 0 if recording is None else self._opening_of[recording]
        return self._openings[index], self._costs[index] if index < len(self._costs) else None

    def head(
        self, recording: int | None, level: int | None, ordinal: int | None, rng: Random, text_rng: Random
    ) -> Head:
        """The system text of a job: a recorded one, or the next of the pool, or for some jobs one of its own."""
        opening, costs = self._opening(recording)
        shared = costs.shared if costs else None
        prompt = self.traffic.system_prompt
        if prompt is None or not opening.tokens:
            number = 0 if recording is None else self._opening_of[recording]
            kind = "tools" if opening.system is None else "system"
            return Head(opening.system, f"{kind} {number}" if number else kind, shared)
        place = rng.randrange(prompt.pool) if ordinal is None else ordinal % prompt.pool
        if rng.random() >= prompt.share:
            own = self.counter.make_text(text_rng, opening.tokens, stop=False)
            common = costs.common if costs else None
            tools_first = common is not None and common > (self.counter.template_prefix or 0)
            return Head(own, "tools", common) if tools_first else Head(own, None, None)
        return Head(
            self.prefix(level, place), f"prompt {place}" if level is None else f"prompt {level}.{place}", shared
        )

    def _prefix(self, level: int | None, index: int) -> str:
        """The shared system prompt with this number: the same in every process, another one in every level and run."""
        rng = Random(f"prefix {self._name}/{level}/{index}")
        return self.counter.make_text(rng, self.traffic.first_tokens, stop=False)

    def first_messages(
        self, recording: int | None, system: str | None, tokens: int, text_rng: Random
    ) -> list[dict[str, Any]]:
        """Messages of a job's first model call, with a task of ``tokens`` or the recorded one.

        A recorded conversation gets some words of its own at its head: it may be played again, and jobs cut from one
        conversation begin alike.
        """
        if recording is None:
            return first_prompt(system, self.text(text_rng, tokens))
        job = self._recorded[recording]
        messages = [*map(_resendable, job.history), {"role": "user", "content": job.task}]
        at = next(index for index, message in enumerate(messages) if message["role"] == "user")
        own = self.counter.make_nonce(text_rng)
        messages[at] = {**messages[at], "content": f"{own}{messages[at]['content']}"}
        return [*first_prompt(system, "")[:-1], *messages]

    def text(self, text_rng: Random, tokens: int) -> str:
        """A task or a tool's result."""
        return self.counter.make_text(text_rng, tokens)

    def arguments(self, tool: Tool, words: int, text_rng: Random) -> str:
        """JSON that fits the tool's schema."""
        made = make_arguments(tool.schema, lambda count: self.text(text_rng, count), words, text_rng)
        return json.dumps(made, ensure_ascii=False)

    def _try_arguments(self) -> None:
        """Raise ``InputError`` where arguments cannot be made up for a tool."""
        toolset = self._openings[0].toolset
        for tool in toolset.tools.values():
            for seed in range(_TRIALS):
                complaint = tool.complaint(json.loads(self.arguments(tool, 8, Random(seed))))
                if complaint is not None:
                    raise InputError(
                        f"traffic {self.traffic.name!r}: no arguments can be made up for the tool {tool.name!r} of "
                        f"{toolset.source} ({complaint}); examples in its schema, or recorded jobs, are wanted"
                    )


def _resendable(message: dict[str, Any]) -> dict[str, Any]:
    """A recorded message whose calls every server takes back."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {
        **message,
        "content": message.get("content") or None,
        "tool_calls": [_resendable_call(call) for call in calls],
    }


def _resendable_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = sendable_arguments(ToolCall(call.get("id"), function["name"], function.get("arguments") or ""))
    return {**call, "function": {**function, "arguments": arguments}}
