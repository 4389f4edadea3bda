"""Bits that a stored weight takes, scales and zero points included, and which modules stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tokenswarm.errors import InputError

Fields = dict[str, Any]
_SCALE_BITS = {"int": 16, "mx": 8, "nv": 8, "block": 32}
# As a server makes them from unquantized weights, or as is usual: groups of 128 with zero points.
NAMED: dict[str, float] = {
    "none": 0.0,
    "fp8": 8.0,
    "awq": 4 + (16 + 4) / 128,
    "gptq": 4 + (16 + 4) / 128,
    "nvfp4": 4 + 8 / 16,
    "mxfp4": 4 + 8 / 32,
}
_PREFIXES = ("model.", "model.language_model.", "language_model.model.")


@dataclass(frozen=True)
class Quantization:
    """``bits`` is ``None`` where nothing is quantized; ``kept``: patterns of modules that are not, nor is the output
    layer unless ``head``."""

    name: str
    bits: float | None
    kept: tuple[str, ...] = ()
    head: bool = False

    def quantizes(self, module: str) -> bool:
        """``module``: its name from ``layers.`` on, or ``lm_head``."""
        if self.bits is None or (module == "lm_head" and not self.head):
            return False
        return not any(_matches(pattern, module) for pattern in self.kept)


def named_quantization(name: str) -> Quantization:
    """All linear layers by the usual form of a method."""
    if name not in NAMED:
        raise InputError(f"--quantization {name}: wanted one of {', '.join(NAMED)}")
    return Quantization(name, NAMED[name] or None)


def quantization_of(raw: Fields) -> Quantization:
    """From the ``quantization_config`` of a model. Raises ``InputError`` naming what it lacks or what is not known."""
    if not raw:
        return Quantization("none", None)
    method = str(raw.get("quant_method") or "")
    readers: dict[str, Callable[[Fields], float]] = {
        "fp8": _fp8,
        "awq": _awq,
        "gptq": _gptq,
        "mxfp4": lambda _: NAMED["mxfp4"],
        "modelopt": _modelopt,
        "compressed-tensors": _compressed,
    }
    if method not in readers:
        raise InputError(
            f"quantization_config: quant_method {method!r} is not known, wanted one of {', '.join(readers)}; "
            f"--quantization NAME takes one of {', '.join(NAMED)} in its place"
        )
    kept = raw.get("modules_to_not_convert") or raw.get("ignore") or raw.get("exclude_modules") or ()
    head = method in ("modelopt", "compressed-tensors") or raw.get("lm_head") is True
    return Quantization(method, readers[method](raw), tuple(str(one) for one in kept), head)


def _fp8(raw: Fields) -> float:
    """Scales of blocks are 32 bits; one a tensor counts nothing."""
    block = raw.get("weight_block_size")
    return 8.0 + (_SCALE_BITS["block"] / (int(block[0]) * int(block[1])) if block else 0.0)


def _awq(raw: Fields) -> float:
    zeros = _field(raw, "bits") if _field(raw, "zero_point") else 0
    return _grouped(_field(raw, "bits"), 16 + zeros, _field(raw, "group_size"))


def _gptq(raw: Fields) -> float:
    """Zero points are stored even where they are all the same."""
    bits = _field(raw, "bits")
    return _grouped(bits, 16 + bits, _field(raw, "group_size"))


def _modelopt(raw: Fields) -> float:
    match str(_field(raw, "quant_algo")).upper():
        case "NVFP4":
            return NAMED["nvfp4"]
        case "FP8":
            return NAMED["fp8"]
        case other:
            raise InputError(f"quantization_config: quant_algo {other!r} is not known, wanted NVFP4 or FP8")


def _compressed(raw: Fields) -> float:
    found = {_group_bits(_field(group, "weights")) for group in _field(raw, "config_groups").values()}
    if len(found) != 1:
        raise InputError(
            f"quantization_config: config_groups hold {len(found)} kinds of weights, wanted one; "
            "--quantization NAME names one"
        )
    return found.pop()


def _group_bits(weights: Fields) -> float:
    bits, kind = _field(weights, "num_bits"), str(_field(weights, "type"))
    strategy = str(_field(weights, "strategy"))
    if strategy in ("tensor", "channel"):
        return float(bits)
    if strategy == "block":
        rows, columns = _field(weights, "block_structure")
        return float(bits) + _SCALE_BITS["block"] / (int(rows) * int(columns))
    if kind == "float":
        return _grouped(bits, _SCALE_BITS["nv"], _field(weights, "group_size"))
    zeros = 0 if weights.get("symmetric") is True else bits
    return _grouped(bits, _SCALE_BITS["int"] + zeros, _field(weights, "group_size"))


def _grouped(bits: int, beside: int, size: int) -> float:
    """A group of -1 is a whole column, whose scale counts nothing."""
    return float(bits) if size < 1 else float(bits) + beside / size


def _field(raw: Fields, name: str) -> Any:
    if raw.get(name) is None:
        raise InputError(f"quantization_config: wanted the key {name}, found none")
    return raw[name]


def _matches(pattern: str, module: str) -> bool:
    names = [module, *(prefix + module for prefix in _PREFIXES)]
    if pattern.startswith("re:"):
        return any(re.match(pattern[3:], name) for name in names)
    if "*" in pattern:
        return any(fnmatchcase(name, pattern) or fnmatchcase(name, pattern + ".*") for name in names)
    return any(f".{pattern}." in f".{name}." for name in names)
