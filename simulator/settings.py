"""What a simulated server can be told: the keys of a preset file, with their checks. All times in seconds."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from simulator.faults import Fault
from simulator.vision import Vision

PRESETS = Path(__file__).parent / "presets"


class Curve:
    """Seconds as a function of a whole number: straight lines between the given points and beyond the last one.

    Below the first point the first value holds.
    """

    def __init__(self, points: dict[int, float]) -> None:
        if not points:
            raise ValueError("a table needs at least one point")
        self.points = dict(sorted(points.items()))
        self._values: list[float] = []

    def at(self, count: int) -> float:
        """Seconds at ``count`` >= 0."""
        values = self._values
        while len(values) <= count:
            values.append(self._interpolate(len(values)))
        return values[count]

    def _interpolate(self, count: int) -> float:
        xs = list(self.points)
        if count <= xs[0] or len(xs) == 1:
            return self.points[xs[0]]
        right = next((i for i, x in enumerate(xs) if x >= count), len(xs) - 1)
        low, high = xs[right - 1], xs[right]
        share = (count - low) / (high - low)
        return self.points[low] + share * (self.points[high] - self.points[low])


class Stall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole engine stands still for ``seconds`` in the step in which so many sequences are first in it."""

    at_running: int
    seconds: float
    once: bool = True


