"""Levels, tickets and the mix: who may take what, by hand computation and by property."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenswarm.schedule import FILL_BLOCK, Ledger, Mix, level_labels, own_tickets


def test_equal_levels_get_different_labels() -> None:
    """A concurrency that comes again is told apart from the first."""
    assert level_labels(["c=8", "c=8", "c=4", "c=8"]) == ["c=8", "c=8 #2", "c=4", "c=8 #3"]


def test_a_lone_process_never_holds_more_tickets_than_users() -> None:
    """Without spares a worker gets one ticket a user, then one for each that ended."""
    ledger = Ledger(total=5)
    assert ledger.grant("local", users=2, all_users=2) == [0, 1]
    assert ledger.grant("local", users=2, all_users=2) == []
    ledger.finish("local", 0)
    assert ledger.grant("local", users=2, all_users=2) == [2]
    assert not ledger.exhausted
    ledger.finish("local", 2)
    ledger.finish("local", 1)
    assert ledger.grant("local", users=2, all_users=2) == [3, 4]
    assert ledger.exhausted
    assert not ledger.complete
    ledger.finish("local", 4)
    ledger.finish("local", 3)
    assert ledger.complete


def test_no_spare_is_handed_out_among_the_last() -> None:
    """Two workers of two users each: spares while more than four tickets are left, none after."""
    ledger = Ledger(total=10, spares=True)
    assert ledger.grant("w0", users=2, all_users=4) == [0, 1, 2, 3]  # two to play, two ahead
    assert ledger.grant("w1", users=2, all_users=4) == [4, 5]  # two to play; 6 to 9 are the last four
    ledger.finish("w0", 0)
    assert ledger.grant("w0", users=2, all_users=4) == []  # three held for two users
    ledger.finish("w0", 1)
    ledger.finish("w0", 2)
    assert ledger.grant("w0", users=2, all_users=4) == [6]


@pytest.mark.parametrize(("worker", "number"), [("w0", 1), ("w0", 7), ("w1", 0), ("nobody", 0)])
def test_finishing_what_was_never_handed_out_is_an_error(worker: str, number: int) -> None:
    """A worker that reports sessions it was not given would make a level end early."""
    ledger = Ledger(total=3)
    ledger.grant("w0", users=1, all_users=2)
    ledger.grant("w1", users=1, all_users=2)
    with pytest.raises(ValueError, match=f"worker {worker} finished session {number}, which it was never handed"):
        ledger.finish(worker, number)
    assert ledger.done == 0


def test_the_same_session_cannot_end_twice() -> None:
    """It would count for another one that has not ended."""
    ledger = Ledger(total=2)
    ledger.grant("w0", users=2, all_users=2)
    ledger.finish("w0", 1)
    with pytest.raises(ValueError, match="never handed"):
        ledger.finish("w0", 1)


def test_tickets_of_a_worker_that_is_gone_come_first_and_are_counted() -> None:
    """It held 2 and 3: whoever is free next plays them, before any new one, and both are told to come again."""
    ledger = Ledger(total=6)
    assert ledger.grant("w0", users=2, all_users=4) == [0, 1]
    assert ledger.grant("w1", users=2, all_users=4) == [2, 3]
    assert ledger.take_back("w1") == [2, 3]
    ledger.finish("w0", 1)
    assert ledger.grant("w0", users=2, all_users=2) == [2]
    assert [ledger.again[number] for number in range(6)] == [0, 0, 1, 1, 0, 0]
    ledger.finish("w0", 0)
    ledger.finish("w0", 2)
    assert ledger.grant("w0", users=2, all_users=2) == [3, 4]
    assert ledger.take_back("w1") == []
    assert ledger.take_back("w0") == [3, 4]
    assert (ledger.again[3], ledger.again[4]) == (2, 1)


def test_a_ticket_that_was_taken_back_is_not_finished_by_the_worker_that_is_gone() -> None:
    """Its session is another's now; a report of it that comes late would count it twice."""
    ledger = Ledger(total=1)
    ledger.grant("w0", users=1, all_users=2)
    ledger.take_back("w0")
    with pytest.raises(ValueError, match="worker w0 finished session 0"):
        ledger.finish("w0", 0)
    assert ledger.grant("w1", users=1, all_users=1) == [0]
    ledger.finish("w1", 0)
    assert ledger.complete


def test_a_level_is_not_exhausted_while_a_ticket_waits_to_be_handed_out_again() -> None:
    """Fill sessions must not begin, and the level must not end, before the last one is taken and played."""
    ledger = Ledger(total=2, spares=True)
    ledger.grant("w0", users=1, all_users=2)
    ledger.grant("w1", users=1, all_users=2)
    assert ledger.exhausted
    ledger.take_back("w1")
    assert not ledger.exhausted
    ledger.finish("w0", 0)
    assert not ledger.complete
    assert ledger.grant("w0", users=1, all_users=1) == [1]
    assert ledger.exhausted


