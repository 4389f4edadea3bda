"""The load of a calibration: a scenario's own traffic at a few of its planned levels, aimed at a server that knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.build import BenchmarkError
from tokenswarm.calibration import Axis
from tokenswarm.level_search import RateSearch, UserSearch
from tokenswarm.open_load import AnyRate, Open, Ramp, Steady, Steps
from tokenswarm.scenario import Scenario
from tokenswarm.workload import Load

MOST_LEVELS = 5
DRAIN_LIMIT_S = 10.0


@dataclass(frozen=True)
class Pace:
    """How the server answers: seconds to the first token, and from each token to the next."""

    ttft_s: float = 0.05
    gap_s: float = 0.01


def planned_loads(load: Load) -> tuple[Axis, list[float]]:
    """Users, or arrivals a second, of at most ``MOST_LEVELS`` levels over the planned range, the highest among them.

    ``BenchmarkError`` where only a trace knows.
    """
    if load.closed is not None:
        users = load.closed.users
        return "users", [*map(round, _spread(users) if isinstance(users, UserSearch) else chosen(users))]
    if load.open is not None:
        rates = load.open.rates
        return "rate", _spread(rates) if isinstance(rates, RateSearch) else chosen(map(_highest, rates))
    raise BenchmarkError(
        "the load of a trace is not calibrated yet; calibrate an open loop of the trace's highest rate"
    )


def chosen(loads: Any) -> list[float]:
    """At most ``MOST_LEVELS`` of the loads, evenly over their order, the lowest and the highest among them."""
    ordered = sorted(set(loads))
    if len(ordered) <= MOST_LEVELS:
        return ordered
    return [ordered[round(step * (len(ordered) - 1) / (MOST_LEVELS - 1))] for step in range(MOST_LEVELS)]


def _spread(asked: UserSearch | RateSearch) -> list[float]:
    """From a search's start to its limit in equal ratios."""
    start, limit = asked.search.start, asked.search.limit
    steps = (start * (limit / start) ** (step / (MOST_LEVELS - 1)) for step in range(MOST_LEVELS))
    return sorted({round(load) if isinstance(asked, UserSearch) else load for load in steps})


def _highest(rate: AnyRate) -> float:
    match rate:
        case Steady():
            return rate.steady
        case Ramp():
            return max(rate.ramp)
        case Steps():
            return max(rate.steps)


def calibration_scenario(
    scenario: Scenario, url: str, loads: list[float], seconds: float, reference: dict[str, Any] | None
) -> dict[str, Any]:
    """A scenario file's content: the same traffic, ``seconds`` at each load. ``reference``: the reference server's plan
    of an answer, a member of every request; None for another server."""
    assert scenario.load is not None, "a calibration has planned levels"
    content = scenario.model_dump(mode="json", exclude_unset=True)  # as written, but with absolute names of files
    target = scenario.target.model_dump(mode="json", include={"api", "timeouts", "request"})
    plan = {} if reference is None else {"reference": reference}
    content["target"] = target | {"url": url, "request": target["request"] | plan}
    for question in ("prefix_cache", "interference"):
        content.pop(question, None)
    content["name"] = "calibration"
    content["cache_probe"] = "never"
    content["load"] = _load(scenario.load, loads, seconds)
    return content


def _load(load: Load, loads: list[float], seconds: float) -> dict[str, Any]:
    common = {"duration_s": seconds, "drain_limit_s": DRAIN_LIMIT_S}
    if load.open is None:
        return {"closed": {"users": loads, **common}}
    return {"open": {**_open(load.open), _unit(load.open): loads, **common}}


def _open(asked: Open) -> dict[str, Any]:
    return asked.model_dump(mode="json", exclude_none=True, include={"arrivals", "max_users", "when_full"})


def _unit(asked: Open) -> str:
    return "requests_per_s" if asked.sessions_per_s is None else "sessions_per_s"
