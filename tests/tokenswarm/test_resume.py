"""Which run folders a sweep can go on from, and what is taken over of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenswarm.errors import InputError
from tokenswarm.resume import Resumption
from tokenswarm.rundir import FORMAT, HEADERS, RunFolder
from tokenswarm.scenario import Scenario, parse_scenario

SCENARIO = "load: {open: {requests_per_s: [1, 2, 3], duration_s: 2}}"


def scenario(text: str = SCENARIO) -> Scenario:
    return parse_scenario(text, "s.yaml")


def written(path: Path, file: str, rows: list[dict[str, str]]) -> None:
    """A file of a run folder, with blanks in the columns that a row does not name."""
    with open(path / f"{file}.csv", "w", newline="", encoding="utf-8") as lines:
        table = csv.DictWriter(lines, HEADERS[file], restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A sweep of three levels, of which the last was interrupted: two and three sessions of the complete ones."""
    path = tmp_path / "old"
    path.mkdir()
    planned = [{"level": number} for number in range(3)]
    description = {"format": FORMAT, "run_id": "r", "scenario_digest": scenario().digest, "levels": planned}
    (path / "run.json").write_text(json.dumps(description))
    states = ("complete", "2"), ("complete", "3"), ("interrupted", "1")
    levels = [
        {"level": str(n), "state": state, "scheduled": count, "lost": "0", "started_s": "100.5"}
        for n, (state, count) in enumerate(states)
    ]
    written(path, "levels", levels)
    rows = [
        {"level": str(n), "phase": "measured", "session": f"{n}.{i}", "worker": "w0"}
        for n, count in enumerate((2, 3, 1))
        for i in range(count)
    ]
    written(path, "requests", rows)
    written(path, "timeline", [])
    written(path, "workers", [{"worker": "w0", "wall_s": "1000", "monotonic_s": "100", "offset_s": "0"}])
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_complete_levels_are_taken_over_on_the_new_clock(run: Path, tmp_path: Path) -> None:
    """Rows of complete levels alone, workers renamed; a time of 100.5 s is 1000.5 s of unix time, and the new master's
    clock is 900 s behind that."""
    resumption = Resumption.of(run, scenario())
    assert resumption.levels == {0, 1}
    folder = RunFolder.create(tmp_path / "results", "new")
    resumption.take_over(folder, 900.0)
    folder.close()
    requests = rows_of(folder.path / "requests.csv")
    assert [row["session"] for row in requests] == ["0.0", "0.1", "1.0", "1.1", "1.2"]
    assert {row["worker"] for row in requests} == {"w0 of old"}
    levels = rows_of(folder.path / "levels.csv")
    assert [(row["level"], row["started_s"]) for row in levels] == [("0", "100.500000"), ("1", "100.500000")]


def cut(file: str, count: int) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        path = run / file
        path.write_bytes(path.read_bytes()[:-count])

    return damage


def text(file: str, content: str) -> Callable[[Path], None]:
    return lambda run: (run / file).write_text(content) and None


def renamed_level(run: Path) -> None:
    path = run / "levels.csv"
    path.write_text(path.read_text().replace("\n0,", "\n77,"))


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda run: (run / "run.json").unlink(), "run.json or levels.csv cannot be read: No such file or directory"),
        (text("run.json", "[]"), "run.json describes no run"),
        (text("run.json", '{"format": 99}'), f"has format 99, {FORMAT} is wanted"),
        (lambda run: (run / "requests.csv").unlink(),
         "requests.csv is missing; its levels cannot be taken over without"),
        (lambda run: (run / "workers.csv").unlink(), "workers.csv is missing; its levels cannot be taken over without"),
        (lambda run: written(run, "requests", []),
         "requests.csv has 0 measured sessions of level 0, 2 are wanted; rows are lost"),
    ],
)  # fmt: skip
def test_damaged_folders_are_refused_in_one_line(run: Path, damage: Callable[[Path], None], line: str) -> None:
    """What is missing or cannot be is named, before any load."""
    damage(run)
    with pytest.raises(InputError) as refused:
        Resumption.of(run, scenario())
    assert str(refused.value) == f"--resume {run}: {line}"


def test_a_row_that_was_cut_off_is_missed(run: Path) -> None:
    """The file ends within the last complete level: one of its three sessions is no whole row any more."""
    written(run, "requests", [row for row in rows_of(run / "requests.csv") if row["level"] != "2"])
    cut("requests.csv", 40)(run)
    with pytest.raises(InputError, match=r"requests.csv has 2 measured sessions of level 1, 3 are wanted"):
        Resumption.of(run, scenario())


def test_a_level_that_was_never_planned_is_not_taken_over(run: Path) -> None:
    """A number beyond those of run.json is damage, and the level that it should be is run again."""
    renamed_level(run)
    assert Resumption.of(run, scenario()).levels == {1}


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (SCENARIO.replace("3]", "4]"), "was another scenario than s.yaml; give the one of that run"),
        ("traffic: [{}]", "only a scenario that lists its levels can be resumed"),
    ],
)
def test_another_scenario_is_refused(run: Path, asked: str, line: str) -> None:
    """A sweep goes on with what it began with."""
    with pytest.raises(InputError) as refused:
        Resumption.of(run, scenario(asked))
    assert str(refused.value) == f"--resume {run}: {line}"


def test_a_finished_sweep_has_nothing_to_resume(run: Path) -> None:
    """All levels complete."""
    path = run / "levels.csv"
    path.write_text(path.read_text().replace("interrupted", "complete"))
    with pytest.raises(InputError, match="all of its 3 levels are complete"):
        Resumption.of(run, scenario())
