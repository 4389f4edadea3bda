"""Run folders: made before the load, appended to, never overwritten; what ran, without secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenswarm.errors import RunFolderError
from tokenswarm.provenance import provenance, redact
from tokenswarm.rundir import HEADERS, RunFolder


def test_every_file_has_its_header_from_the_start(tmp_path: Path) -> None:
    """A run that is killed before its first row is still a readable run."""
    folder = RunFolder.create(tmp_path, "demo")
    assert {file.stem for file in folder.path.glob("*.csv")} == set(HEADERS) - {"late"}
    assert (folder.path / "levels.csv").read_text() == ",".join(HEADERS["levels"]) + "\n"


def test_rows_are_on_disk_before_the_folder_is_closed(tmp_path: Path) -> None:
    """Appended and flushed as the run goes; None is blank."""
    folder = RunFolder.create(tmp_path, "demo")
    folder.append_row("workers", {"worker": "w0", "wall_s": 1.5, "monotonic_s": 2.0})
    assert (folder.path / "workers.csv").read_text().splitlines()[1] == "w0,1.500000,2.000000,,,"


def test_late_rows_have_a_file_where_there_are_some(tmp_path: Path) -> None:
    """Rows of a worker that was given up stand beside the others, under the same header; without any, no file does."""
    folder = RunFolder.create(tmp_path, "demo")
    folder.append("late", "")
    assert not (folder.path / "late.csv").exists()
    folder.append("late", "a,b\n")
    folder.append("late", "c,d\n")
    assert (folder.path / "late.csv").read_text() == ",".join(HEADERS["requests"]) + "\na,b\nc,d\n"


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    """Nothing is ever overwritten."""
    paths = {RunFolder.create(tmp_path, "demo").path for _ in range(3)}
    assert len(paths) == 3


def test_a_json_file_is_written_once(tmp_path: Path) -> None:
    """A second run.json is refused, and no half-written file is left."""
    folder = RunFolder.create(tmp_path, "demo")
    folder.write_once("run.json", {"format": 1})
    with pytest.raises(RunFolderError, match="never overwritten"):
        folder.write_once("run.json", {"format": 2})
    assert json.loads((folder.path / "run.json").read_text()) == {"format": 1}
    assert not list(folder.path.glob("*.part"))


def test_a_results_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """A file stands where the folder should be: told before any load."""
    (tmp_path / "results").write_text("")
    with pytest.raises(RunFolderError, match=r"results/.*-demo: cannot be created: Not a directory"):
        RunFolder.create(tmp_path / "results", "demo")


def test_secrets_leave_the_command_line() -> None:
    """Values of options that sound like secrets and anything that looks like a key become ***; paths stay."""
    words = ["-H", "http://h", "--api-key", "abc", "--api-key-file", "k.txt", "--token=xyz", "sk-abcdef123", "-u", "8"]
    assert redact(words) == [
        "-H",
        "http://h",
        "--api-key",
        "***",
        "--api-key-file",
        "k.txt",
        "--token=***",
        "***",
        "-u",
        "8",
    ]


def test_provenance_names_what_is_needed_to_repeat_a_run() -> None:
    """Versions of the instrument and of what it stands on."""
    known = provenance()
    assert known["locust"] == "2.47.0"
    assert known["tokenswarm"]
    assert known["gevent"]
    assert known["python"].startswith("3.")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_told_once_and_other_files_go_on(tmp_path: Path) -> None:
    """Two files that cannot be written are one line; a third keeps its rows, and closing raises nothing."""
    (tmp_path / "requests.csv").symlink_to("/dev/full")
    (tmp_path / "timeline.csv").symlink_to("/dev/full")
    folder, told = RunFolder(tmp_path), []
    folder.on_failure = told.append
    for file in ("requests", "timeline", "requests"):
        folder.append(file, "x\n")
    folder.append("health", "1\n")
    folder.close()
    assert told == [f"{tmp_path}/requests.csv: cannot be written: No space left on device"]
    assert (tmp_path / "health.csv").read_text().endswith("\n1\n")


def test_a_json_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """The folder is gone: one line, as for a full disk."""
    folder = RunFolder(tmp_path / "gone")
    with pytest.raises(RunFolderError, match=r"end.json: cannot be written: No such file or directory"):
        folder.write_once("end.json", {})
