"""The levels of a scenario, in the order in which they run."""

from __future__ import annotations

from tokenswarm.scenario import Closed, Scenario
from tokenswarm.schedule import Arms, Level, level_labels


def planned_levels(scenario: Scenario) -> tuple[Level, ...]:
    """The scenario's closed-loop levels; none when Locust's own options drive the load."""
    if scenario.load is None:
        return ()
    closed = scenario.load.closed
    steps = [(users, arms) for users in closed.users for arms in _arms_of(scenario)]
    labels = level_labels(f"c={users} {arms}".strip() for users, arms in steps)
    return tuple(
        Level(
            index=index,
            concurrency=users,
            sessions=_sessions(closed, users, paired=arms == Arms.PAIRED),
            warmup_sessions=closed.warmup_sessions,
            duration_s=closed.duration_s,
            warmup_s=closed.warmup_s or 0.0,
            tail=closed.tail,
            time_limit_s=closed.time_limit_s or Level.time_limit_s,
            drain_limit_s=closed.drain_limit_s,
            label=label,
            arms=arms,
        )
        for index, ((users, arms), label) in enumerate(zip(steps, labels, strict=True))
    )


def _arms_of(scenario: Scenario) -> tuple[Arms, ...]:
    """The levels that each number of users gets."""
    test = scenario.prefix_cache
    if test is None:
        return (Arms.NONE,)
    return (Arms.PAIRED, Arms.COLD, Arms.WARM, Arms.WARM, Arms.COLD) if test.throughput else (Arms.PAIRED,)


def _sessions(closed: Closed, users: int, *, paired: bool) -> int | None:
    """Measured sessions of a level; pairs are whole."""
    if closed.sessions is None:
        return None
    count = closed.sessions.count(users)
    return count + count % 2 if paired else count
