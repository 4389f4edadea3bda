"""Wakes the event loop at an absolute moment of CLOCK_MONOTONIC.

An event loop's own timers count whole milliseconds, too coarse for steps of 4 ms. Linux' timerfd takes an absolute
deadline in nanoseconds; elsewhere the loop's timer is used.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC if sys.platform == "linux" else 0
_TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


class DeadlineTimer:
    """Calls ``callback`` in the loop once the moment last given to :meth:`set` has come."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._set_for: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._fd = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS)
        if self._fd >= 0:
            loop.add_reader(self._fd, self._expired)

    def set(self, at_s: float | None) -> None:
        """``at_s`` as of ``time.perf_counter``; a past moment fires at once, ``None`` disarms."""
        if at_s == self._set_for:
            return
        self._set_for = at_s
        if self._fd >= 0:
            self._set_fd(at_s)
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if at_s is not None:
            self._handle = self._loop.call_later(max(0.0, at_s - time.perf_counter()), self._expired)

    def close(self) -> None:
        """Disarms for good."""
        self.set(None)
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _set_fd(self, at_s: float | None) -> None:
        nanoseconds = 0 if at_s is None else max(1, round(at_s * 1e9))  # zero would disarm
        value = _Timespec(*divmod(nanoseconds, 1_000_000_000))
        spec = _Itimerspec(_Timespec(0, 0), value)
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _expired(self) -> None:
        if self._fd >= 0:
            try:
                os.read(self._fd, 8)
            except BlockingIOError:
                return  # moved to a later moment after it had fired
        self._set_for = None
        self._callback()
