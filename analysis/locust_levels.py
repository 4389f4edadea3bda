"""Locust's statistics as an outcome: the level table for our own row names, one row a name for any others.

What the names mean is told in ``locust_names``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from analysis.failures import groups_of_texts, kind_of_text, short_text
from analysis.figures import BLANK, Figure, Mark, number, ratio
from analysis.levels import LevelRow
from analysis.locust_csv import LocustFiles, StatsRow
from analysis.locust_names import SIMULATED, UNMEASURED, Key, RowNames, is_ours, is_simulated
from analysis.notes import SIMULATED_TEXT
from analysis.outcome import NameRow, Note, Outcome, WarmupRow
from analysis.request_figures import LATENCIES
from tokenswarm.errors import ErrorKind

_PERCENTILES = {"p50": "50%", "p90": "90%", "p95": "95%", "p99": "99%"}
_UNMEASURED_NAMES = {"warmup": "warm-up"}


@dataclass
class _Part:
    """Rows of one level: by class and part, and its own."""

    of_class: dict[str, dict[str, StatsRow]] = field(default_factory=lambda: defaultdict(dict))
    own: dict[str, StatsRow] = field(default_factory=dict)


def outcome_of_locust(files: LocustFiles) -> Outcome:
    """The level table where the rows are ours, else one row a name."""
    outcome = Outcome(path=str(files.path), source="Locust CSV", name=files.path.stem.removesuffix("_stats"))
    outcome.failures = groups_of_texts((failure.text, failure.count) for failure in files.failures)
    outcome.notes += [
        Note("exceptions", f"{count} exceptions inside the locustfile: {short_text(message)}")
        for message, count in files.exceptions
    ]
    if any(is_ours(row) for row in files.rows):
        _add_levels(outcome, files)
    else:
        outcome.names = [_name_row(row) for row in files.rows]
        outcome.notes += [
            Note("coarse", "from Locust's statistics, rounded by Locust: failed requests are in its times"),
            Note("coarse", "requests/s is over the whole run, ramp and tail included"),
        ]
        if not any(row.requests for row in files.rows):
            outcome.doubts.append("no request was made")
    return outcome


def _add_levels(outcome: Outcome, files: LocustFiles) -> None:
    parts = _parts(files.rows)
    for key, part in sorted(parts.items(), key=lambda item: (item[0] is None, item[0] or ())):
        concurrency = files.most_users if key is None else key.users
        classes = [
            _class_row(key, concurrency, traffic, rows, part, files)
            for traffic, rows in sorted(part.of_class.items())
            if "requests" in rows
        ]
        outcome.warmup += _warmup(key, concurrency, part)
        if classes:
            outcome.classes += classes
            outcome.levels.append(_pooled(classes, part))
    if not outcome.levels:
        outcome.doubts.append("the run has no measured request")
    if any(is_simulated(row) for row in files.rows):
        outcome.simulated = True
        outcome.notes.append(Note("simulated", f"{SIMULATED}: {SIMULATED_TEXT}"))
    outcome.notes += _left_out(parts.values()) + _level_notes(parts.values())


def _left_out(parts: Iterable[_Part]) -> list[Note]:
    counts = dict.fromkeys(UNMEASURED, 0)
    for part in parts:
        for rows in part.of_class.values():
            for name in UNMEASURED:
                counts[name] += rows[name].requests if name in rows else 0
    told = [f"{count} {_UNMEASURED_NAMES.get(name, name)}" for name, count in counts.items() if count]
    return [Note("left out", f"not in counts and latencies: {', '.join(told)} requests")] if told else []


def _level_notes(parts: Iterable[_Part]) -> list[Note]:
    notes = [
        Note("coarse", "from Locust's statistics: counts, means and tok/s are exact, percentiles rounded by Locust"),
        Note("basis", "output tok/s: tokens in the window of the level / its wall time, as the run itself took them"),
    ]
    if any(len(part.of_class) > 1 for part in parts):
        text = "percentiles of several classes together cannot be had from Locust's statistics"
        notes.append(Note("coarse", text))
    return notes


def _parts(rows: list[StatsRow]) -> dict[Key, _Part]:
    parts: dict[Key, _Part] = defaultdict(_Part)
    names = RowNames(rows)
    for row in rows:
        if row.is_total or is_simulated(row):
            continue
        key, traffic, what = names.meaning(row)
        if not traffic:
            parts[key].own[what] = row
        else:
            parts[key].of_class[traffic][what] = row
    return parts


def _class_row(
    key: Key,
    concurrency: int | None,
    traffic: str,
    rows: dict[str, StatsRow],
    part: _Part,
    files: LocustFiles,
) -> LevelRow:
    requests = rows["requests"]
    kinds: dict[str, int] = defaultdict(int)
    for failure in files.failures:
        if failure.name == requests.name:
            kinds[kind_of_text(failure.text)] += failure.count
    cancelled = kinds.get(ErrorKind.CANCELLED.value, 0)
    row = LevelRow(
        level=None if key is None else key.order,
        concurrency=concurrency,
        traffic=traffic,
        label="" if key is None else key.label,
        arms="" if key is None else key.arms_name,
        clocked=key is not None and key.users is None,
        state="free-running" if key is None else "unknown",
        requests=requests.requests,
        ok=requests.requests - requests.failures,
        failed=requests.failures - cancelled,
        cancelled=cancelled,
        errors=dict(kinds),
    )
    for latency in LATENCIES:
        row.figures |= _latency(latency, rows.get(latency.upper()))
    tokens = _total(rows.get("tokens"), row.ok)
    wall = _wall_s(part)
    row.figures |= {
        "tokens": number(tokens),
        "wall_s": number(wall),
        "requests_per_s": number(ratio(row.ok, wall)),
        "output_tokens_mean": number(ratio(tokens, row.ok)),
        "per_request_tok_s": _per_request(rows, tokens),
    }
    if len(part.of_class) == 1:
        row.figures["output_tok_s"] = _rate(part, row.ok)
    return row


def _pooled(classes: list[LevelRow], part: _Part) -> LevelRow:
    """All classes of a level: sums and weighted means; percentiles only where there is one class."""
    first = classes[0]
    row = LevelRow(first.level, first.concurrency, label=first.label, arms=first.arms, state=first.state)
    row.clocked = first.clocked
    for one in classes:
        row.requests, row.ok = row.requests + one.requests, row.ok + one.ok
        row.failed, row.cancelled = row.failed + one.failed, row.cancelled + one.cancelled
        for kind, count in one.errors.items():
            row.errors[kind] = row.errors.get(kind, 0) + count
    if len(classes) == 1:
        row.figures = dict(first.figures)
        return row
    row.figures = {f"{latency}_mean_s": _pooled_mean(classes, f"{latency}_mean_s") for latency in LATENCIES}
    tokens = [one.figure("tokens").value for one in classes]
    known = [count for count in tokens if count is not None]
    row.figures |= {
        "tokens": number(sum(known) if len(known) == len(tokens) else None),
        "wall_s": first.figure("wall_s"),
        "requests_per_s": number(ratio(row.ok, first.figure("wall_s").value)),
        "output_tok_s": _rate(part, row.ok),
    }
    return row


def _latency(name: str, row: StatsRow | None) -> dict[str, Figure]:
    if row is None:
        return {}
    figures = {
        f"{name}_{label}_s": _seconds(row.ms(column), row.requests).marked(Mark.COARSE)
        for label, column in _PERCENTILES.items()
    }
    return figures | {f"{name}_mean_s": _seconds(row.ms("Average Response Time"), row.requests)}


def _per_request(rows: dict[str, StatsRow], tokens: float | None) -> Figure:
    """Tokens / (E2E - TTFT) on sums; coarse where some answers had no decode time of their own."""
    e2e, ttft, tpot = rows.get("E2E"), rows.get("TTFT"), rows.get("TPOT")
    if e2e is None or ttft is None or e2e.total_ms is None or ttft.total_ms is None:
        return BLANK
    figure = number(ratio(tokens, (e2e.total_ms - ttft.total_ms) / 1000.0))
    exact = tpot is not None and tpot.requests == e2e.requests
    return figure if exact else figure.marked(Mark.COARSE)


def _pooled_mean(classes: list[LevelRow], name: str) -> Figure:
    known = [one.figure(name) for one in classes]
    n = sum(figure.n or 0 for figure in known)
    total = sum((figure.value or 0.0) * (figure.n or 0) for figure in known)
    return Figure(total / n, n=n) if n else BLANK


def _rate(part: _Part, ok: int) -> Figure:
    """Blank where nothing succeeded: that is no throughput of 0."""
    if not ok:
        return BLANK
    return number(ratio(_total(part.own.get("window tokens"), 0), _wall_s(part)))


def _total(row: StatsRow | None, ok: int) -> float | None:
    """Sum of a row of counts; no row means no tokens only where nothing succeeded."""
    if row is None:
        return 0.0 if ok == 0 else None
    return row.cells.get("Average Response Time", 0.0) * row.requests


def _wall_s(part: _Part) -> float | None:
    row = part.own.get("wall")
    total = row.total_ms if row is not None else None
    return None if total is None else total / 1000.0


def _warmup(key: Key, concurrency: int | None, part: _Part) -> list[WarmupRow]:
    rows = [rows["warmup"] for rows in part.of_class.values() if "warmup" in rows]
    if not rows:
        return []
    label = "" if key is None else key.label
    counts = sum(r.requests for r in rows), sum(r.failures for r in rows)
    return [WarmupRow(concurrency, *counts, BLANK, None, BLANK, label)]


def _seconds(ms: float | None, n: int) -> Figure:
    return Figure(None if ms is None else ms / 1000.0, n=n)


def _name_row(row: StatsRow) -> NameRow:
    figures = {
        f"{label}_s": _seconds(row.ms(column), row.requests).marked(Mark.COARSE)
        for label, column in {**_PERCENTILES, "median": "Median Response Time", "p100": "100%"}.items()
    }
    for name, column in {
        "mean_s": "Average Response Time",
        "min_s": "Min Response Time",
        "max_s": "Max Response Time",
    }.items():
        figures[name] = _seconds(row.ms(column), row.requests)
    figures["requests_per_s"] = number(row.per_s("Requests/s")).marked(Mark.COARSE)
    figures["failures_per_s"] = number(row.per_s("Failures/s")).marked(Mark.COARSE)
    return NameRow(row.kind, row.name, row.requests, row.failures, row.is_total, figures)
