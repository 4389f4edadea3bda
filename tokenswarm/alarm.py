"""Wakes one greenlet at a given moment. The event loop's own timers are late by up to two milliseconds, which every
latency from the schedule would contain; a timer of the Linux kernel is late by some microseconds."""

from __future__ import annotations

import ctypes
import os
import sys
from time import perf_counter

import gevent
import gevent.event

_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1  # what perf_counter reads on Linux; see timerfd_create(2)
_NONBLOCK = os.O_NONBLOCK | os.O_CLOEXEC
_FAR_S = 1e9


class _Spec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")]


class Alarm:
    """One greenlet waits; others may set the moment earlier or later meanwhile."""

    def __init__(self) -> None:
        self._changed = gevent.event.Event()
        self._at_s = _FAR_S
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._timer = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK) if self._libc is not None else -1
        self._rings = gevent.get_hub().loop.io(self._timer, 1) if self._timer >= 0 else None  # 1: readable

    def set(self, at_s: float | None) -> None:
        """``at_s``: seconds of ``perf_counter``; None for never."""
        self._at_s = _FAR_S if at_s is None else max(at_s, 1e-6)
        if self._libc is not None and self._rings is not None:
            seconds, rest = divmod(self._at_s, 1.0)
            spec = _Spec(0, 0, int(seconds), int(rest * 1e9))
            self._libc.timerfd_settime(self._timer, _ABSOLUTE, ctypes.byref(spec), None)
        else:
            self._changed.set()

    def wait(self) -> None:
        """Returns at the moment, or soon after."""
        if self._rings is not None:
            gevent.get_hub().wait(self._rings)
            os.read(self._timer, 8)
            return
        while (rest_s := self._at_s - perf_counter()) > 0:
            self._changed.clear()
            self._changed.wait(timeout=rest_s)

    def close(self) -> None:
        if self._rings is not None:
            self._rings.stop()
            self._rings.close()
            self._rings = None
            os.close(self._timer)
