"""``python -m analysis capacity [RUN]``: the load that fits, why no more does, and the sentences to write below it."""

from __future__ import annotations

import argparse
import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from analysis.capacity import Capacity, of_all
from analysis.capacity_export import capacity_document
from analysis.capacity_guidance import FEWEST, TIERS, Tier
from analysis.capacity_level import FAILED
from analysis.capacity_set import Asked, CapacitySet, ClassCapacity, capacity_sets
from analysis.check_text import comparison, limit_text
from analysis.compared_run import PART, read_compared
from analysis.figures import QUANTILES
from analysis.knee import GAIN, Knee
from analysis.objectives import Check
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.render import title_of
from analysis.report import Report, add_report_options
from analysis.tables import TextTable
from tokenswarm.errors import InputError

_METRIC = re.compile(rf"(?:ttft|tpot|e2e)_(?:{'|'.join(QUANTILES)}|mean)_s|{FAILED}")
_WANTED = "ttft, tpot or e2e, then p50, p90, p95, p99 or mean, as in ttft_p95_s=1.5, or failed=0.01"


def report(path: str, options: argparse.Namespace, read: Callable[..., Outcome]) -> str:
    """The text in ``options.format``; ``read`` reads a run or a table. Raises ``InputError`` with one line."""
    asked = asked_of(options)
    of_table = PART in path and not Path(path).exists()
    outcome = read_compared(path).outcome if of_table else read(path, failures_infinite=True)
    sets = capacity_sets(outcome, asked)
    if not sets:
        raise InputError(f"{path}: wanted levels with a number of users or a rate")
    footnotes = [f"not credible as a whole: {doubt}" for doubt in outcome.doubts]
    footnotes += [note.text for note in outcome.notes if note.key in ("simulated", "interrupted", "source")]
    footnotes += [
        "fits: proven, the upper end of the 95 % interval keeps to every limit; a failure counts as infinitely late",
        "by values: the same without intervals, which proves nothing",
        "definitions: docs/capacity.md",
    ]
    document = {"format": 1, "source": {"path": outcome.path, "kind": outcome.source, "name": outcome.name}}
    return Report(
        f"Capacity · {title_of(outcome)}",
        lambda: [part for one in sets for part in capacity_parts(one)],
        list(dict.fromkeys(footnotes)),
        lambda: document | capacity_document(sets, asked),
        lambda: _csv(sets),
    ).text(options)


