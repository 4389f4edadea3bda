"""Blocks of traffic classes alone and together in virtual time: users in a closed loop on the engine's step loop.

Blocks, their order and their users come from the product's ``tokenswarm.levels``. What happened is kept as rows of
``requests.csv`` and ``levels.csv``. Where each class has an engine of its own, the company of others costs nothing.
"""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from simulator.engine import Engine, Sequence
from simulator.settings import Curve, EngineSettings
from tokenswarm.levels import planned_levels
from tokenswarm.records import HEADER, Phase, RequestRecord, SessionEnd, to_csv
from tokenswarm.rundir import HEADERS, csv_lines
from tokenswarm.scenario import parse_scenario
from tokenswarm.schedule import FILL_BLOCK, Level

CLIENT_S = 0.001  # from an answer's end to the next request, and between the first requests of two users
SPAWN_S = 1.0  # between two blocks


def engine_settings(**changes: Any) -> EngineSettings:
    """A step takes 50 ms and 0.1 ms for each prompt token computed in it, whoever decodes, and scatters by 10 %."""
    settings: dict[str, Any] = {
        "decode_step_s": Curve({0: 0.050}),
        "prefill_token_s": 0.0001,
        "prefill_step_tokens": 10_000_000,
        "prefill_request_tokens": 10_000_000,
        "max_num_seqs": 1024,
        "block_size": 16,
        "kv_blocks": 50_000,
        "prefix_cache": False,
        "step_jitter": 0.1,
    }
    return EngineSettings(**(settings | changes))


@dataclass(frozen=True)
class UserClass:
    """What is a range is drawn evenly from it; prompts are lognormal around ``prompt_tokens``."""

    name: str
    weight: int
    prompt_tokens: int
    output_tokens: tuple[int, int]
    think_s: tuple[float, float] = (0.0, 0.0)  # before every request
    sigma: float = 0.5


def scenario_text(classes: list[UserClass], blocks: int, block_s: float, warmup_s: float) -> str:
    names = "".join(f"  - {{name: {one.name}, weight: {one.weight}}}\n" for one in classes)
    load = f"{{users: {sum(one.weight for one in classes)}, duration_s: {block_s}, warmup_s: {warmup_s}}}"
    return f"traffic:\n{names}load: {{closed: {load}}}\ninterference: {{blocks: {blocks}}}\n"


@dataclass
class Job:
    """One request on its way, a session of its own."""

    user: int
    traffic: int
    number: int
    phase: Phase
    sent_s: float


