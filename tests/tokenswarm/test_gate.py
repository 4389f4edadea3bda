"""The gate: users get tickets in order, endless sessions when open, and leave when cut or killed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter

import gevent
import pytest

from tokenswarm.arrivals import Arrivals, Stretch
from tokenswarm.gate import FREE, Gate, SessionCut, completion_facts
from tokenswarm.records import Phase, RequestRecord
from tokenswarm.schedule import FILL_BLOCK, Ending, Level, Ticket

LEVEL = Level(index=0, concurrency=2, sessions=4, label="c=2")
ARRIVALS = Arrivals("constant", (Stretch(1.0, 1.0, 1.0),))
REFUSING = Level(index=1, concurrency=2, duration_s=1.0, arrivals=ARRIVALS)
PATIENT = Level(index=2, concurrency=2, duration_s=1.0, arrivals=ARRIVALS, when_full="wait")


class Crowd:
    """Users as greenlets that take tickets and hold each until told to end it."""

    def __init__(self, gate: Gate, size: int) -> None:
        self.gate = gate
        self.taken: list[Ticket] = []
        self.sent_s: dict[int, float] = {}
        self.cut = 0
        self._end = [gevent.event.Event() for _ in range(size)]
        self.users = [gevent.spawn(self._play, event) for event in self._end]
        gevent.sleep(0)

    def _play(self, end: gevent.event.Event) -> None:
        while True:
            ticket = self.gate.take()
            self.taken.append(ticket)
            played = False
            try:
                self.gate.wait_until_due(ticket)
                self.sent_s[ticket.number] = perf_counter()
                end.wait()
                end.clear()
                played = True
            except SessionCut:
                self.cut += 1
            finally:
                self.gate.done(ticket, [], played=played)

    def end(self, user: int) -> None:
        self._end[user].set()
        gevent.sleep(0.001)

    def leave(self) -> None:
        gevent.killall(self.users)


def fresh(numbers: Iterable[int]) -> list[tuple[int, int]]:
    return [(number, 0) for number in numbers]


@pytest.fixture
def gate() -> Gate:
    return Gate([LEVEL, REFUSING, PATIENT], worker_index=0)


def test_granted_tickets_go_to_waiting_users_in_order(gate: Gate) -> None:
    """Two users, three tickets: 0 and 1 at once, 2 to whoever is free first; then all wait."""
    crowd = Crowd(gate, 2)
    assert gate.waiting == 2
    gate.grant(0, Phase.MEASURED, fresh(range(3)))
    gevent.sleep(0.001)
    assert sorted(ticket.number for ticket in crowd.taken) == [0, 1]
    assert (gate.waiting, gate.in_session) == (0, 2)
    crowd.end(0)
    assert [ticket.number for ticket in crowd.taken][2] == 2
    crowd.end(0)
    crowd.end(1)
    assert (gate.waiting, gate.in_session) == (2, 0)
    assert [done[:4] for done in gate.take_done()] == [(0, "measured", number, Ending.PLAYED) for number in (0, 2, 1)]
    crowd.leave()


def test_granted_tickets_come_before_fill_and_fill_numbers_are_the_workers_own(gate: Gate) -> None:
    """With fill open a free user first takes what was granted, then an own number that no other worker has."""
    crowd = Crowd(gate, 1)
    gate.grant(0, Phase.MEASURED, fresh(range(1)))
    gate.open(0, Phase.FILL)
    gevent.sleep(0.001)
    crowd.end(0)
    crowd.end(0)
    assert [(ticket.phase, ticket.number) for ticket in crowd.taken] == [
        (Phase.MEASURED, 0),
        (Phase.FILL, FILL_BLOCK),
        (Phase.FILL, FILL_BLOCK + 1),
    ]
    gate.close(late_is_drain=False)
    crowd.end(0)
    assert gate.waiting == 1
    crowd.leave()


def test_a_user_knows_since_when_it_was_free(gate: Gate) -> None:
    """Waiting for a grant is not the user's lateness: the time counts from when it could start."""
    crowd = Crowd(gate, 1)
    gevent.sleep(0.02)
    before = perf_counter()
    gate.grant(0, Phase.MEASURED, fresh(range(2)))
    gevent.sleep(0.001)
    assert crowd.taken[0].taken_s >= before
    crowd.end(0)
    assert crowd.taken[1].taken_s >= crowd.taken[0].taken_s
    crowd.leave()


