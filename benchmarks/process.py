"""A child process pinned to one core, and what it costs: CPU time and memory from ``/proc``."""

from __future__ import annotations

import functools
import os
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from benchmarks.build import BenchmarkError

ROOT = Path(__file__).resolve().parent.parent


def cores() -> tuple[int, int]:
    """The server's core and the client's: the last two this process may use (the same one where there is only one)."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-1], allowed[-2] if len(allowed) > 1 else allowed[-1]


def _settle(core: int | Collection[int], urgent: bool) -> None:
    """In the child, before the command: its core and, where asked, real-time priority below the kernel's own work."""
    os.sched_setaffinity(0, {core} if isinstance(core, int) else core)
    if urgent:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def machine_cpu_s() -> float:
    """Seconds that all cores together have been busy since the machine started, whoever used them."""
    ticks = Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    idle = {3, 4}  # idle, and waiting for a disk
    busy = sum(int(value) for position, value in enumerate(ticks) if position not in idle)
    return busy / os.sysconf("SC_CLK_TCK")


def cpu_s_of(pid: int) -> float:
    """User and system seconds of all threads of a process so far, with the scheduler's nanoseconds.

    ``OSError`` when it is gone.
    """
    total_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            total_ns += int((thread / "schedstat").read_text().split()[0])
        except OSError:
            continue  # a thread that has just ended
    return total_ns * 1e-9


class PinnedProcess:
    """Runs ``command`` on one core, or on several, output to a file; ended when the ``with`` block is left.

    ``urgent`` lets it run before everything else on that core (needs root), for machines that do other work meanwhile.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        core: int | Collection[int],
        log: Path,
        stdout: int | None = None,
        environment: Mapping[str, str] | None = None,
        urgent: bool = False,
    ) -> None:
        self.log = log
        with open(log, "ab") as output:
            self.started_ns = time.monotonic_ns()
            self.popen = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output if stdout is None else stdout,
                stderr=output,
                env=None if environment is None else {**os.environ, **environment},
                preexec_fn=functools.partial(_settle, core, urgent),
            )

    def __enter__(self) -> PinnedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(10)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        if self.popen.stdout is not None:
            self.popen.stdout.close()

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def cpu_s(self) -> float:
        """User and system seconds of all its threads so far."""
        return cpu_s_of(self.popen.pid)

    def peak_rss_mb(self) -> float | None:
        """Largest resident set so far, MB of 10^6 bytes; ``None`` when the process has ended."""
        try:
            status = Path(f"/proc/{self.popen.pid}/status").read_text()
        except OSError:
            return None
        kilobytes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
        return kilobytes[0] * 1024 / 1e6 if kilobytes else None

    def wait(self, limit_s: float) -> int:
        """Exit code; ``BenchmarkError`` with the end of its log when it takes longer."""
        try:
            return self.popen.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"not finished within {limit_s:g} s: {self.last_line()}") from None

    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "(no output)"
