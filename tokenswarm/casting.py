"""Which session a ticket names: its class, its material and its chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import NamedTuple

from tokenswarm.agent_material import AgentMaterial
from tokenswarm.arms import pair_of
from tokenswarm.errors import InputError
from tokenswarm.images import ImageSource
from tokenswarm.pictures import Order
from tokenswarm.prompts import Material, session_rng
from tokenswarm.quotas import place_of
from tokenswarm.records import Phase
from tokenswarm.scenario import AgenticTraffic, AnyTraffic, CaptioningTraffic, ChatTraffic, Scenario, TraceTraffic
from tokenswarm.schedule import FILL_BLOCK, Level, Mix, Ticket
from tokenswarm.tokens import TokenCounter
from tokenswarm.trace_material import TraceMaterial
from tokenswarm.traffic.agentic import AgentSession
from tokenswarm.traffic.captioning import CaptionSession, Pictures
from tokenswarm.traffic.chat import ChatSession
from tokenswarm.traffic.session import Session
from tokenswarm.traffic.trace import RecordedSession


class WantedPictures(NamedTuple):
    """What a store of pictures is asked for. ``source``: number of the class among those with pictures."""

    key: tuple[int | None, str, int]
    source: int
    orders: list[Order]


class _Role(NamedTuple):
    """What a ticket comes to."""

    place: int  # of the class
    number: int  # of the session; both of a pair have the same
    level: int | None  # whose texts it has
    key: tuple[int | None, str, int]


@dataclass(frozen=True)
class Casting:
    """The sessions of one run: the same for the same ticket in every process, and for both of a pair.

    Lengths and pauses come from the seed alone. Words and pictures differ from run to run: the server may still have
    the last run's in its caches.
    """

    scenario: Scenario
    kind: str | None
    counter: TokenCounter
    levels: tuple[Level, ...]
    run: str

    @cached_property
    def traffic(self) -> Sequence[AnyTraffic]:
        """The classes that this run's users play."""
        chosen = [one for one in self.scenario.traffic if self.kind in (None, one.kind)]
        if not chosen:
            raise InputError(
                f"{self.scenario.source}: has no traffic of kind {self.kind}, all that this locustfile plays; "
                "locustfiles/mixed.py plays every kind"
            )
        if self.scenario.interference is not None and len(chosen) < len(self.scenario.traffic):
            raise InputError(
                f"{self.scenario.source}: interference needs every traffic class, this locustfile plays only those of "
                f"kind {self.kind}; locustfiles/mixed.py plays every kind"
            )
        return chosen

    @cached_property
    def _known_levels(self) -> list[Level]:
        return list(self.levels)

    def learn(self, level: Level) -> None:
        """A level that was not planned: a search finds its levels one after the other."""
        if level.index >= len(self._known_levels):
            self._known_levels.append(level)
            self.__dict__.pop("_first_ordinals", None)

    @cached_property
    def _mix(self) -> Mix:
        return Mix(one.weight for one in self.traffic)

    @cached_property
    def _materials(self) -> list[Material | AgentMaterial | None]:
        """Of each class; None where there are only pictures and generated questions."""
        return [self._material(one) for one in self.traffic]

    def _material(self, traffic: AnyTraffic) -> Material | AgentMaterial | None:
        seed = self.scenario.seed
        match traffic:
            case AgenticTraffic():
                return AgentMaterial(traffic, self.counter, seed=seed, run=self.run)
            case ChatTraffic():
                return Material(traffic, self.counter, seed=seed, api=self.scenario.target.api)
            case _:
                return None

    @cached_property
    def _trace_material(self) -> TraceMaterial:
        return TraceMaterial(self.counter, seed=self.scenario.seed, run=self.run, api=self.scenario.target.api)

    @cached_property
    def _trace_places(self) -> dict[str, int]:
        """Indexes of the classes that a trace can name."""
        return {one.name: index for index, one in enumerate(self.traffic) if isinstance(one, TraceTraffic)}

    @cached_property
    def _first_ordinals(self) -> list[list[int]]:
        """For each class, how many of its numbered sessions come before each level; last, how many there are."""
        counts = [(level.warmup_sessions, level.sessions or 0) for level in self._known_levels]
        return [
            list(accumulate((sum(self._mix.count(index, count) for count in pair) for pair in counts), initial=0))
            for index in range(len(self.traffic))
        ]

    @cached_property
    def image_sources(self) -> list[ImageSource]:
        """One for each class with pictures, in the order of ``traffic``."""
        seed = self.scenario.seed
        return [
            ImageSource(one.images, name=one.name, seed=seed, run=self.run)
            for one in self.traffic
            if isinstance(one, CaptioningTraffic)
        ]

    @property
    def image_demand(self) -> list[tuple[int, int]]:
        """For each of ``image_sources`` the numbered sessions of its class, and pictures of one, on the average."""
        classes = [(one, index) for index, one in enumerate(self.traffic) if isinstance(one, CaptioningTraffic)]
        return [(self._first_ordinals[index][-1], round(one.images_per_session.mean)) for one, index in classes]

    def session(self, ticket: Ticket, pictures: Pictures | None = None) -> tuple[AnyTraffic, Session]:
        """The session that a ticket names, with what ``wanted_pictures`` asked for, ready to be sent."""
        role = self._role(ticket)
        seed, run = self.scenario.seed, self._words_of(ticket)
        if ticket.recorded is not None:
            replayed, words = self.traffic[role.place], session_rng(seed, *role.key, run)
            assert isinstance(replayed, TraceTraffic), "a rule wants kind: trace"
            return replayed, RecordedSession(replayed, self._trace_material, ticket.recorded, words)
        rng, text_rng = session_rng(seed, *_work(ticket, role.key)), session_rng(seed, *role.key, run)
        traffic, material, ordinal = self.traffic[role.place], self._materials[role.place], self._ordinal(ticket, role)
        match traffic, material:
            case CaptioningTraffic(), _:
                assert pictures is not None, "pictures are taken before the session begins"
                return traffic, CaptionSession(traffic, self.counter, pictures, rng, text_rng)
            case AgenticTraffic(), AgentMaterial():
                return traffic, AgentSession(material, rng, text_rng, ordinal=ordinal, level=role.level)
            case ChatTraffic(), Material():
                return traffic, ChatSession(traffic, material, rng, ordinal, text_rng)
            case _:
                raise AssertionError(f"no material for {traffic.name}")

    def _words_of(self, ticket: Ticket) -> str:
        """What decides words and pictures beside seed and key. A session that a lost worker has begun has others when
        it is played again: the server may have seen its prompts."""
        return f"{self.run} {ticket.again}" if ticket.again else self.run

    def wanted_pictures(self, ticket: Ticket) -> WantedPictures | None:
        """The pictures of the session that a ticket names; None for a session without."""
        role = self._role(ticket)
        traffic = self.traffic[role.place]
        if not isinstance(traffic, CaptioningTraffic):
            return None
        source = sum(isinstance(one, CaptioningTraffic) for one in self.traffic[: role.place])
        key = _work(ticket, role.key)
        sizes = session_rng(self.scenario.seed, *key, "pictures")
        contents = session_rng(self.scenario.seed, *role.key, f"pictures {self._words_of(ticket)}")
        count = traffic.images_per_session.sample_int(sizes)
        orders = self.image_sources[source].orders(sizes, contents, self._ordinal(ticket, role), count)
        return WantedPictures(role.key, source, orders)

    def _role(self, ticket: Ticket) -> _Role:
        pair = pair_of(ticket)
        number = ticket.number if pair is None else pair
        level = self._text_level(ticket)
        return _Role(self.class_of(ticket, number), number, level, (level, ticket.phase, number))

    def traffic_of(self, ticket: Ticket) -> AnyTraffic:
        """The class of the session that a ticket names."""
        return self.traffic[self._role(ticket).place]

    def class_of(self, ticket: Ticket, number: int) -> int:
        """Index of the class that the session with this ``number`` is of; of one of a trace, the class that it names,
        or the first one."""
        if ticket.recorded is not None:
            places = self._trace_places
            return places.get(ticket.recorded.traffic or "", min(places.values(), default=0))
        quotas = () if ticket.level is None else ticket.level.quotas
        return place_of(number, len(quotas))[0] if quotas else self._mix.pick(number)

    def _text_level(self, ticket: Ticket) -> int | None:
        """The level whose texts a session has: its own, or the first where the scenario repeats them."""
        if ticket.level is None:
            return None
        closed = None if self.scenario.load is None else self.scenario.load.closed
        return ticket.level.index if closed is None or closed.fresh_prompts else 0

    def _ordinal(self, ticket: Ticket, role: _Role) -> int:
        """Number of the session among those of its class in the whole run."""
        index, number = role.place, role.number
        if ticket.level is not None and ticket.level.quotas:
            _, rank, worker = place_of(number, len(ticket.level.quotas))
            return Random(f"first of {ticket.level.index}/{worker}").randrange(FILL_BLOCK) + rank
        first, rank = self._first_ordinals[index], self._mix.rank(number)
        if ticket.level is not None and (ticket.level.by_clock or self._searches(ticket)):
            return Random(f"first of {ticket.level.index}").randrange(FILL_BLOCK) + rank
        if ticket.level is None or ticket.number >= FILL_BLOCK:
            return first[-1] + rank
        warmups = 0 if ticket.phase == Phase.WARMUP else self._mix.count(index, ticket.level.warmup_sessions)
        return first[self._job_level(ticket, index) or 0] + warmups + rank

    def _searches(self, ticket: Ticket) -> bool:
        """Whether it is one of those that come on top, in a search, where nobody knows how many will."""
        load = self.scenario.load
        return ticket.number >= FILL_BLOCK and load is not None and load.search is not None

    def _job_level(self, ticket: Ticket, index: int) -> int | None:
        """The level whose jobs a session of the class with this ``index`` takes. Recorded jobs have words of their own
        when they come again; prompts from a file and pictures have none and go on."""
        if ticket.level is not None and isinstance(self.traffic[index], AgenticTraffic):
            return self._text_level(ticket) if ticket.level.round is None else ticket.level.round
        return self._text_level(ticket)

    def require_room_for_nonce(self) -> None:
        """Raise ``InputError`` where prompts are token ids, which no nonce can stand before."""
        if any(isinstance(one, Material) and one.sends_ids for one in self._materials):
            raise InputError(
                "prefix_cache: the arms would be kept apart by a nonce, which prompts of token ids have no place for; "
                "use prompts: words, or a server that heeds cache_salt"
            )

    def notes(self) -> list[str]:
        """What a reader must know about the sessions of this run."""
        sessions = [ordinals[-1] for ordinals in self._first_ordinals]
        shortages = [
            None if material is None else material.shortage(count)
            for material, count in zip(self._materials, sessions, strict=True)
        ]
        return [shortage for shortage in shortages if shortage]


def _work(ticket: Ticket, key: tuple[int | None, str, int]) -> tuple[int | None, str, int]:
    """What decides the lengths and pauses of a session, where ``key`` decides its words: levels of one round have them
    in common. Blocks of interference go by time, and may reach the same session in another phase."""
    level = ticket.level
    if level is None or level.round is None:
        return key
    return (level.round, "round", ticket.number) if level.quotas else (level.round, ticket.phase, ticket.number)
