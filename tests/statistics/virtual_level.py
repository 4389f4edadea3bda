"""Levels of a prefix-cache test in virtual time: users in a closed loop on the engine's step loop, no sockets.

Pairs, arms and cache keys come from the product's ``tokenswarm.arms``; lengths and pauses from a seed, the same for
both sessions of a pair. What happened is kept as rows of ``requests.csv``. One session can be played again in the other
arm with everything else unchanged: what the paired test estimates without doing so.
"""

from __future__ import annotations

import heapq
import pickle
from dataclasses import dataclass, field
from random import Random
from typing import Any

from simulator.engine import Engine, Sequence
from simulator.settings import Curve, EngineSettings
from tokenswarm import arms
from tokenswarm.arms import COLD, WARM, Isolation
from tokenswarm.records import Phase, RequestRecord, SessionEnd
from tokenswarm.schedule import FILL_BLOCK, Arms, Level, Ticket

STEP_S, PREFILL_TOKEN_S, BLOCK_TOKENS = 0.005, 0.0004, 16
CLIENT_S = 0.001  # from an answer's end to the next request, and between the first requests of two users
_PHASES = {Phase.WARMUP: 1, Phase.MEASURED: 2, Phase.FILL: 3}


def engine_settings(**changes: Any) -> EngineSettings:
    """A step takes 5 ms and 0.4 ms for each prompt token computed in it, whoever decodes."""
    settings: dict[str, Any] = {
        "decode_step_s": Curve({0: STEP_S}),
        "prefill_token_s": PREFILL_TOKEN_S,
        "prefill_step_tokens": 10_000_000,
        "prefill_request_tokens": 10_000_000,
        "max_num_seqs": 1024,
        "block_size": BLOCK_TOKENS,
        "kv_blocks": 4_000,
    }
    return EngineSettings(**(settings | changes))


def paired_level(users: int, sessions: int, *, index: int = 0, kind: Arms = Arms.PAIRED) -> Level:
    return Level(index=index, concurrency=users, sessions=sessions, warmup_sessions=2, arms=kind)


@dataclass(frozen=True)
class Traffic:
    """Agents whose prompts begin with the same ``prefix_tokens``; what is a range is drawn evenly from it."""

    prefix_tokens: int = 400
    steps: tuple[int, int] = (3, 3)
    message_tokens: tuple[int, int] = (10, 40)  # the task, and each tool result
    output_tokens: tuple[int, int] = (8, 24)
    tool_s: tuple[float, float] = (1.0, 4.0)


@dataclass
class Job:
    """One session on its way. Texts with the same ``words`` are the same."""

    ticket: Ticket
    arm: str | None
    words: tuple[int, ...]
    messages: list[int]
    outputs: list[int]
    pauses_s: list[float]
    prompt: list[int]
    turn: int = 0
    sent_s: float = 0.0
    history: int = 0

    def say(self, speaker: int, tokens: int) -> None:
        """Add a text of so many tokens, all equal: the blocks of two texts differ where their tokens do."""
        self.prompt = self.prompt + [hash((*self.words, self.turn, speaker))] * tokens


