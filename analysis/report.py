"""A report beside the table of a run, in whichever format was asked for."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from analysis.notes import SIMULATED_TEXT
from analysis.part import Part
from analysis.render import markdown_report, terminal_report
from analysis.run_folder import Run

FORMATS = ("terminal", "markdown", "csv", "json")


@dataclass(frozen=True)
class Report:
    """``parts`` and ``footnotes`` are for people, ``document`` and ``csv`` for programs; only what is asked for is
    made."""

    title: str
    parts: Callable[[], list[Part]]
    footnotes: list[str]
    document: Callable[[], dict[str, Any]]
    csv: Callable[[], str]

    def text(self, options: argparse.Namespace) -> str:
        """In ``options.format``, in lines of ``options.width`` columns where a person reads it in a terminal."""
        match options.format:
            case "json":
                return json.dumps(self.document(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            case "csv":
                return self.csv()
            case "markdown":
                return markdown_report(self.title, self.parts(), self.footnotes)
            case _:
                width = options.width or shutil.get_terminal_size((100, 24)).columns
                colour = sys.stdout.isatty()
                return terminal_report(self.title, self.parts(), self.footnotes, width=width, colour=colour)


def report_of_run(
    run: Run,
    definitions: str,
    *,
    parts: Callable[[], list[Part]],
    answer: Callable[[], dict[str, Any]],
    csv: Callable[[], str],
) -> Report:
    """What one run says to one question. ``definitions``: the page that explains it; ``answer`` goes into the JSON."""
    model = run.target.get("model")
    title = " · ".join([run.name, *([str(model)] if model else []), *(["SIMULATED"] if run.simulated else [])])
    notes = [f"SIMULATED: {SIMULATED_TEXT}"] if run.simulated else []
    if run.whole_folder and run.end is None:
        notes.append("INTERRUPTED: the run has no end.json; this is what was written so far")
    source = {"path": str(run.path), "name": run.name, "run_id": run.facts.get("run_id"), "target": run.target}
    head = {"format": 1, "source": source, "simulated": run.simulated}
    footnotes = [*notes, *run.notes, f"definitions: {definitions}"]
    return Report(title, parts, footnotes, lambda: head | answer(), csv)


def add_report_options(options: argparse.ArgumentParser, runs: str) -> None:
    """``runs``: what RUN may be."""
    add = options.add_argument
    add("run", metavar="RUN", nargs="*", help=f"{runs} (default: the newest run in results/)")
    add("--format", choices=FORMATS, default="terminal")
    add("--json", dest="format", action="store_const", const="json", help="same as --format json")
    add("--width", type=int, help="columns of the terminal table (default: the terminal's)")
