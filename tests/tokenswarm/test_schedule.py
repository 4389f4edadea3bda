"""Levels, tickets and the mix: who may take what, by hand computation and by property."""

from __future__ import annotations

import random

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
    assert ledger.grant("local", users=2, all_users=2) == range(2)
    assert ledger.grant("local", users=2, all_users=2) == range(2, 2)
    ledger.finish("local", 1)
    assert ledger.grant("local", users=2, all_users=2) == range(2, 3)
    assert not ledger.exhausted
    ledger.finish("local", 2)
    assert ledger.grant("local", users=2, all_users=2) == range(3, 5)
    assert ledger.exhausted
    assert not ledger.complete
    ledger.finish("local", 2)
    assert ledger.complete


def test_no_spare_is_handed_out_among_the_last() -> None:
    """Two workers of two users each: spares while more than four tickets are left, none after."""
    ledger = Ledger(total=10, spares=True)
    assert ledger.grant("w0", users=2, all_users=4) == range(4)  # two to play, two ahead
    assert ledger.grant("w1", users=2, all_users=4) == range(4, 6)  # two to play; 6 to 9 are the last four
    ledger.finish("w0", 1)
    assert len(ledger.grant("w0", users=2, all_users=4)) == 0  # three held for two users
    ledger.finish("w0", 2)
    assert ledger.grant("w0", users=2, all_users=4) == range(6, 7)


def test_finishing_what_was_never_handed_out_is_an_error() -> None:
    """A worker that reports more sessions than it was given would make a level end early."""
    ledger = Ledger(total=3)
    ledger.grant("local", users=1, all_users=1)
    with pytest.raises(ValueError, match="never handed out"):
        ledger.finish("local", 2)


@given(
    users=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    total=st.integers(1, 200),
    spares=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_ticket_is_handed_out_exactly_once(users: list[int], total: int, spares: bool, seed: int) -> None:
    """Whatever the number of workers and the order in which sessions end, the union is 0 … total-1."""
    ledger, rng, given_out, held = (
        Ledger(total, spares=spares),
        random.Random(seed),
        [],
        dict.fromkeys(range(len(users)), 0),
    )
    while not ledger.complete:
        for worker in rng.sample(range(len(users)), len(users)):
            granted = ledger.grant(f"w{worker}", users[worker], sum(users))
            given_out.extend(granted)
            held[worker] += len(granted)
            assert held[worker] <= users[worker] * (2 if spares else 1)
        busy = [worker for worker in held if held[worker]]
        assert busy, "tickets are left and nobody holds one"
        worker = rng.choice(busy)
        ended = rng.randint(1, min(held[worker], users[worker]))
        held[worker] -= ended
        ledger.finish(f"w{worker}", ended)
    assert sorted(given_out) == list(range(total))


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
