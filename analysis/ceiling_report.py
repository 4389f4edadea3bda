"""``python -m analysis ceiling [RUN]``: what the memory's bandwidth allows, and how much of it a run got."""

from __future__ import annotations

import argparse
import math

from analysis.ceiling import Ceiling, Drafting, Machine, Routing, ceiling_of, one_stream_tok_s
from analysis.ceiling_quantization import NAMED, named_quantization, quantization_of
from analysis.ceiling_table import Model, Row, assumptions, ceiling_csv, ceiling_document, ceiling_part, ridge
from analysis.ceiling_weights import footprint_of
from analysis.compared_run import read_compared
from analysis.figures import ratio
from analysis.levels import LevelRow
from analysis.model_config import given_facts, read_config
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.report import FORMATS, Report
from tokenswarm.errors import InputError

_KV_BITS = {"fp8": 8, "bf16": 16, "fp16": 16}


def report(options: argparse.Namespace) -> str:
    """The text in ``options.format``; raises ``InputError`` for what is missing."""
    machine = _machine(options)
    outcome = read_compared(options.run).outcome if options.run else None
    if options.config is None:
        return _given_bytes(options, machine, outcome)
    model = _model(options)
    drafting = _drafting(options)
    rows = _rows(options, model, machine, drafting, outcome)
    title = f"Ceiling by memory bandwidth · MODEL · {options.config}"
    notes = [*assumptions(machine, model, drafting), *ridge(rows, machine), "definitions: docs/ceilings.md"]
    return Report(
        title,
        lambda: [ceiling_part(rows)],
        notes,
        lambda: ceiling_document(machine, model, rows),
        lambda: ceiling_csv(rows),
    ).text(options)


