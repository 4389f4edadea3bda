"""When more load is pointless: the queue of an open loop grows, or more users of a closed loop bring no more tokens.

Pure: no clock, no socket, no Locust. The open loop's test is a CUSUM (Page, Biometrika 41, 1954) of how far completed
sessions fall behind the rate that was asked for. That rate, not the arrivals that chance brought, is the measure: it
halves the noise. docs/search.md says how often the test errs, and why it cannot be much better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from tokenswarm.level_verdict import LevelVerdict
from tokenswarm.schedule import Level

ALLOWED = 0.06  # of the rate: a server that falls behind by less is given time
BEHIND = 22.0  # sessions, at 5 arrivals a second or fewer
BEHIND_MORE = 10.0  # sessions for each e-fold of rate above that: more arrivals give chance more tries
USUAL_PER_S = 5.0
RISE_SD, BEHIND_SD = 3.0, 4.0  # of the sessions in flight, which by chance vary by the root of their number
STILL_BEHIND_SD, FASTER_SD = 0.5, 1.0
LIFETIMES = 1.5  # so many mean times of a session go by before counting begins: in flight rises in any case till then
FEW = 10  # sessions
UNSEEN = 2.0  # so many times more where the engine says that nothing waits

FLAT = 0.07  # share of more tokens that doubling the users brings at most, past saturation
SLOWER, SURELY_SLOWER = 0.8, 0.5  # exponents: E2E grows as users to this power; so much is sure


class Second(NamedTuple):
    """What is known at ``time_s`` seconds after the first possible arrival. Counts are of sessions, since then;
    ``waiting``: requests that the engine has accepted and not begun, ``None`` where it does not tell."""

    time_s: float
    in_flight: int
    finished: int
    arrived: int
    waiting: int | None = None


class SaturationWatch:
    """Fed about once a second in one level of an open loop with one rate throughout."""

    def __init__(self, rate_per_s: float, *, warmup_s: float = 0.0, clumping: float = 1.0) -> None:
        """``warmup_s``: the time in which sessions in flight may rise to what the rate implies; counting begins after
        it, and after one and a half times the mean time of a session. ``clumping``: variance of the gaps between
        arrivals over that of a Poisson process."""
        self._rate_per_s = rate_per_s
        self._warmup_s = warmup_s
        more = BEHIND_MORE * math.log(max(1.0, rate_per_s / USUAL_PER_S))
        self._enough = (BEHIND + more) * max(1.0, (1.0 + clumping) / 2)
        self._behind = 0.0
        self._excursion: list[Second] = []  # since completions last kept up
        self._seen: list[Second] = []
        self._flight_s = 0.0  # of all sessions together

    def second(self, now: Second) -> str | None:
        """Why the level need not go on: one clause; ``None`` as long as chance explains what is seen."""
        self._flight_s += now.in_flight * (now.time_s - (self._seen[-1].time_s if self._seen else 0.0))
        self._seen.append(now)
        if not self._excursion:
            if self._begins(now):
                self._excursion = [now]
            return None
        last = self._excursion[-1]
        owed = self._rate_per_s * (1 - ALLOWED) * (now.time_s - last.time_s)
        self._behind = min(self._behind + owed - (now.finished - last.finished), float(now.in_flight))
        if self._behind <= 0:
            self._behind, self._excursion = 0.0, [now]
            return None
        self._excursion.append(now)
        return self._reason() if self._grows(now) else None

    def _begins(self, now: Second) -> bool:
        """After the warm-up, and not before sessions in flight could become as many as the rate implies."""
        enough = now.finished >= FEW and now.time_s >= self._warmup_s
        return enough and now.time_s >= LIFETIMES * self._session_s(now)

    def _grows(self, now: Second) -> bool:
        """Too far behind, more in flight than by chance, behind still, and not about to catch up."""
        first = self._excursion[0]
        chance = math.sqrt(max(first.in_flight, 1))
        enough = max(self._enough, BEHIND_SD * chance) * (UNSEEN if now.waiting == 0 else 1.0)
        if self._behind <= enough or now.in_flight - first.in_flight <= RISE_SD * chance:
            return False
        middle = self._excursion[(len(self._excursion) - 1) // 2]
        before, lately = middle.finished - first.finished, now.finished - middle.finished
        owed = self._rate_per_s * (1 - ALLOWED) * (now.time_s - middle.time_s)
        still = owed - lately > STILL_BEHIND_SD * math.sqrt(max(lately, 1))
        per_s_before = before / (middle.time_s - first.time_s) if middle is not first else 0.0
        faster = lately - per_s_before * (now.time_s - middle.time_s)
        return still and faster < FASTER_SD * math.sqrt(max(before + lately, 1))

    def _session_s(self, now: Second) -> float:
        """Mean time of the sessions that have ended, as if those in flight were the latest that have arrived."""
        ages_s, left = 0.0, now.in_flight
        for earlier, later in zip(reversed(self._seen[:-1]), reversed(self._seen), strict=False):
            came = min(left, later.arrived - earlier.arrived)
            ages_s += came * (now.time_s - later.time_s)
            left -= came
            if not left:
                break
        return (self._flight_s - ages_s) / now.finished if now.finished else math.inf

    def _reason(self) -> str:
        first, now = self._excursion[0], self._excursion[-1]
        waiting = f", {now.waiting} waiting in the engine" if now.waiting else ""
        return (
            f"the queue grows: in {now.time_s - first.time_s:.0f} s {now.arrived - first.arrived} sessions arrived and "
            f"{now.finished - first.finished} ended, in flight rose from {first.in_flight} to {now.in_flight}{waiting}"
        )


def watch_of(level: Level) -> SaturationWatch | None:
    """``None`` where there is no one rate to hold completions against: closed loops, traces, ramps and steps."""
    arrivals = level.arrivals
    if arrivals is None:
        return None
    rates = {rate for stretch in arrivals.stretches for rate in (stretch.start_per_s, stretch.end_per_s)}
    if len(rates) != 1:
        return None
    clumping = {"constant": 0.0, "poisson": 1.0, "gamma": 1.0 / arrivals.burstiness}[arrivals.process]
    return SaturationWatch(rates.pop(), warmup_s=level.warmup_s, clumping=clumping)


@dataclass(frozen=True)
class _Growth:
    """Of one figure from fewer users to more, as the exponent of a power of the users."""

    users: float  # ratio

    def exponent(self, before: float | None, after: float | None) -> float | None:
        if not before or not after:
            return None
        return math.log(after / before) / math.log(self.users)


def past_saturation(fewer: int, before: LevelVerdict, more: int, after: LevelVerdict) -> str | None:
    """Why more than ``more`` users of a closed loop are pointless; ``None`` where they may bring something, or where
    too little is known. E2E has to have grown with the users for sure: by the ends of both medians' 95 % intervals."""
    if more <= fewer:
        return None
    growth = _Growth(more / fewer)
    tokens = growth.exponent(before.output_tok_s, after.output_tok_s)
    slower = growth.exponent(before.e2e_p50_s, after.e2e_p50_s)
    surely = growth.exponent(before.e2e_p50_high_s, after.e2e_p50_low_s)
    if tokens is None or slower is None or surely is None:
        return None
    if tokens > math.log2(1 + FLAT) or slower < SLOWER or surely < SURELY_SLOWER:
        return None
    gained = 100 * ((after.output_tok_s or 0.0) / (before.output_tok_s or 1.0) - 1)
    times = (after.e2e_p50_s or 0.0) / (before.e2e_p50_s or 1.0)
    return f"{more} users bring {gained:.0f} % more tokens than {fewer} and take {times:.1f} times as long"
