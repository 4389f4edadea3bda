"""``python -m analysis compare BASE CANDIDATE [CANDIDATE ...]``: better, worse, or cannot tell."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.compared_level import Verdict
from analysis.compared_run import ComparedRun, read_compared
from analysis.comparison import Comparison, comparisons
from analysis.comparison_block import comparison_parts, rules
from analysis.comparison_export import comparison_csv, comparison_object
from analysis.notes import SIMULATED_TEXT
from analysis.objectives import EXIT_MET, EXIT_MISSED, EXIT_NOT_CREDIBLE
from analysis.report import FORMATS, Report
from tokenswarm.errors import InputError

ALTERNATION = "alternation.json"  # in the folder of an alternated comparison: which block is whose


def report(options: argparse.Namespace) -> tuple[str, int]:
    """The text in the format asked for, and the exit code with ``--check``."""
    base, *candidates = _sides(options.run)
    _refuse_itself(options.run)
    repeated = [read_compared(name) for name in options.floor or []]
    found = comparisons(base, candidates, repeated=repeated, allowed=options.allow or [])
    code = exit_code(found)
    for one in found:
        for difference in one.refused:
            print(f"refused: {difference}", file=sys.stderr)
    made = Report(
        title=_title(found),
        parts=lambda: comparison_parts(found),
        footnotes=[*_simulated(found), *rules(found), "definitions: docs/compare.md"],
        document=lambda: comparison_object(found, code),
        csv=lambda: comparison_csv(found),
    )
    return made.text(options), code


def exit_code(found: Sequence[Comparison]) -> int:
    """1 where something got worse; else 3 where sides are unlike or a level is not fit to decide."""
    if any(one.refused for one in found):
        return EXIT_NOT_CREDIBLE
    if any(cell.verdict == Verdict.WORSE for one in found for cell in one.cells):
        return EXIT_MISSED
    return EXIT_NOT_CREDIBLE if any(one.doubts or not one.pairs for one in found) else EXIT_MET


def _title(found: Sequence[Comparison]) -> str:
    return " · ".join(["comparison", *(["SIMULATED"] if _simulated(found) else [])])


def _simulated(found: Sequence[Comparison]) -> list[str]:
    runs = [run for one in found for run in (*one.base, *one.candidate)]
    return [f"SIMULATED: {SIMULATED_TEXT}"] if any(run.outcome.simulated for run in runs) else []


def _sides(named: Sequence[str]) -> list[list[ComparedRun]]:
    """Base first. A side of several runs is written with commas between them; the folder of an alternated comparison
    names both sides by itself."""
    if len(named) == 1 and (Path(named[0]) / ALTERNATION).is_file():
        return _alternated(Path(named[0]))
    if len(named) < 2:
        raise InputError("compare: wanted a base and at least one candidate, or the folder of an alternated comparison")
    return [[read_compared(name) for name in _runs_of(side)] for side in named]


def _refuse_itself(named: Sequence[str]) -> None:
    runs = [name for side in named for name in _runs_of(side)]
    twice = next((name for name in runs if runs.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{twice}: named twice, and a run does not differ from itself; wanted another run")


def _runs_of(side: str) -> list[str]:
    return [side] if Path(side).exists() else [name for name in side.split(",") if name]


def _alternated(folder: Path) -> list[list[ComparedRun]]:
    file = folder / ALTERNATION
    try:
        blocks = [(str(block["side"]), str(block["run"])) for block in json.loads(file.read_text("utf-8"))["blocks"]]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{file}: wanted blocks with side and run: {problem}") from problem
    sides = [[read_compared(str(folder / run)) for side, run in blocks if side == name] for name in ("A", "B")]
    if not all(sides):
        raise InputError(f"{file}: wanted at least one block of A and one of B")
    return sides


def add_options(options: argparse.ArgumentParser) -> None:
    add = options.add_argument
    add("run", metavar="RUN", nargs="+",
        help="the base and one or more candidates: run folders, requests.csv, Locust's CSV files, results of other "
        "tools, FILE#CONFIGURATION of a published table; RUN,RUN is one side of several runs; or the folder that "
        "make ab made")  # fmt: skip
    add("--floor", metavar="RUN", nargs="+", help="runs of one configuration: how far they differ is the floor")
    add("--allow", metavar="NAME", action="append", help="a difference that is wanted, as the refusal names it")
    add("--check", action="store_true", help="exit with 1 where something got worse, 3 where it cannot be compared")
    add("--format", choices=FORMATS, default="terminal")
    add("--json", dest="format", action="store_const", const="json", help="same as --format json")
    add("--width", type=int, help="columns of the terminal table (default: the terminal's)")
