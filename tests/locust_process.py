"""A whole Locust as a command of its own, and what it leaves behind."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis import __main__ as analysis

ROOT = Path(__file__).parents[1]
LOCUST = Path(sys.executable).with_name("locust")


@dataclass
class Run:
    """A finished Locust command."""

    code: int
    output: str  # standard output, then standard error
    folder: Path  # of the newest run; the results folder itself where there is none
    csv_prefix: Path
    errors: str = ""  # standard error alone
    rows: list[dict[str, str]] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.ended(0)

    def ended(self, code: int) -> bool:
        """Whether this is the exit code, or would be on a machine with more time. Where other programs are at work a
        load generator may find that it was late: no fault of what was run, and the only reason not to believe its
        figures that is let pass."""
        doubts = re.findall(r"^not credible: (.*)$", self.output, re.MULTILINE)
        late = [doubt for doubt in doubts if "limited by the load generator" in doubt]
        return self.code == code or (self.code == 3 and bool(doubts) and doubts == late)

    def measured(self) -> list[dict[str, str]]:
        return [row for row in self.rows if row["phase"] == "measured"]

    def file(self, name: str) -> list[dict[str, str]]:
        with open(self.folder / name, newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))

    def table(self, *arguments: str, target: Path | None = None) -> Any:
        """The table as ``python -m analysis table`` prints it in JSON; called here, for the sake of time."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = analysis.main(["table", str(target or self.folder), "--json", *arguments])
        assert code == 0, out.getvalue()
        return json.loads(out.getvalue())


def sessions_of(rows: list[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    """Rows of each session, in the order of its turns."""
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row["turn"])):
        found[row["session"]].append(row)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_locust(
    folder: Path,
    *options: str,
    scenario: str | None = None,
    timeout: float = 120,
    env: dict[str, str] | None = None,
    locustfile: Path = ROOT / "locustfiles" / "chat.py",
    stop_after_s: float | None = None,
    stop_signal: int = signal.SIGINT,
    open_files: int | None = None,
    watch: Callable[[subprocess.Popen[str]], None] | None = None,
) -> Run:
    """Run headless in ``folder`` until it ends, for ``timeout`` seconds at most, and read what it left.

    ``open_files``: the hard limit of the process. ``watch`` is called once Locust has been started.
    """
    results, prefix = folder / "results", folder / "out"
    command = [str(LOCUST), "-f", str(locustfile), "--headless", "--only-summary", "--results", str(results)]
    if open_files is not None:
        command = ["sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh", *command]
    if scenario is not None:
        path = folder / "scenario.yaml"
        path.write_text(scenario, encoding="utf-8")
        command += ["--scenario", str(path)]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    try:
        if watch is not None:
            watch(process)
        output, errors = _output(process, timeout, stop_after_s, stop_signal)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    folders = sorted(results.glob("*/")) if results.exists() else []
    found = Run(process.returncode, output + errors, folders[-1] if folders else results, prefix, errors)
    if folders:
        found.rows = found.file("requests.csv")
    return found


def _output(
    process: subprocess.Popen[str], timeout: float, stop_after_s: float | None, stop_signal: int
) -> tuple[str, str]:
    if stop_after_s is not None:
        try:
            process.communicate(timeout=stop_after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(stop_signal)
    return process.communicate(timeout=timeout)
