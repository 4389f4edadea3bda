"""A job: an agent that calls the model, runs the tools it asks for, and calls again.

In *replay* the job has a course, recorded or drawn, that goes on whatever the model says. In *live* the model's own
calls are answered, in place of a tool, with text of a drawn length; a job ends with an answer without calls.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tokenswarm.agent_material import AgentMaterial
from tokenswarm.records import Divergence, SessionEnd
from tokenswarm.toolcalls import ToolCall
from tokenswarm.toolset import encodable, sendable_arguments
from tokenswarm.traffic.session import Answer, Heard
from tokenswarm.traffic.turn import Turn
from tokenswarm.trajectories import Step

_ID_BITS = 36  # nine hex digits: some chat templates take no other form of an id


class AgentSession:
    """Model calls of one job. Lengths, pauses and tools come from ``rng`` alone, words from ``text_rng``.

    Where the scenario forces calls, the last call of the course is told ``tool_choice: none``, so that it can answer.
    """

    def __init__(
        self, material: AgentMaterial, rng: Random, text_rng: Random, *, ordinal: int | None, level: int | None
    ) -> None:
        """``ordinal``: number of this session among those of its class; it chooses the recorded job and the place in
        the pool of shared prompts. ``level``: the one whose shared prompts it has."""
        traffic = material.traffic
        self.keeps_answers = traffic.mode == "live"
        self._traffic = traffic
        self._material = material
        self._texts = text_rng
        self._lengths, self._tools = Random(rng.getrandbits(64)), Random(rng.getrandbits(64))
        recording = material.recording(rng, ordinal)
        self._recorded = [] if recording is None else material.trajectory(recording).steps
        self._toolset, self._tool_choice = material.tools(recording)
        self._steps = len(self._recorded) or traffic.steps.sample_int(rng)  # of the whole course
        self._head = material.head(recording, level, ordinal, rng, text_rng)
        task_tokens = traffic.task_tokens.sample_int(rng)
        self._messages = material.first_messages(recording, self._head.system, task_tokens, text_rng)
        self._input_tokens = material.first_tokens(recording, task_tokens)
        self._ids: set[str] = set()
        self._played = 0
        self._step = Step()  # of the course, that the last turn belongs to
        self._pause_s = 0.0
        self._over = False

    def next(self) -> Turn | None:
        if self._over:
            return None
        first = self._played == 0
        self._played += 1
        if not self.keeps_answers:
            self._step = self._recorded[self._played - 1] if self._recorded else self._made_up()
        drawn = self._traffic.output_tokens.sample_int(self._lengths)
        return Turn(
            messages=self._messages.copy(),
            max_tokens=self._step.output_tokens or drawn,
            input_tokens=self._input_tokens if first else None,
            pause_s=self._pause_s,
            ignore_eos=self._traffic.exact_output,
            tools=self._toolset.definitions,
            tool_choice=self._choice,
            prefix=self._head.name,
            prefix_tokens=self._head.tokens,
        )

    def hear(self, answer: Answer) -> Heard:
        answer = Answer(answer.text, [encodable(call) for call in answer.calls], answer.cut)
        problems = [self._toolset.judge(call).problem for call in answer.calls]
        if answer.cut and problems and self._traffic.exact_output:
            problems[-1] = None  # we asked for a length in which the call had no place: not the model's mistake
        compares = bool(self._recorded) and self._choice != "none"
        heard = Heard(
            end=self._end(answer),
            divergence=divergence(self._step.calls, answer.calls) if compares else None,
            malformed_calls=sum(problem is not None for problem in problems),
        )
        self._over = heard.end is not None
        if not self._over and self.keeps_answers:
            self._run(answer, problems)
        elif not self._over:
            self._go_on()
        return heard

    @property
    def _choice(self) -> str | dict[str, Any]:
        """``tool_choice`` of the last turn."""
        answers = self._played >= self._steps if self.keeps_answers else not self._step.calls
        return "none" if answers and self._tool_choice != "auto" else self._tool_choice

    def _end(self, answer: Answer) -> SessionEnd | None:
        done = not answer.calls if self.keeps_answers else self._played >= self._steps
        if done:
            return SessionEnd.DONE
        return SessionEnd.STEP_LIMIT if self._played >= self._traffic.step_limit else None

    def _made_up(self) -> Step:
        """The next step of a drawn course: one call of some tool, or the answer at its end."""
        if self._played >= self._steps:
            return Step()
        traffic, material = self._traffic, self._material
        name = self._tools.choice(self._toolset.names)
        words = traffic.argument_tokens.sample_int(self._tools)
        arguments = material.arguments(self._toolset.tools[name], words, self._texts)
        result = material.text(self._texts, traffic.tool_result_tokens.sample_int(self._tools))
        return Step(calls=[ToolCall(None, name, arguments)], results=[result])

    def _go_on(self) -> None:
        """Put what the course says in place of the model's answer."""
        step = self._step
        drawn_s = self._traffic.tool_time_s.sample(self._tools)
        self._pause_s = drawn_s if step.tool_time_s is None else step.tool_time_s
        calls = [ToolCall(None, call.name, call.arguments) for call in step.calls]
        self._add(step.text, calls, step.results)

    def _run(self, answer: Answer, problems: list[str | None]) -> None:
        """Answer the model's calls; several run at the same time. What cannot be run is told at once."""
        traffic = self._traffic
        self._pause_s = 0.0
        results = []
        for problem in problems:
            time_s = traffic.tool_time_s.sample(self._tools)
            tokens = traffic.tool_result_tokens.sample_int(self._tools)
            if problem is None:
                self._pause_s = max(self._pause_s, time_s)
                results.append(self._material.text(self._texts, tokens))
            else:
                results.append(problem)
        self._add(answer.text, answer.calls, results)

    def _add(self, text: str, calls: list[ToolCall], results: list[str]) -> None:
        """An assistant's message with calls and the messages with their results."""
        sent: list[dict[str, Any]] = []
        answers: list[dict[str, Any]] = []
        for call, result in zip(calls, results, strict=True):
            id_ = self._id(call.id)
            function = {"name": call.name or "unknown", "arguments": sendable_arguments(call)}
            sent.append({"id": id_, "type": "function", "function": function})
            answers.append({"role": "tool", "tool_call_id": id_, "content": result})
        self._messages.append({"role": "assistant", "content": text or None, "tool_calls": sent})
        self._messages += answers

    def _id(self, given: str | None) -> str:
        """The model's id of a call, or another one where it is missing or taken."""
        while not given or given in self._ids:
            given = f"{self._texts.getrandbits(_ID_BITS):09x}"
        self._ids.add(given)
        return given


def divergence(recorded: list[ToolCall], made: list[ToolCall]) -> Divergence:
    """How the calls that a model made compare with the recorded ones."""
    if not recorded or not made:
        if recorded:
            return Divergence.NO_CALL
        return Divergence.CALLED if made else Divergence.SAME
    if [call.name for call in recorded] != [call.name for call in made]:
        return Divergence.OTHER_TOOLS
    alike = all(_meaning(one) == _meaning(other) for one, other in zip(recorded, made, strict=True))
    return Divergence.SAME if alike else Divergence.OTHER_ARGUMENTS


def _meaning(call: ToolCall) -> str:
    """The arguments without what JSON leaves open: order of keys and white space."""
    try:
        return json.dumps(json.loads(call.arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return call.arguments