def test_tickets_that_come_again_are_among_the_last_that_are_no_spares() -> None:
    """Ten tickets, six given, two of them back: of the six left two are played and two may be ahead, the rest not."""
    ledger = Ledger(total=10, spares=True)
    assert ledger.grant("w0", users=2, all_users=4) == [0, 1, 2, 3]
    assert ledger.grant("w1", users=2, all_users=4) == [4, 5]
    ledger.take_back("w1")
    for number in range(4):
        ledger.finish("w0", number)
    assert ledger.grant("w0", users=2, all_users=2) == [4, 5, 6, 7]
    ledger.finish("w0", 4)
    ledger.finish("w0", 5)
    assert ledger.grant("w0", users=2, all_users=2) == []  # 8 and 9 are the last two, and two are held for two users


@given(
    users=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    total=st.integers(1, 200),
    spares=st.booleans(),
    deaths=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_ticket_is_played_exactly_once(
    users: list[int], total: int, spares: bool, deaths: bool, seed: int
) -> None:
    """Whatever the number of workers, the order in which sessions end and the workers that die: 0 … total-1 are played,
    each once, and handed out once more for each worker that took one with it."""
    ledger, rng = Ledger(total, spares=spares), random.Random(seed)
    there = {f"w{index}": number for index, number in enumerate(users)}
    held: dict[str, list[int]] = {worker: [] for worker in there}
    handed_out, played, taken = Counter[int](), [], Counter[int]()
    while not ledger.complete:
        for worker in rng.sample(sorted(there), len(there)):
            granted = ledger.grant(worker, there[worker], sum(there.values()))
            assert [ledger.again[number] for number in granted] == [taken[number] for number in granted]
            handed_out.update(granted)
            held[worker] += granted
            assert len(held[worker]) <= there[worker] * (2 if spares else 1)
        busy = [worker for worker in there if held[worker]]
        assert busy, "tickets are left and nobody holds one"
        if deaths and len(there) > 1 and rng.random() < 0.3:
            dead = rng.choice(sorted(there))
            del there[dead]
            assert ledger.take_back(dead) == sorted(held[dead])
            taken.update(held.pop(dead))
            continue
        worker = rng.choice(busy)
        for _ in range(rng.randint(1, min(len(held[worker]), there[worker]))):
            number = held[worker].pop(rng.randrange(len(held[worker])))
            ledger.finish(worker, number)
            played.append(number)
    assert sorted(played) == list(range(total))
    assert handed_out == Counter(range(total)) + taken
    assert ledger.exhausted


def test_a_mix_of_six_three_one_is_exact_over_a_thousand() -> None:
    """Weights are shares of sessions: 600, 300 and 100, and within one of that at every prefix of ten."""
    mix = Mix([6, 3, 1])
    picks = [mix.pick(number) for number in range(1000)]
    assert [picks.count(index) for index in range(3)] == [600, 300, 100]
    for length in range(10, 1001, 10):
        counts = [picks[:length].count(index) for index in range(3)]
        assert all(abs(count - length * share) <= 1 for count, share in zip(counts, (0.6, 0.3, 0.1), strict=True))


def test_the_class_of_a_ticket_does_not_depend_on_who_asks_when() -> None:
    """Two processes that look at the numbers in different orders see the same classes."""
    one, other = Mix([2, 1]), Mix([2, 1])
    backwards = {number: other.pick(number) for number in reversed(range(50))}
    assert [one.pick(number) for number in range(50)] == [backwards[number] for number in range(50)]


def test_rank_and_count_agree_with_counting() -> None:
    """Each class numbers its own sessions 0, 1, 2 … without a gap."""
    mix = Mix([3, 2])
    picks = [mix.pick(number) for number in range(40)]
    for number, index in enumerate(picks):
        assert mix.rank(number) == picks[:number].count(index)
        assert mix.count(index, number) == picks[:number].count(index)


def test_own_tickets_of_two_workers_never_meet() -> None:
    """Fill and free-running sessions of different workers have different numbers, none of them a granted one."""
    first, second = own_tickets(0), own_tickets(1)
    assert first.start == FILL_BLOCK
    assert first.stop <= second.start


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1]])
def test_impossible_weights_are_refused(weights: list[float]) -> None:
    """A mix needs at least one class with a weight above 0."""
    with pytest.raises(ValueError, match="weights"):
        Mix(weights)
