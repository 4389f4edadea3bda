"""Users that belong to traffic classes: how many of each, on which worker, and what a free user plays next.

In such a level the number of a ticket names its class as it does everywhere: a worker deals its own numbers to the
classes in turn, so that users of one class never get the number of another. Pure: no clock, no socket, no Locust.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenswarm.schedule import Mix, own_tickets


def quotas_of(users: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Users of each class: by weight in whole numbers (largest remainder), and at least one of each.

    Raises ``ValueError`` for fewer users than classes.
    """
    if users < len(weights):
        raise ValueError(f"{users} users for {len(weights)} classes: at least one of each is wanted")
    exact = [users * weight / sum(weights) for weight in weights]
    given = [max(1, int(share)) for share in exact]
    while sum(given) < users:
        given[max(range(len(given)), key=lambda i: exact[i] - given[i])] += 1
    while sum(given) > users:
        several = [i for i, number in enumerate(given) if number > 1]
        given[max(several, key=lambda i: given[i] - exact[i])] -= 1
    return tuple(given)


def shares_of(quotas: Sequence[int], users: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """What each worker has of ``quotas``, by its name; ``users`` of each worker, as many in all as the quotas have.

    Every worker's classes are mixed as all together are, as far as whole users allow.
    """
    mix, shares, seat = Mix(quotas), {}, 0
    for worker, number in users.items():
        classes = [mix.pick(place) for place in range(seat, seat + number)]
        shares[worker] = tuple(classes.count(index) for index in range(len(quotas)))
        seat += number
    return shares


def place_of(number: int, classes: int) -> tuple[int, int, int]:
    """Of the ticket ``number`` in a level whose users belong to ``classes``: class, rank, worker.

    The rank counts the worker's sessions of that class in the level, from 0, warm-up included.
    """
    block = own_tickets(0)
    worker, within = divmod(number - block.start, len(block))
    rank, index = divmod(within, classes)
    return index, rank, worker


class Seats:
    """Hands the numbers of one worker and level to its users, each class as often at the same time as its quota."""

    def __init__(self, worker_index: int, quotas: Sequence[int]) -> None:
        self._free = list(quotas)
        self._playing = [index for index, quota in enumerate(quotas) if quota]
        first = own_tickets(worker_index).start
        self._next = [first + index for index in range(len(quotas))]
        self._told = list(self._next)

    def take(self) -> int | None:
        """The number of the next session's ticket; None where no class is below its quota."""
        index = max(range(len(self._free)), key=lambda i: self._free[i])
        if self._free[index] <= 0:
            return None
        self._free[index] -= 1
        number = self._next[index]
        self._next[index] += len(self._free)
        return number

    def leave(self, number: int) -> None:
        """The session of the ticket with this number has ended."""
        self._free[place_of(number, len(self._free))[0]] += 1

    def ahead(self, count: int) -> list[int]:
        """Of the next ``count`` numbers of each class with users here those that were not told before."""
        classes = len(self._free)
        fresh: list[int] = []
        for index in self._playing:
            end = self._next[index] + count * classes
            fresh += range(max(self._told[index], self._next[index]), end, classes)
            self._told[index] = end
        return fresh

    def forget(self) -> None:
        """Tell all numbers again."""
        self._told = list(self._next)
