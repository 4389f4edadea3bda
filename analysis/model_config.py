"""What a model's ``config.json`` says of its shape. A fact that is not there is asked for, never guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.json_file import read_object
from tokenswarm.errors import InputError

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
_BITS_OF_TYPE = {"bfloat16": 16, "float16": 16, "float32": 32}
# Families that this reads, by ``model_type``; each of them has gated MLPs of three matrices.
_HEAD_DIM_IMPLIED = ("llama", "mistral", "mixtral", "qwen2", "qwen2_moe")  # hidden / heads where the key is missing
_MLA = ("deepseek_v2", "deepseek_v3", "kimi_k2")
_GATED = ("qwen3_next",)  # attention with an output gate in any case; others say so
_LINEAR_FUSED = ("qwen3_next",)
FAMILIES = (
    *_HEAD_DIM_IMPLIED, *_MLA, *_GATED, "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_text", "qwen3_5_moe",
    "qwen3_5_moe_text", "gpt_oss", "glm4_moe",
)  # fmt: skip
_EXPERTS_ARE_THE_MLP = ("mixtral", "gpt_oss")  # their intermediate_size is that of an expert


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention; ``gated``: the query projection is twice as wide."""

    heads: int
    kv_heads: int
    head_dim: int
    gated: bool = False


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek); ``q_rank`` is ``None`` where queries are projected at once."""

    heads: int
    q_rank: int | None
    kv_rank: int
    rope_dim: int
    plain_dim: int
    value_dim: int


@dataclass(frozen=True)
class LinearAttention:
    """A gated delta net: a state of a fixed size in place of a cache that grows."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    state_bits: int
    fused: bool = False  # how its projections are stored


@dataclass(frozen=True)
class Experts:
    """``layers``: numbers of those that have experts; ``shared`` is the width of all shared ones together."""

    count: int
    active: int
    width: int
    shared: int
    layers: frozenset[int]


@dataclass(frozen=True)
class ModelConfig:
    """``mixers``: of each layer one of the three kinds above; ``mlp_width`` is ``None`` where every layer has experts.

    ``quantization`` is the object as it stands in the file, empty for none.
    """

    family: str
    hidden: int
    vocab: int
    tied: bool
    weight_bits: int
    mixers: tuple[str, ...]
    attention: Attention | LatentAttention
    linear: LinearAttention | None
    window: int | None
    experts: Experts | None
    mlp_width: int | None
    quantization: dict[str, Any]


class _Facts:
    """Keys of the text model, else those beside it; ``given`` ones go before both."""

    def __init__(self, path: Path, document: dict[str, Any], given: Mapping[str, Any]) -> None:
        inner = document.get("text_config")
        self.path = path
        self.known = {**document, **(inner if isinstance(inner, dict) else {}), **given}

    def has(self, name: str) -> bool:
        return self.known.get(name) is not None

    def value(self, *names: str) -> Any:
        for name in names:
            if self.has(name):
                return self.known[name]
        raise InputError(f"{self.path}: wanted the key {names[0]}, found none; give it with --set {names[0]}=VALUE")

    def whole(self, *names: str) -> int:
        value = self.value(*names)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{self.path}: {names[0]} is {value!r}, wanted a whole number from 1 on")
        return value

    def flag(self, name: str) -> bool:
        value = self.value(name)
        if not isinstance(value, bool):
            raise InputError(f"{self.path}: {name} is {value!r}, wanted true or false")
        return value

    def maybe(self, name: str) -> int | None:
        return self.whole(name) if self.has(name) else None


def read_config(path: Path | str, given: Mapping[str, Any] | None = None) -> ModelConfig:
    """``given``: keys that the file lacks or has wrong. Raises ``InputError`` or ``RunFolderError`` with one
    line naming what is missing."""
    path = Path(path)
    facts = _Facts(path, read_object(path, "the config.json of a model"), given or {})
    family = str(facts.value("model_type"))
    if family not in FAMILIES:
        raise InputError(
            f"{path}: model_type {family!r} is not known, wanted one of {', '.join(FAMILIES)}; "
            "--set model_type=NAME reads it as one of them"
        )
    layers = facts.whole("num_hidden_layers")
    mixers = _mixers(facts, layers)
    experts = _experts(facts, family, layers)
    dense = experts is None or len(experts.layers) < layers
    raw = facts.known.get("quantization_config")
    return ModelConfig(
        family=family,
        hidden=facts.whole("hidden_size"),
        vocab=facts.whole("vocab_size"),
        tied=facts.flag("tie_word_embeddings"),
        weight_bits=_type_bits(facts, "torch_dtype", "dtype"),
        mixers=mixers,
        attention=_latent(facts) if family in _MLA else _attention(facts, family),
        linear=_linear(facts, family) if LINEAR in mixers else None,
        window=facts.whole("sliding_window") if SLIDING in mixers else None,
        experts=experts,
        mlp_width=facts.whole("intermediate_size") if dense else None,
        quantization=raw if isinstance(raw, dict) else {},
    )


