"""A session of a trace: turns of recorded lengths after recorded pauses, whatever the model says."""

from __future__ import annotations

from random import Random

from tokenswarm.records import SessionEnd
from tokenswarm.tokens import PARAGRAPH
from tokenswarm.trace import TraceSession, TraceTurn
from tokenswarm.trace_material import TraceMaterial
from tokenswarm.traffic.session import Answer, Heard
from tokenswarm.traffic.turn import Turn
from tokenswarm.traffic_settings import TraceTraffic


class RecordedSession:
    """Turns of one session. ``text_rng`` chooses the words that no other session has."""

    keeps_answers = True

    def __init__(
        self, traffic: TraceTraffic, material: TraceMaterial, recorded: TraceSession, text_rng: Random
    ) -> None:
        self._traffic = traffic
        self._material = material
        self._recorded = recorded
        self._texts = text_rng
        self._prefix_tokens = material.prefix_tokens(recorded)
        self._played = 0
        self._messages: list[dict[str, str]] = []
        self._text = ""

    def next(self) -> Turn | None:
        if self._played >= len(self._recorded.turns):
            return None
        turn = self._turn(self._recorded.turns[self._played])
        self._played += 1
        return turn

    def hear(self, answer: Answer) -> Heard:
        self._messages.append({"role": "assistant", "content": answer.text})
        self._text += answer.text + PARAGRAPH
        return Heard(end=SessionEnd.DONE if self._played >= len(self._recorded.turns) else None)

    def _turn(self, turn: TraceTurn) -> Turn:
        material, recorded = self._material, self._recorded
        if self._played == 0:
            text, asked = material.first_prompt(recorded, self._texts)
        else:
            text, asked = material.later_message(turn.input_tokens, self._texts)
        completion = material.api == "completions"
        self._text += text
        self._messages.append({"role": "user", "content": text})
        return Turn(
            messages=None if completion else self._messages.copy(),
            prompt=self._text if completion else None,
            max_tokens=turn.output_tokens,
            input_tokens=asked,
            pause_s=0.0 if self._played == 0 else turn.pause_s,
            ignore_eos=self._traffic.ignore_eos,
            prefix=recorded.prefix,
            prefix_tokens=self._prefix_tokens,
        )
