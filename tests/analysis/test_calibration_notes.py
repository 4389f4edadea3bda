"""What a calibration of the load generator makes a reader see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def _calibrated(folder: Path, **changes: Any) -> None:
    """Of the small run, whose levels have 1 and 2 users."""
    level = {"load": 2, "ttft_error_p95_ms": 0.3, "tpot_error_p95_ms": 0.01, "e2e_error_p95_ms": 0.35}
    calibration = {
        "date": "2026-11-30T12:00:00+00:00", "server": "reference server", "scenario": "s", "same_scenario": True,
        "processes": 1, "axis": "users", "highest": 2, "truthful_up_to": 2, "levels": [level],
    } | changes  # fmt: skip
    _facts(folder, calibration)


def _facts(folder: Path, calibration: Any) -> None:
    known = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(known | {"calibration": calibration}))


def _lines(table: Any, folder: Path, *options: str) -> list[str]:
    shown = table(folder, "--width", "400", *options).out.splitlines()
    return [line for line in shown if "calibrat" in line]


def test_without_doubt_it_is_a_detail(table: Any, small: Path) -> None:
    """When, with what and how exactly is told only where all notes are asked for."""
    _calibrated(small)
    assert _lines(table, small) == []
    assert _lines(table, small, "--notes") == [
        "calibrated 2026-11-30 with this scenario and 1 load process against the reference server: truthful up to "
        "c <= 2, TTFT error p95 0.3 ms, TPOT error p95 0.01 ms, E2E error p95 0.35 ms"
    ]


@pytest.mark.parametrize(
    ("calibration", "detail"),
    [
        (None, "not calibrated: make calibrate SCENARIO=... finds out what this machine can measure truthfully"),
        ({"problem": "results/calibration.json: cannot be read"}, "not calibrated: results/calibration.json: cannot"),
    ],
)
def test_a_missing_calibration_is_no_noise(table: Any, small: Path, calibration: Any, detail: str) -> None:
    """A detail at most."""
    _facts(small, calibration)
    assert _lines(table, small) == []
    (line,) = _lines(table, small, "--notes")
    assert line.startswith(detail)


def test_levels_beyond_it_are_named(table: Any, small: Path) -> None:
    """c=2 where truth was found up to one user; all levels where it was found at none."""
    _calibrated(small, truthful_up_to=1)
    assert _lines(table, small) == ["c=2: beyond what was calibrated (c <= 1)"]
    _calibrated(small, truthful_up_to=None)
    assert _lines(table, small) == ["c=1, c=2: with this many load processes the calibration found no level truthful"]


def test_an_error_that_is_a_large_part_of_a_figure_is_told(table: Any, small: Path) -> None:
    """40 ms are 8 % of the TTFT median of 0.5 s at c=1, and less than 5 % of the others."""
    figures = table(small, "--json").json["levels"][0]["figures"]
    error_ms = 0.08 * figures["ttft_p50_s"]["value"] * 1e3
    _calibrated(small, levels=[{"load": 1, "ttft_error_p95_ms": error_ms, "e2e_error_p95_ms": 0.1}])
    (line,) = _lines(table, small)
    assert line == f"calibrated error above 5% of the median: c=1 TTFT {error_ms:.0f} ms (8%)"


def test_users_say_nothing_about_rates(table: Any, small: Path) -> None:
    """A calibration by rate has no word on levels of users."""
    _calibrated(small, axis="rate", truthful_up_to=0.1)
    assert _lines(table, small) == []
