"""Which of the calibrations in a results folder a run takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenswarm.calibration import (
    FILE,
    calibration_for,
    keep_calibration,
    machine,
    read_calibrations,
    truthful_up_to,
)
from tokenswarm.errors import RunFolderError


def _entry(**changes: Any) -> dict[str, Any]:
    level = {
        "load": 8, "ttft_error_p95_ms": 0.3, "tpot_error_p95_ms": 0.01, "e2e_error_p95_ms": 0.3,
        "send_delay_p95_ms": 1.0, "tokens_exact": True, "truthful": True, "requests": 100,
    }  # fmt: skip
    known = {
        "date": "2026-11-30T12:00:00+00:00", "machine": machine(), "versions": {}, "server": "reference server",
        "scenario": "s", "scenario_digest": "d", "processes": 1, "axis": "users", "highest": 8, "truthful_up_to": 8,
        "levels": [level],
    }  # fmt: skip
    return known | changes


def test_only_the_same_machine_processes_and_kind_of_load_count(tmp_path: Path) -> None:
    """Two processes, a rate, or another machine: nothing is known."""
    keep_calibration(tmp_path, _entry())
    keep_calibration(tmp_path, _entry(machine={"id": "another"}, processes=3))
    found = calibration_for(tmp_path, processes=1, axis="users", digest="d")
    assert found is not None
    assert (found["truthful_up_to"], found["same_scenario"]) == (8, True)
    assert "requests" not in found["levels"][0]
    assert calibration_for(tmp_path, processes=2, axis="users", digest="d") is None
    assert calibration_for(tmp_path, processes=3, axis="users", digest="d") is None
    assert calibration_for(tmp_path, processes=1, axis="rate", digest="d") is None
    assert calibration_for(tmp_path / "elsewhere", processes=1, axis="users", digest="d") is None


def test_the_own_scenario_comes_before_a_newer_one(tmp_path: Path) -> None:
    """Without one of its own a run takes the newest, and says that it is of another scenario."""
    keep_calibration(tmp_path, _entry(scenario="own", scenario_digest="own", highest=1))
    keep_calibration(tmp_path, _entry(scenario="new", scenario_digest="new", date="2026-12-02", highest=3))
    keep_calibration(tmp_path, _entry(scenario="old", scenario_digest="old", date="2026-12-01", highest=2))
    for digest, highest, same in (("own", 1, True), ("other", 3, False)):
        found = calibration_for(tmp_path, processes=1, axis="users", digest=digest)
        assert found is not None
        assert (found["highest"], found["same_scenario"]) == (highest, same)


def test_a_new_calibration_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    """Same machine, processes, kind of load and scenario; others stay."""
    for highest, processes in ((1, 1), (2, 2), (3, 1)):
        keep_calibration(tmp_path, _entry(highest=highest, processes=processes))
    assert [entry["highest"] for entry in read_calibrations(tmp_path)] == [2, 3]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": 2, "calibrations": []}', '{"format": 1, "calibrations": [{"date": "x"}]}', "\xff"]
)
def test_a_damaged_file_stops_no_run_and_is_told(tmp_path: Path, text: str) -> None:
    """One line with the file's name."""
    (tmp_path / FILE).write_text(text, encoding="latin-1")
    found = calibration_for(tmp_path, processes=1, axis="users", digest="d")
    assert found is not None
    assert list(found) == ["problem"]
    assert str(tmp_path / FILE) in found["problem"]
    assert "\n" not in found["problem"]
    with pytest.raises(RunFolderError):
        keep_calibration(tmp_path, _entry())


def test_truthful_up_to_the_first_level_that_is_not() -> None:
    """A good level above a bad one proves nothing."""
    levels = [{"load": load, "truthful": good} for load, good in ((1, True), (8, False), (4, True), (16, True))]
    assert truthful_up_to(levels) == 4
    assert truthful_up_to(levels[1:2]) is None
