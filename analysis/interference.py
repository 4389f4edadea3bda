"""``python -m analysis interference RUN``: what the traffic classes of a finished run did to each other."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from analysis.interference_block import interference_parts
from analysis.interference_export import interference_csv, interference_object
from analysis.interference_test import Interference, interference_of
from analysis.notes import SIMULATED_TEXT
from analysis.render import markdown_report, terminal_report
from analysis.run_folder import Run, read_run
from tokenswarm.errors import RunFolderError


def report(path: str, options: argparse.Namespace) -> str:
    """The whole text in the format asked for. Raises ``RunFolderError`` where the run did not measure it."""
    run = _run_at(Path(path))
    groups = interference_of(run)
    if not groups:
        raise RunFolderError(f"{path}: wanted a run that measures interference, but its scenario has no interference")
    match options.format:
        case "json":
            return json.dumps(_document(run, groups), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        case "csv":
            return interference_csv(groups)
        case "markdown":
            return markdown_report(_title(run), interference_parts(groups), _footnotes(run))
        case _:
            width = options.width or shutil.get_terminal_size((100, 24)).columns
            colour = sys.stdout.isatty()
            return terminal_report(_title(run), interference_parts(groups), _footnotes(run), width=width, colour=colour)


def _run_at(path: Path) -> Run:
    folder = path.parent if path.name == "run.json" else path
    if not (folder / "run.json").is_file():
        raise RunFolderError(f"{path}: wanted a run folder: which users were there when stands in its run.json")
    return read_run(folder)


def _document(run: Run, groups: list[Interference]) -> dict[str, object]:
    source = {"path": str(run.path), "name": run.name, "run_id": run.facts.get("run_id"), "target": run.target}
    return {"format": 1, "source": source, "simulated": run.simulated, **interference_object(groups)}


def _title(run: Run) -> str:
    model = run.target.get("model")
    return " · ".join([run.name, *([str(model)] if model else []), *(["SIMULATED"] if run.simulated else [])])


def _footnotes(run: Run) -> list[str]:
    notes = [f"SIMULATED: {SIMULATED_TEXT}"] if run.simulated else []
    if run.end is None:
        notes.append("INTERRUPTED: the run has no end.json; this is what was written so far")
    return [*notes, *run.notes, "definitions: docs/interference.md"]


def add_options(options: argparse.ArgumentParser) -> None:
    add = options.add_argument
    add("run", metavar="RUN", nargs="*", help="a run folder (default: the newest run in results/)")
    add("--format", choices=("terminal", "markdown", "csv", "json"), default="terminal")
    add("--json", dest="format", action="store_const", const="json", help="same as --format json")
    add("--width", type=int, help="columns of the terminal table (default: the terminal's)")
