"""The roster: names, clocks from round trips, lives and gaps, who is given up and who comes back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tokenswarm.provenance import clock_identity
from tokenswarm.roster import ALONE, PINGS, Member, Roster


class Runner:
    """Stands for Locust's: knows the clients by id, and keeps what is sent."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.sent: list[tuple[str, dict[str, Any], str | None]] = []
        self._indexes: dict[str, int] = {}

    def connect(self, client: str, state: str = "ready") -> None:
        self.clients[client] = SimpleNamespace(state=state)

    def get_worker_index(self, client: str) -> int:
        return self._indexes.setdefault(client, len(self._indexes))

    def send_message(self, message: str, data: dict[str, Any], client_id: str | None = None) -> None:
        self.sent.append((message, data, client_id))

    def messages(self, name: str) -> list[str | None]:
        return [client for message, _data, client in self.sent if message == name]


class Clocks:
    """The master's monotonic and wall clock, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monotonic_s, self.unix_s = 1000.0, 5000.0
        monkeypatch.setattr("tokenswarm.roster.perf_counter", lambda: self.monotonic_s)
        monkeypatch.setattr("tokenswarm.roster.wall_s", lambda: self.unix_s + self.monotonic_s - 1000.0)


class Party:
    """A roster of three processes, and who was given up."""

    def __init__(self, clients: tuple[str, ...] = ("a", "b", "c"), clock: str = "another machine") -> None:
        self.runner = Runner()
        self.gone: list[tuple[str, str, str]] = []
        self.roster = Roster(
            self.runner, alone=False, on_gone=lambda member, run: self.gone.append((member.name, member.gone, run))
        )
        for client in clients:
            self.runner.connect(client)
        self.members = {client: self.roster.join(client, clock) for client in clients}

    def member(self, client: str) -> Member:
        return self.members[client]


# names ------------------------------------------------------------------------------------------------------------


def test_workers_have_short_names_and_keep_them() -> None:
    """w0, w1 … in the order in which Locust met them, also when one asks again."""
    party = Party()
    assert [member.name for member in party.roster] == ["w0", "w1", "w2"]
    assert party.roster.join("b", "another machine") is party.member("b")
    assert [member.name for member in party.roster] == ["w0", "w1", "w2"]
    assert party.roster.named("w2") is party.member("c")
    assert party.roster.find("c") is party.member("c")
    assert party.roster.find("stranger") is None
    party.roster.send("ts_x", {"y": 1}, "w1")
    assert party.runner.sent[-1] == ("ts_x", {"y": 1}, "b")


def test_a_process_alone_is_its_own_only_member() -> None:
    """Whatever Locust calls it; its clock is the master's, and it cannot be lost."""
    runner = Runner()
    roster = Roster(runner, alone=True, on_gone=lambda member, run: pytest.fail("nobody is there to be lost"))
    member = roster.find("whatever")
    assert member is not None
    assert (member.name, member.clock_known, member.offset_s) == (ALONE, True, 0.0)
    roster.send("ts_x", {}, ALONE)
    assert runner.sent == [("ts_x", {}, None)]
    roster.look()
    assert roster.present == [member]


# clocks -----------------------------------------------------------------------------------------------------------


def test_the_offset_is_that_of_the_shortest_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their monotonic clock is 900 s behind the master's, their wall clock 2 s ahead. Five round trips with (there,
    back) of (10, 30), (4, 4), (1, 41), (20, 6) and (8, 2) ms: the second is the shortest and even on both ways."""
    clocks = Clocks(monkeypatch)
    party = Party(("a",))
    assert party.runner.messages("ts_ping") == ["a"] * PINGS
    known = []
    for there_ms, back_ms in ((10, 30), (4, 4), (1, 41), (20, 6), (8, 2)):
        sent_s = clocks.monotonic_s
        clocks.monotonic_s += there_ms / 1e3
        monotonic_s, unix_s = clocks.monotonic_s - 900.0, clocks.unix_s + clocks.monotonic_s - 1000.0 + 2.0
        clocks.monotonic_s += back_ms / 1e3
        member = party.roster.pong("a", sent_s, monotonic_s, unix_s)
        assert member is party.member("a")
        known.append((member.clock_known, round(member.offset_s, 6), round(member.wall_offset_s, 6)))
        clocks.monotonic_s += 1.0
    # the first one is taken to have arrived after half of 40 ms, 10 ms later than it did
    assert known == [
        (False, 900.010, 1.990),
        (False, 900.0, 2.0),
        (False, 900.0, 2.0),
        (False, 900.0, 2.0),
        (True, 900.0, 2.0),
    ]
    assert party.member("a").round_trip_s == pytest.approx(0.008)


def test_an_offset_is_wrong_by_at_most_half_of_its_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cristian's bound, at its worst: all of 6 ms on the way there."""
    clocks = Clocks(monkeypatch)
    party = Party(("a",))
    clocks.monotonic_s += 0.006
    member = party.roster.pong("a", 1000.0, clocks.monotonic_s + 50.0, 0.0)
    assert member is not None
    assert member.offset_s - -50.0 == pytest.approx(-0.003)
    assert member.round_trip_s == pytest.approx(0.006)