@dataclass
class VirtualLevel:
    """Plays ``level`` on ``engine`` from ``now_s`` on. ``keep``: numbers of measured sessions to be flipped later."""

    engine: Engine
    traffic: Traffic
    level: Level
    seed: int
    now_s: float = 0.0
    isolation: Isolation = field(default_factory=lambda: Isolation(by="salt", cold="session"))
    reports_cached: bool = True
    keep: frozenset[int] = frozenset()
    rows: list[RequestRecord] = field(default_factory=list)
    moments: dict[int, bytes] = field(default_factory=dict)  # everything, just before a kept session was taken
    flipped: tuple[int, str] | None = None
    _phase: Phase = Phase.WARMUP
    _count: int = 0
    _taken: int = 0
    _fills: int = 0
    _ended: set[int] = field(default_factory=set)
    _due: list[tuple[float, int, Job | None]] = field(default_factory=list)  # None: the user is free
    _serial: int = 0

    def run(self) -> VirtualLevel:
        """Warm-up, then the measured sessions; who is free before the last has ended starts fill sessions."""
        self._play_phase(Phase.WARMUP, self.level.warmup_sessions)
        self._play_phase(Phase.MEASURED, self.level.sessions or 0)
        return self

    def flip(self, number: int) -> list[RequestRecord]:
        """The requests of measured session ``number`` had it been in the other arm, and nothing else different.

        In the other arm its words are its own: its partner's would be found in the cache, which no pair allows.
        """
        again: VirtualLevel = pickle.loads(self.moments[number])
        factual = arms.arm_of(Ticket(self.level, Phase.MEASURED, number, 0.0), self.seed)
        again.flipped = number, COLD if factual == WARM else WARM
        again._play(until=number)
        return again.measured(number)

    def measured(self, number: int) -> list[RequestRecord]:
        return [row for row in self.rows if row.ticket == number and row.phase == Phase.MEASURED]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"rows": [], "moments": {}, "keep": frozenset()}

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _play_phase(self, phase: Phase, count: int) -> None:
        self._phase, self._count, self._taken, self._ended = phase, count, 0, set()
        for user in range(self.level.concurrency):
            self._at(self.now_s + (user + 1) * CLIENT_S, None)
        self._play()
        self._due.clear()
        while self.engine.next_s is not None:  # fill sessions get no further turn
            self.now_s = self.engine.next_s
            for sequence in self.engine.complete_step().finished:
                self._note(sequence)

    def _play(self, until: int | None = None) -> None:
        engine, due = self.engine, self._due
        while len(self._ended) < self._count and until not in self._ended:
            if due and (engine.next_s is None or due[0][0] < engine.next_s):
                self._remember_moment()
                self.now_s, _, job = heapq.heappop(due)
                job = job or self._next_job()
                if job is not None:
                    self._send(job)
                continue
            step = engine.complete_step()
            self.now_s = step.end_s
            for sequence in step.finished:
                self._note(sequence)
                self._go_on(sequence.owner)

    def _at(self, at_s: float, job: Job | None) -> None:
        self._serial += 1
        heapq.heappush(self._due, (at_s, self._serial, job))

    def _remember_moment(self) -> None:
        takes = self._due[0][2] is None and self._phase is Phase.MEASURED
        if takes and self._taken in self.keep and self._taken not in self.moments:
            self.moments[self._taken] = pickle.dumps(self)

    # -- one session -------------------------------------------------------------------------------------------------

    def _next_job(self) -> Job | None:
        if self._taken < self._count:
            self._taken += 1
            return self._job(Ticket(self.level, self._phase, self._taken - 1, self.now_s))
        if self._phase is Phase.WARMUP:
            return None
        self._fills += 1
        return self._job(Ticket(self.level, Phase.FILL, FILL_BLOCK + self._fills, self.now_s))

    def _job(self, ticket: Ticket) -> Job:
        pair = arms.pair_of(ticket)
        number = ticket.number if pair is None else pair
        rng = Random(f"{self.seed}/{self.level.index}/{ticket.phase}/{number}")
        arm, other = arms.arm_of(ticket, self.seed), 0
        if ticket.phase is Phase.MEASURED and self.flipped is not None and self.flipped[0] == ticket.number:
            arm, other = self.flipped[1], 1
        traffic = self.traffic
        steps = rng.randint(*traffic.steps)
        return Job(
            ticket=ticket,
            arm=arm,
            words=(self.level.index, _PHASES[ticket.phase], number, other),
            messages=[rng.randint(*traffic.message_tokens) for _ in range(steps)],
            outputs=[rng.randint(*traffic.output_tokens) for _ in range(steps)],
            pauses_s=[rng.uniform(*traffic.tool_s) for _ in range(steps)],
            prompt=[self.level.index + 1] * traffic.prefix_tokens,
        )

    def _send(self, job: Job) -> None:
        job.say(0, job.messages[job.turn])
        job.sent_s = self.now_s
        key = None
        if job.arm is not None:
            key = arms.cache_key(job.arm, self.isolation, job.ticket, job.turn, str(self.seed))
        self.engine.submit(Sequence(job.prompt, [-1] * job.outputs[job.turn], job, key), self.now_s)

    def _go_on(self, job: Job) -> None:
        """The recording goes on with an answer of its own, as long as the model's."""
        if job.turn + 1 == len(job.outputs):
            if job.ticket.phase is self._phase:
                self._ended.add(job.ticket.number)
            self._at(self.now_s + CLIENT_S, None)
            return
        job.history = len(job.prompt)
        job.say(1, job.outputs[job.turn])
        job.turn += 1
        self._at(self.now_s + CLIENT_S + job.pauses_s[job.turn], job)

    def _note(self, sequence: Sequence) -> None:
        job: Job = sequence.owner
        self.rows.append(
            RequestRecord(
                level=self.level.index,
                concurrency=self.level.concurrency,
                phase=job.ticket.phase,
                ticket=job.ticket.number,
                traffic="agents",
                session=f"{self.level.index}.{job.ticket.phase}.{job.ticket.number}",
                turn=job.turn,
                session_end=SessionEnd.DONE if job.turn + 1 == len(job.outputs) else None,
                arm=job.arm,
                pair=arms.pair_of(job.ticket),
                scheduled_s=job.sent_s,
                sent_s=job.sent_s,
                first_token_s=sequence.first_token_s,
                first_output_s=sequence.first_token_s,
                last_token_s=sequence.last_token_s,
                finished_s=sequence.last_token_s,
                prompt_tokens=len(sequence.prompt),
                prefix_tokens=self.traffic.prefix_tokens,
                history_tokens=job.history,
                cached_tokens=sequence.cached_tokens if self.reports_cached else None,
                output_tokens=len(sequence.answer),
            )
        )
