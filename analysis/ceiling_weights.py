"""The matrices of a model that a decode step reads, with the bits they are stored in, and the state of a stream.

Left out, because they come to less than a thousandth: norms, biases, rotary tables, scales of whole tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.ceiling_quantization import Quantization
from analysis.model_config import (
    FULL,
    LINEAR,
    SLIDING,
    Attention,
    Experts,
    LatentAttention,
    LinearAttention,
    ModelConfig,
)

_Matrix = tuple[str, int]  # name of the module within its layer, number of weights


@dataclass(frozen=True)
class Footprint:
    """Bytes that one decode step reads. ``always``: whatever it decodes; ``experts``: all routed ones together;
    ``embedding``: of each token; ``state``: of each stream, read and written, whatever its length.

    ``kv_token`` and ``kv_window_token``: bytes of the cache for a token of context, in layers that see all of it and in
    layers that see the last ``window``. ``weights`` counts all, ``active`` those that one token needs.
    """

    always: float
    experts: float
    embedding: float
    state: float
    kv_token: float
    kv_window_token: float
    window: int | None
    weights: int
    active: float
    attention_width: int  # of scores and values together, over all layers that see the whole context


def footprint_of(config: ModelConfig, quantization: Quantization, kv_bits: int) -> Footprint:
    """``kv_bits``: of one number in the KV cache."""
    always = experts = active = 0.0
    weights = 0

    def size(module: str, count: int) -> float:
        bits = quantization.bits if quantization.quantizes(module) else None
        return count * (config.weight_bits if bits is None else bits) / 8

    for module, count in _always(config):
        always, weights, active = always + size(module, count), weights + count, active + count
    routers = config.hidden * config.experts.count * len(config.experts.layers) if config.experts else 0
    always, weights, active = always + routers * config.weight_bits / 8, weights + routers, active + routers
    for module, count in _routed(config):
        experts, weights = experts + size(module, count), weights + count
        active += count * _picked(config.experts)
    kv = _kv_numbers(config.attention) * kv_bits / 8
    full, windowed = config.mixers.count(FULL), config.mixers.count(SLIDING)
    table = config.vocab * config.hidden
    return Footprint(
        always=always,
        experts=experts,
        embedding=config.hidden * config.weight_bits / 8,
        state=config.mixers.count(LINEAR) * _state_bytes(config),
        kv_token=full * kv,
        kv_window_token=windowed * kv,
        window=config.window,
        weights=weights + (0 if config.tied else table),
        active=active,
        attention_width=full * _score_width(config.attention),
    )


def _picked(experts: Experts | None) -> float:
    return 0.0 if experts is None else experts.active / experts.count


def _always(config: ModelConfig) -> Iterator[_Matrix]:
    """The output layer is the embedding table where both are tied, and is read as a whole in any case."""
    yield "lm_head", config.vocab * config.hidden
    for layer, mixer in enumerate(config.mixers):
        for module, count in _mixer(config, mixer):
            yield f"layers.{layer}.{module}", count
        yield from ((f"layers.{layer}.{module}", count) for module, count in _mlp(config, layer))


def _mixer(config: ModelConfig, mixer: str) -> Iterator[_Matrix]:
    hidden = config.hidden
    if mixer == LINEAR and config.linear is not None:
        yield from _linear(config.linear, hidden)
    elif isinstance(config.attention, LatentAttention):
        yield from _latent(config.attention, hidden)
    else:
        yield from _grouped_query(config.attention, hidden)


def _grouped_query(attention: Attention, hidden: int) -> Iterator[_Matrix]:
    queries = attention.heads * attention.head_dim
    for name in ("k_proj", "v_proj"):
        yield f"self_attn.{name}", hidden * attention.kv_heads * attention.head_dim
    yield "self_attn.q_proj", hidden * queries * (1 + attention.gated)
    yield "self_attn.o_proj", queries * hidden


def _latent(attention: LatentAttention, hidden: int) -> Iterator[_Matrix]:
    queries = attention.heads * (attention.plain_dim + attention.rope_dim)
    if attention.q_rank is None:
        yield "self_attn.q_proj", hidden * queries
    else:
        yield "self_attn.q_a_proj", hidden * attention.q_rank
        yield "self_attn.q_b_proj", attention.q_rank * queries
    yield "self_attn.kv_a_proj_with_mqa", hidden * (attention.kv_rank + attention.rope_dim)
    yield "self_attn.kv_b_proj", attention.kv_rank * attention.heads * (attention.plain_dim + attention.value_dim)
    yield "self_attn.o_proj", attention.heads * attention.value_dim * hidden


def _linear(linear: LinearAttention, hidden: int) -> Iterator[_Matrix]:
    keys, values = linear.key_heads * linear.key_dim, linear.value_heads * linear.value_dim
    if linear.fused:
        yield "linear_attn.in_proj_qkvz", hidden * (2 * keys + 2 * values)
        yield "linear_attn.in_proj_ba", hidden * 2 * linear.value_heads
    else:
        yield "linear_attn.in_proj_qkv", hidden * (2 * keys + values)
        yield "linear_attn.in_proj_z", hidden * values
        yield "linear_attn.in_proj_b", hidden * linear.value_heads
        yield "linear_attn.in_proj_a", hidden * linear.value_heads
    yield "linear_attn.out_proj", values * hidden


def _mlp(config: ModelConfig, layer: int) -> Iterator[_Matrix]:
    """Routers are counted apart: no method quantizes them."""
    experts = config.experts
    if experts is None or layer not in experts.layers:
        for name in ("gate_proj", "up_proj", "down_proj"):
            yield f"mlp.{name}", config.hidden * (config.mlp_width or 0)
    elif experts.shared:
        for name in ("gate_proj", "up_proj", "down_proj"):
            yield f"mlp.shared_expert.{name}", config.hidden * experts.shared


def _routed(config: ModelConfig) -> Iterator[_Matrix]:
    if config.experts is None:
        return
    for layer in sorted(config.experts.layers):
        for name in ("gate_proj", "up_proj", "down_proj"):
            yield f"layers.{layer}.mlp.experts.0.{name}", config.experts.count * config.experts.width * config.hidden


def _kv_numbers(attention: Attention | LatentAttention) -> int:
    if isinstance(attention, LatentAttention):
        return attention.kv_rank + attention.rope_dim
    return 2 * attention.kv_heads * attention.head_dim


def _score_width(attention: Attention | LatentAttention) -> int:
    if isinstance(attention, LatentAttention):
        return attention.heads * (2 * attention.kv_rank + attention.rope_dim)
    return 2 * attention.heads * attention.head_dim


def _state_bytes(config: ModelConfig) -> float:
    """Of one layer, read and written once a step: the state of each value head, and the inputs of the convolution."""
    linear = config.linear
    if linear is None:
        return 0.0
    state = linear.value_heads * linear.key_dim * linear.value_dim * linear.state_bits
    channels = 2 * linear.key_heads * linear.key_dim + linear.value_heads * linear.value_dim
    return 2 * (state + channels * (linear.kernel - 1) * config.weight_bits) / 8
