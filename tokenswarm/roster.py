"""The load-generating processes that have joined the master: their names, clocks and signs of life."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from tokenswarm.clocks import wall_s
from tokenswarm.provenance import clock_identity

PINGS = 5
ALONE = "local"


@dataclass
class Member:
    """One process. Its messages are numbered within a *life*, which begins with each run and each return."""

    name: str
    client: str  # Locust's id of it
    same_clock: bool = False
    pongs: int = 0
    round_trip_s: float = float("inf")
    offset_s: float = 0.0  # to add to its monotonic seconds to get the master's
    wall_offset_s: float = 0.0  # by how much its wall clock is ahead of the master's
    life: int = 0
    received: int = 0  # messages of this life
    behind: bool = False  # more of them wait at the member: what it answers comes late
    run: str = ""  # that it takes part in
    gone: str = ""  # why it was given up

    @property
    def shortest_round_trip_s(self) -> float | None:
        return self.round_trip_s if self.pongs else None

    @property
    def clock_known(self) -> bool:
        return self.same_clock or self.pongs >= PINGS


class Roster:
    """Knows who is there. Locust's own heartbeats tell who is alive."""

    def __init__(self, runner: Any, *, alone: bool, on_gone: Callable[[Member, str], None]) -> None:
        """``on_gone``: a member was given up, which took part in this run."""
        self._runner = runner
        self._alone = alone
        self._on_gone = on_gone
        self._members: dict[str, Member] = {}  # by Locust's id
        if alone:
            self._members[ALONE] = Member(ALONE, ALONE, same_clock=True)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    @property
    def present(self) -> list[Member]:
        return [member for member in self if not member.gone and self._alive(member)]

    def find(self, client: str) -> Member | None:
        return self._members.get(ALONE if self._alone else client)

    def named(self, name: str) -> Member:
        return next(member for member in self if member.name == name)

    def send(self, message: str, data: dict[str, Any], name: str) -> None:
        self._runner.send_message(message, data, client_id=None if self._alone else self.named(name).client)

    # joining and clocks -------------------------------------------------------------------

    def join(self, client: str, clock: str) -> Member:
        """Somebody asks to take part, perhaps again."""
        member = self.find(client)
        if member is None:
            member = Member(f"w{self._runner.get_worker_index(client)}", client, same_clock=clock == clock_identity())
            self._members[client] = member
        member.gone = ""
        self.ping(member)
        return member

    def ping(self, member: Member, count: int = PINGS) -> None:
        for _ in range(count):
            self.send("ts_ping", {"sent_s": perf_counter()}, member.name)

    def pong(self, client: str, sent_s: float, monotonic_s: float, their_wall_s: float) -> Member | None:
        """Keep the offsets of the shortest round trip (Cristian 1989); on the master's own kernel the monotonic clocks
        are one."""
        member, now_s = self.find(client), perf_counter()
        if member is None:
            return None
        member.pongs += 1
        round_trip_s = now_s - sent_s
        if round_trip_s < member.round_trip_s:
            member.round_trip_s = round_trip_s
            member.wall_offset_s = their_wall_s - (wall_s() - round_trip_s / 2)
            if not member.same_clock:
                member.offset_s = (now_s + sent_s) / 2 - monotonic_s
        return member

    # lives --------------------------------------------------------------------------------

    def begin(self, member: Member, run: str) -> None:
        """It takes part in ``run`` from now on, in a new life."""
        member.run, member.received, member.behind = run, 0, False
        member.life += 1

    def accept(self, member: Member, life: int, number: int) -> bool:
        """Whether a message is the next one of the member's life. A gap means that the rest cannot be relied on."""
        if member.gone or life != member.life:
            return False
        if number != member.received + 1:
            self.give_up(member, "messages of it were lost on the way")
            return False
        member.received = number
        return True

    def give_up(self, member: Member, why: str) -> None:
        if not member.gone:
            member.gone, run, member.run = why, member.run, ""
            self._on_gone(member, run)

    def look(self) -> None:
        """Give up who is not heard of any more; tell those who are heard again that they had been given up."""
        for member in self:
            alive = self._alive(member)
            if member.gone and alive and member.life:
                self.send("ts_dismiss", {"life": member.life}, member.name)
            elif not member.gone and not alive:
                known = member.client in self._runner.clients
                self.give_up(member, "gave no sign of life" if known else "has quit")

    def _alive(self, member: Member) -> bool:
        if self._alone:
            return True
        node = self._runner.clients.get(member.client)
        return node is not None and node.state != "missing"
