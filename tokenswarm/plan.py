"""Everything a load-generating process needs for a run, found out once by the master and sent to every worker.

No secret travels: each process reads the key from its own environment or file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import msgspec

from tokenswarm.arms import Isolation, arm_of, cache_key
from tokenswarm.cache_probe import CacheProbe
from tokenswarm.casting import Casting
from tokenswarm.client import StreamingClient
from tokenswarm.endpoint import Endpoint
from tokenswarm.keepalive import KeepAlive
from tokenswarm.levels import planned_levels
from tokenswarm.protocols import chat_body, completion_body
from tokenswarm.scenario import Scenario
from tokenswarm.schedule import Level, Ticket
from tokenswarm.target import Caller, request_headers
from tokenswarm.telemetry import EngineSampler
from tokenswarm.timetable import Arrival, arrivals_of
from tokenswarm.tokens import TokenCounter, messages_behind
from tokenswarm.trace_files import read_trace
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
    image_notes: Sequence[str] = ()  # what a look at the pictures found
    run: str = ""  # the run's id

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        return planned_levels(self.scenario)

    def arrivals(self, level: Level) -> Iterator[Arrival]:
        """Of a level by the clock, in order."""
        load = self.scenario.load
        sessions = () if load is None or load.replay is None else read_trace(load.replay).sessions
        return arrivals_of(level, self.scenario.seed, sessions)

    @cached_property
    def casting(self) -> Casting:
        """Which session a ticket names."""
        return Casting(self.scenario, self.kind, self.counter, self.levels, self.run)

    @cached_property
    def _endpoint(self) -> Endpoint:
        return Endpoint.parse(self.url)

    @cached_property
    def _headers(self) -> dict[str, str]:
        return request_headers(self._endpoint, self.scenario.target)

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
            "isolation": self._isolation_told(),
            "template_prefix_tokens": self._head_tokens,
            "notes": self.notes(),
        }

    @property
    def _head_tokens(self) -> int | None:
        """Tokens that all prompts begin with, those before a nonce among them; None where nobody counted them."""
        by_nonce = self.isolation is not None and self.isolation.by == "nonce"
        known = [self.counter.common_prefix, self.counter.before_nonce if by_nonce else None]
        return max((tokens for tokens in known if tokens is not None), default=None)

    def _isolation_told(self) -> dict[str, Any] | None:
        if self.isolation is None:
            return None
        nonce = {"nonce_tokens": self.counter.nonce_tokens} if self.isolation.by == "nonce" else {}
        return {**msgspec.to_builtins(self.isolation), **nonce}

    def notes(self) -> list[str]:
        """What a reader must know about the prompts of this run."""
        counter = self.counter
        notes = [] if counter.exact else [f"prompt lengths are not exact ({counter.source}): {counter.note}"]
        return [*notes, *self.casting.notes(), *self.image_notes]


def _plus(tokens: int | None, more: int) -> int | None:
    return None if tokens is None else tokens + more
