"""Ceilings of levels as a table, as JSON, as CSV, and the sentences that say what they assume."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any

from analysis.ceiling import Ceiling, Drafting, Machine, Routing
from analysis.ceiling_quantization import Quantization
from analysis.ceiling_weights import Footprint
from analysis.figures import ratio
from analysis.model_config import ModelConfig
from analysis.part import Part
from analysis.tables import TextTable


@dataclass(frozen=True)
class Row:
    """One level. ``output_tok_s`` is that of its table, ``decode_tok_s`` its streams / median TPOT, without prefill."""

    name: str
    ceiling: Ceiling
    output_tok_s: float | None = None
    decode_tok_s: float | None = None

    def share(self, rate: float | None) -> tuple[float | None, float | None]:
        """Of the high end of the band, and of the low end."""
        return ratio(rate, self.ceiling.most_tok_s), ratio(rate, self.ceiling.least_tok_s)


@dataclass(frozen=True)
class Model:
    """``kv_bits``: of one number in the KV cache."""

    config: ModelConfig
    quantization: Quantization
    footprint: Footprint
    routing: Routing | None
    kv_bits: int


def ceiling_part(rows: list[Row]) -> Part:
    header = ["c", "streams", "context", "experts %", "GB a step", "KV GB", "ceiling tok/s", "output tok/s", "share %",
              "decode tok/s", "share %"]  # fmt: skip
    body = [
        [
            row.name,
            f"{row.ceiling.streams:.4g}",
            f"{row.ceiling.context:.0f}",
            "" if row.ceiling.share is None else f"{row.ceiling.share * 100:.1f}",
            f"{row.ceiling.bytes_step / 1e9:.2f}",
            f"{row.ceiling.kv_bytes / 1e9:.2f}",
            _band(row.ceiling.least_tok_s, row.ceiling.most_tok_s, 1.0) or "above the ridge",
            "" if row.output_tok_s is None else f"{row.output_tok_s:.1f}",
            _band(*row.share(row.output_tok_s), 100.0),
            "" if row.decode_tok_s is None else f"{row.decode_tok_s:.1f}",
            _band(*row.share(row.decode_tok_s), 100.0),
        ]
        for row in rows
    ]
    kept = [i for i, _ in enumerate(header) if any(cells[i] for cells in body)]
    table = TextTable("ceiling", "Ceiling", [header[i] for i in kept], [[cells[i] for i in kept] for cells in body])
    return Part("", table, [])


def _band(low: float | None, high: float | None, scale: float) -> str:
    if low is None or high is None:
        return ""
    ends = [f"{value * scale:.0f}" for value in (low, high)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]}–{ends[1]}"


def assumptions(machine: Machine, model: Model, drafting: Drafting) -> list[str]:
    footprint, quantization = model.footprint, model.quantization
    bits = "none" if quantization.bits is None else f"{quantization.name}, {quantization.bits:.4g} bits a weight"
    lines = [
        "MODEL, not a measurement: a step reads each weight once for all streams, the experts that its tokens touch, "
        "and the cache of each stream; prefill, activations and everything else is left out",
        f"given: {machine.bandwidth_gb_s:g} GB/s; from config.json: {footprint.weights / 1e9:.2f} billion weights, "
        f"{footprint.active / 1e9:.2f} billion active, quantization {bits}, KV cache {model.kv_bits} bits, "
        f"{(footprint.kv_token + footprint.kv_window_token) / 1e3:.1f} kB a token of context",
    ]
    if model.routing:
        lines.append(
            f"band: from uniform gating to one skewed by {model.routing.skew:g}; tokens pick their experts "
            "independently of each other"
        )
    if drafting.tokens:
        lines.append(
            f"speculative decoding: {drafting.tokens} drafts a step, {drafting.accepted:.0%} accepted, so "
            f"{drafting.yielded:.2f} tokens a step and stream; the bytes of the draft model itself are not counted"
        )
    return lines


def ridge(rows: list[Row], machine: Machine) -> list[str]:
    if machine.tflops is None:
        return ["the ridge was not looked for: without --tflops many streams may be limited by computing instead"]
    above = [row.name for row in rows if row.ceiling.above_ridge]
    if not above:
        return []
    return [
        f"above the ridge: at {', '.join(above)} computing limits before the bandwidth ({machine.tflops:g} TFLOP/s); "
        "the ceiling by bandwidth says nothing there"
    ]


def ceiling_document(machine: Machine, model: Model, rows: list[Row]) -> dict[str, Any]:
    footprint = model.footprint
    return {
        "format": 1,
        "model": True,
        "bandwidth_gb_s": machine.bandwidth_gb_s,
        "tflops": machine.tflops,
        "quantization": model.quantization.name,
        "bits_per_weight": model.quantization.bits,
        "kv_bits": model.kv_bits,
        "weights": footprint.weights,
        "active_weights": footprint.active,
        "always_bytes": footprint.always,
        "experts_bytes": footprint.experts,
        "kv_bytes_per_token": footprint.kv_token + footprint.kv_window_token,
        "levels": [_level(row) for row in rows],
    }


def _level(row: Row) -> dict[str, Any]:
    ceiling = row.ceiling
    return {
        "level": row.name,
        "streams": ceiling.streams,
        "context_tokens": ceiling.context,
        "expert_share": ceiling.share,
        "bytes_per_step": ceiling.bytes_step,
        "kv_bytes": ceiling.kv_bytes,
        "ceiling_low_tok_s": ceiling.least_tok_s,
        "ceiling_high_tok_s": ceiling.most_tok_s,
        "above_ridge": ceiling.above_ridge,
        "output_tok_s": row.output_tok_s,
        "output_share_low": row.share(row.output_tok_s)[0],
        "output_share_high": row.share(row.output_tok_s)[1],
        "decode_tok_s": row.decode_tok_s,
        "decode_share_low": row.share(row.decode_tok_s)[0],
        "decode_share_high": row.share(row.decode_tok_s)[1],
    }


def ceiling_csv(rows: list[Row]) -> str:
    out = io.StringIO()
    objects = [_level(row) for row in rows]
    writer = csv.DictWriter(out, list(objects[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(objects)
    return out.getvalue()
