"""The search for the highest load that meets every objective: which load to try next, and what was found.

Upward from ``start``, twice as much each time, until a level misses an objective; then between the best and the first
bad one. Where ``start`` itself misses, downward by halves until a level is good. Pure: no clock, no file, no Locust;
the same verdicts give the same loads again.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from tokenswarm.level_verdict import Judgement, LevelVerdict
from tokenswarm.saturation import past_saturation

LOWEST_SHARE = 0.001  # of a start rate that misses: no lower rate is tried
FORMAT = 1


class Ended(StrEnum):
    """The closed list of reasons why a search is over."""

    WITHIN = "within"  # the first bad load is close enough to the best
    ADJACENT = "adjacent"  # no load lies between the two
    LIMIT = "limit"  # the largest load that was asked for is good
    LOWEST = "lowest"  # no load is good
    SATURATED = "saturated"  # good still, but more users bring no more tokens
    UNDECIDED = "undecided"  # a level could not be judged, nor could its repetition


@dataclass(frozen=True)
class Step:
    """One level of the search. ``load``: users, or arrivals a second."""

    level: int
    label: str
    load: float
    judgement: Judgement
    why: str


@dataclass
class Search:
    """``whole``: loads are whole numbers (users), else rates of three digits. ``within``: see ``level_search``."""

    start: float
    limit: float
    within: float
    whole: bool
    steps: list[Step] = field(default_factory=list)
    good: Step | None = None  # the largest load that met everything
    bad: Step | None = None  # the smallest above it that did not
    ended: Ended | None = None
    reason: str = ""
    _last_good: LevelVerdict | None = None

    def judged(self, level: int, label: str, load: float, verdict: LevelVerdict) -> float | None:
        """Takes the verdict on the level that ran last; the load of the next one, ``None`` when the search is over."""
        again = bool(self.steps) and self.steps[-1].judgement == Judgement.UNDECIDED
        step = Step(level, label, load, verdict.judgement, verdict.why)
        self.steps.append(step)
        match verdict.judgement:
            case Judgement.UNDECIDED:
                if not again:
                    return load
                self._end(Ended.UNDECIDED, f"{label}: {verdict.why}")
                return None
            case Judgement.MISSED:
                self.bad = step
            case Judgement.MET:
                flat = self._flat(load, verdict)
                self.good, self._last_good = step, verdict
                if flat:
                    self._end(Ended.SATURATED, f"past saturation: {flat}")
                    return None
        return self._next()

    def _flat(self, load: float, verdict: LevelVerdict) -> str | None:
        """Why more users are not worth trying; a rate is tried whatever it brings."""
        if not self.whole or self.bad is not None or self.good is None or self._last_good is None:
            return None
        return past_saturation(int(self.good.load), self._last_good, int(load), verdict)

    def _next(self) -> float | None:
        match self.good, self.bad:
            case None, None:
                return self.start
            case Step(load=good), None:
                if good >= self.limit:
                    self._end(Ended.LIMIT, f"{self.named(good)} is the limit that was asked for")
                    return None
                return min(2 * good, self.limit)
            case None, Step(load=bad):
                return self._lower(bad)
            case Step(load=good), Step(load=bad):
                return self._between(good, bad)
        raise AssertionError("every case is above")

    def _lower(self, bad: float) -> float | None:
        lower = float(int(bad) // 2) if self.whole else three_digits(bad / 2)
        lowest = 1 if self.whole else LOWEST_SHARE * self.start
        if lower < lowest:
            self._end(Ended.LOWEST, f"even {self.named(bad)} misses an objective, and nothing lower is tried")
            return None
        return lower

    def _between(self, good: float, bad: float) -> float | None:
        if bad / good - 1 <= self.within:
            self._end(Ended.WITHIN, f"{self.named(bad)} is at most {100 * self.within:g} % above the best")
            return None
        middle = float((int(good) + int(bad)) // 2) if self.whole else three_digits(math.sqrt(good * bad))
        if not good < middle < bad:
            kind = "number of users" if self.whole else "rate of three digits"
            self._end(Ended.ADJACENT, f"no {kind} lies between {self.named(good)} and {self.named(bad)}")
            return None
        return middle

    def _end(self, ended: Ended, reason: str) -> None:
        self.ended, self.reason = ended, reason

    def named(self, load: float) -> str:
        """``c=8`` or ``2.5/s``, as levels are called."""
        return f"c={load:.0f}" if self.whole else f"{load:.10g}/s"

    def document(self) -> dict[str, Any]:
        """What ``search.json`` says: the levels in the order in which they ran, and what came out."""
        return {
            "format": FORMAT,
            "of": "users" if self.whole else "rate_per_s",
            "start": self.start,
            "limit": self.limit,
            "within": self.within,
            "steps": [asdict(step) for step in self.steps],
            "best": None if self.good is None else asdict(self.good),
            "first_bad": None if self.bad is None else asdict(self.bad),
            "ended": self.ended or "stopped",
            "reason": self.reason or "the run ended before the search",
        }


def three_digits(value: float) -> float:
    """Rounded to three significant digits: ``0.3535`` gives ``0.354``."""
    return float(f"{value:.3g}")
