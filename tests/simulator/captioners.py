"""Streams of captions in virtual time against the bare step loop and the multimodal cache: the workload of
scenarios/published/rtx-captioning.yaml.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml
from closed_loop import CLIENT_S, SPREAD_S
from sim_process import ROOT

from simulator.encoder import PlacedImage
from simulator.engine import Engine, Sequence, Step
from simulator.mm_cache import MultimodalCache
from simulator.settings import load_settings
from simulator.vision import Vision

# Chat template: three tokens a prompt, four a message, two around an image.
FIRST_PROMPT = 3 + 4 + 2
NEXT_PROMPT = 4 + 4  # the answer's message and the question's; the beginning of an answer was part of the prompt before


@dataclass
class Line:
    """What an engine prints of itself, over the measured time."""

    prompt_tok_s: float
    generated_tok_s: float
    running: float
    waiting: float
    kv_usage: float
    prefix_share: float
    image_share: float


@dataclass
class Stream:
    """One user's present session."""

    image: PlacedImage | None = None
    prompt: list[int] = field(default_factory=list)
    turns: int = 0


class Captioners:
    """The streams of the scenario, with ``seed`` for sizes and lengths, on the preset that it names."""

    def __init__(self, seed: int) -> None:
        scenario = yaml.safe_load((ROOT / "scenarios/published/rtx-captioning.yaml").read_text())
        self._traffic: dict[str, Any] = scenario["traffic"][0]
        self._load: dict[str, Any] = scenario["load"]["closed"]
        settings = load_settings(scenario["target"]["simulator"])
        assert settings.vision is not None
        self._vision: Vision = settings.vision
        self._images = MultimodalCache(settings.vision.mm_cache_gib)
        self._engine = Engine(settings.engine(), seed)
        self._rng = random.Random(seed)
        self._fresh = itertools.count(1)
        self._due = [(user * SPREAD_S, user, Stream()) for user in range(self._load["users"])]
        self._prompt_tokens = 0
        self._generated = 0
        self._looked_up: list[int] = []  # of one image each, 1 where it was found
        self._gauges: list[tuple[int, int, float]] = []  # running, waiting, KV usage after each measured step

    def run(self) -> Line:
        """Warm-up, then the measured time."""
        begin_s = self._load["warmup_s"]
        end_s = begin_s + self._load["duration_s"]
        while True:
            next_s = self._engine.next_s
            if self._due and (next_s is None or self._due[0][0] < next_s):
                at_s, _, stream = heapq.heappop(self._due)
                self._ask(stream, at_s)
                continue
            step = self._engine.complete_step()
            if step.end_s > end_s:
                return self._line()
            if step.end_s > begin_s:
                self._note(step)
            for answer in step.finished:
                heapq.heappush(self._due, (step.end_s + CLIENT_S, next(self._fresh), answer.owner))

    def _ask(self, stream: Stream, at_s: float) -> None:
        if stream.turns == self._traffic["turns"]:
            stream.turns = 0
        if stream.turns == 0:
            stream.image, stream.prompt = self._new_image()
        else:
            stream.prompt = stream.prompt + [0] * (NEXT_PROMPT + self._traffic["followup_tokens"])
        assert stream.image is not None
        stream.turns += 1
        size = self._vision.cached_bytes(stream.image.stop - stream.image.start)
        hits = self._images.look_up([(stream.image.key, size)])
        if at_s > self._load["warmup_s"]:
            self._looked_up.append(hits)
        output = self._rng.randint(*self._traffic["output_tokens"]["uniform"])
        self._engine.submit(Sequence(stream.prompt, [0] * output, stream, images=(stream.image,)), at_s)
        stream.prompt = stream.prompt + [0] * output

    def _new_image(self) -> tuple[PlacedImage, list[int]]:
        """An image nobody has seen, and the first prompt about it."""
        pixels = self._rng.uniform(*self._traffic["images"]["synthetic"]["pixels"]["uniform"])
        aspect = self._rng.lognormvariate(0.0, 0.3)
        tokens = self._vision.tokens(round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect)))
        key = next(self._fresh)
        prompt = [-key] * (FIRST_PROMPT + tokens + self._traffic["question_tokens"])
        return PlacedImage(4, 4 + tokens, key), prompt

    # -- what is measured ------------------------------------------------------------------------------------------

    def _note(self, step: Step) -> None:
        self._prompt_tokens += sum(len(sequence.prompt) - sequence.cached_tokens for sequence in step.first)
        self._generated += len(step.first) + len(step.decoded) + len(step.resumed)
        engine = self._engine
        self._gauges.append((len(engine.running), len(engine.waiting), engine.pool.usage))

    def _line(self) -> Line:
        seconds = self._load["duration_s"]
        running, waiting, usage = np.mean(self._gauges, axis=0)
        prefix_share = self._engine.prefix_hits / self._engine.prefix_queries
        rates = (self._prompt_tokens / seconds, self._generated / seconds)
        return Line(*rates, running, waiting, usage, prefix_share, float(np.mean(self._looked_up)))
