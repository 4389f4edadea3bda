"""``python -m analysis experts``: the share of experts that one forward pass touches, exact and simulated."""

from __future__ import annotations

import argparse
import csv
import io
import math
from dataclasses import dataclass
from typing import Any

from analysis.experts import Union, mean_share, simulated_union, uniform_union
from analysis.part import Part
from analysis.report import FORMATS, Report
from analysis.tables import TextTable
from tokenswarm.errors import InputError

_MOST_EXPERTS, _MOST_TOKENS = 4096, 4096


@dataclass(frozen=True)
class Row:
    """``exact.high`` of skewed gating is not known: its distribution is had by simulation alone."""

    gating: str
    streams: int
    tokens: int
    exact: Union
    simulated: Union


def report(options: argparse.Namespace) -> str:
    """The text in ``options.format``. Raises ``InputError`` for counts that cannot be."""
    _check(options)
    rows = [row for streams in options.streams for row in _rows(options, streams)]
    experts, active = options.experts, options.active
    title = f"Experts touched by one forward pass of one layer · {experts} experts, {active} active"
    footnotes = [
        "MODEL: tokens pick independently of each other and of the layer; real gating is correlated, so that the union "
        "lies lower",
        f"skewed: expert r is picked with weight r^-{options.skew:g}; its mean is approximated, the simulation not",
        f"simulated: {options.passes} forward passes, seed {options.seed}",
        "definitions: docs/ceilings.md",
    ]
    return Report(title, lambda: _parts(rows), footnotes, lambda: _document(options, rows), lambda: _csv(rows)).text(
        options
    )


def add_options(options: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    add = options.add_argument
    add("--experts", type=int, required=True, help="experts of a layer, without shared ones")
    add("--active", type=int, required=True, help="experts that one token picks")
    add("--streams", type=int, nargs="+", required=True, help="sequences that are decoded in one forward pass")
    add("--draft-tokens", type=int, default=0, help="speculative tokens of each sequence in one pass (default: 0)")
    add("--skew", type=float, default=0.5, help="exponent of the skewed end of the band (default: 0.5)")
    add("--passes", type=int, default=2000, help="forward passes to simulate (default: 2000)")
    add("--seed", type=int, default=1)
    add("--format", choices=FORMATS, default="terminal")
    add("--json", dest="format", action="store_const", const="json", help="same as --format json")
    add("--width", type=int, help="columns of the terminal table (default: the terminal's)")


def _check(options: argparse.Namespace) -> None:
    if not 1 <= options.active <= options.experts <= _MOST_EXPERTS:
        raise InputError(
            f"--active {options.active} --experts {options.experts}: wanted 1 <= active <= experts <= {_MOST_EXPERTS}"
        )
    if options.draft_tokens < 0:
        raise InputError(f"--draft-tokens {options.draft_tokens}: wanted 0 or more")
    most = max(options.streams) * (1 + options.draft_tokens)
    if min(options.streams) < 1 or most > _MOST_TOKENS:
        raise InputError(f"--streams: wanted 1 to {_MOST_TOKENS} tokens in one pass, found {most}")
    if not 0 <= options.skew < math.inf or options.passes < 1:
        raise InputError(f"--skew {options.skew:g} --passes {options.passes}: wanted skew >= 0 and passes >= 1")


def _rows(options: argparse.Namespace, streams: int) -> list[Row]:
    experts, active, skew = options.experts, options.active, options.skew
    tokens = streams * (1 + options.draft_tokens)
    played = {"passes": options.passes, "seed": options.seed}
    rows = [
        Row(
            "uniform",
            streams,
            tokens,
            uniform_union(experts, active, tokens),
            simulated_union(experts, active, tokens, **played),
        )
    ]
    if skew:
        skewed = Union(mean_share(experts, active, tokens, skew), None)
        rows.append(
            Row(
                f"skewed {skew:g}",
                streams,
                tokens,
                skewed,
                simulated_union(experts, active, tokens, skew=skew, **played),
            )
        )
    return rows


def _parts(rows: list[Row]) -> list[Part]:
    header = ["streams", "tokens", "gating", "mean %", "simulated", "95 % quantile %", "simulated"]
    body = [
        [
            str(row.streams),
            str(row.tokens),
            row.gating,
            *(_percent(value) for value in (row.exact.mean, row.simulated.mean, row.exact.high, row.simulated.high)),
        ]
        for row in rows
    ]
    return [Part("", TextTable("experts", "Experts", header, body, fixed=1, left=frozenset({2})), [])]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share * 100:.1f}"


def _document(options: argparse.Namespace, rows: list[Row]) -> dict[str, Any]:
    return {
        "format": 1,
        "model": True,
        "experts": options.experts,
        "active": options.active,
        "passes": options.passes,
        "seed": options.seed,
        "rows": [
            {
                "gating": row.gating,
                "streams": row.streams,
                "tokens": row.tokens,
                "mean_share": row.exact.mean,
                "mean_share_simulated": row.simulated.mean,
                "p95_share": row.exact.high,
                "p95_share_simulated": row.simulated.high,
            }
            for row in rows
        ],
    }


def _csv(rows: list[Row]) -> str:
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(["gating", "streams", "tokens", "mean_share", "mean_share_simulated", "p95_share", "p95_share_simulated"])
    for row in rows:
        high = "" if row.exact.high is None else f"{row.exact.high:.6g}"
        simulated = row.simulated
        write(
            [
                row.gating,
                row.streams,
                row.tokens,
                f"{row.exact.mean:.6g}",
                f"{simulated.mean:.6g}",
                high,
                f"{simulated.high:.6g}",
            ]
        )
    return out.getvalue()
