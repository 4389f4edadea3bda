"""Everything a load-generating process needs for a run, found out once by the master and sent to every worker.

No secret travels: each process reads the key from its own environment or file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Any

import msgspec

from tokenswarm.agent_material import AgentMaterial
from tokenswarm.arms import Isolation, arm_of, cache_key, pair_of
from tokenswarm.cache_probe import CacheProbe
from tokenswarm.client import StreamingClient
from tokenswarm.endpoint import Endpoint
from tokenswarm.errors import InputError
from tokenswarm.keepalive import KeepAlive
from tokenswarm.levels import planned_levels
from tokenswarm.prompts import Material, session_rng
from tokenswarm.protocols import chat_body, completion_body
from tokenswarm.quotas import place_of
from tokenswarm.records import Phase
from tokenswarm.scenario import AgenticTraffic, AnyTraffic, ChatTraffic, Scenario
from tokenswarm.schedule import FILL_BLOCK, Level, Mix, Ticket
from tokenswarm.target import Caller, request_headers
from tokenswarm.telemetry import EngineSampler
from tokenswarm.tokens import TokenCounter, messages_behind
from tokenswarm.traffic.agentic import AgentSession
from tokenswarm.traffic.chat import ChatSession
from tokenswarm.traffic.session import Session
from tokenswarm.traffic.turn import Turn

SAMPLE_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Plan:
    """A scenario with its target found: URL, model and what prompts cost in tokens there."""

    scenario: Scenario
    url: str
    model: str
    counter: TokenCounter
    simulated: bool
    kind: str | None = None
    cache: CacheProbe | None = None  # what the probe found out; None where it was not sent
    isolation: Isolation | None = None  # of the arms of a prefix-cache test
    run: str = ""  # the run's id

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        return planned_levels(self.scenario)

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
    def _mix(self) -> Mix:
        return Mix(one.weight for one in self.traffic)

    @cached_property
    def _materials(self) -> list[Material | AgentMaterial]:
        scenario = self.scenario
        return [
            AgentMaterial(one, self.counter, seed=scenario.seed, run=self.run)
            if isinstance(one, AgenticTraffic)
            else Material(one, self.counter, seed=scenario.seed, api=scenario.target.api)
            for one in self.traffic
        ]

    @cached_property
    def _endpoint(self) -> Endpoint:
        return Endpoint.parse(self.url)

    @cached_property
    def _headers(self) -> dict[str, str]:
        return request_headers(self._endpoint, self.scenario.target)

    @cached_property
    def _first_ordinals(self) -> list[list[int]]:
        """For each class, how many of its numbered sessions come before each level; last, how many there are."""
        counts = [(level.warmup_sessions, level.sessions or 0) for level in self.levels]
        return [
            list(accumulate((sum(self._mix.count(index, count) for count in pair) for pair in counts), initial=0))
            for index in range(len(self.traffic))
        ]

    @cached_property
    def _keep_alive(self) -> KeepAlive:
        return KeepAlive()

    def engine_sampler(self, write: Callable[[dict[str, Any]], None]) -> EngineSampler:
        """Reads the server's own figures while the run goes on."""
        caller = Caller(self._headers, self.scenario.target, timeout_s=SAMPLE_TIMEOUT_S)
        return EngineSampler(lambda: caller.get(f"{self._endpoint.server_root}/metrics"), write)

    # what a user asks for ---------------------------------------------------------------

    def client(self) -> StreamingClient:
        target = self.scenario.target
        return StreamingClient(
            self._endpoint, target.api, self._headers, target.timeouts, target.tls, keep_alive=self._keep_alive
        )

    def session(self, ticket: Ticket) -> tuple[AnyTraffic, Session]:
        """The session that a ticket names: the same for the same ticket in every process, and for both of a pair.

        Lengths and pauses come from the seed alone. Words differ from run to run: the server may still have the
        last run's prompts in its prefix cache.
        """
        pair = pair_of(ticket)
        number = ticket.number if pair is None else pair
        index = self.class_of(ticket, number)
        level = self._text_level(ticket)
        key = (level, ticket.phase, number)
        seed = self.scenario.seed
        rng, text_rng = session_rng(seed, *_work(ticket, key)), session_rng(seed, *key, self.run)
        traffic, material, ordinal = self.traffic[index], self._materials[index], self._ordinal(ticket, index, number)
        if isinstance(material, AgentMaterial):
            return traffic, AgentSession(material, rng, text_rng, ordinal=ordinal, level=level)
        assert isinstance(traffic, ChatTraffic)
        return traffic, ChatSession(traffic, material, rng, ordinal, text_rng)

    def class_of(self, ticket: Ticket, number: int) -> int:
        """Index of the class that the session with this ``number`` is of."""
        quotas = () if ticket.level is None else ticket.level.quotas
        return place_of(number, len(quotas))[0] if quotas else self._mix.pick(number)

    def _text_level(self, ticket: Ticket) -> int | None:
        """The level whose texts a session has: its own, or the first where the scenario repeats them."""
        if ticket.level is None:
            return None
        fresh = self.scenario.load is None or self.scenario.load.closed.fresh_prompts
        return ticket.level.index if fresh else 0

    def _ordinal(self, ticket: Ticket, index: int, number: int) -> int:
        """Number of the session among those of its class in the whole run."""
        if ticket.level is not None and ticket.level.quotas:
            _, rank, worker = place_of(number, len(ticket.level.quotas))
            return Random(f"first of {ticket.level.index}/{worker}").randrange(FILL_BLOCK) + rank
        first, rank = self._first_ordinals[index], self._mix.rank(number)
        if ticket.level is None or ticket.number >= FILL_BLOCK:
            return first[-1] + rank
        warmups = 0 if ticket.phase == Phase.WARMUP else self._mix.count(index, ticket.level.warmup_sessions)
        return first[self._text_level(ticket) or 0] + warmups + rank

    def require_room_for_nonce(self) -> None:
        """Raise ``InputError`` where prompts are token ids, which no nonce can stand before."""
        if any(isinstance(one, Material) and one.sends_ids for one in self._materials):
            raise InputError("prefix_cache: this server needs a nonce, which prompts of token ids have no place for")

    def arm(self, ticket: Ticket) -> str | None:
        """``warm`` or ``cold`` in a prefix-cache test."""
        return arm_of(ticket, self.scenario.seed)

    def body(self, turn: Turn, ticket: Ticket, number: int) -> bytes:
        """The request body, ready to be sent. ``number``: of the turn within the session of ``ticket``."""
        extra = self.scenario.target.request
        messages, prompt = turn.messages, turn.prompt
        arm, isolation = self.arm(ticket), self.isolation
        if arm is not None and isolation is not None:
            key = cache_key(arm, isolation, ticket, number, self.run)
            if isolation.by == "salt":
                extra = extra | {"cache_salt": key}
            elif messages is not None:
                messages = messages_behind(self.counter.make_nonce(Random(key)), messages)
            else:
                prompt = f"{self.counter.make_nonce(Random(key))}{prompt}"
        limits: dict[str, Any] = {"max_tokens": turn.max_tokens, "ignore_eos": turn.ignore_eos}
        if messages is None:
            return completion_body(self.model, prompt or "", extra=extra, **limits)
        if turn.tools is not None:
            extra = {"tools": turn.tools, "tool_choice": turn.tool_choice} | extra
        return chat_body(self.model, messages, extra=extra, **limits)

    def lengths(self, turn: Turn, number: int) -> dict[str, int | None]:
        """What a record says of the length of a turn's prompt, in tokens, a nonce at its head included."""
        nonce = self.counter.nonce_tokens if self.isolation is not None and self.isolation.by == "nonce" else 0
        return {
            "asked_input_tokens": _plus(turn.input_tokens, 0 if number else nonce),
            "prefix_tokens": _plus(turn.prefix_tokens, nonce),
        }

    # to other processes and to the run folder -------------------------------------------

    def to_message(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario.model_dump_json(),
            "url": self.url,
            "model": self.model,
            "counter": msgspec.json.encode(self.counter),
            "simulated": self.simulated,
            "kind": self.kind,
            "cache": msgspec.json.encode(self.cache),
            "isolation": msgspec.json.encode(self.isolation),
            "run": self.run,
        }

    def for_run(self, run: str) -> Plan:
        """A copy for the run with this id."""
        return replace(self, run=run)

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Plan:
        return cls(
            scenario=Scenario.model_validate_json(message["scenario"]),
            url=message["url"],
            model=message["model"],
            counter=msgspec.json.decode(message["counter"], type=TokenCounter),
            simulated=message["simulated"],
            kind=message["kind"],
            cache=msgspec.json.decode(message["cache"], type=CacheProbe | None),
            isolation=msgspec.json.decode(message["isolation"], type=Isolation | None),
            run=message["run"],
        )

    def description(self) -> dict[str, Any]:
        """What ``run.json`` says of the plan."""
        scenario = self.scenario
        return {
            "seed": scenario.seed,
            "scenario": scenario.to_dict(),
            "scenario_text": scenario.text,
            "scenario_digest": scenario.digest,
            "target": {
                "url": self.url,
                "model": self.model,
                "simulated": self.simulated,
                "preset": scenario.target.simulator,
                "tls_verified": scenario.target.tls.verify,
            },
            "input_tokens_source": self.counter.source,
            "input_tokens_exact": self.counter.exact,
            "input_tokens_note": self.counter.note,
            "cache_probe": None if self.cache is None else msgspec.to_builtins(self.cache),
            "isolation": None if self.isolation is None else msgspec.to_builtins(self.isolation),
            "template_prefix_tokens": self.counter.common_prefix,
            "notes": self.notes(),
        }

    def notes(self) -> list[str]:
        """What a reader must know about the prompts of this run."""
        counter = self.counter
        notes = [] if counter.exact else [f"prompt lengths are not exact ({counter.source}): {counter.note}"]
        for material, ordinals in zip(self._materials, self._first_ordinals, strict=True):
            shortage = material.shortage(ordinals[-1])
            if shortage:
                notes.append(shortage)
        return notes


def _work(ticket: Ticket, key: tuple[int | None, str, int]) -> tuple[int | None, str, int]:
    """What decides the lengths and pauses of a session, where ``key`` decides its words: levels of one round of a
    measurement of interference have them in common."""
    level = ticket.level
    return key if level is None or level.round is None else (level.round, "round", ticket.number)


def _plus(tokens: int | None, more: int) -> int | None:
    return None if tokens is None else tokens + more
