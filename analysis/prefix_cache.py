"""``python -m analysis prefix-cache RUN``: what the prefix cache bought, from the paired levels of a finished run."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.benefit_block import benefit_parts
from analysis.benefit_export import benefit_csv, benefit_object
from analysis.benefit_test import benefit_test_of
from analysis.levels import level_rows
from analysis.report import add_report_options, report_of_run
from analysis.run_folder import Run, read_run, run_of_requests
from tokenswarm.errors import RunFolderError


def report(path: str, options: argparse.Namespace) -> str:
    """The whole text in the format asked for. Raises ``RunFolderError`` where the run has no such test."""
    run = _run_at(Path(path))
    rows, _ = level_rows(run)
    test = benefit_test_of(run, rows)
    if test is None:
        raise RunFolderError(f"{path}: wanted a run with a prefix-cache test, but its scenario has no prefix_cache")
    return report_of_run(
        run,
        "docs/prefix-cache.md",
        parts=lambda: benefit_parts(test),
        answer=lambda: benefit_object(test),
        csv=lambda: benefit_csv(test),
    ).text(options)


def _run_at(path: Path) -> Run:
    folder = path.parent if path.name == "run.json" else path
    if (folder / "run.json").is_file():
        return read_run(folder)
    file = folder / "requests.csv" if folder.is_dir() else path
    if file.is_file():
        return run_of_requests(file)
    raise RunFolderError(f"{path}: wanted a run folder or a requests.csv")


def add_options(options: argparse.ArgumentParser) -> None:
    add_report_options(options, "a run folder or a requests.csv")
