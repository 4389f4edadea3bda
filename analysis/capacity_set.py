"""Levels of one kind with what is said of their capacity: by class, the knee, the reasons, the sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.audit import concerns_of
from analysis.audit_concern import Kind
from analysis.audit_set import name_of
from analysis.capacity import Capacity, Limits, LoadPoint, amount, capacity_of
from analysis.capacity_guidance import FEWEST, TIERS, Sentence, Tier, guidance_of
from analysis.capacity_level import FAILED, Evidence, barred, load_of
from analysis.capacity_reason import Reason, merged, reasons_of
from analysis.knee import GAIN, Knee, knee_of
from analysis.levels import LevelRow
from analysis.limits import limits_by_class, mapping, objective_names
from analysis.objectives import DEFAULT_FAILED_LIMIT
from analysis.outcome import Outcome


@dataclass(frozen=True)
class Asked:
    """What a user may set. ``limits`` go beside, and before, those of the scenario's objectives."""

    limits: Limits
    tiers: tuple[Tier, ...] = TIERS
    fewest: int = FEWEST
    knee_gain: float = GAIN


@dataclass(frozen=True)
class ClassCapacity:
    """``capacity`` is ``None`` where nobody named a limit for the class."""

    traffic: str | None
    objective: str | None
    capacity: Capacity | None
    next_steps: tuple[str, ...]
    guidance: tuple[Sentence, ...]


@dataclass(frozen=True)
class CapacitySet:
    """``name``: of the kind of levels, empty where there is one; ``closing``: what does not close in rows used.

    ``reasons`` are of the levels that miss, or where none does (``missed`` is false) of the highest.
    """

    name: str
    classes: tuple[ClassCapacity, ...]
    knee: Knee | None
    missed: bool
    reasons: tuple[Reason, ...]
    closing: tuple[str, ...]
    left_out: tuple[str, ...]


def capacity_sets(outcome: Outcome, asked: Asked) -> list[CapacitySet]:
    """One for each kind of levels that have a load, in their order."""
    kinds = list(dict.fromkeys(row.load for row in outcome.levels if load_of(row) is not None))
    return [_set(outcome, asked, kind, several=len(kinds) > 1) for kind in kinds]


def _set(outcome: Outcome, asked: Asked, kind: tuple[str, tuple[str, ...]], *, several: bool) -> CapacitySet:
    pooled = [row for row in outcome.levels if row.load == kind]
    rows = [row for row in outcome.classes if row.load == kind] or pooled
    classes = tuple(
        _class(outcome, asked, [row for row in rows if row.traffic == name], pooled)
        for name in dict.fromkeys(row.traffic for row in rows)
    )
    good = [row for row in pooled if not barred(row) and row.state != "saturated"]
    arms, parts = kind
    used = {name for one in classes for name in _rows_used(one)}
    return CapacitySet(
        " · ".join(part for part in (arms, *parts) if part) if several else "",
        classes,
        None if any(row.by_clock for row in pooled) else knee_of(good, asked.knee_gain),
        _first_miss(classes) is not None,
        tuple(merged(_reasons(outcome, pooled, _first_miss(classes)))),
        tuple(_closing(outcome, pooled, used)),
        tuple(f"{row.name} proves nothing: {why}" for row in pooled if (why := barred(row))),
    )


def _class(outcome: Outcome, asked: Asked, rows: Sequence[LevelRow], pooled: Sequence[LevelRow]) -> ClassCapacity:
    name = rows[0].traffic
    limits = _limits(outcome, name) | asked.limits
    capacity = capacity_of(rows, {FAILED: DEFAULT_FAILED_LIMIT} | limits, pooled) if limits else None
    return ClassCapacity(
        name,
        objective_names(outcome.scenario).get(name or ""),
        capacity,
        tuple(next_steps(capacity)) if capacity else (),
        tuple(guidance_of(rows, pooled, asked.tiers, asked.fewest)),
    )


def _limits(outcome: Outcome, name: str | None) -> Limits:
    """Of the objective of a class, by metric."""
    objective = limits_by_class(outcome.scenario).get(name or "", {})
    found = {
        f"{latency.removesuffix('_s')}_{statistic}_s": float(limit)
        for latency, told in objective.items()
        for statistic, limit in mapping(told).items()
    }
    failed = objective.get("failed")
    return found | ({} if failed is None else {FAILED: float(failed)})


def next_steps(capacity: Capacity) -> Iterator[str]:
    """What would narrow the answer, the most useful first."""
    fits, misses, of_users = capacity.proven.fits, capacity.proven.misses, capacity.of_users
    low, high = (0.0 if fits is None else fits.load), (None if misses is None else misses.load)
    between = [one for one in capacity.points if one.load > low and (high is None or one.load < high)]
    yield from (f"{one.row.name} is open: {_why(one)}" for one in between if one.evidence is Evidence.OPEN)
    if capacity.proven.against is not None and misses is not None:
        yield f"{capacity.proven.against.row.name} fits although {misses.row.name} misses: repeat both"
    if not capacity.points:
        yield "no level has a load and figures"
    elif misses is None and fits is capacity.points[-1]:
        yield f"measure more than {amount(fits.load, of_users)}"
    elif fits is None and not between and (misses is None or misses.load > 1):
        yield f"measure fewer than {amount(capacity.points[0].load, of_users)}"
    elif fits and misses and not between and (not of_users or misses.load - fits.load > 1):
        yield f"a level between {fits.row.name} and {misses.row.name} narrows it"


def _why(point: LoadPoint) -> str:
    if point.deciding.barred:
        return point.deciding.barred
    advice = {
        "its interval holds the limit": "; more requests there, or levels beside it, decide",
        "its source tells no interval": "; a run with requests.csv does",
    }
    why = point.deciding.why
    return f"{point.text.split(': ', 1)[1]}, {why}{advice.get(why, '')}"


def _rows_used(one: ClassCapacity) -> Iterator[str]:
    for sentence in one.guidance:
        yield from sentence.rows
    if one.capacity is not None:
        ends = (one.capacity.proven.fits, one.capacity.proven.misses, one.capacity.values.fits)
        yield from (end.row.name for end in ends if end is not None)


def _first_miss(classes: Sequence[ClassCapacity]) -> float | None:
    """The lowest load at which a limit is missed, by proof or by value."""
    ends = [
        end
        for one in classes
        if one.capacity is not None and (end := one.capacity.proven.misses or one.capacity.values.misses) is not None
    ]
    return min((end.load for end in ends), default=None)


def _reasons(outcome: Outcome, pooled: Sequence[LevelRow], first: float | None) -> Iterator[Reason]:
    ordered = sorted(pooled, key=lambda row: load_of(row) or 0.0)
    for row in ordered if first is not None else ordered[-1:]:
        if first is None or (load_of(row) or 0.0) >= first:
            yield from reasons_of(row, outcome.server)


def _closing(outcome: Outcome, pooled: Sequence[LevelRow], used: set[str]) -> Iterator[str]:
    """What the audit found in rows that something rests on; that a sample is small stands beside the answer already."""
    names = {name_of(row): row.name for row in pooled if row.name in used}
    for concern in concerns_of(outcome):
        if concern.kind is not Kind.SMALL and (its := [names[name] for name in concern.rows if name in names]):
            yield f"{', '.join(its)} does not close ({concern.kind}): {concern.text}"
