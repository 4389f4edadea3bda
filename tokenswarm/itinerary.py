"""Which level comes next: one after the other from a list, or as the verdict on the last one says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tokenswarm.level_search import RateSearch, UserSearch
from tokenswarm.level_verdict import LevelVerdict
from tokenswarm.levels import closed_level, open_level, planned_levels
from tokenswarm.open_load import Open, Steady
from tokenswarm.scenario import Scenario
from tokenswarm.schedule import Level, level_labels
from tokenswarm.search import Search
from tokenswarm.workload import Closed


class Itinerary(Protocol):
    """The levels of one run, in order.

    ``judging``: ``after`` needs the verdict on the level that has ended; elsewhere it may be ``None``. ``count``: how
    many levels there are, where that is known before.
    """

    @property
    def judging(self) -> bool: ...

    @property
    def count(self) -> int | None: ...

    def first(self) -> Level: ...

    def after(self, level: Level, verdict: LevelVerdict | None) -> Level | None:
        """The level to run now that ``level`` has ended; ``None`` when it was the last."""
        ...

    def document(self) -> dict[str, Any] | None:
        """What ``search.json`` is to say; ``None`` where nothing was searched."""
        ...


class FixedLevels:
    """The levels as the scenario lists them."""

    judging = False

    def __init__(self, levels: Sequence[Level]) -> None:
        """``levels``: at least one, in the order of their numbers; a resumed run leaves some out."""
        self._levels = tuple(levels)

    @property
    def count(self) -> int | None:
        return len(self._levels)

    def first(self) -> Level:
        return self._levels[0]

    def after(self, level: Level, verdict: LevelVerdict | None) -> Level | None:
        return next((following for following in self._levels if following.index > level.index), None)

    def document(self) -> dict[str, Any] | None:
        return None


class SearchedLevels:
    """One level for each load that a search tries. They are numbered as they run, so that each has prompts of its own;
    a load that is tried again is called ``c=8 #2``."""

    judging = True
    count: int | None = None

    def __init__(self, load: Closed | Open, search: Search) -> None:
        self.search = search
        self._load = load
        self._names: list[str] = []
        self._tried = search.start

    def first(self) -> Level:
        return self._level(self.search.start)

    def after(self, level: Level, verdict: LevelVerdict | None) -> Level | None:
        assert verdict is not None, "judging is set"
        following = self.search.judged(level.index, level.label, self._tried, verdict)
        return None if following is None else self._level(following)

    def document(self) -> dict[str, Any] | None:
        return self.search.document()

    def _level(self, tried: float) -> Level:
        self._tried = tried
        self._names.append(self.search.named(tried))
        index, label = len(self._names) - 1, level_labels(self._names)[-1]
        match self._load:
            case Closed():
                return closed_level(self._load, int(tried), index, label)
            case Open():
                return open_level(self._load, Steady(steady=tried), index, label)


def itinerary_of(scenario: Scenario) -> Itinerary | None:
    """``None`` when Locust's own options drive the load. A search begins anew with each call."""
    levels = planned_levels(scenario)
    load = scenario.load
    if load is None or not levels:
        return None
    if load.closed is not None and isinstance(load.closed.users, UserSearch):
        users = load.closed.users.search
        return SearchedLevels(load.closed, Search(users.start, users.limit, users.within, whole=True))
    if load.open is not None and isinstance(load.open.rates, RateSearch):
        rates = load.open.rates.search
        return SearchedLevels(load.open, Search(rates.start, rates.limit, rates.within, whole=False))
    return FixedLevels(levels)
