"""A closed-loop client in virtual time: the workload of the published tables against the bare step loop, no sockets."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.engine import Engine, Sequence

CLIENT_S = 0.002  # from the last token of an answer to the arrival of the same user's next request
SPREAD_S = 0.001  # between the arrivals of requests that are sent "at the same instant"


@dataclass(frozen=True)
class Level:
    """One row of a published table, in seconds and tokens."""

    ttft_s: list[float]
    tpot_s: list[float]
    e2e_s: list[float]
    output_tokens: list[int]
    wall_s: float

    @property
    def output_tok_s(self) -> float:
        return sum(self.output_tokens) / self.wall_s

    @property
    def request_tok_s(self) -> float:
        """Mean over requests of output tokens / (E2E - TTFT)."""
        pairs = zip(self.output_tokens, self.e2e_s, self.ttft_s, strict=True)
        return float(np.mean([tokens / (e2e - ttft) for tokens, e2e, ttft in pairs]))


def published_lengths(rng: random.Random, requests: int) -> list[tuple[int, int]]:
    """(input, output) tokens: uniform 512 and 256, both plus or minus 10 %."""
    return [(rng.randint(461, 563), rng.randint(230, 282)) for _ in range(requests)]


class Client:
    """``users`` users share a list of requests; each sends the next one when its last has ended."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now_s = 0.0
        self._prompts = 0

    def run(self, lengths: list[tuple[int, int]], users: int) -> Level:
        start_s = self.now_s
        todo = iter(lengths)
        due: list[tuple[float, int]] = [(start_s + user * SPREAD_S, user) for user in range(min(users, len(lengths)))]
        done: list[Sequence] = []
        while len(done) < len(lengths):
            next_s = self.engine.next_s
            if due and (next_s is None or due[0][0] < next_s):
                self._send(*heapq.heappop(due), todo)
                continue
            step = self.engine.complete_step()
            for sequence in step.finished:
                done.append(sequence)
                heapq.heappush(due, (step.end_s + CLIENT_S, sequence.owner))
            self.now_s = step.end_s
        return _level(done, self.now_s - start_s)

    def _send(self, at_s: float, user: int, todo: Iterator[tuple[int, int]]) -> None:
        lengths = next(todo, None)
        if lengths is not None:
            self._prompts += 1  # a first token of its own: no two prompts share a block
            self.engine.submit(Sequence([self._prompts] * lengths[0], [0] * lengths[1], user), at_s)


def _level(done: list[Sequence], wall_s: float) -> Level:
    level = Level([], [], [], [], wall_s)
    for sequence in done:
        assert sequence.first_token_s is not None
        assert sequence.last_token_s is not None
        level.ttft_s.append(sequence.first_token_s - sequence.arrival_s)
        level.e2e_s.append(sequence.last_token_s - sequence.arrival_s)
        level.tpot_s.append((sequence.last_token_s - sequence.first_token_s) / (sequence.generated - 1))
        level.output_tokens.append(sequence.generated)
    return level


def published_sweep(engine: Engine, seed: int, levels: tuple[int, ...]) -> dict[int, Level]:
    """Two warm-up requests a level, then max(8, 4c) measured ones, a plain drain in between."""
    rng = random.Random(seed)
    client = Client(engine)
    results: dict[int, Level] = {}
    for users in levels:
        client.run(published_lengths(rng, 2), users)
        client.now_s += 1.0
        results[users] = client.run(published_lengths(rng, max(8, 4 * users)), users)
        client.now_s += 1.0
    return results
