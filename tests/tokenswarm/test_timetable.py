"""Arrivals handed out in windows: the schedule of the level whoever gets it, and every arrival accounted for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenswarm.arrivals import Arrivals, Stretch
from tokenswarm.records import Phase
from tokenswarm.schedule import Level
from tokenswarm.timetable import Arrival, Timetable, arrivals_of
from tokenswarm.trace import TraceSession, TraceTurn

EVENLY = Arrivals("constant", (Stretch(5.0, 2.0, 2.0),))


def level(**changes: object) -> Level:
    return Level(**({"index": 0, "concurrency": 8, "duration_s": 4.0, "warmup_s": 1.0, "arrivals": EVENLY} | changes))  # type: ignore[arg-type]


def every_second(count: int, warmups: int = 0) -> Iterator[Arrival]:
    """Arrival 0 at 0 s, 1 at 1 s …; the first ``warmups`` are not measured."""
    for number in range(count):
        yield Arrival(number, Phase.WARMUP if number < warmups else Phase.MEASURED, float(number))


def numbers(dealt: dict[str, list[Arrival]]) -> dict[str, list[int]]:
    return {worker: [arrival.number for arrival in arrivals] for worker, arrivals in dealt.items()}


# which sessions arrive --------------------------------------------------------------------------------------------


def test_an_even_rate_arrives_evenly_and_begins_with_the_warm_up() -> None:
    """Two a second for five seconds: 0, 0.5 … 4.5 s, of which the first two are before the measured time."""
    arrivals = list(arrivals_of(level(), seed=1))
    assert [arrival.at_s for arrival in arrivals] == pytest.approx([number / 2 for number in range(10)])
    assert [arrival.number for arrival in arrivals] == list(range(10))
    assert [arrival.phase for arrival in arrivals] == [Phase.WARMUP] * 2 + [Phase.MEASURED] * 8
    assert all(arrival.recorded is None and arrival.again == 0 for arrival in arrivals)


def test_the_schedule_is_the_seeds_and_the_levels() -> None:
    """The same seed and level give the same times, another seed or level others."""
    poisson = Arrivals("poisson", (Stretch(50.0, 4.0, 4.0),))

    def times_s(seed: int, index: int) -> list[float]:
        return [arrival.at_s for arrival in arrivals_of(level(arrivals=poisson, index=index), seed)]

    assert times_s(1, 0) == times_s(1, 0)
    assert times_s(1, 0) != times_s(2, 0)
    assert times_s(1, 0) != times_s(1, 1)
    assert 140 < len(times_s(1, 0)) < 260  # 200 expected, standard deviation 14


def test_a_replayed_level_has_the_sessions_of_its_trace() -> None:
    """At the times of the trace, each with what the trace says of it, all measured."""
    trace = [TraceSession(at_s, (TraceTurn(10, 5),), traffic=name) for at_s, name in ((0.0, "a"), (0.2, "b"))]
    replayed = level(arrivals=None, replayed=True, duration_s=None, warmup_s=0.0)
    arrivals = list(arrivals_of(replayed, 1, trace))
    assert arrivals == [Arrival(n, Phase.MEASURED, one.at_s, one) for n, one in enumerate(trace)]


# who gets them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_all_workers_together_get_the_schedule(workers: int) -> None:
    """Whatever their number and the windows: each arrival goes to one of them, none is changed or missing."""
    poisson = level(arrivals=Arrivals("poisson", (Stretch(20.0, 10.0, 10.0),)), duration_s=19.0)
    wanted = list(arrivals_of(poisson, seed=3))
    timetable, got = Timetable(arrivals_of(poisson, seed=3)), list[Arrival]()
    users = {f"w{index}": index + 1 for index in range(workers)}
    until_s = 0.0
    while not timetable.exhausted:
        until_s += 1.7
        for arrivals in timetable.hand_out(until_s, users).values():
            assert all(arrival.at_s < until_s for arrival in arrivals)
            assert arrivals == sorted(arrivals, key=lambda arrival: arrival.at_s)
            got += arrivals
    assert sorted(got) == wanted
    assert timetable.scheduled == sum(arrival.phase == Phase.MEASURED for arrival in wanted)


def test_a_window_ends_before_its_time() -> None:
    """What is due at its very end is for the next window, and nothing is handed out twice."""
    timetable = Timetable(every_second(5))
    assert numbers(timetable.hand_out(2.0, {"w0": 1})) == {"w0": [0, 1]}
    assert numbers(timetable.hand_out(2.0, {"w0": 1})) == {}
    assert not timetable.exhausted
    assert numbers(timetable.hand_out(100.0, {"w0": 1})) == {"w0": [2, 3, 4]}
    assert (timetable.exhausted, timetable.last_s) == (True, 4.0)


@pytest.mark.parametrize("window_s", [1.0, 3.0, 100.0])
def test_arrivals_are_dealt_in_proportion_to_the_users(window_s: float) -> None:
    """Three workers of 3, 2 and 1 users get 30, 20 and 10 of sixty arrivals, however short the windows are; a worker
    without users gets none."""
    timetable, got = Timetable(every_second(60)), Counter[str]()
    until_s = 0.0
    while not timetable.exhausted:
        until_s += window_s
        dealt = timetable.hand_out(until_s, {"w0": 3, "w1": 2, "idle": 0, "w2": 1})
        got.update({worker: len(arrivals) for worker, arrivals in dealt.items()})
    assert got == {"w0": 30, "w1": 20, "w2": 10}


def test_nothing_is_handed_out_while_nobody_has_users() -> None:
    """It waits, and is not counted as scheduled."""
    timetable = Timetable(every_second(2))
    assert timetable.hand_out(10.0, {"w0": 0}) == {}
    assert timetable.hand_out(10.0, {}) == {}
    assert (timetable.scheduled, timetable.exhausted) == (0, False)
    assert numbers(timetable.hand_out(10.0, {"w0": 1})) == {"w0": [0, 1]}


# what becomes of them ---------------------------------------------------------------------------------------------


def test_a_level_is_complete_when_every_arrival_has_ended() -> None:
    """Not while one is held, nor while one is to come; the warm-up counts for that, and not as scheduled."""
    timetable = Timetable(every_second(3, warmups=1))
    timetable.hand_out(2.0, {"w0": 1})
    timetable.finish("w0", 1)
    timetable.finish("w0", 0)
    assert (timetable.complete, timetable.exhausted) == (False, False)
    timetable.hand_out(9.0, {"w0": 1})
    assert (timetable.complete, timetable.exhausted) == (False, True)
    timetable.finish("w0", 2)
    assert timetable.complete
    assert (timetable.scheduled, timetable.finished, timetable.lost) == (2, 3, 0)


@pytest.mark.parametrize(("worker", "number"), [("w1", 0), ("w0", 1), ("w0", 5), ("nobody", 0)])
def test_finishing_what_was_never_handed_out_is_an_error(worker: str, number: int) -> None:
    """A worker that reports sessions of another, or one twice, would make the level end early."""
    timetable = Timetable(every_second(3))
    timetable.hand_out(1.5, {"w0": 1, "w1": 1})  # 0 to w0, 1 to w1
    with pytest.raises(ValueError, match=f"worker {worker} finished session {number}, which it was never handed"):
        timetable.finish(worker, number)
    timetable.finish("w0", 0)
    with pytest.raises(ValueError, match="never handed"):
        timetable.finish("w0", 0)


def test_what_is_withdrawn_was_not_scheduled() -> None:
    """The level ended before its time: neither scheduled nor finished. One of the warm-up changes no number."""
    timetable = Timetable(every_second(4, warmups=1))
    timetable.hand_out(9.0, {"w0": 1})
    assert timetable.scheduled == 3
    timetable.finish("w0", 3, withdrawn=True)
    assert (timetable.scheduled, timetable.finished) == (2, 0)
    timetable.finish("w0", 0, withdrawn=True)
    assert (timetable.scheduled, timetable.finished) == (2, 0)
    timetable.finish("w0", 1)
    timetable.finish("w0", 2)
    assert (timetable.scheduled, timetable.finished, timetable.complete) == (2, 2, True)


def test_what_a_worker_held_is_dealt_again_or_lost() -> None:
    """It holds 0 to 4, one of them warm-up and 1 ended; at 3 s two are due later: these go to the others, one each,
    and of the two that are over the measured one is lost."""
    timetable = Timetable(every_second(6, warmups=1))
    timetable.hand_out(4.5, {"w0": 1})
    timetable.finish("w0", 1)
    again = timetable.take_back("w0", 3.0, {"w1": 1, "w2": 1})
    assert numbers(again) == {"w1": [3], "w2": [4]}
    assert [arrival.again for arrivals in again.values() for arrival in arrivals] == [1, 1]
    assert [arrival.at_s for arrivals in again.values() for arrival in arrivals] == [3.0, 4.0]
    assert (timetable.scheduled, timetable.lost) == (4, 1)
    timetable.finish("w1", 3)
    twice = timetable.take_back("w2", 3.0, {"w1": 1})
    assert [(arrival.number, arrival.again) for arrival in twice["w1"]] == [(4, 2)]
    assert timetable.take_back("w2", 0.0, {"w1": 1}) == {}
    with pytest.raises(ValueError, match="never handed"):
        timetable.finish("w0", 2)
    timetable.hand_out(9.0, {"w1": 1})
    timetable.finish("w1", 4)
    timetable.finish("w1", 5)
    assert timetable.complete
    assert (timetable.scheduled, timetable.finished, timetable.lost) == (5, 4, 1)  # 1, 3, 4 and 5; 2 is lost


def test_with_nobody_left_all_that_was_held_is_lost() -> None:
    """What is due later as well; only the measured ones count."""
    timetable = Timetable(every_second(4, warmups=1))
    timetable.hand_out(9.0, {"w0": 1})
    assert timetable.take_back("w0", 2.0, {}) == {}
    assert (timetable.scheduled, timetable.lost, timetable.complete) == (3, 3, True)


def test_sessions_under_way_have_arrived_and_not_ended() -> None:
    """At 2 s: 0, 1 and 2 have arrived, one of them has ended; 3 is handed out and has not arrived."""
    timetable = Timetable(every_second(5))
    timetable.hand_out(3.5, {"w0": 1, "w1": 1})
    timetable.finish("w1", 1)
    assert timetable.under_way(2.0) == 2
    assert timetable.under_way(0.0) == 1


class Workers:
    """Hold what they are dealt; count what becomes of the measured ones."""

    def __init__(self, timetable: Timetable, warmups: int, users: dict[str, int]) -> None:
        self.timetable, self.warmups, self.users = timetable, warmups, dict(users)
        self.held: dict[int, str] = {}
        self.arrived: set[int] = set()
        self.ended = Counter[str]()

    def get(self, dealt: dict[str, list[Arrival]]) -> None:
        for worker, arrivals in dealt.items():
            assert self.users[worker] > 0
            for arrival in arrivals:
                assert arrival.number not in self.held
                self.held[arrival.number] = worker
                self.arrived.add(arrival.number)

    def end(self, number: int, *, withdrawn: bool) -> None:
        self.timetable.finish(self.held.pop(number), number, withdrawn=withdrawn)
        self._count(number, "withdrawn" if withdrawn else "finished")

    def die(self, worker: str, now_s: float) -> None:
        """Number ``n`` is due at ``n`` seconds: what is due later is dealt again, the rest lost."""
        del self.users[worker]
        mine = [number for number, holder in self.held.items() if holder == worker]
        for number in mine:
            del self.held[number]
        self.get(self.timetable.take_back(worker, now_s, self.users))
        for number in mine:
            again = number >= now_s and any(self.users.values())
            assert (number in self.held) == again
            if not again:
                self._count(number, "lost")

    def _count(self, number: int, what: str) -> None:
        self.ended[what] += number >= self.warmups

    def check(self) -> None:
        held = sum(number >= self.warmups for number in self.held)
        assert self.timetable.lost == self.ended["lost"]
        assert self.timetable.scheduled == self.ended["finished"] + self.ended["lost"] + held


@given(
    users=st.dictionaries(st.sampled_from(["w0", "w1", "w2", "w3"]), st.integers(0, 4), min_size=1),
    total=st.integers(0, 60),
    warmups=st.integers(0, 10),
    seed=st.integers(0, 1000),
)
def test_every_arrival_ends_once_or_is_lost_or_withdrawn(
    users: dict[str, int], total: int, warmups: int, seed: int
) -> None:
    """Sessions end in any order and workers die at any moment: scheduled = finished + lost + held at all times, none
    is held by two workers, and in the end every one is accounted for."""
    rng, timetable, now_s = random.Random(seed), Timetable(every_second(total, warmups)), 0.0
    workers = Workers(timetable, warmups, users)
    while any(workers.users.values()) and not timetable.complete:
        now_s += rng.choice([0.5, 1.0, 4.0])
        workers.get(timetable.hand_out(now_s + 2.0, workers.users))
        for number in rng.sample(sorted(workers.held), rng.randint(0, len(workers.held))):
            workers.end(number, withdrawn=number >= now_s and rng.random() < 0.1)
        if rng.random() < 0.2:
            workers.die(rng.choice(sorted(workers.users)), now_s)
        workers.check()
    if timetable.complete:
        assert workers.held == {}
        assert workers.arrived == set(range(total))
        assert workers.ended.total() == max(0, total - warmups)