@dataclass
class VirtualBlocks:
    """Plays all blocks of a measurement of interference; ``engines`` has one engine for each class, or all the same."""

    engines: list[Engine]
    classes: list[UserClass]
    seed: int
    blocks: int = 6
    block_s: float = 20.0
    warmup_s: float = 3.0
    now_s: float = 0.0
    rows: list[RequestRecord] = field(default_factory=list)
    level_rows: list[dict[str, Any]] = field(default_factory=list)
    _due: list[tuple[float, int, int, int]] = field(default_factory=list)  # moment, order, user, class
    _numbers: list[int] = field(default_factory=list)
    _ends_s: tuple[float, float] = (0.0, 0.0)  # of warm-up and block
    _rng: Random = field(default_factory=Random)

    @property
    def levels(self) -> tuple[Level, ...]:
        return planned_levels(parse_scenario(scenario_text(self.classes, self.blocks, self.block_s, self.warmup_s)))

    def run(self) -> VirtualBlocks:
        for level in self.levels:
            self._play(level)
        return self

    def _play(self, level: Level) -> None:
        started_s = self.now_s = self.now_s + SPAWN_S
        self._rng = Random(f"{self.seed}/{level.index}")
        self._numbers = [FILL_BLOCK + index for index in range(len(self.classes))]
        self._ends_s = started_s + level.warmup_s, started_s + level.warmup_s + (level.duration_s or 0.0)
        user = 0
        for index, users in enumerate(level.quotas):
            for _ in range(users):
                self._free(user, index, started_s + user * CLIENT_S)
                user += 1
        while self._due or any(engine.next_s is not None for engine in self.engines):
            self._next_event(level)
        self.level_rows.append(
            {
                "level": level.index,
                "concurrency": level.concurrency,
                "state": "complete",
                "started_s": started_s,
                "measured_started_s": self._ends_s[0],
                "measured_ended_s": self.now_s,
                "ended_s": self.now_s,
            }
        )

    def _next_event(self, level: Level) -> None:
        busy = [engine for engine in self.engines if engine.next_s is not None]
        engine = min(busy, key=lambda one: one.next_s or 0.0, default=None)
        if self._due and (engine is None or self._due[0][0] < (engine.next_s or 0.0)):
            self.now_s, _, user, index = heapq.heappop(self._due)
            self._send(user, index)
            return
        assert engine is not None
        step = engine.complete_step()
        self.now_s = step.end_s
        for sequence in step.finished:
            self._note(level, sequence)
            self._free(sequence.owner.user, sequence.owner.traffic, self.now_s + CLIENT_S)

    def _free(self, user: int, index: int, at_s: float) -> None:
        """The user thinks and sends; nothing that would be sent after the block's end is."""
        at_s += self._rng.uniform(*self.classes[index].think_s)
        if at_s < self._ends_s[1]:
            heapq.heappush(self._due, (at_s, self._rng.getrandbits(32), user, index))

    def _send(self, user: int, index: int) -> None:
        one = self.classes[index]
        self._numbers[index] += len(self.classes)
        phase = Phase.WARMUP if self.now_s < self._ends_s[0] else Phase.MEASURED
        job = Job(user, index, self._numbers[index], phase, self.now_s)
        tokens = max(1, round(one.prompt_tokens * self._rng.lognormvariate(0.0, one.sigma)))
        answer = self._rng.randint(*one.output_tokens)
        self.engines[index].submit(Sequence(range(tokens), range(answer), job), self.now_s)

    def _note(self, level: Level, sequence: Sequence) -> None:
        job: Job = sequence.owner
        late = job.phase is Phase.MEASURED and self.now_s > self._ends_s[1]
        self.rows.append(
            RequestRecord(
                level=level.index,
                concurrency=level.concurrency,
                phase=Phase.DRAIN if late else job.phase,
                ticket=job.number,
                worker="local",
                user=job.user,
                traffic=self.classes[job.traffic].name,
                session=f"{level.index}.{job.phase}.{job.number}",
                turn=0,
                session_end=SessionEnd.DONE,
                scheduled_s=job.sent_s,
                sent_s=job.sent_s,
                first_token_s=sequence.first_token_s,
                first_output_s=sequence.first_token_s,
                last_token_s=sequence.last_token_s,
                finished_s=sequence.last_token_s,
                prompt_tokens=len(sequence.prompt),
                output_tokens=len(sequence.answer),
                token_source="usage",
            )
        )


def write_run(folder: Path, played: VirtualBlocks) -> Path:
    """The files of a run with these blocks that the analysis needs."""
    folder.mkdir()
    (folder / "requests.csv").write_text(HEADER + to_csv(played.rows), encoding="utf-8")
    names = HEADERS["levels"]
    lines = csv_lines([[row.get(name) for name in names] for row in played.level_rows])
    (folder / "levels.csv").write_text(",".join(names) + "\n" + lines, encoding="utf-8")
    levels = [
        {
            "level": level.index,
            "concurrency": level.concurrency,
            "label": level.label,
            "arms": "",
            "duration_s": level.duration_s,
            "tail": "fill",
            "round": level.round,
            "users_by_class": {
                one.name: users for one, users in zip(played.classes, level.quotas, strict=True) if users
            },
        }
        for level in played.levels
    ]
    run = {"format": 1, "name": "virtual", "target": {"simulated": True}, "levels": levels}
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    (folder / "end.json").write_text('{"state": "finished"}', encoding="utf-8")
    return folder
