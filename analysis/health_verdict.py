"""Did the load generator limit a level, why, and how many more workers would it take? All its limits stand here.

Lateness is held against 5 % of the median of the figure that it touches. A late send touches TTFT. A late event loop
touches TTFT where arrivals come by the clock, TTFT and TPOT where the times are those of reading, and with the kernel's
stamps in a closed loop no latency: there users notice late that their answer has ended, and the load gets lighter by
the lag's share of E2E. A small absolute lateness counts in no case: event loops and busy machines have it always.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from analysis.health import LevelHealth

EVENTS_BUDGET = 20_000.0  # token events a second that one process can read in time
CPU_BUDGET = 0.8  # share of a core that a process may need, so that it is seldom late
BUSY_SHARE = 0.9  # above it a process limits the load
LATE_SHARE = 0.05  # of the figure
LATE_S = 0.010  # a lateness up to this is nothing where it is in no latency
LATE_IN_LATENCY_S = 0.005  # likewise where it is in one: arrivals by the clock, or times of reading
LEAST_REQUESTS = 20  # of fewer, a single late one would decide
LEAST_S = 5.0  # a process that is known for less is not judged by CPU and loop lag: one standstill would decide
MERGED_LIMIT = 0.05  # share of the reads that carried several token events


class GeneratorState(StrEnum):
    """The closed list of verdicts. ``UNKNOWN``: the run kept no health of its processes."""

    OK = "ok"
    LIMITED = "generator-limited"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class GeneratorVerdict:
    """``next_step`` is empty unless the level is limited; ``further_workers`` is 0 where more would not help."""

    state: GeneratorState
    reasons: tuple[str, ...] = ()
    next_step: str = ""
    further_workers: int = 0

    @property
    def limited(self) -> bool:
        return self.state is GeneratorState.LIMITED

    @property
    def line(self) -> str:
        """Reasons and the next step."""
        return f"{'; '.join(self.reasons)}; next step: {self.next_step}"


def judge_generator(health: LevelHealth) -> GeneratorVerdict:
    """Without rows of ``health.csv`` nothing is held against a level."""
    if not health.known:
        return GeneratorVerdict(GeneratorState.UNKNOWN)
    short = [*_cpu(health), *_sends(health), *_loop(health), *_merged(health)]
    held = list(_held(health))
    if not short and not held:
        return GeneratorVerdict(GeneratorState.OK)
    steps = []
    further = 0
    if short:
        further, step = more_workers(len(health.processes), health.total("events_per_s"), health.total("cpu_share"))
        steps.append(step)
    if held:
        steps.append("a faster way from the workers to the master, or fewer requests a second")
    return GeneratorVerdict(GeneratorState.LIMITED, tuple(short + held), ", and ".join(steps), further)


def more_workers(workers: int, events_per_s: float | None, cores: float | None) -> tuple[int, str]:
    """How many more it takes, and that as advice: enough for the token events at ``EVENTS_BUDGET`` each and for the
    CPU time at ``CPU_BUDGET`` of a core each; one more where neither asks for any."""
    by_events = math.ceil((events_per_s or 0.0) / EVENTS_BUDGET - 1e-9)
    by_cpu = math.ceil((cores or 0.0) / CPU_BUDGET - 1e-9)
    wanted = max(by_events, by_cpu, workers + 1)
    further = wanted - workers
    why = []
    if by_events == wanted:
        why.append(f"{events_per_s:,.0f} events/s at {EVENTS_BUDGET:,.0f} each")
    if by_cpu == wanted:
        why.append(f"{cores:.1f} cores at {CPU_BUDGET:.0%} each")
    if not why:
        why.append("the least, since neither events/s nor CPU ask for more; look for what else runs on these machines")
    option = f" (--processes {wanted})" if workers == 1 else ""
    return further, f"{further} more worker{'s' if further > 1 else ''}{option}: {' and '.join(why)}"


def _cpu(health: LevelHealth) -> Iterator[str]:
    busy = [one for one in health.processes if (one.cpu_share or 0.0) > BUSY_SHARE and one.seconds >= LEAST_S]
    if busy:
        worst = max(busy, key=lambda one: one.cpu_share or 0.0)
        yield f"CPU {worst.cpu_share:.0%} of a core in {worst.worker}, above {BUSY_SHARE:.0%}"


def _sends(health: LevelHealth) -> Iterator[str]:
    sends = health.sends
    if sends.sends < LEAST_REQUESTS or (health.by_clock and health.waits):
        return
    least = LATE_IN_LATENCY_S if health.by_clock else LATE_S
    yield from _late("send delay", sends.delay_p95_s, "TTFT", sends.ttft_s, least)


def _loop(health: LevelHealth) -> Iterator[str]:
    lag_s, sends = _loop_lag_s(health), health.sends
    touched = [("TTFT", sends.ttft_s)] if health.by_clock or not sends.kernel else [("E2E", sends.e2e_s)]
    if not sends.kernel:
        touched.append(("TPOT", sends.tpot_s))
    least_s = LATE_S if touched[0][0] == "E2E" else LATE_IN_LATENCY_S
    told = [text for figure, median_s in touched for text in _late("loop lag", lag_s, figure, median_s, least_s)]
    yield from told[:1]


def _loop_lag_s(health: LevelHealth) -> float | None:
    """Of the process that has most, among those that are known for long enough."""
    lags = [one.loop_lag_p95_s for one in health.processes if one.seconds >= LEAST_S]
    return max((lag_s for lag_s in lags if lag_s is not None), default=None)


def _late(what: str, lateness_s: float | None, figure: str, median_s: float | None, least_s: float) -> Iterator[str]:
    if lateness_s is None or median_s is None:
        return
    limit_s = max(least_s, LATE_SHARE * median_s)
    if lateness_s > limit_s:
        yield (
            f"{what} p95 {_ms(lateness_s)}, above {_ms(limit_s)}: "
            f"{lateness_s / median_s:.0%} of {figure} p50 {_ms(median_s)}"
        )


def _merged(health: LevelHealth) -> Iterator[str]:
    """A server that sends several tokens together is not the generator's fault: only those reads count of whose request
    one was late by half the time between reads. Where the kernel does not tell, loop lag stands in for all of them."""
    sends = health.sends
    if sends.streams < LEAST_REQUESTS or sends.read_gap_s is None:
        return
    share = sends.late_merged_share
    if share is None:
        share = sends.merged_share if (_loop_lag_s(health) or 0.0) > sends.read_gap_s / 2 else None
    if (share or 0.0) > MERGED_LIMIT:
        late = f"late by more than half of the {_ms(sends.read_gap_s)} between two"
        yield f"{share:.0%} of the reads carried several token events, in requests that were read {late}"


def _held(health: LevelHealth) -> Iterator[str]:
    held_s = health.most("held_s")
    if held_s:
        yield f"for {held_s:.1f} s no new session began, because rows had not reached the master"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds * 1000:.0f} ms"
