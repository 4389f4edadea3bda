"""Time stamps of logs: without a year, without a zone, or counted from the engine's start."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_DATED = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?$")
_UNDATED = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?$")
_UPTIME = re.compile(r"(\d+)\.(\d\d)\.(\d{3})\.(\d{3})$")  # minutes, seconds, ms, µs


def dated_s(stamp: str) -> float | None:
    """``2026-11-30 11:48:49`` in seconds since 1970, as if it were UTC; None where there is no such moment."""
    found = _DATED.match(stamp)
    return _seconds(int(found[1]), found.groups()[1:]) if found else None


def undated_s(stamp: str, near_s: float | None) -> float | None:
    """``11-30 11:48:49`` in the year that brings it nearest to ``near_s`` (seconds since 1970); None without that."""
    found = _UNDATED.match(stamp)
    if found is None or near_s is None:
        return None
    year = datetime.fromtimestamp(near_s, UTC).year
    times = (_seconds(near, found.groups()) for near in (year - 1, year, year + 1))
    return min((time for time in times if time is not None), key=lambda time: abs(time - near_s), default=None)


def uptime_s(stamp: str) -> float | None:
    """``0.12.088.016`` in seconds."""
    found = _UPTIME.match(stamp)
    if not found:
        return None
    minutes, seconds, ms, us = (int(part) for part in found.groups())
    return minutes * 60 + seconds + ms / 1e3 + us / 1e6


def _seconds(year: int, parts: tuple[str | None, ...]) -> float | None:
    month, day, hour, minute, second = (int(part or 0) for part in parts[:5])
    try:
        whole = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return whole + float(f"0.{parts[5] or 0}")
