"""What the calibration of the load generator says about the levels of a run: beyond it, or too coarse for a figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from analysis.levels import LevelRow
from analysis.limits import mapping
from analysis.outcome import Note
from analysis.run_folder import Run
from tokenswarm.calibration import ERROR_LIMIT

_FIGURES = (("TTFT", "ttft"), ("TPOT", "tpot"), ("E2E", "e2e"))
_HOW = "make calibrate SCENARIO=... finds out what this machine can measure truthfully"


def calibration_notes(run: Run, rows: list[LevelRow]) -> list[Note]:
    """Nothing but a detail where there is no calibration, or where it casts no doubt on any level."""
    if "calibration" not in run.facts:
        return []  # of an earlier version, or of another tool
    facts = mapping(run.facts["calibration"])
    if not facts or "problem" in facts:
        return [Note("calibration", f"not calibrated: {facts.get('problem') or _HOW}", detail=True)]
    levels = sorted(
        (level for level in facts.get("levels", []) if isinstance(level, dict)), key=lambda one: float(one["load"])
    )
    loads = {row.level: load for row in rows if (load := _load(run, row, str(facts.get("axis")))) is not None}
    driven = [(row, loads[row.level]) for row in rows if row.level in loads]
    return [*_beyond(facts, driven), *_coarse(levels, driven), Note("calibration", _told(facts, levels), detail=True)]


def _load(run: Run, row: LevelRow, axis: str) -> float | None:
    """Users or arrivals a second of a level, None where it was driven the other way."""
    planned = next((level for level in run.planned_levels if level.get("level") == row.level), {})
    rate = planned.get("rate_per_s")
    if rate is None and "rate_per_s" in run.levels:
        found = run.levels.loc[run.levels["level"] == row.level, "rate_per_s"].dropna()
        rate = None if found.empty else float(found.iloc[-1])
    if axis == "rate":
        return None if rate is None else float(rate)
    return None if rate is not None or row.concurrency is None or pd.isna(row.concurrency) else float(row.concurrency)


def _beyond(facts: dict[str, Any], driven: list[tuple[LevelRow, float]]) -> list[Note]:
    limit = facts.get("truthful_up_to")
    if limit is None:
        names = [row.name for row, _ in driven]
        why = "with this many load processes the calibration found no level truthful"
    else:
        names = [row.name for row, load in driven if load > limit]
        why = f"beyond what was calibrated ({_bound(facts, limit)})"
    return [Note("calibration", f"{', '.join(names)}: {why}")] if names else []


def _coarse(levels: list[dict[str, Any]], driven: list[tuple[LevelRow, float]]) -> list[Note]:
    """Levels whose medians are so small that the calibrated error, at the next load upward, is a large part of them."""
    told = []
    for row, load in driven:
        level = next((one for one in levels if float(one["load"]) >= load), {})
        for title, name in _FIGURES:
            error_ms, median_s = level.get(f"{name}_error_p95_ms"), row.figure(f"{name}_p50_s").value
            if error_ms is not None and median_s and error_ms > ERROR_LIMIT * median_s * 1e3:
                told.append(f"{row.name} {title} {_ms(error_ms)} ({error_ms / median_s / 1e3:.0%})")
    text = f"calibrated error above {ERROR_LIMIT:.0%} of the median: {', '.join(told)}"
    return [Note("calibration", text)] if told else []


def _told(facts: dict[str, Any], levels: Iterable[dict[str, Any]]) -> str:
    """One line: when, against what, how far and how exactly."""
    limit = facts.get("truthful_up_to")
    within = [level for level in levels if limit is not None and float(level["load"]) <= limit]
    errors = [
        f"{title} error p95 {_ms(max(values))}"
        for title, name in _FIGURES
        if (values := [value for one in within if (value := one.get(f"{name}_error_p95_ms")) is not None])
    ]
    scenario = "this scenario" if facts.get("same_scenario") else f"scenario {facts.get('scenario')}"
    processes = facts.get("processes")
    reach = f"truthful up to {_bound(facts, limit)}" if limit is not None else "no level was truthful"
    return (
        f"calibrated {str(facts.get('date'))[:10]} with {scenario} and {processes} load process"
        f"{'' if processes == 1 else 'es'} against the {facts.get('server')}: {', '.join([reach, *errors])}"
    )


def _bound(facts: dict[str, Any], limit: float) -> str:
    return f"c <= {limit:g}" if facts.get("axis") == "users" else f"{limit:g}/s"


def _ms(value: float) -> str:
    if value < 0.001:
        return "below 0.001 ms"
    return f"{value:.2g} ms" if value < 10 else f"{value:.0f} ms"
