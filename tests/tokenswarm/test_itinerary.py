"""Which level comes next: a list to its end, or what a search asks for, as whole levels."""

from __future__ import annotations

import pytest

from tokenswarm.itinerary import FixedLevels, SearchedLevels, itinerary_of
from tokenswarm.level_verdict import Judgement, LevelVerdict
from tokenswarm.saturation import watch_of
from tokenswarm.scenario import parse_scenario
from tokenswarm.schedule import Level

CLASS = "traffic: [{objective: quick}]\nobjectives: {quick: {ttft_s: {p95: 1}}}\n"
MET, MISSED, UNDECIDED = (LevelVerdict(one, "") for one in Judgement)


def levels_of(load: str, *verdicts: LevelVerdict) -> list[Level]:
    itinerary = itinerary_of(parse_scenario(CLASS + load))
    assert itinerary is not None
    levels = [itinerary.first()]
    for verdict in verdicts:
        following = itinerary.after(levels[-1], verdict)
        if following is not None:
            levels.append(following)
    return levels


def test_a_list_runs_to_its_end_whatever_the_verdicts() -> None:
    """It asks for none, and knows how many levels there are."""
    itinerary = itinerary_of(parse_scenario(CLASS + "load: {closed: {users: [4, 2, 4], sessions: 9}}"))
    assert isinstance(itinerary, FixedLevels)
    assert (itinerary.judging, itinerary.count, itinerary.document()) == (False, 3, None)
    labels, level = [], itinerary.first()
    while True:
        labels.append(level.label)
        following = itinerary.after(level, None)
        if following is None:
            break
        level = following
    assert labels == ["c=4", "c=2", "c=4 #2"]


def test_no_load_no_itinerary() -> None:
    """Locust's own options drive the load."""
    assert itinerary_of(parse_scenario(CLASS)) is None


def test_levels_of_a_search_for_users() -> None:
    """Each has a number of its own, hence prompts of its own; sessions follow the users; a second try is called so."""
    load = "load: {closed: {users: {search: {start: 2, limit: 9}}, sessions: {per_user: 5, at_least: 12}}}"
    levels = levels_of(load, MET, UNDECIDED, MET, MET, MET)
    assert [(level.index, level.label, level.concurrency, level.sessions) for level in levels] == [
        (0, "c=2", 2, 12),
        (1, "c=4", 4, 20),
        (2, "c=4 #2", 4, 20),
        (3, "c=8", 8, 40),
        (4, "c=9", 9, 45),
    ]


def test_levels_of_a_search_for_a_rate() -> None:
    """Arrivals at the rate that is tried, of the same kind and for the same time."""
    load = "load: {open: {sessions_per_s: {search: {start: 1.5, limit: 50}}, duration_s: 30, warmup_s: 10}}"
    levels = levels_of(load, MET, MISSED)
    assert [level.label for level in levels] == ["1.5/s", "3/s", "2.12/s"]
    assert [level.rate_per_s for level in levels] == pytest.approx([1.5, 3, 2.12])
    assert {(level.concurrency, level.duration_s, level.warmup_s) for level in levels} == {(512, 30, 10)}


def test_the_first_level_is_the_one_that_is_planned() -> None:
    """What run.json says of a search before it begins is true."""
    scenario = parse_scenario(CLASS + "load: {closed: {users: {search: {start: 3, limit: 9}}, sessions: 30}}")
    itinerary = itinerary_of(scenario)
    assert isinstance(itinerary, SearchedLevels)
    assert itinerary.judging
    assert itinerary.count is None
    assert itinerary.first().label == "c=3"
    document = itinerary.document()
    assert document is not None
    assert (document["steps"], document["ended"]) == ([], "stopped")


@pytest.mark.parametrize(
    ("load", "watched"),
    [
        ("open: {requests_per_s: 5, duration_s: 30}", True),
        ("open: {requests_per_s: 5, duration_s: 30, warmup_s: 10, arrivals: {gamma: {burstiness: 0.5}}}", True),
        ("open: {requests_per_s: {ramp: [1, 5]}, duration_s: 30}", False),
        ("open: {requests_per_s: {steps: [1, 5]}, duration_s: 30}", False),
        ("closed: {users: 4, duration_s: 30}", False),
    ],
)
def test_only_one_steady_rate_can_be_watched(load: str, watched: bool) -> None:
    """Where the rate changes, sessions in flight rise without a queue; a closed loop has no queue to grow."""
    assert (watch_of(levels_of(f"load: {{{load}}}")[0]) is not None) == watched
