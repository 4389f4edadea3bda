"""What the engine's own figures of a level give reason to look at: a closed list, each with its next step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from analysis.levels import LevelRow

KV_FULL = 0.9  # of the KV cache: from here on the scheduler admits little that is new
_OFTEN = 0.1  # of the samples
_FEWEST = 3  # samples that say something about a level
_AWAY = 0.1  # of the requests in flight


class What(StrEnum):
    KV_LIMITED = "KV-limited"
    QUEUED = "queued"
    PREEMPTED = "preempted"
    NOT_THERE = "not in the engine"
    OTHERS = "others' requests"


NEXT_STEP: dict[What, str] = {
    What.KV_LIMITED: "fewer users, shorter contexts, more memory for the KV cache, or a smaller type for it",
    What.QUEUED: "raise the engine's limit on running requests, or take the level for more than it is set up for",
    What.PREEMPTED: "fewer users or more KV cache: preempted requests are computed again",
    What.NOT_THERE: "look at what lies between (proxy, gateway, tokenisation), and whether other replicas got a share",
    What.OTHERS: "keep others off the server while measuring",
}


@dataclass(frozen=True)
class Concern:
    what: What
    reason: str

    @property
    def next_step(self) -> str:
        return NEXT_STEP[self.what]

    @property
    def text(self) -> str:
        return f"{self.what}: {self.reason}; {self.next_step}"


class Load(Protocol):
    """The figures that this rests on, None where unknown. ``moments``: samples that they are from."""

    @property
    def row(self) -> LevelRow: ...
    @property
    def moments(self) -> int: ...
    @property
    def running_mean(self) -> float | None: ...
    @property
    def waiting_mean(self) -> float | None: ...
    @property
    def waiting_max(self) -> float | None: ...
    @property
    def waiting_share(self) -> float | None: ...
    @property
    def kv_usage_max(self) -> float | None: ...
    @property
    def preemptions(self) -> int | None: ...


def log_concerns(load: Load) -> Iterator[Concern]:
    """Of one level. Requests in flight at the client are those of all phases in the measured time."""
    if load.preemptions:
        yield Concern(What.PREEMPTED, f"{load.preemptions} requests lost their KV cache and began anew")
    if load.moments < _FEWEST:
        return
    if (load.waiting_share or 0.0) >= _OFTEN:
        kv = load.kv_usage_max
        full = kv is not None and kv >= KV_FULL
        seen = f"requests waited in {load.waiting_share:.0%} of the samples, up to {load.waiting_max:.0f}"
        usage = "" if kv is None else f", KV cache at {kv:.0%} at most"
        yield Concern(What.KV_LIMITED if full else What.QUEUED, seen + usage)
    in_flight = load.row.figure("in_flight_mean").value
    if in_flight is None or load.running_mean is None:
        return
    inside = load.running_mean + (load.waiting_mean or 0.0)
    seen = f"{inside:.1f} requests in the engine on average, {in_flight:.1f} in flight at the client"
    if inside < (1 - _AWAY) * in_flight - 1:
        yield Concern(What.NOT_THERE, seen)
    elif inside > (1 + _AWAY) * in_flight + 1:
        yield Concern(What.OTHERS, seen)