def test_a_cut_ends_sessions_but_not_users(gate: Gate) -> None:
    """Sessions in flight end as unplayed, and the same users wait for the next level."""
    crowd = Crowd(gate, 2)
    gate.grant(0, Phase.MEASURED, fresh(range(2)))
    gevent.sleep(0.001)
    gate.close(late_is_drain=False)
    gate.cut()
    gevent.sleep(0.001)
    assert (crowd.cut, gate.waiting, gate.in_session) == (2, 2, 0)
    assert sorted(done[2:4] for done in gate.take_done()) == [(0, Ending.CUT), (1, Ending.CUT)]
    gate.grant(0, Phase.MEASURED, fresh(range(2, 4)))
    gevent.sleep(0.001)
    assert gate.in_session == 2
    crowd.leave()


def test_a_ticket_tells_how_often_it_was_taken_back(gate: Gate) -> None:
    """Another worker may have played the beginning of its session: its rows must be told apart."""
    crowd = Crowd(gate, 2)
    gate.grant(0, Phase.MEASURED, [(5, 2), (6, 0)])
    gevent.sleep(0.001)
    assert [(ticket.number, ticket.again, ticket.due_s) for ticket in crowd.taken] == [(5, 2, None), (6, 0, None)]
    crowd.leave()


def test_tickets_of_a_level_that_was_not_planned_can_be_granted(gate: Gate) -> None:
    """A search finds its levels one after the other, and tells of each before it begins."""
    with pytest.raises(KeyError):
        gate.grant(3, Phase.MEASURED, fresh(range(1)))
    gate.learn(Level(index=3, concurrency=1, sessions=1, label="found"))
    crowd = Crowd(gate, 1)
    gate.grant(3, Phase.MEASURED, fresh(range(1)))
    gevent.sleep(0.001)
    assert [ticket.level and ticket.level.label for ticket in crowd.taken] == ["found"]
    crowd.leave()


def test_while_held_no_session_begins(gate: Gate) -> None:
    """Neither a granted one nor an own one; those under way go on, and all begin once it is over."""
    crowd = Crowd(gate, 3)
    gate.grant(0, Phase.MEASURED, fresh(range(1)))
    gevent.sleep(0.001)
    gate.hold(True)
    gate.grant(0, Phase.MEASURED, fresh(range(1, 2)))
    gate.open(0, Phase.FILL)
    gevent.sleep(0.001)
    crowd.end(0)
    assert [ticket.number for ticket in crowd.taken] == [0]
    assert (gate.waiting, gate.in_session) == (3, 0)
    gate.hold(False)
    gevent.sleep(0.001)
    assert [ticket.number for ticket in crowd.taken] == [0, 1, FILL_BLOCK, FILL_BLOCK + 1]
    crowd.leave()


def test_killed_users_leave_the_queue(gate: Gate) -> None:
    """A user that Locust kills while it waits is not counted as waiting and gets no ticket."""
    crowd = Crowd(gate, 3)
    crowd.users[1].kill()
    assert gate.waiting == 2
    gate.grant(0, Phase.MEASURED, fresh(range(2)))
    gevent.sleep(0.001)
    assert sorted(ticket.number for ticket in crowd.taken) == [0, 1]
    crowd.leave()


def test_free_running_sessions_are_told_apart_from_levels(gate: Gate) -> None:
    """Without levels sessions report no level and have own numbers."""
    crowd = Crowd(gate, 1)
    gate.open(None, Phase.WARMUP)
    gevent.sleep(0.001)
    crowd.end(0)
    assert crowd.taken[0].level is None
    assert [done[:4] for done in gate.take_done()] == [(FREE, "warmup", FILL_BLOCK, Ending.PLAYED)]
    crowd.leave()


