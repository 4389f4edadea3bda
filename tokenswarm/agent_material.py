"""What the jobs of one agentic class are made of: system prompts, tools, tasks, tool results and recordings."""

from __future__ import annotations

from tokenswarm.tokens import TokenCounter
from tokenswarm.traffic_settings import AgenticTraffic


class AgentMaterial:
    reused = 0

    def __init__(self, traffic: AgenticTraffic, counter: TokenCounter, *, seed: int = 7, run: str = "") -> None:
        raise NotImplementedError

    def shortage(self, sessions: int) -> str | None:
        raise NotImplementedError
