"""Where more load stops to buy throughput: what each step to the next level buys for a doubling of the load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from analysis.figures import Figure
from analysis.levels import LevelRow

GAIN = 0.25  # of throughput for a doubling of the load; less is beyond the knee
_Z = 1.959964


@dataclass(frozen=True)
class Step:
    """From one level to the next. ``gain``: share of throughput that a doubling of the load buys, with its interval."""

    before: LevelRow
    after: LevelRow
    gain: Figure

    @property
    def load(self) -> float:
        """Where it begins."""
        return float(self.before.concurrency or 0)


@dataclass(frozen=True)
class Knee:
    """``at``: the load beyond which every step buys less than ``least``, by the values; ``None`` where none does.

    ``low`` and ``high`` enclose it where the intervals of the steps say so; an end that they do not tell is ``None``.
    """

    steps: tuple[Step, ...]
    least: float
    at: float | None
    low: float | None
    high: float | None

    @property
    def text(self) -> str:
        """One sentence."""
        if not self.steps:
            return "cannot tell: fewer than two levels with a throughput that can be relied on"
        last = self.steps[-1]
        if self.at is None:
            return f"none up to {last.after.name}: the last step still bought {_percent(last.gain.value)} a doubling"
        bought = next(step for step in self.steps if step.load >= self.at)
        ends = (
            "values alone, their intervals do not tell"
            if self.low is None and self.high is None
            else f"{'the lowest level' if self.low is None else f'{self.low:g}'} to "
            f"{'beyond what was measured' if self.high is None else f'{self.high:g}'} by the intervals"
        )
        users = f"{self.at:g} user{'s' * (self.at != 1)}"
        return (
            f"{users} ({ends}): from there to {bought.after.name} a doubling of the load "
            f"bought {_percent(bought.gain.value)} throughput, less than {self.least:.0%}"
        )


def knee_of(rows: Sequence[LevelRow], least: float = GAIN) -> Knee:
    """``rows``: levels of one kind in a closed loop that can be relied on."""
    known = sorted((row for row in rows if _rate(row) and row.concurrency), key=lambda row: row.concurrency or 0)
    steps = tuple(
        Step(before, after, _gain(before, after))
        for before, after in pairwise(known)
        if (before.concurrency or 0) < (after.concurrency or 0)
    )
    at = None
    for step in reversed(steps):
        if (step.gain.value or 0.0) >= least:
            break
        at = step.load
    above = [step for step in steps if step.gain.low is not None and step.gain.low >= least]
    low = float(above[-1].after.concurrency or 0) if above else None
    below = [step for step in steps if step.gain.high is not None and step.gain.high < least]
    sure = [step.load for step in below if low is None or step.load >= low]
    return Knee(steps, least, at, low, sure[0] if sure else None)


def _rate(row: LevelRow) -> float | None:
    return row.figure("output_tok_s").value


def _gain(before: LevelRow, after: LevelRow) -> Figure:
    first, second = before.figure("output_tok_s"), after.figure("output_tok_s")
    doublings = math.log2((after.concurrency or 1) / (before.concurrency or 1))
    grown = math.log2((second.value or 1.0) / (first.value or 1.0)) / doublings
    errors = [_error(first), _error(second)]
    if None in errors:
        return Figure(2.0**grown - 1.0)
    half = _Z * math.hypot(*(error or 0.0 for error in errors)) / doublings
    return Figure(2.0**grown - 1.0, low=2.0 ** (grown - half) - 1.0, high=2.0 ** (grown + half) - 1.0)


def _error(rate: Figure) -> float | None:
    """Standard error of the logarithm to base 2."""
    if not rate.low or rate.high is None or not rate.value:
        return None
    return math.log2(rate.high / rate.low) / (2.0 * _Z)


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{share:.0%}"
