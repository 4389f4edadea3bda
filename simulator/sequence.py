"""What the step loop works on: a sequence on its way through the engine, and a step that has ended."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from enum import IntEnum
from typing import Any

from simulator.encoder import PlacedImage
from simulator.kv import salted_root


class State(IntEnum):
    """Where a sequence is."""

    WAITING = 0
    RUNNING = 1
    FINISHED = 2
    CANCELLED = 3


class Sequence:
    """One prompt and the answer it is going to get; the driver may hang its own object on ``owner``.

    ``prompt`` and ``answer`` are token ids; the answer's length decides when the sequence ends. ``images`` say where in
    the prompt images are, whose token ids differ with their content. It shares blocks only with sequences of the same
    ``salt``. Times are virtual seconds, ``None`` until they have happened.
    """

    __slots__ = (
        "answer",
        "arrival_s",
        "blocks",
        "cached_tokens",
        "computed",
        "encoded",
        "first_token_s",
        "gained",
        "generated",
        "hashes",
        "images",
        "last_token_s",
        "owner",
        "place",
        "prompt",
        "room",
        "root",
        "started_s",
        "state",
        "to_prefill",
    )

    def __init__(
        self,
        prompt: Seq[int],
        answer: Seq[int],
        owner: Any = None,
        salt: str | None = None,
        images: Seq[PlacedImage] = (),
    ) -> None:
        self.prompt = prompt
        self.answer = answer
        self.owner = owner
        self.images = images
        self.encoded = 0  # of the images, those that were encoded, or need not be
        self.state = State.WAITING
        self.arrival_s = 0.0
        self.started_s: float | None = None  # the first step that worked on it began
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.cached_tokens = 0
        self.generated = 0
        self.gained = 1  # tokens of the last step that gave it any
        self.place = 0  # of its text among all that drafts are made for
        self.computed = 0  # tokens whose keys and values are in the blocks
        self.to_prefill = len(prompt)
        self.room = 0  # tokens that still fit into the last block
        self.blocks: list[int] = []
        self.root = salted_root(salt)  # what the hash of the first block continues
        self.hashes: list[int] = []  # of full blocks, prompt first, then answer


class Step:
    """What one finished step did: ``decoded`` sequences got a further token, ``first`` their first one,
    ``resumed`` their next one, ``resumed_gaps_s`` after the one before, since they had lost their blocks meanwhile;
    ``finished`` are among these. ``accepted`` draft tokens came on top of that one token each.
    """

    __slots__ = (
        "accepted",
        "decoded",
        "end_s",
        "finished",
        "first",
        "prefill_tokens",
        "resumed",
        "resumed_gaps_s",
        "start_s",
    )

    def __init__(self, start_s: float, end_s: float, prefill_tokens: int) -> None:
        self.start_s = start_s
        self.end_s = end_s
        self.prefill_tokens = prefill_tokens
        self.decoded: list[Sequence] = []
        self.first: list[Sequence] = []
        self.resumed: list[Sequence] = []
        self.resumed_gaps_s: list[float] = []
        self.finished: list[Sequence] = []
        self.accepted = 0
