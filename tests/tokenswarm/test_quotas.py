"""Users that belong to classes: how many, where, and what each plays; by hand computation and by property."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenswarm.quotas import Seats, place_of, quotas_of, shares_of
from tokenswarm.schedule import FILL_BLOCK


@pytest.mark.parametrize(
    ("users", "weights", "quotas"),
    [
        (10, [6, 3, 1], (6, 3, 1)),
        (11, [6, 3, 1], (7, 3, 1)),  # exactly 6.6, 3.3, 1.1: the largest remainder is the first
        (5, [6, 3, 1], (3, 1, 1)),  # exactly 3, 1.5, 0.5: the last gets its one, so none is left for the second
        (3, [6, 3, 1], (1, 1, 1)),
        (4, [100, 1, 1], (2, 1, 1)),
        (7, [2], (7,)),
    ],
)
def test_users_by_weight(users: int, weights: list[float], quotas: tuple[int, ...]) -> None:
    """Largest remainders, at least one of each class, computed by hand."""
    assert quotas_of(users, weights) == quotas


@given(st.lists(st.floats(0.01, 1000), min_size=1, max_size=6), st.integers(0, 60))
def test_all_users_have_a_class(weights: list[float], more: int) -> None:
    """None is left over, no class is empty, and no class that is above its one is a whole user away from its share."""
    users = len(weights) + more
    quotas = quotas_of(users, weights)
    assert sum(quotas) == users
    assert min(quotas) >= 1
    exact = [users * weight / sum(weights) for weight in weights]
    if min(exact) >= 1:
        assert all(abs(given - share) < 1 for given, share in zip(quotas, exact, strict=True))


def test_fewer_users_than_classes_are_refused() -> None:
    """A class without a user would not be measured."""
    with pytest.raises(ValueError, match="2 users for 3 classes"):
        quotas_of(2, [1, 1, 1])


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(1, 5), st.integers(0, 1000))
def test_workers_share_the_quotas_exactly(quotas: list[int], workers: int, seed: int) -> None:
    """Each worker has as many as it has users, and together they have the quotas, however the users are spread."""
    rng = random.Random(seed)
    users = dict.fromkeys((f"w{i}" for i in range(workers)), 0)
    for _ in range(sum(quotas)):
        users[rng.choice(list(users))] += 1
    shares = shares_of(quotas, users)
    assert {worker: sum(share) for worker, share in shares.items()} == users
    assert [sum(share[i] for share in shares.values()) for i in range(len(quotas))] == quotas


def test_every_worker_has_the_mix() -> None:
    """12 users of 6:4:2 on two workers of six are 3:2:1 on each."""
    assert shares_of((6, 4, 2), {"w0": 6, "w1": 6}) == {"w0": (3, 2, 1), "w1": (3, 2, 1)}


def test_numbers_name_class_rank_and_worker() -> None:
    """The third worker's sessions of the second of three classes are every third of its numbers."""
    seats = Seats(2, (0, 2, 0))
    first, second = seats.take(), seats.take()
    assert (first, second) == (3 * FILL_BLOCK + 1, 3 * FILL_BLOCK + 4)
    assert place_of(3 * FILL_BLOCK + 4, 3) == (1, 1, 2)
    assert seats.take() is None
    seats.leave(3 * FILL_BLOCK + 1)
    assert seats.take() == 3 * FILL_BLOCK + 7


@given(st.lists(st.integers(0, 4), min_size=2, max_size=4), st.integers(0, 1000))
def test_never_more_of_a_class_than_its_quota(quotas: list[int], seed: int) -> None:
    """Whatever the order in which sessions end: every user is busy, every number is new, every class at its quota."""
    rng, seats, busy, seen = random.Random(seed), Seats(0, quotas), [], set[int]()
    for _ in range(50):
        while (number := seats.take()) is not None:
            assert number not in seen
            seen.add(number)
            busy.append(number)
        classes = [place_of(number, len(quotas))[0] for number in busy]
        assert [classes.count(index) for index in range(len(quotas))] == quotas
        for number in rng.sample(busy, rng.randint(0, len(busy))):
            busy.remove(number)
            seats.leave(number)


def test_numbers_are_told_once_some_ahead_of_their_use() -> None:
    """Of the classes with users alone; each number once, unless all are to be told again."""
    seats = Seats(0, (1, 0, 1))
    first = FILL_BLOCK
    assert seats.ahead(2) == [first, first + 3, first + 2, first + 5]
    assert seats.ahead(2) == []
    taken = seats.take()
    assert taken == first
    assert seats.ahead(2) == [first + 6]
    seats.forget()
    assert seats.ahead(2) == [first + 3, first + 6, first + 2, first + 5]
