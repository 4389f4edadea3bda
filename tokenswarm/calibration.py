"""What this machine was found to measure truthfully: the file of ``make calibrate``, and what a run takes from it.

``calibration.json`` in the results folder holds one entry for each machine, number of load processes, scenario and kind
of load; ``docs/calibration.md`` describes its members.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from tokenswarm.errors import RunFolderError

FILE = "calibration.json"
FORMAT = 1
ERROR_LIMIT = 0.05  # of the median: what an error must not exceed for a level to be truthful

Axis = Literal["users", "rate"]
"""What the loads of a calibration are: users at the same time, or arrivals a second."""

_KEPT = ("date", "server", "scenario", "processes", "axis", "highest", "truthful_up_to", "versions")
_OF_LEVEL = (
    "load",
    "ttft_error_p95_ms",
    "tpot_error_p95_ms",
    "e2e_error_p95_ms",
    "send_delay_p95_ms",
    "tokens_exact",
    "truthful",
)


def machine() -> dict[str, Any]:
    """What a calibration belongs to. ``id`` is equal for the same system with the same processor, cores and memory; it
    is a digest, from which the system cannot be told."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = {"cpu": _processor(), "cores": cores, "memory_gb": _memory_gb()}
    system = _first_line("/etc/machine-id")
    digest = hashlib.sha256(json.dumps([system, facts], sort_keys=True).encode()).hexdigest()
    return {"id": digest[:16], **facts, "kernel": platform.release()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _memory_gb() -> float | None:
    words = (_first_line("/proc/meminfo") or "").split()
    return round(int(words[1]) / 1e6, 1) if len(words) > 1 else None


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text().partition("\n")[0].strip() or None
    except OSError:
        return None


def read_calibrations(results: Path) -> list[dict[str, Any]]:
    """The entries kept in a results folder, oldest first; none where there is no file.

    Raises ``RunFolderError`` with one line where the file is there and is none of ours.
    """
    path = results / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    entries = content.get("calibrations") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(entries, list) or not all(_whole(entry) for entry in entries):
        raise RunFolderError(f"{path}: not a list of calibrations in format {FORMAT}; run make calibrate again")
    return entries


def _whole(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and all(name in entry for name in (*_KEPT, "machine", "scenario_digest", "levels"))
        and isinstance(entry["machine"], dict)
        and isinstance(entry["levels"], list)
        and all(isinstance(level, dict) and all(name in level for name in _OF_LEVEL) for level in entry["levels"])
    )


def keep_calibration(results: Path, entry: dict[str, Any]) -> Path:
    """Adds ``entry`` in place of an older one for the same; the file appears whole or not at all."""
    kept = [one for one in read_calibrations(results) if _key(one) != _key(entry)]
    path = results / FILE
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps({"format": FORMAT, "calibrations": [*kept, entry]}, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)
    return path


def _key(entry: dict[str, Any]) -> tuple[Any, ...]:
    return entry["machine"].get("id"), entry["processes"], entry["axis"], entry["scenario"]


def calibration_for(results: Path, *, processes: int, axis: Axis, digest: str) -> dict[str, Any] | None:
    """What ``run.json`` says of the calibration that holds for a run on this machine, None where there is none.

    Of several the one of the scenario with this digest, else the newest. A file that cannot be read is told as
    ``problem`` and stops no run.
    """
    try:
        entries = read_calibrations(results)
    except RunFolderError as error:
        return {"problem": str(error)}
    here = machine()["id"]
    fitting = [
        entry
        for entry in entries
        if (entry["machine"].get("id"), entry["processes"], entry["axis"]) == (here, processes, axis)
    ]
    if not fitting:
        return None
    chosen = max(fitting, key=lambda entry: (entry["scenario_digest"] == digest, str(entry["date"])))
    return {
        **{name: chosen[name] for name in _KEPT},
        "same_scenario": chosen["scenario_digest"] == digest,
        "levels": [{name: level[name] for name in _OF_LEVEL} for level in chosen["levels"]],
    }


def truthful_up_to(levels: Iterable[dict[str, Any]]) -> float | None:
    """The highest load up to which every level was truthful; None where not even the lowest was."""
    highest = None
    for level in sorted(levels, key=lambda level: float(level["load"])):
        if not level["truthful"]:
            break
        highest = level["load"]
    return highest