def add_options(options: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    add = options.add_argument
    add(
        "run",
        metavar="RUN",
        nargs="?",
        help="a run, or a table (FILE#CONFIGURATION), whose levels are held against their ceilings",
    )
    add(
        "--bandwidth",
        type=float,
        required=True,
        metavar="GB/S",
        help="of the memory, all devices together (10^9 bytes)",
    )
    add("--config", help="the model's config.json")
    add("--gb-per-token", type=float, help="in place of --config: bytes that one stream reads for a token, in 10^9")
    add("--streams", type=float, nargs="+", help="numbers of streams, where there is no RUN")
    add(
        "--context",
        type=float,
        help="mean tokens in the cache of a stream (default: prompt + half of the output of RUN)",
    )
    add("--quantization", choices=sorted(NAMED), help="in place of what config.json says")
    add("--kv-dtype", choices=("auto", *_KV_BITS), default="auto", help="auto: as the weights that are not quantized")
    add("--draft-tokens", type=int, default=0, help="speculative decoding: drafts that a step checks for each stream")
    add("--acceptance", type=float, help="share of the drafts that is accepted, 0 to 1")
    add(
        "--skew",
        type=float,
        default=0.5,
        help="exponent of the skewed gating at the far end of the band (default: 0.5)",
    )
    add("--tflops", type=float, help="dense, at the precision that the model computes in; tells where the ridge is")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a key that config.json lacks")
    add("--format", choices=FORMATS, default="terminal")
    add("--json", dest="format", action="store_const", const="json", help="same as --format json")
    add("--width", type=int, help="columns of the terminal table (default: the terminal's)")


def _machine(options: argparse.Namespace) -> Machine:
    for name in ("bandwidth", "tflops", "gb_per_token"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"--{name.replace('_', '-')} {value:g}: wanted a number above 0")
    if (options.config is None) == (options.gb_per_token is None):
        raise InputError("wanted either --config FILE or --gb-per-token GB")
    return Machine(options.bandwidth, options.tflops)


def _drafting(options: argparse.Namespace) -> Drafting:
    tokens, accepted = options.draft_tokens, options.acceptance
    if tokens < 0 or (tokens and accepted is None):
        raise InputError(f"--draft-tokens {tokens}: wanted 0 or more, and --acceptance beside it")
    if accepted is not None and not 0 <= accepted <= 1:
        raise InputError(f"--acceptance {accepted:g}: wanted a share from 0 to 1")
    return Drafting(tokens, accepted or 0.0)


def _model(options: argparse.Namespace) -> Model:
    config = read_config(options.config, given_facts(options.set))
    named = options.quantization
    quantization = named_quantization(named) if named else quantization_of(config.quantization)
    kv_bits = _KV_BITS.get(options.kv_dtype, config.weight_bits)
    experts = config.experts
    if not 0 <= options.skew < math.inf:
        raise InputError(f"--skew {options.skew:g}: wanted 0 or more")
    routing = None if experts is None else Routing(experts.count, experts.active, options.skew)
    return Model(config, quantization, footprint_of(config, quantization, kv_bits), routing, kv_bits)


def _rows(
    options: argparse.Namespace, model: Model, machine: Machine, drafting: Drafting, outcome: Outcome | None
) -> list[Row]:
    def ceiling(streams: float, context: float) -> Ceiling:
        return ceiling_of(model.footprint, machine, model.routing, streams, context, drafting)

    if outcome is not None:
        rows = [
            _row(level, ceiling(streams, _context(options, outcome, level)), streams)
            for level in outcome.levels
            if (streams := streams_of(level))
        ]
        if not rows:
            raise InputError(f"{outcome.path}: wanted levels with a number of users or of requests in flight")
        return rows
    if not options.streams or options.context is None:
        raise InputError("without RUN: wanted --streams N ... and --context TOKENS")
    if min(options.streams) <= 0 or options.context < 0:
        raise InputError("wanted --streams above 0 and --context of 0 tokens or more")
    return [Row(f"{streams:g}", ceiling(streams, options.context)) for streams in options.streams]


def _context(options: argparse.Namespace, outcome: Outcome, level: LevelRow) -> float:
    told: float | None = context_of(level) if options.context is None else options.context
    if told is None:
        raise InputError(f"{outcome.path}: {level.name} tells no lengths of prompts and answers: wanted --context")
    return told


def streams_of(level: LevelRow) -> float | None:
    """Requests in flight on average where that is known, else the number of users."""
    measured = level.figure("in_flight_mean").value
    return level.concurrency if measured is None else measured


def context_of(level: LevelRow) -> float | None:
    """Mean number of tokens in the cache while an answer is written: the prompt and half of the answer."""
    prompt, output = level.figure("prompt_tokens_mean").value, level.figure("output_tokens_mean").value
    return None if prompt is None or output is None else prompt + output / 2


def _row(level: LevelRow, ceiling: Ceiling, streams: float) -> Row:
    rate, tpot = level.figure("output_tok_s").value, level.figure("tpot_p50_s").value
    return Row(level.short_name, ceiling, rate, ratio(streams, tpot))


def _given_bytes(options: argparse.Namespace, machine: Machine, outcome: Outcome | None) -> str:
    """Of one stream alone: how the bytes grow with more is not known without the model."""
    ceiling = one_stream_tok_s(machine, options.gb_per_token)
    alone = [level for level in outcome.levels if level.concurrency == 1] if outcome else []
    rates = [(level.name, level.figure("output_tok_s").value, _inverse(level)) for level in alone]
    lines = [f"{machine.bandwidth_gb_s:g} GB/s / {options.gb_per_token:g} GB a token = {ceiling:.1f} tok/s"]
    lines += [_realised(name, what, rate, ceiling) for name, *told in rates for what, rate in _known(told)]
    if outcome and not alone:
        lines.append(f"{outcome.path} has no level of one user to hold against it")
    alone_tok_s = [{"level": name, "output_tok_s": rate, "decode_tok_s": decode} for name, rate, decode in rates]
    document = {
        "format": 1,
        "model": True,
        "bandwidth_gb_s": machine.bandwidth_gb_s,
        "gb_per_token": options.gb_per_token,
        "streams": 1,
        "ceiling_tok_s": ceiling,
        "levels": alone_tok_s,
    }
    notes = ["MODEL: nothing but reading these bytes is counted", "definitions: docs/ceilings.md"]
    text = f"streams,ceiling_tok_s\n1,{ceiling:.6g}\n"
    return Report(
        "Ceiling of one stream · MODEL", lambda: [Part("", None, lines)], notes, lambda: document, lambda: text
    ).text(options)


def _known(told: list[float | None]) -> list[tuple[str, float]]:
    return [(what, rate) for what, rate in zip(("output", "decode"), told, strict=True) if rate is not None]


def _realised(name: str, what: str, rate: float, ceiling: float) -> str:
    return f"{name}: {what} {rate:.1f} tok/s, {rate / ceiling:.0%} of it"


def _inverse(level: LevelRow) -> float | None:
    return ratio(1.0, level.figure("tpot_p50_s").value)