class Drift(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every step takes longer and longer, in proportion to the time since the first one: from ``until_s`` on
    ``factor`` times as long.
    """

    until_s: float
    factor: float

    def __post_init__(self) -> None:
        if self.until_s <= 0 or self.factor <= 0:
            raise ValueError("drift needs until_s and factor above 0")


class Speculative(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Draft tokens, as many as ``acceptance`` has positions, that a step checks for every decoding sequence."""

    acceptance: tuple[float, ...]  # by position: share of drafts right up to and including it, as vLLM prints it
    step_s: dict[int, float]  # in place of decode_step_s

    def __post_init__(self) -> None:
        falling = all(before >= after for before, after in pairwise((1.0, *self.acceptance, 0.0)))
        if not self.acceptance or not falling:
            raise ValueError("acceptance must be shares from 1 down to 0, one a draft token, none above the one before")


class NaturalLength(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Length of an answer that may end by itself: lognormal, cut to 1..max."""

    median: float = 200.0
    sigma: float = 0.6
    max: int = 4000


class EngineSettings(msgspec.Struct, frozen=True):
    """The part of a preset that the step loop needs."""

    decode_step_s: Curve
    prefill_token_s: float
    prefill_step_tokens: int
    prefill_request_tokens: int
    max_num_seqs: int
    block_size: int
    kv_blocks: int
    prefix_cache: bool = True
    inert_cache: bool = False  # lookups are made and counted, and find nothing
    admission_s: Curve | None = None
    step_jitter: float = 0.0
    cold_start_s: float = 0.0
    stall: Stall | None = None
    drift: Drift | None = None
    acceptance: tuple[float, ...] = ()  # of draft tokens, by position; none without speculative decoding
    encoder_image_s: float = 0.0
    encoder_token_s: float = 0.0
    encoder_cache_tokens: int = 0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One preset file. Every key can stand there; the command line changes some of them."""

    model: str
    max_model_len: int
    decode_step_s: dict[int, float]  # step time by number of decoding sequences; the key 0 is a step of prefill only
    prefill_token_s: float  # added to a step for each prompt token computed in it
    prefill_step_tokens: int  # most prompt tokens of one step
    prefill_request_tokens: int  # most prompt tokens of one request in one step
    max_num_seqs: int
    kv_blocks: int
    block_size: int = 16
    prefix_cache: bool | Literal["on", "off", "inert"] = True  # inert: says it is on, never finds anything
    salt: Literal["isolates", "ignored"] = "isolates"  # what a request's cache_salt does: as in vLLM, as in llama.cpp
    report_cached_tokens: bool = True  # usage has prompt_tokens_details.cached_tokens
    metrics: bool = True  # /metrics is there
    admission_s: dict[int, float] | None = None  # added to a step by number of requests that begin in it
    step_jitter: float = 0.0  # standard deviation of a step's time as a share of it
    cold_start_s: float | None = None  # what the first request costs more, where the preset knows it
    cold_start: bool = False  # whether it does
    stall: Stall | None = None
    drift: Drift | None = None
    speculative: Speculative | None = None
    vision: Vision | None = None  # how images are taken; without it the model takes text only
    natural_length: NaturalLength = NaturalLength()
    tool_call_share: float = 0.8  # of answers with calls, where a request has tools and leaves it to the model
    parallel_call_share: float = 0.2  # of these, of several calls at once
    malformed_call_share: float = 0.0  # of calls, with arguments cut off so that they are no JSON
    tool_results_limit: int = 20  # the model calls no more after so many results, unless it must
    reasoning: NaturalLength | None = None  # length of what comes before an answer; {} for the defaults
    reasoning_field: Literal["reasoning", "reasoning_content"] = "reasoning"  # of the message
    template_constant_tokens: int = 3
    template_message_tokens: int = 4
    role_chunk: Literal["with-first-token", "at-acceptance", "none"] = "with-first-token"
    tokens_per_chunk: int = 1
    usage: bool = True
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least {least}, got {getattr(self, name)}"
            for name, least in _AT_LEAST.items()
            if getattr(self, name) < least
        ]
        problems += [
            f"{name} is a share from 0 to 1, got {getattr(self, name)}"
            for name in _SHARES
            if not 0 <= getattr(self, name) <= 1
        ]
        if self.kv_blocks * self.block_size < self.max_model_len:
            problems.append("kv_blocks * block_size must hold one sequence of max_model_len")
        if self.cold_start and self.cold_start_s is None:
            problems.append("cold_start needs cold_start_s")
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def caches_prefixes(self) -> bool:
        """Whether the engine says that its prefix cache is on."""
        return self.prefix_cache not in (False, "off")

    def engine(self) -> EngineSettings:
        """The step loop's share."""
        drafting = self.speculative
        vision = self.vision or Vision()
        kept = vision.encoder_cache_tokens
        return EngineSettings(
            decode_step_s=Curve(drafting.step_s if drafting else self.decode_step_s),
            prefill_token_s=self.prefill_token_s,
            prefill_step_tokens=self.prefill_step_tokens,
            prefill_request_tokens=self.prefill_request_tokens,
            max_num_seqs=self.max_num_seqs,
            block_size=self.block_size,
            kv_blocks=self.kv_blocks,
            prefix_cache=self.caches_prefixes,
            inert_cache=self.prefix_cache == "inert",
            admission_s=Curve(self.admission_s) if self.admission_s else None,
            step_jitter=self.step_jitter,
            cold_start_s=(self.cold_start_s or 0.0) if self.cold_start else 0.0,
            stall=self.stall,
            drift=self.drift,
            acceptance=drafting.acceptance if drafting else (),
            encoder_image_s=vision.encoder_image_s,
            encoder_token_s=vision.encoder_token_s,
            encoder_cache_tokens=self.prefill_step_tokens if kept is None else kept,
        )


_SHARES = ("tool_call_share", "parallel_call_share", "malformed_call_share")
_AT_LEAST = {
    "max_model_len": 1,
    "prefill_step_tokens": 1,
    "prefill_request_tokens": 1,
    "max_num_seqs": 1,
    "kv_blocks": 1,
    "block_size": 1,
    "tokens_per_chunk": 1,
    "template_constant_tokens": 3,
    "template_message_tokens": 4,
}


def preset_names() -> list[str]:
    """The presets that come with the simulator."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_settings(preset: str, **changes: Any) -> Settings:
    """``preset`` is a name of :func:`preset_names` or a path ending in .yaml; ``changes`` replace keys of the file.

    Raises ``ValueError`` with one line for an unknown preset, key or value.
    """
    path = Path(preset) if preset.endswith((".yaml", ".yml")) else PRESETS / f"{preset}.yaml"
    if not path.is_file():
        raise ValueError(f"no preset {preset!r}; known: {', '.join(preset_names())}, or the path of a .yaml file")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path}: a preset is a mapping of keys to values")
    try:
        return msgspec.convert({**content, **changes}, Settings)
    except msgspec.ValidationError as error:
        raise ValueError(f"{path}: {error}") from None