def test_what_ends_after_the_time_was_up_is_drain(gate: Gate) -> None:
    """By time, measured requests that finish later are drain; warm-up stays warm-up; a cut is always drain."""
    measured, warm = Ticket(LEVEL, Phase.MEASURED, 0, 0.0), Ticket(LEVEL, Phase.WARMUP, 0, 0.0)
    before = perf_counter()
    assert gate.phase_of(measured, before, cut=False) == Phase.MEASURED
    gate.close(late_is_drain=True)
    after = perf_counter() + 1
    assert gate.phase_of(measured, before, cut=False) == Phase.MEASURED
    assert gate.phase_of(measured, after, cut=False) == Phase.DRAIN
    assert gate.phase_of(warm, after, cut=False) == Phase.WARMUP
    assert gate.phase_of(warm, before, cut=True) == Phase.DRAIN


@pytest.mark.parametrize("phase", ["warmup", "fill", "drain"])
def test_facts_for_the_controller_tell_what_is_measured(phase: str) -> None:
    """Whatever was sent may have tokens in the window; what was not sent has none."""
    times = {"sent_s": 1.0, "first_token_s": 2.0, "last_token_s": 3.0, "finished_s": 4.0}
    record = RequestRecord(phase=phase, ticket=0, traffic="chat", output_tokens=5, **times)
    assert completion_facts(record) == (False, True, 1.0, 2.0, 3.0, 4.0, 5)
    assert completion_facts(RequestRecord(phase=phase, ticket=0, traffic="chat")) is None


def test_users_of_classes_stay_at_their_quotas() -> None:
    """Three users, two of the first class and one of the second: whoever is free takes the place that is free."""
    level = Level(index=0, concurrency=3, duration_s=1.0, quotas=(2, 1), label="c=3")
    gate = Gate([level], worker_index=1)
    crowd = Crowd(gate, 3)
    gate.open(0, Phase.WARMUP, (2, 1))
    gevent.sleep(0.001)
    assert sorted(ticket.number % 2 for ticket in crowd.taken) == [0, 0, 1]
    ended = next(i for i, ticket in enumerate(crowd.taken) if ticket.number % 2 == 1)
    gate.open(0, Phase.MEASURED, (2, 1))  # warm-up sessions keep their places
    assert (gate.waiting, gate.in_session) == (0, 3)
    crowd.end(ended)
    last = crowd.taken[-1]
    assert (last.phase, last.number) == (Phase.MEASURED, 2 * FILL_BLOCK + 3)
    assert len({ticket.number for ticket in crowd.taken}) == 4
    gate.close(late_is_drain=True)
    for user in range(3):
        crowd.end(user)
    assert (gate.waiting, gate.in_session) == (3, 0)
    crowd.leave()


def test_the_next_block_deals_its_numbers_anew() -> None:
    """The same level index never comes twice, so numbers begin again with every level and stay unique within it."""
    levels = [
        Level(index=index, concurrency=1, duration_s=1.0, quotas=quota) for index, quota in enumerate([(1, 0), (0, 1)])
    ]
    gate = Gate(levels, worker_index=0)
    crowd = Crowd(gate, 1)
    for level in levels:
        gate.open(level.index, Phase.MEASURED, level.quotas)
        gevent.sleep(0.001)
        gate.close(late_is_drain=True)
        crowd.end(0)
    assert [ticket.number for ticket in crowd.taken] == [FILL_BLOCK, FILL_BLOCK + 1]
    crowd.leave()


def test_a_user_without_a_place_gets_that_of_one_that_was_killed() -> None:
    """Locust may move users: one too many waits, and plays once a place is free."""
    level = Level(index=0, concurrency=1, duration_s=1.0, quotas=(1, 0))
    gate = Gate([level], worker_index=0)
    crowd = Crowd(gate, 2)
    gate.open(0, Phase.MEASURED, (1, 0))
    gevent.sleep(0.001)
    assert (gate.waiting, gate.in_session) == (1, 1)
    crowd.users[0 if gate.idle(crowd.users[1]) else 1].kill()
    gevent.sleep(0.001)
    assert (gate.waiting, gate.in_session) == (0, 1)
    crowd.leave()


