"""``python -m analysis interference RUN``: what the traffic classes of a finished run did to each other."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.interference_block import interference_parts
from analysis.interference_export import interference_csv, interference_object
from analysis.interference_test import interference_of
from analysis.report import add_report_options, report_of_run
from analysis.run_folder import Run, read_run
from tokenswarm.errors import RunFolderError


def report(path: str, options: argparse.Namespace) -> str:
    """The whole text in the format asked for. Raises ``RunFolderError`` where the run did not measure it."""
    run = _run_at(Path(path))
    groups = interference_of(run)
    if not groups:
        raise RunFolderError(f"{path}: wanted a run that measures interference, but its scenario has no interference")
    return report_of_run(
        run,
        "docs/interference.md",
        parts=lambda: interference_parts(groups),
        answer=lambda: interference_object(groups),
        csv=lambda: interference_csv(groups),
    ).text(options)


def _run_at(path: Path) -> Run:
    folder = path.parent if path.name == "run.json" else path
    if not (folder / "run.json").is_file():
        raise RunFolderError(f"{path}: wanted a run folder: which users were there when stands in its run.json")
    return read_run(folder)


def add_options(options: argparse.ArgumentParser) -> None:
    add_report_options(options, "a run folder")
