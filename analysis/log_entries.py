"""What the log of an inference engine tells: the parts that the readers of all engines fill.

What a line does not tell is None, never 0. Times are seconds since 1970 on the log's own clock, which has no zone in
most logs; those of llama.cpp count from the engine's start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class LogEngine(StrEnum):
    VLLM = "vLLM"
    SGLANG = "SGLang"
    LLAMACPP = "llama.cpp"


class Kind(StrEnum):
    """What a line is about: an interval of all work, a batch of prefill or of decode, or one request that ended."""

    INTERVAL = "interval"
    PREFILL = "prefill"
    DECODE = "decode"
    REQUEST = "request"


@dataclass(kw_only=True)
class LogSample:
    """One line about the load of one engine. Shares and rates of hits are 0 to 1.

    ``prompt_tok_s`` and ``generation_tok_s`` are as printed: of vLLM's interval, of SGLang's batch, of llama.cpp's
    single request. ``prefix_hit_rate`` and ``mm_hit_rate`` of vLLM are over its last 1,000 requests, not over the run.
    """

    line: int  # of the file, from 1
    stamp: str  # as printed
    time_s: float | None
    kind: Kind
    engine: str = ""  # its label where one log shows several
    prompt_tok_s: float | None = None
    generation_tok_s: float | None = None
    running: int | None = None  # requests
    waiting: int | None = None
    swapped: int | None = None
    preemptions: int | None = None  # since the line before
    kv_usage: float | None = None
    prefix_hit_rate: float | None = None
    external_hit_rate: float | None = None
    mm_hit_rate: float | None = None
    new_tokens: int | None = None  # prompt tokens computed
    cached_tokens: int | None = None  # prompt tokens found in the cache
    output_tokens: int | None = None
    busy_s: float | None = None  # of one request: its prefill and decode
    accept_len: float | None = None  # tokens a step of speculative decoding, the verified one included
    accept_rate: float | None = None

    @property
    def cached_share(self) -> float | None:
        """Of the prompt tokens of a batch."""
        if self.new_tokens is None or self.cached_tokens is None or not self.new_tokens + self.cached_tokens:
            return None
        return self.cached_tokens / (self.new_tokens + self.cached_tokens)


@dataclass(frozen=True)
class Drafting:
    """Speculative decoding since the line of this kind before. ``accepted`` and ``drafted`` are tokens."""

    line: int
    time_s: float | None
    accepted: int | None = None
    drafted: int | None = None
    rate: float | None = None
    mean_length: float | None = None


@dataclass(frozen=True)
class Preempted:
    """Requests whose KV cache was taken from them."""

    line: int
    time_s: float | None
    requests: int


@dataclass
class Boot:
    """What an engine said of itself when it started."""

    version: str | None = None
    kv_tokens: int | None = None
    kv_memory_gib: float | None = None
    max_concurrency: float | None = None  # requests of ``max_concurrency_tokens`` that fit into the KV cache
    max_concurrency_tokens: int | None = None
    max_running: int | None = None  # requests at the same time: SGLang's limit, llama.cpp's slots
    init_s: float | None = None

    @property
    def known(self) -> bool:
        return any(value is not None for value in vars(self).values())


@dataclass
class LogEntries:
    """All that one reader found, in the order of the file."""

    samples: list[LogSample] = field(default_factory=list)
    drafting: list[Drafting] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    boots: list[Boot] = field(default_factory=list)
    read: int = 0  # lines that told something

    def boot(self, *, new: bool = False) -> Boot:
        """The start that is being told; ``new``: another one begins here."""
        if new or not self.boots:
            self.boots.append(Boot())
        return self.boots[-1]