def test_what_users_of_classes_take_was_told_before() -> None:
    """Pictures can be made ahead: every ticket was told for its level and phase, anew with every phase."""
    level = Level(index=0, concurrency=2, duration_s=1.0, quotas=(1, 1))
    gate, told, forgotten = Gate([level], worker_index=0), set[Ticket](), []
    gate.on_expect = told.update
    gate.on_forget = lambda: forgotten.append(told.clear())
    crowd = Crowd(gate, 2)
    for phase in (Phase.WARMUP, Phase.MEASURED):
        gate.open(0, phase, (1, 1))
        gevent.sleep(0.001)
        crowd.end(0)
        crowd.end(1)
        assert len(told) > 30
        last = {ticket._replace(taken_s=0.0) for ticket in crowd.taken[-2:]}
        assert {ticket.phase for ticket in last} == {phase}
        assert last <= told
    assert len(forgotten) == 2
    gate.close(late_is_drain=True)
    crowd.leave()


# sessions with times of their own ---------------------------------------------------------------------------------


def due(number: int, due_s: float, phase: Phase = Phase.MEASURED) -> Ticket:
    return Ticket(None, phase, number, 0.0, due_s=due_s)


def wait_for(condition: Callable[[], object]) -> None:
    with gevent.Timeout(5):
        while not condition():
            gevent.sleep(0.002)
    gevent.sleep(0.005)  # what should not happen as well would have happened now


def endings(gate: Gate) -> dict[int, Ending]:
    return {number: Ending(how) for _level, _phase, number, how, _facts in gate.take_done()}


def test_sessions_begin_when_they_are_due_and_not_before(gate: Gate) -> None:
    """A user takes its ticket a little ahead, gets ready, and sends at the time; the ticket knows its level."""
    crowd, now_s = Crowd(gate, 2), perf_counter()
    times_s = {0: now_s + 0.08, 1: now_s + 0.12}
    gate.schedule(1, [due(number, due_s) for number, due_s in times_s.items()])
    gevent.sleep(0.001)
    assert crowd.taken == []
    wait_for(lambda: len(crowd.sent_s) == 2)
    assert [(ticket.number, ticket.level) for ticket in crowd.taken] == [(0, REFUSING), (1, REFUSING)]
    for number, due_s in times_s.items():
        assert crowd.sent_s[number] >= due_s
        assert crowd.taken[number].due_s == due_s
    assert gate.take_done() == []
    crowd.leave()
    gate.leave()


def test_an_arrival_that_finds_all_users_busy_is_refused(gate: Gate) -> None:
    """Three at one time for two users: one is told to the recorder and reported, and never played, even though a user
    comes back right after."""
    refused: list[Ticket] = []
    gate.on_refuse = refused.append
    crowd, due_s = Crowd(gate, 2), perf_counter() + 0.06
    gate.schedule(1, [due(number, due_s) for number in range(3)])
    wait_for(lambda: refused and len(crowd.sent_s) == 2)
    assert sorted(crowd.sent_s) == [0, 1]
    assert [(ticket.number, ticket.level, ticket.due_s) for ticket in refused] == [(2, REFUSING, due_s)]
    assert gate.take_done() == [(1, "measured", 2, Ending.REFUSED, [])]
    crowd.end(0)
    crowd.end(1)
    assert len(crowd.taken) == 2
    assert (endings(gate), gate.waiting) == ({0: Ending.PLAYED, 1: Ending.PLAYED}, 2)
    crowd.leave()
    gate.leave()


def test_an_arrival_may_wait_for_a_user_where_the_scenario_says_so(gate: Gate) -> None:
    """The third begins as soon as a user is free, late; nothing is refused."""
    refused: list[Ticket] = []
    gate.on_refuse = refused.append
    crowd, due_s = Crowd(gate, 2), perf_counter() + 0.06
    gate.schedule(2, [due(number, due_s) for number in range(3)])
    wait_for(lambda: perf_counter() > due_s and len(crowd.sent_s) == 2)
    assert (sorted(crowd.sent_s), refused) == ([0, 1], [])
    freed_s = perf_counter()
    crowd.end(0)
    assert crowd.sent_s[2] >= freed_s > due_s
    assert crowd.taken[2].due_s == due_s
    crowd.leave()
    gate.leave()


