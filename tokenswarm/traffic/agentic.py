"""A job: an agent that calls the model, runs the tools it asks for, and calls again."""

from __future__ import annotations

from random import Random

from tokenswarm.agent_material import AgentMaterial
from tokenswarm.traffic.session import Answer, Heard
from tokenswarm.traffic.turn import Turn


class AgentSession:
    keeps_answers = False

    def __init__(
        self, material: AgentMaterial, rng: Random, text_rng: Random, *, ordinal: int | None, level: int | None
    ) -> None:
        raise NotImplementedError

    def next(self) -> Turn | None:
        raise NotImplementedError

    def hear(self, answer: Answer) -> Heard:
        raise NotImplementedError
