"""Closed-loop clients in virtual time against the bare step loop, no sockets: the workload of the published tables, and
agents that share a system prompt.
"""

from __future__ import annotations

import heapq
import itertools
import math
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


@dataclass(frozen=True)
class Call:
    """One model call of a replayed agent: after ``pause_s`` in a tool the prompt has ``added`` tokens more, the
    recorded course and not what the model said, and ``output`` tokens answer it.
    """

    added: int
    output: int
    pause_s: float = 0.0


@dataclass(frozen=True)
class Job:
    """A conversation of several calls, on a system prompt that is everybody's (``shared``) or this job's own."""

    system: int
    calls: tuple[Call, ...]
    shared: bool = True


class Agent:
    """One user, who does one job after the other and keeps the conversation of the present one."""

    def __init__(self, jobs: Iterator[Job], fresh: Iterator[int]) -> None:
        self._jobs = jobs
        self._fresh = fresh
        self._calls: list[Call] = []
        self._prompt: list[int] = []
        self._begun_s = 0.0

    def ask(self, at_s: float) -> Sequence | None:
        """The next request of the job, or the first one of the next job; ``None`` when there are no more jobs."""
        if not self._calls:
            job = next(self._jobs, None)
            if job is None:
                return None
            self._calls = list(job.calls)
            self._prompt = [0 if job.shared else next(self._fresh)] * job.system
            self._begun_s = at_s
        call = self._calls.pop(0)
        self._prompt += [next(self._fresh)] * call.added
        return Sequence(list(self._prompt), [next(self._fresh)] * call.output, self)

    def take(self, end_s: float) -> tuple[float, float | None]:
        """When the next request comes, and how long the job took if that was its last answer."""
        if self._calls:
            return end_s + CLIENT_S + self._calls[0].pause_s, None
        return end_s + CLIENT_S, end_s - self._begun_s


class Agents:
    """``users`` agents share a list of jobs; of nobody's text but the shared system prompt is anything anybody else's.

    After :meth:`run`: seconds of each job, tools included, in order of completion, and of all of them together.
    """

    def __init__(self, engine: Engine, jobs: list[Job], users: int) -> None:
        self.engine = engine
        self.job_s: list[float] = []
        self.wall_s = 0.0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        todo, self._fresh = iter(jobs), itertools.count(1)
        self._due = [(user * SPREAD_S, user, Agent(todo, self._fresh)) for user in range(users)]

    @property
    def jobs_per_hour(self) -> float:
        return len(self.job_s) / self.wall_s * 3600

    def run(self) -> Agents:
        while self._due or self.engine.next_s is not None:
            next_s = self.engine.next_s
            if self._due and (next_s is None or self._due[0][0] < next_s):
                at_s, _, agent = heapq.heappop(self._due)
                request = agent.ask(at_s)
                if request is not None:
                    self.engine.submit(request, at_s)
            else:
                step = self.engine.complete_step()
                for answer in step.finished:
                    self._take(answer, step.end_s)
        return self

    def _take(self, answer: Sequence, end_s: float) -> None:
        agent: Agent = answer.owner
        next_s, job_s = agent.take(end_s)
        heapq.heappush(self._due, (next_s, next(self._fresh), agent))
        self.prompt_tokens += len(answer.prompt)
        self.cached_tokens += answer.cached_tokens
        if job_s is not None:
            self.job_s.append(job_s)
            self.wall_s = end_s


def coding_jobs(rng: random.Random, jobs: int) -> list[Job]:
    """As in scenarios/published/spark-mtp1-or-prefix-cache.yaml: the first call has the task, each other one the call
    before it as it was recorded and the result of its tool.
    """
    return [_coding_job(rng) for _ in range(jobs)]


def _coding_job(rng: random.Random) -> Job:
    steps = min(30, 1 + int(math.log(1.0 - rng.random()) / math.log(1.0 - 1.0 / 6.0)))  # geometric, mean 6
    calls = [Call(200, _lognormal(rng, 120, 0.7, 2000))]
    for _ in range(steps - 1):
        result = _lognormal(rng, 400, 1.0, 8000)
        pause_s = min(60.0, rng.lognormvariate(math.log(1.2), 0.8))
        calls.append(Call(30 + result, _lognormal(rng, 120, 0.7, 2000), pause_s))
    return Job(6000, tuple(calls), rng.random() < 0.9)


def _lognormal(rng: random.Random, median: float, sigma: float, most: int) -> int:
    return max(2, min(most, round(rng.lognormvariate(math.log(median), sigma))))
