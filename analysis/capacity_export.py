"""Capacity as JSON, for programs and for the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from analysis.capacity import Bracket, Capacity, LoadPoint, of_all
from analysis.capacity_guidance import Sentence
from analysis.capacity_set import Asked, CapacitySet, ClassCapacity
from analysis.knee import Knee


def capacity_document(sets: Sequence[CapacitySet], asked: Asked) -> dict[str, Any]:
    """Loads are users, or sessions a second where ``of_users`` is false; times are seconds. A value that failures make
    infinitely late is null, and ``infinite``."""
    return {
        "knee_gain": asked.knee_gain,
        "tiers": [{"name": tier.name, "limits": tier.limits} for tier in asked.tiers],
        "sets": [
            {
                "name": one.name,
                "classes": [_class(item) for item in one.classes],
                "all": _all(one),
                "knee": None if one.knee is None else _knee(one.knee),
                "missed": one.missed,
                "reasons": [
                    {"levels": list(reason.levels), "cause": reason.cause.value, "text": reason.text}
                    for reason in one.reasons
                ],
                "does_not_close": list(one.closing),
                "left_out": list(one.left_out),
            }
            for one in sets
        ],
    }


def _all(one: CapacitySet) -> dict[str, str] | None:
    """What fits all classes at once; ``None`` where no class has a limit."""
    known = [item.capacity for item in one.classes if item.capacity is not None]
    return dict(zip(("answer", "answer_by_value"), of_all(known), strict=True)) if known else None


def _class(one: ClassCapacity) -> dict[str, Any]:
    return {
        "traffic": one.traffic,
        "objective": one.objective,
        "capacity": None if one.capacity is None else _capacity(one.capacity),
        "next_steps": list(one.next_steps),
        "guidance": [_sentence(sentence) for sentence in one.guidance],
    }


def _capacity(one: Capacity) -> dict[str, Any]:
    return {
        "limits": one.limits,
        "of_users": one.of_users,
        "answer": one.answer,
        "answer_by_value": one.answer_by_value,
        "decided": one.decided,
        "proven": _bracket(one.proven),
        "values": _bracket(one.values),
        "crossings": {
            metric: {"at": crossing.at, "low": crossing.low, "high": crossing.high}
            for metric, crossing in one.crossings.items()
        },
        "levels": [_point(point) for point in one.points],
    }


def _bracket(one: Bracket) -> dict[str, Any]:
    ends = {"fits": one.fits, "misses": one.misses, "against": one.against}
    return {name: None if end is None else {"level": end.row.name, "load": end.load} for name, end in ends.items()}


def _point(one: LoadPoint) -> dict[str, Any]:
    check, figure = one.deciding.check, one.deciding.figure
    return {
        "level": one.row.name,
        "load": one.load,
        "evidence": one.evidence.value,
        "by_value": one.by_value,
        "metric": check.metric,
        "limit": check.limit,
        "value": _finite(figure.value),
        "infinite": figure.value is not None and math.isinf(figure.value),
        "low": _finite(figure.low),
        "high": _finite(figure.high),
        "n": figure.n,
        "why": one.deciding.why,
        "barred": one.deciding.barred,
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _sentence(one: Sentence) -> dict[str, Any]:
    return {
        "key": one.key,
        "text": one.text or None,
        "rows": list(one.rows),
        "up_to": one.up_to,
        "open_ended": one.open_ended,
        "withheld": one.withheld or None,
        "unproven": one.unproven or None,
    }


def _knee(one: Knee) -> dict[str, Any]:
    return {
        "at": one.at,
        "low": one.low,
        "high": one.high,
        "text": one.text,
        "steps": [
            {
                "from": step.before.name,
                "to": step.after.name,
                "gain": step.gain.value,
                "low": step.gain.low,
                "high": step.gain.high,
            }
            for step in one.steps
        ],
    }
