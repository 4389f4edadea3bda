"""What ``run.json`` says: what was asked of whom, by what, in which levels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenswarm.calibration import Axis, calibration_for
from tokenswarm.plan import Plan
from tokenswarm.provenance import provenance
from tokenswarm.rundir import FORMAT
from tokenswarm.schedule import Level


def described(
    plan: Plan, levels: Iterable[Level], *, results: Path | None = None, processes: int | None = None
) -> dict[str, Any]:
    """Of the run that ``plan`` was made for, beginning now.

    ``results``: the folder in which a calibration would be; ``processes``: how many make the load, where all of them
    run on this machine.
    """
    return {
        "format": FORMAT,
        "name": plan.scenario.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "run_id": plan.run,
        **plan.description(),
        "provenance": provenance(),
        "calibration": _calibration(plan, results, processes),
        "levels": [_level(plan, level) for level in levels],
    }


def _calibration(plan: Plan, results: Path | None, processes: int | None) -> dict[str, Any] | None:
    load = plan.scenario.load
    if results is None or processes is None or load is None or load.replay is not None:
        return None
    axis: Axis = "users" if load.open is None else "rate"
    return calibration_for(results, processes=processes, axis=axis, digest=plan.scenario.digest)


def _level(plan: Plan, level: Level) -> dict[str, Any]:
    return {
        "level": level.index,
        "concurrency": None if level.by_clock else level.concurrency,
        "label": level.label,
        "arms": level.arms,
        "sessions": level.sessions,
        "warmup_sessions": level.warmup_sessions,
        "duration_s": level.duration_s,
        "tail": level.tail,
        "round": level.round,
        "users_by_class": _by_class(plan, level),
        **(_by_clock(level) if level.by_clock else {}),
    }


def _by_clock(level: Level) -> dict[str, Any]:
    arrivals = None if level.arrivals is None else asdict(level.arrivals)
    return {
        "rate_per_s": level.rate_per_s,
        "arrivals": arrivals,
        "replayed": level.replayed,
        "max_users": level.concurrency,
        "when_full": level.when_full,
    }


def _by_class(plan: Plan, level: Level) -> dict[str, int] | None:
    """Users of each class that the level has; None where tickets are mixed by the weights."""
    names = [traffic.name for traffic in plan.scenario.traffic]
    return {name: users for name, users in zip(names, level.quotas, strict=True) if users} if level.quotas else None
