"""The analysis of a finished run or level, as child processes: it must not run in a process whose sockets are patched.

Locust has patched ``subprocess`` too: while a child runs, the other greenlets go on.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenswarm.level_verdict import Judgement, LevelVerdict

log = logging.getLogger(__name__)

CODES = (0, 1, 3)  # of a run that could be analysed
NOT_CREDIBLE = 3
LEVEL_LIMIT_S = 300.0  # for the analysis of one level, between two levels


@dataclass(frozen=True)
class Verdict:
    """What a person reads at the end of a run, and the exit code."""

    text: str
    exit_code: int


def analysed(folder: Path, questions: Iterable[str] = ()) -> Verdict:
    """The tables of a run, saved beside its rows, then the answer to each of ``questions``: subcommands of the analysis
    that go with what the scenario asked for, kept as ``QUESTION.txt``."""
    table = _analysis("table", str(folder), "--save", "--check")
    if not _good(table):  # a traceback would tell a person nothing that the log does not
        return Verdict(f"{folder}: requests.csv; python -m analysis table {folder}\n", _code(table))
    texts = [table.stdout + (f"\n{table.stderr}" if table.stderr else "")]  # why it is not good
    files = "requests.csv, table.txt, .md, .csv and .json"
    for question in questions:
        answer = _analysis(question, str(folder), "--width", "100")
        texts.append(answer.stdout + answer.stderr)
        (folder / f"{question}.txt").write_text(answer.stdout, encoding="utf-8")
        files += f", {question}.txt"
    return Verdict("\n".join([*texts, f"{folder}: {files}\n"]), _code(table))


def judged_level(folder: Path, index: int) -> LevelVerdict:
    """The verdict on the level ``index``, which has ended and whose rows are all written; nothing may be in flight.

    Whatever keeps the analysis from an answer makes the level undecided, with the cause in one line.
    """
    try:
        table = _analysis("table", str(folder), "--json", limit_s=LEVEL_LIMIT_S)
    except subprocess.TimeoutExpired:
        return _undecided(f"the analysis took more than {LEVEL_LIMIT_S:g} s")
    if table.returncode != 0:
        return _undecided(f"the analysis failed: {_last_line(table)}")
    try:
        return _level_verdict(json.loads(table.stdout), index)
    except StopIteration:
        return _undecided("the analysis gave no verdict on it: it has no request")
    except (ValueError, KeyError) as problem:
        return _undecided(f"the analysis gave no verdict on it: {type(problem).__name__} {problem}")


def _undecided(why: str) -> LevelVerdict:
    return LevelVerdict(Judgement.UNDECIDED, why)


def _level_verdict(document: dict[str, Any], index: int) -> LevelVerdict:
    """Raises ``StopIteration`` where the level is not in the document, and ``KeyError`` where facts of it are not."""
    verdict = next(one for one in document["verdicts"] if one["level"] == index)
    figures = next(one for one in document["levels"] if one["level"] == index)["figures"]
    e2e = figures.get("e2e_p50_s", {})
    return LevelVerdict(
        judgement=Judgement(verdict["judgement"]),
        why=verdict["why"],
        output_tok_s=figures.get("output_tok_s", {}).get("value"),
        e2e_p50_s=e2e.get("value"),
        e2e_p50_low_s=e2e.get("low"),
        e2e_p50_high_s=e2e.get("high"),
    )


def _analysis(*arguments: str, limit_s: float | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "analysis", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s)


def _good(table: subprocess.CompletedProcess[str]) -> bool:
    return table.returncode in CODES and bool(table.stdout)  # Python ends with 1 too, where it falls over


def _code(table: subprocess.CompletedProcess[str]) -> int:
    if _good(table):
        return table.returncode
    log.error("the analysis failed: %s", _last_line(table))
    return NOT_CREDIBLE


def _last_line(table: subprocess.CompletedProcess[str]) -> str:
    return (table.stderr.strip().splitlines() or ["no output"])[-1]