def test_a_user_that_comes_back_before_it_is_due_takes_what_was_admitted(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody was free when it was admitted, but somebody is when it is due."""
    monkeypatch.setattr("tokenswarm.turnstile.LEAD_S", 10.0)
    crowd = Crowd(gate, 1)
    gate.grant(0, Phase.MEASURED, fresh(range(1)))
    gevent.sleep(0.001)
    due_s = perf_counter() + 0.3
    gate.schedule(1, [due(7, due_s)])
    gevent.sleep(0.001)
    crowd.end(0)
    wait_for(lambda: 7 in crowd.sent_s)
    assert crowd.sent_s[7] >= due_s
    assert endings(gate) == {0: Ending.PLAYED}
    crowd.leave()
    gate.leave()


def test_while_held_arrivals_are_refused_at_their_time(gate: Gate) -> None:
    """No session begins, and the schedule does not wait."""
    crowd, due_s = Crowd(gate, 2), perf_counter() + 0.06
    gate.hold(True)
    gate.schedule(1, [due(0, due_s)])
    refused: list[Ticket] = []
    gate.on_refuse = refused.append
    wait_for(lambda: refused)
    assert (crowd.taken, endings(gate), gate.waiting) == ([], {0: Ending.REFUSED}, 2)
    gate.hold(False)
    gevent.sleep(0.001)
    assert crowd.taken == []
    crowd.leave()
    gate.leave()


def test_a_level_that_ends_early_withdraws_what_is_not_due(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those to come and those just admitted have not been scheduled after all; one that waits for a user since its
    time has come was, and is refused."""
    monkeypatch.setattr("tokenswarm.turnstile.LEAD_S", 50.0)
    refused: list[int] = []
    gate.on_refuse = lambda ticket: refused.append(ticket.number)
    now_s = perf_counter()
    gate.schedule(2, [due(0, now_s), due(1, now_s + 40.0), due(2, now_s + 60.0), due(3, now_s + 61.0, Phase.WARMUP)])
    gevent.sleep(0.001)
    gate.close(late_is_drain=False)
    assert endings(gate) == {
        0: Ending.REFUSED, 1: Ending.WITHDRAWN, 2: Ending.WITHDRAWN, 3: Ending.WITHDRAWN
    }  # fmt: skip
    assert refused == [0]
    crowd = Crowd(gate, 1)
    gevent.sleep(0.001)
    assert (crowd.taken, gate.take_done()) == ([], [])
    crowd.leave()
    gate.leave()


def test_a_session_that_is_cut_before_it_was_due_is_withdrawn(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user was ready and had sent nothing; one whose time had come is cut."""
    monkeypatch.setattr("tokenswarm.turnstile.LEAD_S", 50.0)
    crowd, now_s = Crowd(gate, 2), perf_counter()
    gate.schedule(1, [due(0, now_s), due(1, now_s + 40.0)])
    gevent.sleep(0.005)
    assert (len(crowd.taken), list(crowd.sent_s)) == (2, [0])
    gate.close(late_is_drain=False)
    gate.cut()
    gevent.sleep(0.001)
    assert endings(gate) == {0: Ending.CUT, 1: Ending.WITHDRAWN}
    assert (crowd.cut, gate.waiting) == (2, 2)
    crowd.leave()
    gate.leave()


def test_what_has_arrived_by_the_clock_counts_to_its_end(gate: Gate) -> None:
    """No drain and no late phase there: a slow answer must not drop out of the measured ones, and a cut one neither."""
    gate.close(late_is_drain=True)
    later = perf_counter() + 1.0
    for phase in (Phase.MEASURED, Phase.WARMUP):
        ticket = Ticket(REFUSING, phase, 0, 0.0, due_s=0.0)
        assert gate.phase_of(ticket, later, cut=False) == phase
        assert gate.phase_of(ticket, later, cut=True) == phase
