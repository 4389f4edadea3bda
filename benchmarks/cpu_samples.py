"""CPU time of a Locust command's processes, sampled while it runs, so that any window of it can be asked for later."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from benchmarks.process import cpu_s_of

INTERVAL_S = 0.25

Samples = Sequence[tuple[float, float]]
"""(monotonic seconds, CPU seconds so far), oldest first."""


class CpuSampler:
    """Follows a process and the workers that it forks, which have its command line; in a ``with`` block."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.samples: dict[int, list[tuple[float, float]]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> CpuSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._over.wait(INTERVAL_S):
            for pid in [self._pid, *_forked(self._pid)]:
                try:
                    self.samples.setdefault(pid, []).append((perf_counter(), cpu_s_of(pid)))
                except OSError:
                    continue  # it has ended

    def shares(self, start_s: float, end_s: float) -> dict[int, float]:
        """Cores that each process used between two moments; those alone that were seen before and after."""
        found = {pid: share_of(samples, start_s, end_s) for pid, samples in self.samples.items()}
        return {pid: share for pid, share in found.items() if share is not None}


def _forked(pid: int) -> list[int]:
    try:
        own = Path(f"/proc/{pid}/cmdline").read_bytes()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children if Path(f"/proc/{child}/cmdline").read_bytes() == own]
    except OSError:
        return []


def share_of(samples: Samples, start_s: float, end_s: float) -> float | None:
    """CPU seconds a second between two moments, interpolated; None where the samples do not cover them."""
    start, end = _at(samples, start_s), _at(samples, end_s)
    return None if start is None or end is None or end_s <= start_s else (end - start) / (end_s - start_s)


def _at(samples: Samples, time_s: float) -> float | None:
    for (left_s, left), (right_s, right) in pairwise(samples):
        if left_s <= time_s <= right_s:
            return left + (right - left) * (time_s - left_s) / (right_s - left_s)
    return None
