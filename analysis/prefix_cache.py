"""``python -m analysis prefix-cache RUN``: what the prefix cache bought, from the paired levels of a finished run."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from analysis.benefit_block import benefit_parts
from analysis.benefit_export import benefit_csv, benefit_object
from analysis.benefit_test import BenefitTest, benefit_test_of
from analysis.levels import level_rows
from analysis.notes import SIMULATED_TEXT
from analysis.render import markdown_report, terminal_report
from analysis.run_folder import Run, read_run, run_of_requests
from tokenswarm.errors import RunFolderError


def report(path: str, options: argparse.Namespace) -> str:
    """The whole text in the format asked for. Raises ``RunFolderError`` where the run has no such test."""
    run = _run_at(Path(path))
    rows, _ = level_rows(run)
    test = benefit_test_of(run, rows)
    if test is None:
        raise RunFolderError(f"{path}: wanted a run with a prefix-cache test, but its scenario has no prefix_cache")
    match options.format:
        case "json":
            return json.dumps(_document(run, test), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        case "csv":
            return benefit_csv(test)
        case "markdown":
            return markdown_report(_title(run), benefit_parts(test), _footnotes(run))
        case _:
            width = options.width or shutil.get_terminal_size((100, 24)).columns
            colour = sys.stdout.isatty()
            return terminal_report(_title(run), benefit_parts(test), _footnotes(run), width=width, colour=colour)


def _run_at(path: Path) -> Run:
    folder = path.parent if path.name == "run.json" else path
    if (folder / "run.json").is_file():
        return read_run(folder)
    file = folder / "requests.csv" if folder.is_dir() else path
    if file.is_file():
        return run_of_requests(file)
    raise RunFolderError(f"{path}: wanted a run folder or a requests.csv")


def _document(run: Run, test: BenefitTest) -> dict[str, object]:
    source = {"path": str(run.path), "name": run.name, "run_id": run.facts.get("run_id"), "target": run.target}
    return {"format": 1, "source": source, "simulated": run.simulated, **benefit_object(test)}


def _title(run: Run) -> str:
    model = run.target.get("model")
    return " · ".join([run.name, *([str(model)] if model else []), *(["SIMULATED"] if run.simulated else [])])


def _footnotes(run: Run) -> list[str]:
    notes = [f"SIMULATED: {SIMULATED_TEXT}"] if run.simulated else []
    if run.whole_folder and run.end is None:
        notes.append("INTERRUPTED: the run has no end.json; this is what was written so far")
    return [*notes, *run.notes, "definitions: docs/prefix-cache.md"]


def add_options(options: argparse.ArgumentParser) -> None:
    add = options.add_argument
    add("run", metavar="RUN", nargs="*", help="a run folder or a requests.csv (default: the newest run in results/)")
    add("--format", choices=("terminal", "markdown", "csv", "json"), default="terminal")
    add("--json", dest="format", action="store_const", const="json", help="same as --format json")
    add("--width", type=int, help="columns of the terminal table (default: the terminal's)")
