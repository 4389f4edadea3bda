"""Tickets and their pictures: ordered ahead, taken once, forgotten with the level, gone with the run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import pytest

from tokenswarm.drawings import draw, encoded
from tokenswarm.errors import InputError
from tokenswarm.gallery import Gallery
from tokenswarm.gate import FORESEEN, Gate
from tokenswarm.image_store import Served
from tokenswarm.plan import Plan
from tokenswarm.records import Phase
from tokenswarm.scenario import parse_scenario
from tokenswarm.schedule import Ticket
from tokenswarm.tokens import TokenCounter

LIMIT_S = 30.0
COUNTER = TokenCounter(source="server", exact=True, heads=["The"], words=[f" w{i}" for i in range(200)])
MIXED = """\
traffic:
  - {name: chat}
  - {name: captions, kind: captioning, images: {synthetic: {pixels: 4000}}}
load: {closed: {users: [2, 2], sessions: 8, warmup_sessions: 2}}
"""
CAPTIONS = "traffic: [{kind: captioning, images: {synthetic: {pixels: 4000}}}]\n"


def make_plan(text: str) -> Plan:
    return Plan(parse_scenario(text), "http://127.0.0.1:1", "m", COUNTER, simulated=False, run="one")


@contextmanager
def opened(plan: Plan) -> Iterator[Gallery]:
    with gevent.Timeout(LIMIT_S):
        gallery = Gallery(plan.casting)
        try:
            yield gallery
        finally:
            gallery.close()


def tickets(plan: Plan, count: int, level: int = 0) -> list[Ticket]:
    return [Ticket(plan.levels[level], Phase.MEASURED, number, 0.0) for number in range(count)]


def urls(served: Served | None) -> list[bytes]:
    assert served is not None
    return [picture.url for picture in served.pictures]


def held(gallery: Gallery) -> int:
    """Sessions whose pictures were ordered ahead and not taken."""
    return len(gallery._store._entries)


def children() -> set[int]:
    """Processes that this one has started and that still run."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if fields[1] == str(Path("/proc/self").resolve().name) and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found


def test_a_ticket_has_its_pictures_whether_expected_or_not() -> None:
    """Half of the tickets are chats and have none; two processes serve the same to the others, each session its own."""
    plan = make_plan(MIXED)
    chosen = tickets(plan, 8)
    with opened(plan) as ahead, opened(make_plan(MIXED)) as late:
        ahead.expect(chosen)
        assert held(ahead) == 4
        served = [ahead.take(ticket) for ticket in chosen]
        assert [one is None for one in served].count(True) == 4
        assert held(ahead) == 0
        for ticket, one in zip(chosen, served, strict=True):
            again = late.take(ticket)
            assert (again is None) == (one is None)
            if one is not None:
                assert urls(again) == urls(one)
        assert len({urls(one)[0] for one in served if one is not None}) == 4


def test_what_was_expected_is_there_without_waiting() -> None:
    """Once it is made, a session takes it at once; how long making took is told."""
    plan = make_plan(CAPTIONS + "load: {closed: {users: 2, sessions: 4}}\n")
    (ticket,) = tickets(plan, 1)
    with opened(plan) as gallery:
        gallery.expect([ticket])
        while not gallery._store.held_bytes:
            gevent.sleep(0.002)
        others: list[str] = []
        gevent.spawn(others.append, "ran")
        served = gallery.take(ticket)
        assert others == [], "the session let others go first"
        assert served is not None
        assert served.made_s > 0


def test_both_of_a_pair_take_the_same_pictures() -> None:
    """The warm and the cold session of a prefix-cache test, one after the other."""
    plan = make_plan(CAPTIONS + "load: {closed: {users: 1, sessions: 4}}\nprefix_cache: {}\n")
    with opened(plan) as gallery:
        chosen = tickets(plan, 4)
        gallery.expect(chosen)
        first, second, third, fourth = (urls(gallery.take(ticket)) for ticket in chosen)
        assert first == second != third == fourth


def test_the_gate_orders_ahead_and_forgets_with_the_level() -> None:
    """Granted tickets and the next own ones are ordered; a new phase and the end of a level drop what nobody took."""
    plan = make_plan(CAPTIONS + "load: {closed: {users: [2, 2], duration_s: 4, warmup_s: 1}}\n")
    with opened(plan) as gallery:
        gate = Gate(plan.levels, 0)
        gate.on_expect, gate.on_forget = gallery.expect, gallery.forget
        gate.grant(0, Phase.WARMUP, [(number, 0) for number in range(3)])
        assert held(gallery) == 3
        gallery.take(gate.take())
        assert held(gallery) == 2
        gate.close(late_is_drain=False)
        assert held(gallery) == 0
        for level, phase in ((0, Phase.WARMUP), (0, Phase.MEASURED), (1, Phase.WARMUP)):
            gate.open(level, phase)
            ticket = gate.take()
            assert (ticket.level, ticket.phase) == (plan.levels[level], phase)
            assert held(gallery) == FORESEEN, "the next own ones, and none of another phase"
            gallery.take(ticket)
            assert held(gallery) == FORESEEN - 1
        gate.close(late_is_drain=True)
        assert held(gallery) == 0
        while gallery._store._under_way:
            gevent.sleep(0.002)
        assert gallery._store.held_bytes == 0


def test_granted_pictures_stay_when_fill_sessions_begin() -> None:
    """A spare ticket that was granted before the level fills up still has its pictures made ahead."""
    plan = make_plan(CAPTIONS + "load: {closed: {users: 2, sessions: 4}}\n")
    with opened(plan) as gallery:
        gate = Gate(plan.levels, 0)
        gate.on_expect, gate.on_forget = gallery.expect, gallery.forget
        gate.grant(0, Phase.MEASURED, [(number, 0) for number in range(4)])
        gate.open(0, Phase.FILL)
        assert held(gallery) == 4
        taken = [gate.take() for _ in range(5)]
        wanted = [plan.casting.wanted_pictures(ticket) for ticket in taken]
        assert [ticket.phase for ticket in taken] == [*[Phase.MEASURED] * 4, Phase.FILL]
        assert {one.key for one in wanted if one is not None} <= gallery._store._entries.keys()


def test_a_gallery_that_cannot_open_leaves_no_process(tmp_path: Path) -> None:
    """One line where the folder has gone since the scenario was read, and nobody is left to be ended."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(encoded(draw(1, 60, 40), "jpeg", 85))
    plan = make_plan(f"traffic: [{{kind: captioning, images: {{folder: {folder}}}}}]\n")
    before = children()
    with opened(plan):
        assert len(children() - before) == 1
    shutil.rmtree(folder)
    with gevent.Timeout(LIMIT_S), pytest.raises(InputError, match="pictures: cannot be read"):
        Gallery(plan.casting)
    assert children() <= before


def test_after_the_end_nobody_waits_for_pictures() -> None:
    """A session that comes too late is told so at once; closing again does no harm."""
    plan = make_plan(CAPTIONS)
    with opened(plan) as gallery:
        gallery.close()
        with pytest.raises(InputError, match="the store of pictures is closed"):
            gallery.take(Ticket(None, Phase.MEASURED, 1, 0.0))
        gallery.close()
