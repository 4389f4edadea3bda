"""The levels of a scenario, in the order in which they run."""

from __future__ import annotations

from dataclasses import replace

from tokenswarm.level_search import RateSearch, UserSearch
from tokenswarm.open_load import AnyRate, Open, Steady
from tokenswarm.quotas import quotas_of
from tokenswarm.replay_load import Replay
from tokenswarm.scenario import Closed, Scenario
from tokenswarm.schedule import Arms, Level, level_labels


def planned_levels(scenario: Scenario) -> tuple[Level, ...]:
    """The scenario's levels; none when Locust's own options drive the load. Of a search only the first is known."""
    load = scenario.load
    if load is None:
        return ()
    if load.open is not None:
        return _open_levels(load.open)
    if load.replay is not None:
        return (_replayed(load.replay),)
    assert load.closed is not None, "a rule wants one of the three"
    if scenario.interference is not None:
        return _blocks(scenario, load.closed, scenario.interference.blocks)
    return _closed_levels(scenario, load.closed)


def _open_levels(load: Open) -> tuple[Level, ...]:
    rates = load.rates
    first = (Steady(steady=rates.search.start),) if isinstance(rates, RateSearch) else rates
    labels = level_labels(rate.label for rate in first)
    return tuple(
        open_level(load, rate, index, label) for index, (rate, label) in enumerate(zip(first, labels, strict=True))
    )


def open_level(load: Open, rate: AnyRate, index: int, label: str) -> Level:
    """The level of an open loop at this rate."""
    return Level(
        index=index,
        concurrency=load.max_users,
        duration_s=load.duration_s,
        warmup_s=load.warmup_s,
        tail="drain",
        drain_limit_s=load.drain_limit_s,
        label=label,
        arrivals=load.arrivals_at(rate),
        when_full=load.when_full,
    )


def _replayed(load: Replay) -> Level:
    label = "replay" if load.speed == 1 else f"replay x{load.speed:g}"
    return Level(
        index=0,
        concurrency=load.max_users,
        tail="drain",
        drain_limit_s=load.drain_limit_s,
        label=label,
        replayed=True,
        when_full=load.when_full,
    )


def closed_level(closed: Closed, users: int, index: int, label: str) -> Level:
    """The level of a closed loop with so many users."""
    return Level(
        index=index,
        concurrency=users,
        sessions=None if closed.sessions is None else closed.sessions.count(users),
        warmup_sessions=closed.warmup_sessions,
        duration_s=closed.duration_s,
        warmup_s=closed.warmup_s or 0.0,
        tail=closed.tail,
        time_limit_s=closed.time_limit_s or Level.time_limit_s,
        drain_limit_s=closed.drain_limit_s,
        label=label,
    )


def _closed_levels(scenario: Scenario, closed: Closed) -> tuple[Level, ...]:
    kinds = _arms_of(scenario)
    steps = [(users, arms) for users in _users(closed) for arms in kinds]
    labels = level_labels(f"c={users} {arms}".strip() for users, arms in steps)
    return tuple(
        replace(
            closed_level(closed, users, index, label),
            sessions=_sessions(closed, users, paired=arms == Arms.PAIRED),
            arms=arms,
            round=index - index % len(kinds) + kinds.index(Arms.COLD) if arms in (Arms.COLD, Arms.WARM) else None,
        )
        for index, ((users, arms), label) in enumerate(zip(steps, labels, strict=True))
    )


def _users(closed: Closed) -> tuple[int, ...]:
    return (closed.users.search.start,) if isinstance(closed.users, UserSearch) else closed.users


def _arms_of(scenario: Scenario) -> tuple[Arms, ...]:
    """The levels that each number of users gets. The whole ones do the same work, so that chance makes no difference
    between them; their round is the number of the first."""
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


def _blocks(scenario: Scenario, closed: Closed, rounds: int) -> tuple[Level, ...]:
    """For each number of users so many rounds: every class alone, then all together, and the other way round in every
    other round. Over two rounds each of them has the same place in time on average, so that an even drift cancels."""
    names = [traffic.name for traffic in scenario.traffic]
    steps: list[tuple[int, tuple[int, ...], str]] = []
    for users in _users(closed):
        together = quotas_of(users, [traffic.weight for traffic in scenario.traffic])
        alone = [tuple(n if i == j else 0 for j, n in enumerate(together)) for i in range(len(names))]
        order = [
            *((quotas, f"{name} alone") for quotas, name in zip(alone, names, strict=True)),
            (together, "together"),
        ]
        for number in range(rounds):
            steps += [(number, *one) for one in (order if number % 2 == 0 else reversed(order))]
    labels = level_labels(f"c={sum(quotas)} {name}" for _, quotas, name in steps)
    return tuple(
        Level(
            index=index,
            concurrency=sum(quotas),
            duration_s=closed.duration_s,
            warmup_s=closed.warmup_s or 0.0,
            drain_limit_s=closed.drain_limit_s,
            label=label,
            quotas=quotas,
            round=number,
        )
        for index, ((number, quotas, _), label) in enumerate(zip(steps, labels, strict=True))
    )