def test_processes_on_one_kernel_have_one_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their offset is 0 and not what noise makes of it; it is known without a round trip."""
    clocks = Clocks(monkeypatch)
    party = Party(("a",), clock_identity())
    assert party.member("a").clock_known
    clocks.monotonic_s += 0.040
    member = party.roster.pong("a", 1000.0, 1000.001, 5000.001)
    assert member is not None
    assert member.offset_s == 0.0
    assert member.round_trip_s == pytest.approx(0.040)
    assert member.wall_offset_s == pytest.approx(5000.001 - (5000.040 - 0.020))


def test_a_pong_of_a_stranger_is_nobodys() -> None:
    """One that was refused may have been asked before."""
    assert Party().roster.pong("stranger", 0.0, 0.0, 0.0) is None


# lives ------------------------------------------------------------------------------------------------------------


def test_messages_of_a_life_come_one_after_the_other() -> None:
    """Numbers from 1; those of an earlier life are not taken, and a new life counts anew."""
    party, a = Party(), "a"
    member = party.member(a)
    party.roster.begin(member, "run")
    assert (member.life, member.run) == (1, "run")
    assert [party.roster.accept(member, 1, number) for number in (1, 2, 3)] == [True, True, True]
    party.roster.begin(member, "next")
    assert not party.roster.accept(member, 1, 4)
    assert [party.roster.accept(member, 2, number) for number in (1, 2)] == [True, True]
    assert party.gone == []


@pytest.mark.parametrize("number", [1, 4, 9])
def test_a_gap_makes_the_master_give_the_worker_up(number: int) -> None:
    """After message 2 only number 3 will do: with another one, or one twice, the rest cannot be relied on."""
    party = Party()
    member = party.member("b")
    party.roster.begin(member, "run")
    assert party.roster.accept(member, 1, 1)
    assert party.roster.accept(member, 1, 2)
    assert not party.roster.accept(member, 1, number)
    assert party.gone == [("w1", "messages of it were lost on the way", "run")]
    assert not party.roster.accept(member, 1, 3), "given up is given up"
    assert [one.name for one in party.roster.present] == ["w0", "w2"]


def test_a_worker_is_given_up_once() -> None:
    """The first reason counts, and the run is not told again; it takes part in none any more."""
    party = Party()
    member = party.member("a")
    party.roster.begin(member, "run")
    party.roster.give_up(member, "first")
    party.roster.give_up(member, "second")
    party.runner.clients["a"].state = "missing"
    party.roster.look()
    assert party.gone == [("w0", "first", "run")]
    assert (member.gone, member.run) == ("first", "")


def test_who_is_not_heard_of_is_given_up() -> None:
    """Locust calls one missing whose heartbeats stay away, and forgets one that has quit."""
    party = Party()
    for client in "abc":
        party.roster.begin(party.member(client), "run")
    party.roster.look()
    assert party.gone == []
    party.runner.clients["b"].state = "missing"
    del party.runner.clients["c"]
    assert [member.name for member in party.roster.present] == ["w0"]
    party.roster.look()
    party.roster.look()
    assert party.gone == [("w1", "gave no sign of life", "run"), ("w2", "has quit", "run")]
    assert party.runner.messages("ts_dismiss") == []


def test_one_that_never_took_part_is_given_up_for_no_run() -> None:
    """It was there before the run began."""
    party = Party()
    del party.runner.clients["a"]
    party.roster.look()
    assert party.gone == [("w0", "has quit", "")]


def test_one_that_is_heard_again_is_told_until_it_joins_anew() -> None:
    """It may still be loading the server: it is dismissed, by the life that it is in, and is back when it asks."""
    party = Party()
    member = party.member("b")
    party.roster.begin(member, "run")
    party.runner.clients["b"].state = "missing"
    party.roster.look()
    party.runner.clients["b"].state = "running"
    before = len(party.runner.sent)
    party.roster.look()
    party.roster.look()
    assert party.runner.sent[before:] == [("ts_dismiss", {"life": 1}, "b")] * 2
    assert member not in party.roster.present
    assert party.roster.join("b", "another machine") is member
    assert (member.gone, member.name) == ("", "w1")
    assert member in party.roster.present
    before = len(party.runner.sent)
    party.roster.look()
    assert party.runner.sent[before:] == []
    party.roster.begin(member, "run")
    assert (member.life, member.received) == (2, 0)
    assert not party.roster.accept(member, 1, 1)
    assert party.roster.accept(member, 2, 1)
    assert party.gone == [("w1", "gave no sign of life", "run")]
