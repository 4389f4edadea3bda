"""The analysis of a finished run, as child processes: it must not run in a process whose sockets are patched."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

CODES = (0, 1, 3)  # of a run that could be analysed
NOT_CREDIBLE = 3


@dataclass(frozen=True)
class Verdict:
    """What a person reads at the end of a run, and the exit code."""

    text: str
    exit_code: int


def analysed(folder: Path, questions: Iterable[str] = ()) -> Verdict:
    """The tables of a run, saved beside its rows, then the answer to each of ``questions``: subcommands of the analysis
    that go with what the scenario asked for, kept as ``QUESTION.txt``."""
    table = _analysis("table", str(folder), "--save", "--check")
    texts = [table.stdout + (f"\n{table.stderr}" if table.stderr else "")]  # why it is not good
    files = "requests.csv, table.txt, .md, .csv and .json"
    for question in questions:
        answer = _analysis(question, str(folder), "--width", "100")
        texts.append(answer.stdout + answer.stderr)
        (folder / f"{question}.txt").write_text(answer.stdout, encoding="utf-8")
        files += f", {question}.txt"
    return Verdict("\n".join([*texts, f"{folder}: {files}\n"]), _code(table))


def _analysis(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "analysis", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _code(table: subprocess.CompletedProcess[str]) -> int:
    if table.returncode in CODES:
        return table.returncode
    log.error("the analysis failed: %s", (table.stderr.strip().splitlines() or ["no output"])[-1])
    return NOT_CREDIBLE
