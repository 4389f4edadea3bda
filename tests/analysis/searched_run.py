"""Run folders of a search for the highest rate, made by hand: 100 arrivals a level, all as late as it is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.analysis.clocked_run import arrival, write_levels
from tests.analysis.conftest import write_run

SCENARIO = {
    "traffic": [{"name": "chat", "objective": "quick"}],
    "objectives": {"quick": {"ttft_s": {"p95": 1.0}}},
    "load": {"open": {"requests_per_s": {"search": {"start": 1, "limit": 8}}, "duration_s": 100}},
}


def searched_run(
    folder: Path,
    tried: Sequence[tuple[float, float]],
    *,
    ended: bool = True,
    levels: dict[int, dict[str, Any]] | None = None,
    scenario: dict[str, Any] | None = None,
    requests: int = 100,
) -> Path:
    """``tried``: rate and TTFT in seconds of each level. As in a real run only the first level is in ``run.json``;
    ``levels``: what else ``levels.csv`` says of one."""
    records, rows = [], []
    for level, (per_s, ttft_s) in enumerate(tried):
        due = [1000.0 * level + i / per_s for i in range(requests)]
        records += [arrival(i, at_s, at_s, at_s + ttft_s, level=level) for i, at_s in enumerate(due)]
        row = {"rate_per_s": per_s, "scheduled": requests, "measured_started_s": due[0], "ended_s": due[-1] + 10}
        rows.append(row | (levels or {}).get(level, {}))
    first = {"arrivals": "constant", "concurrency": None, "label": f"{tried[0][0]:g}/s", "rate_per_s": tried[0][0]}
    write_run(folder, records, levels=[first | {"max_users": 8}], ended=ended, scenario=scenario or SCENARIO)
    write_levels(folder, rows)
    return folder


def write_search(folder: Path, ended: str, reason: str) -> None:
    (folder / "search.json").write_text(json.dumps({"format": 1, "ended": ended, "reason": reason}))
