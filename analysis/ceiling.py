"""MODEL: the most output tokens a second that memory bandwidth allows, from the bytes that a decode step must read.

A step reads the weights once for all streams, the experts that its tokens touch, and each stream's own cache. Nothing
else is counted (prefill, activations, kernels that fall short of the bandwidth), so that no server reaches it.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.ceiling_weights import Footprint
from analysis.experts import mean_share


@dataclass(frozen=True)
class Machine:
    """``tflops`` is ``None`` where nobody gave it: then nothing is known of the ridge."""

    bandwidth_gb_s: float
    tflops: float | None = None


@dataclass(frozen=True)
class Drafting:
    """Speculative decoding: each step checks ``tokens`` drafts a stream, of which the share ``accepted`` is kept."""

    tokens: int = 0
    accepted: float = 0.0

    @property
    def yielded(self) -> float:
        """Tokens that a step gives each stream."""
        return 1.0 + self.tokens * self.accepted

    @property
    def checked(self) -> int:
        return 1 + self.tokens


@dataclass(frozen=True)
class Routing:
    """Experts of a layer and of a token; ``skew`` is that of the far end of the band."""

    experts: int
    active: int
    skew: float


@dataclass(frozen=True)
class Ceiling:
    """Of one level. ``most``: with skewed gating, which touches fewer experts; ``least``: with uniform gating. Without
    experts both are the same. ``None`` above the ridge, where computing and not the bandwidth limits.

    ``bytes_step`` and ``share`` (of the experts) are those of uniform gating.
    """

    streams: float
    context: float
    least_tok_s: float | None
    most_tok_s: float | None
    bytes_step: float
    share: float | None
    kv_bytes: float
    compute_tok_s: float | None

    @property
    def above_ridge(self) -> bool:
        return self.least_tok_s is None


def ceiling_of(
    footprint: Footprint, machine: Machine, routing: Routing | None, streams: float, context: float, drafting: Drafting
) -> Ceiling:
    """``context``: mean number of tokens in the cache of a stream."""
    tokens = streams * drafting.checked
    kept = _kept_bytes(footprint, context)
    uniform = _share(routing, tokens, 0.0)
    skewed = _share(routing, tokens, routing.skew if routing else 0.0)
    fixed = footprint.always + tokens * footprint.embedding + streams * (kept + footprint.state)
    largest, smallest = fixed + uniform * footprint.experts, fixed + skewed * footprint.experts
    flops_s = None if machine.tflops is None else machine.tflops * 1e12
    computed = None if flops_s is None else flops_s / _flops(footprint, context) * drafting.yielded / drafting.checked
    most = _rate(smallest, machine, streams * drafting.yielded)
    above = computed is not None and most > computed
    return Ceiling(
        streams,
        context,
        None if above else _rate(largest, machine, streams * drafting.yielded),
        None if above else most,
        largest,
        None if routing is None else uniform,
        streams * kept,
        computed,
    )


def one_stream_tok_s(machine: Machine, gb_per_token: float) -> float:
    """The ceiling of a single stream whose bytes a token are known."""
    return machine.bandwidth_gb_s / gb_per_token


def _share(routing: Routing | None, tokens: float, skew: float) -> float:
    return 0.0 if routing is None else mean_share(routing.experts, routing.active, tokens, skew)


def _rate(bytes_step: float, machine: Machine, tokens: float) -> float:
    return tokens * machine.bandwidth_gb_s * 1e9 / bytes_step


def _kept_bytes(footprint: Footprint, context: float) -> float:
    seen = context if footprint.window is None else min(context, footprint.window)
    return footprint.kv_token * context + footprint.kv_window_token * seen


def _flops(footprint: Footprint, context: float) -> float:
    """Of one token: two for each weight it needs, two for each score and value of its context."""
    return 2.0 * footprint.active + 2.0 * footprint.attention_width * context
