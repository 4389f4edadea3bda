"""``python -m analysis report RUN``, or ``BASE CANDIDATE``: everything about a run in one HTML file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from analysis.compared_run import PART, read_compared
from tokenswarm.errors import InputError


def write_report(paths: Sequence[str], options: argparse.Namespace) -> list[Path]:
    """Writes the page and, if asked, the Markdown with its plots; returns what was written.

    Raises ``RunFolderError`` for what is no run, ``InputError`` for a place that cannot be written to.
    """
    if options.output and Path(options.output).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"report: -o {options.output}: wanted a file that ends in .html")
    if len(paths) > 2:
        raise InputError(f"report: wanted one run, or a base and a candidate, not {len(paths)}: {', '.join(paths)}")
    # Drawing takes half a second to load, and only this command draws.
    from analysis.report_document import document_of
    from analysis.report_markdown import markdown_of, plot_files
    from analysis.report_page import page

    runs = [read_compared(path) for path in paths]
    document = document_of(runs, options.allow or ())
    file = Path(options.output) if options.output else _beside(paths[-1])
    texts = {file: page(document)}
    if options.markdown:
        plots = file.with_name(f"{file.stem}-plots")
        texts[file.with_suffix(".md")] = markdown_of(document, plots.name)
        texts |= {plots / name: text for name, text in plot_files(document).items()}
    for place, text in texts.items():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"report: {place} cannot be written: {error.strerror}") from error
    return [file, *([file.with_suffix(".md")] if options.markdown else [])]


def add_options(options: argparse.ArgumentParser) -> None:
    """Of the subcommand ``report``."""
    add = options.add_argument
    add("run", metavar="RUN", nargs="*", help="a run, or a base and a candidate (default: the newest run in results/)")
    add("-o", "--output", metavar="FILE.html", default="", help="default: report.html in the run folder")
    add("--markdown", action="store_true", help="also the same as Markdown: FILE.md, its plots in FILE-plots/")
    add("--allow", metavar="NAME", action="append", help="of a comparison: a difference that is wanted")


def _beside(path: str) -> Path:
    """In a run folder, else beside the files that the report is made from."""
    place = Path(path if Path(path).exists() else path.rpartition(PART)[0] or path)
    return place / "report.html" if place.is_dir() else place.with_name(f"{place.stem}-report.html")