def given_facts(pairs: list[str]) -> dict[str, Any]:
    """``KEY=VALUE`` as they stand on a command line; values are JSON, else text."""
    facts: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise InputError(f"--set {pair}: wanted KEY=VALUE")
        try:
            facts[name] = json.loads(text)
        except json.JSONDecodeError:
            facts[name] = text
    return facts


def _type_bits(facts: _Facts, *names: str) -> int:
    told = str(facts.value(*names)).removeprefix("torch.")
    if told not in _BITS_OF_TYPE:
        raise InputError(f"{facts.path}: {names[0]} is {told!r}, wanted one of {', '.join(_BITS_OF_TYPE)}")
    return _BITS_OF_TYPE[told]


def _mixers(facts: _Facts, layers: int) -> tuple[str, ...]:
    if facts.has("layer_types"):
        kinds = tuple(str(kind) for kind in facts.value("layer_types"))
        unknown = sorted(set(kinds) - {FULL, SLIDING, LINEAR})
        if unknown or len(kinds) != layers:
            found = f"{unknown[0]!r}" if unknown else f"{len(kinds)} of them"
            raise InputError(f"{facts.path}: layer_types has {found}, wanted {layers} of {FULL}, {SLIDING} or {LINEAR}")
        return kinds
    if facts.has("full_attention_interval"):
        every = facts.whole("full_attention_interval")
        return tuple(LINEAR if (layer + 1) % every else FULL for layer in range(layers))
    windowed = facts.has("sliding_window") and facts.known.get("use_sliding_window", True) is not False
    if not windowed:
        return (FULL,) * layers
    if facts.has("max_window_layers"):
        raise InputError(f"{facts.path}: wanted the key layer_types: only some layers have the sliding window")
    return (SLIDING,) * layers


def _attention(facts: _Facts, family: str) -> Attention:
    heads, kv_heads = facts.whole("num_attention_heads"), facts.whole("num_key_value_heads")
    if not facts.has("head_dim") and family in _HEAD_DIM_IMPLIED:
        head_dim = facts.whole("hidden_size") // heads
    else:
        head_dim = facts.whole("head_dim")
    gated = family in _GATED or facts.known.get("attn_output_gate") is True
    return Attention(heads, kv_heads, head_dim, gated)


def _latent(facts: _Facts) -> LatentAttention:
    return LatentAttention(
        heads=facts.whole("num_attention_heads"),
        q_rank=facts.maybe("q_lora_rank"),
        kv_rank=facts.whole("kv_lora_rank"),
        rope_dim=facts.whole("qk_rope_head_dim"),
        plain_dim=facts.whole("qk_nope_head_dim"),
        value_dim=facts.whole("v_head_dim"),
    )


def _linear(facts: _Facts, family: str) -> LinearAttention:
    own = ("mamba_ssm_dtype",) if facts.has("mamba_ssm_dtype") else ("torch_dtype", "dtype")
    return LinearAttention(
        key_heads=facts.whole("linear_num_key_heads"),
        value_heads=facts.whole("linear_num_value_heads"),
        key_dim=facts.whole("linear_key_head_dim"),
        value_dim=facts.whole("linear_value_head_dim"),
        kernel=facts.whole("linear_conv_kernel_dim"),
        state_bits=_type_bits(facts, *own),
        fused=family in _LINEAR_FUSED,
    )


def _experts(facts: _Facts, family: str, layers: int) -> Experts | None:
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    if not any(facts.has(name) for name in names):
        if "moe" in family or family in (*_EXPERTS_ARE_THE_MLP, *_MLA):
            facts.value(*names)
        return None
    width = facts.whole("intermediate_size" if family in _EXPERTS_ARE_THE_MLP else "moe_intermediate_size")
    return Experts(
        count=facts.whole(*names),
        active=facts.whole("num_experts_per_tok", "experts_per_token"),
        width=width,
        shared=_shared(facts, width),
        layers=_expert_layers(facts, layers),
    )


def _shared(facts: _Facts, width: int) -> int:
    """Its own width where the file names one, else so many of the usual width."""
    if facts.has("shared_expert_intermediate_size"):
        return int(facts.value("shared_expert_intermediate_size"))
    return int(facts.known.get("n_shared_experts") or 0) * width


def _expert_layers(facts: _Facts, layers: int) -> frozenset[int]:
    first = int(facts.known.get("first_k_dense_replace") or 0)
    step = int(facts.known.get("decoder_sparse_step") or facts.known.get("moe_layer_freq") or 1)
    dense = {int(layer) for layer in facts.known.get("mlp_only_layers") or []}
    if facts.has("decoder_sparse_step"):
        return frozenset(layer for layer in range(layers) if (layer + 1) % step == 0 and layer not in dense)
    return frozenset(layer for layer in range(first, layers) if layer % step == 0 and layer not in dense)
