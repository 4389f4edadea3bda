"""This process' wall clock: read here and nowhere else, so that a test can set it wrong.

Intervals and the times of requests are monotonic (``perf_counter``) and no matter of this module. Neither are the
kernel's stamps of what it received, which the client compares with the kernel's own clock.
"""

from __future__ import annotations

import os
import time

OFFSET_VARIABLE = "TOKENSWARM_CLOCK_OFFSET_S"  # for tests: a machine whose clock is wrong by so many seconds

_OFFSET_S = float(os.environ.get(OFFSET_VARIABLE) or 0.0)


def wall_s() -> float:
    """Unix time, as this machine believes it to be."""
    return time.time() + _OFFSET_S


def wrong_by_s() -> float:
    """What ``OFFSET_VARIABLE`` adds to the clock; 0 but in tests."""
    return _OFFSET_S
