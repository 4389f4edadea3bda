"""What the names of our rows in Locust's statistics mean: the level, the traffic class, and what is counted.

Our runs put these rows into Locust's statistics: ``chat c=8`` (measured requests), the same with ``warmup``, ``fill``,
``drain`` or ``cut`` (by the end of the run) after it, rows of type LLM called ``chat c=8 TTFT``, ``TPOT``, ``E2E``
(milliseconds of the successes) and ``tokens`` (output tokens of the successes), and for the level ``c=8 wall``
(milliseconds) and ``c=8 window tokens``. A level of a prefix-cache test is ``c=8 paired``, ``c=8 cold`` or
``c=8 warm``, one that comes again ``c=8 #2``, one by the clock ``2/s``, ``1 to 4/s`` or ``replay``. A free-running load
has the same names without ``c=8``. A row of type LLM whose name begins with ``SIMULATED`` says that no real server was
measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from analysis.locust_csv import StatsRow
from tokenswarm.schedule import Arms

UNMEASURED = ("warmup", "fill", "drain", "cut")
SIMULATED = "SIMULATED"
_OURS = "LLM"
_ARMS = tuple(arms.value for arms in Arms)
_CLOSED = re.compile(rf"(?:(?P<traffic>.*) )?c=(?P<users>\d+)(?: (?P<arms>{'|'.join(_ARMS[1:])}))?(?: #(?P<time>\d+))?")
_CLOCKED = re.compile(r"(?:[\d., ]+(?: to [\d.]+)?/s|replay(?: x[\d.e+]+)?)(?: #\d+)?")
_OF_CLASS = ("TTFT", "TPOT", "E2E", "tokens")
_OF_LEVEL = ("wall", "window tokens")


class LevelKey(NamedTuple):
    """Users of a level, the place of its arms among ``Arms``, and the how-manieth such level it is; of one by the clock
    its place among those, and its name."""

    order: int
    arms: int = 0
    time: int = 1
    name: str = ""

    @property
    def label(self) -> str:
        name = self.name or f"c={self.order} {self.arms_name}".strip()
        return name if self.time == 1 else f"{name} #{self.time}"

    @property
    def arms_name(self) -> str:
        return _ARMS[self.arms]

    @property
    def users(self) -> int | None:
        """``None`` where sessions arrive by the clock."""
        return None if self.name else self.order


Key = LevelKey | None  # None for a free-running load


class RowNames:
    """Reads the names of all rows of one file: a level by the clock is known by its row ``wall``."""

    def __init__(self, rows: Iterable[StatsRow]) -> None:
        walls = {row.name.removesuffix(" wall") for row in rows if row.kind == _OURS and row.name.endswith(" wall")}
        clocked = sorted(filter(_CLOCKED.fullmatch, walls), key=_first_rate)
        self._clocked = {name: LevelKey(place, name=name) for place, name in enumerate(clocked)}

    def meaning(self, row: StatsRow) -> tuple[Key, str, str]:
        """The level, the traffic class (empty for rows of the level itself) and what the row counts."""
        rest, what = row.name, "requests"
        for part in (*_OF_LEVEL, *_OF_CLASS) if row.kind == _OURS else UNMEASURED:
            if f" {rest}".endswith(f" {part}"):
                rest, what = rest[: -len(part)].rstrip(), part
                break
        if (found := _CLOSED.fullmatch(rest)) is not None:
            key = LevelKey(int(found["users"]), _ARMS.index(found["arms"] or ""), int(found["time"] or 1))
            return key, found["traffic"] or "", what
        name = max((name for name in self._clocked if f" {rest}".endswith(f" {name}")), key=len, default="")
        return self._clocked.get(name), rest[: len(rest) - len(name)].rstrip(), what


def is_ours(row: StatsRow) -> bool:
    """TTFT is there once a request succeeded, the rows of a level also where all of them failed."""
    return row.kind == _OURS and f" {row.name}".endswith((" TTFT", *(f" {part}" for part in _OF_LEVEL)))


def is_simulated(row: StatsRow) -> bool:
    return row.kind == _OURS and row.name.split(" ", 1)[0] == SIMULATED


def _first_rate(name: str) -> tuple[float, int, str]:
    found = re.match(r"[\d.]+", name)
    return (float(found[0]) if found else 0.0), len(name), name
