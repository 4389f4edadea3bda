"""Who is paired with whom, and in which arm."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from tokenswarm.arms import COLD, WARM, Isolation, arm_of, cache_key, pair_of
from tokenswarm.records import Phase
from tokenswarm.schedule import FILL_BLOCK, Arms, Level, Ticket


def _tickets(users: int, sessions: int | None, count: int | None = None, arms: Arms = Arms.PAIRED) -> list[Ticket]:
    level = Level(index=3, concurrency=users, sessions=sessions, arms=arms)
    return [Ticket(level, Phase.MEASURED, number, 0.0) for number in range(count or sessions or 0)]


@pytest.mark.parametrize(("users", "sessions"), [(1, 2), (1, 8), (4, 8), (4, 24), (4, 26), (16, 24), (16, 10), (3, 20)])
def test_every_measured_session_has_one_partner_in_the_other_arm(users: int, sessions: int) -> None:
    """Pairs are numbered from 0 without a gap, and each has a warm and a cold session."""
    members = defaultdict(list)
    for ticket in _tickets(users, sessions):
        members[pair_of(ticket)].append(arm_of(ticket, 7))
    assert all(sorted(map(str, arms)) == [COLD, WARM] for arms in members.values())
    assert len(members) == sessions // 2


def test_partners_are_as_many_tickets_apart_as_there_are_users() -> None:
    """Four users take tickets 0 to 3 at once; their partners are 4 to 7. The last block of 2 has partners side by side
    at a distance of 1."""
    assert [pair_of(ticket) for ticket in _tickets(4, 10)] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 4]
    assert [pair_of(ticket) for ticket in _tickets(1, 4)] == [0, 0, 1, 1]


def test_chance_decides_which_arm_comes_first_and_the_seed_decides_chance() -> None:
    """About half of 400 pairs begin warm (more than 6 standard deviations would be 260), the same ones each time."""
    firsts = [arm_of(ticket, 1) for ticket in _tickets(1, 800)[::2]]
    assert 140 < Counter(firsts)[WARM] < 260
    assert firsts == [arm_of(ticket, 1) for ticket in _tickets(1, 800)[::2]]
    assert firsts != [arm_of(ticket, 2) for ticket in _tickets(1, 800)[::2]]


def test_by_time_and_in_fill_sessions_pairs_go_on_without_an_end() -> None:
    """Where nobody knows how many sessions there will be, whole blocks are paired."""
    assert [pair_of(ticket) for ticket in _tickets(2, None, 8)] == [0, 1, 0, 1, 2, 3, 2, 3]
    level = Level(index=0, concurrency=2, sessions=4, arms=Arms.PAIRED)
    fill = [pair_of(Ticket(level, Phase.FILL, FILL_BLOCK + number, 0.0)) for number in range(4)]
    assert fill[0] == fill[2] != fill[1] == fill[3]


def test_whole_levels_have_one_arm_and_no_pairs() -> None:
    """A cold level is cold throughout; outside a test there is no arm at all."""
    assert {(arm_of(ticket, 7), pair_of(ticket)) for ticket in _tickets(2, 6, arms=Arms.COLD)} == {(COLD, None)}
    assert {(arm_of(ticket, 7), pair_of(ticket)) for ticket in _tickets(2, 6, arms=Arms.NONE)} == {(None, None)}


def test_warm_keys_are_one_and_cold_keys_are_many() -> None:
    """A cold key lasts for a session or for one request; another run has other keys."""
    one, other = _tickets(2, 4)[:2]
    session, request = Isolation(by="salt", cold="session"), Isolation(by="salt", cold="request")
    assert cache_key(WARM, session, one, 0, "r") == cache_key(WARM, request, other, 5, "r")
    assert cache_key(COLD, session, one, 0, "r") == cache_key(COLD, session, one, 1, "r")
    assert cache_key(COLD, session, one, 0, "r") != cache_key(COLD, session, other, 0, "r")
    assert cache_key(COLD, request, one, 0, "r") != cache_key(COLD, request, one, 1, "r")
    assert cache_key(WARM, session, one, 0, "r") != cache_key(WARM, session, one, 0, "s")