def add_options(options: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    add_report_options(options, "a run, Locust CSVs, another tool's results, or a published table (FILE#CONFIGURATION)")
    add = options.add_argument
    add("--limit", action="append", default=[], metavar="METRIC=VALUE", help=f"for every class, in seconds: {_WANTED}")
    tiers = ", ".join(tier.name for tier in TIERS)
    add("--tier", action="append", default=[], metavar="NAME:METRIC=VALUE,...", help=f"in place of all of {tiers}")
    add("--fewest", type=int, default=FEWEST, help=f"successes that a sentence takes of its level (default: {FEWEST})")
    add(
        "--knee-gain",
        type=float,
        default=GAIN * 100,
        metavar="%",
        help="of throughput for twice the load (default: 25)",
    )


def asked_of(options: argparse.Namespace) -> Asked:
    """Raises ``InputError`` with one line."""
    if options.fewest < 1 or not 0 < options.knee_gain < 100:
        raise InputError(
            f"--fewest {options.fewest} --knee-gain {options.knee_gain:g}: wanted 1 or more, and 0 to 100 %"
        )
    tiers = tuple(_tier(text) for text in options.tier) or TIERS
    return Asked(_limits("--limit", options.limit), tiers, options.fewest, options.knee_gain / 100)


def _tier(text: str) -> Tier:
    name, colon, rest = text.partition(":")
    if not name or not colon:
        raise InputError(f"--tier {text}: wanted NAME:METRIC=VALUE,...")
    return Tier(name, _limits("--tier", rest.split(",")))


def _limits(option: str, pairs: Sequence[str]) -> dict[str, float]:
    found = {}
    for pair in pairs:
        metric, _, text = pair.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not _METRIC.fullmatch(metric) or not 0 <= value < float("inf"):
            raise InputError(f"{option} {pair}: wanted METRIC=VALUE with {_WANTED}")
        found[metric] = value
    return found


def capacity_parts(one: CapacitySet) -> list[Part]:
    """What fits, the knee, the reasons, and last the guidance."""
    beside = f" ({one.name})" if one.name else ""
    known = [item for item in one.classes if item.capacity is not None]
    parts = [Part(f"Users or rate that fit{beside}", _table(known) if known else None, list(_lines(one)))]
    if one.knee is not None:
        parts.append(Part(f"Knee{beside}", _knee_table(one.knee), [f"knee: {one.knee.text}"]))
    reasons = [f"{', '.join(reason.levels)}: {reason.cause}: {reason.text}" for reason in one.reasons]
    parts.append(
        Part(
            f"{'Why not more' if one.missed else 'At the highest level (no limit is missed)'}{beside}",
            None,
            reasons,
        )
    )
    several = len(one.classes) > 1
    sentences = [
        (f"{item.traffic}: " if several else "") + sentence.line for item in one.classes for sentence in item.guidance
    ]
    parts.append(Part(f"Guidance{beside}", None, [*sentences, *one.closing]))
    return parts


def _table(classes: Sequence[ClassCapacity]) -> TextTable:
    header = ["class", "fits", "by values", "in between", "fits at", "misses at"]
    known = [one.capacity for one in classes if one.capacity is not None]
    body = [_row(one, one.capacity) for one in classes if one.capacity is not None]
    if len(known) > 1:
        body.append(["all of them", *of_all(known), "", "", ""])
    return TextTable("capacity", "Capacity", header, body, left=frozenset(range(len(header))))


def _row(one: ClassCapacity, capacity: Capacity) -> list[str]:
    ends = (capacity.proven.fits, capacity.proven.misses)
    return [
        one.traffic or "all",
        capacity.answer,
        capacity.answer_by_value,
        _crossing_text(capacity),
        *("" if end is None else f"{end.row.name}, {comparison(end.deciding.check)}" for end in ends),
    ]


def _crossing_text(capacity: Capacity) -> str:
    """Of the limit that is reached first."""
    known = [one for one in capacity.crossings.values() if one.at is not None]
    if not known:
        return ""
    first = min(known, key=lambda one: one.at or 0.0)
    ends = ["?" if end is None else f"{end:.3g}" for end in (first.low, first.high)]
    return f"{first.at:.3g}" + (f" ({ends[0]} to {ends[1]})" if ends != ["?", "?"] else "")


def _lines(one: CapacitySet) -> Iterator[str]:
    for item in one.classes:
        name = item.traffic or "all"
        if item.capacity is None:
            yield f"{name}: no limit is named; --limit ttft_p95_s=2 names one, and so does an objective of the scenario"
            continue
        texts = (limit_text(Check(metric, limit, None)) for metric, limit in item.capacity.limits.items())
        yield f"{name}: {', '.join(texts)}"
        yield from (f"{name}, next: {step}" for step in item.next_steps)
    yield from one.left_out


def _knee_table(knee: Knee) -> TextTable | None:
    if not knee.steps:
        return None
    body = [
        [
            step.before.name,
            step.after.name,
            f"{(step.gain.value or 0.0) * 100:.0f}",
            "" if step.gain.low is None or step.gain.high is None
            else f"{step.gain.low * 100:.0f} to {step.gain.high * 100:.0f}",
        ]
        for step in knee.steps
    ]  # fmt: skip
    header = ["from", "to", "% tok/s for twice the load", "95 % interval"]
    return TextTable("knee", "Knee", header, body, fixed=2, left=frozenset({0, 1}))


def _csv(sets: Sequence[CapacitySet]) -> str:
    """One line a class and level: what it says about all limits of the class."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(["set", "class", "level", "load", "evidence", "by_value", "metric", "value", "low", "high", "limit", "why"])
    for one in sets:
        for item in one.classes:
            for point in item.capacity.points if item.capacity else ():
                deciding, figure = point.deciding, point.deciding.figure
                by_value = {None: "", True: "fits", False: "misses"}[point.by_value]
                numbers = ["" if end is None else f"{end:.6g}" for end in (figure.value, figure.low, figure.high)]
                check = deciding.check
                why = deciding.barred or deciding.why
                start = [one.name, item.traffic or "", point.row.name, f"{point.load:g}", point.evidence, by_value]
                write([*start, check.metric, *numbers, f"{check.limit:g}", why])
    return out.getvalue()
