"""Everything a load-generating process needs for a run, found out once by the master and sent to every worker.

No secret travels: each process reads the key from its own environment or file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import msgspec

from tokenswarm.client import StreamingClient
from tokenswarm.endpoint import Endpoint
from tokenswarm.errors import InputError
from tokenswarm.keepalive import KeepAlive
from tokenswarm.prompts import Material, session_rng, survey_scenario
from tokenswarm.protocols import chat_body, completion_body
from tokenswarm.records import Phase
from tokenswarm.scenario import ChatTraffic, Scenario
from tokenswarm.schedule import FILL_BLOCK, Level, Mix, Ticket, level_labels
from tokenswarm.target import counting_server, find_model, is_simulated, request_headers
from tokenswarm.tokens import TokenCounter
from tokenswarm.traffic.chat import ChatSession
from tokenswarm.traffic.turn import Turn


def planned_levels(scenario: Scenario) -> tuple[Level, ...]:
    """The scenario's closed-loop levels; none when Locust's own options drive the load."""
    if scenario.load is None:
        return ()
    closed = scenario.load.closed
    return tuple(
        Level(
            index=index,
            concurrency=users,
            sessions=closed.sessions.count(users) if closed.sessions else None,
            warmup_sessions=closed.warmup_sessions,
            duration_s=closed.duration_s,
            warmup_s=closed.warmup_s or 0.0,
            tail=closed.tail,
            time_limit_s=closed.time_limit_s or Level.time_limit_s,
            drain_limit_s=closed.drain_limit_s,
            label=label,
        )
        for index, (users, label) in enumerate(zip(closed.users, level_labels(closed.users), strict=True))
    )


@dataclass(frozen=True)
class Plan:
    """A scenario with its target found: URL, model and what prompts cost in tokens there."""

    scenario: Scenario
    url: str
    model: str
    counter: TokenCounter
    simulated: bool
    kind: str | None = None
    run: str = ""  # the run's id

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        return planned_levels(self.scenario)

    @cached_property
    def traffic(self) -> Sequence[ChatTraffic]:
        """The classes that this run's users play."""
        chosen = [one for one in self.scenario.traffic if self.kind in (None, one.kind)]
        if not chosen:
            raise InputError(
                f"{self.scenario.source}: has no traffic of kind {self.kind}, all that this locustfile plays"
            )
        return chosen

    @cached_property
    def _mix(self) -> Mix:
        return Mix(one.weight for one in self.traffic)

    @cached_property
    def _materials(self) -> list[Material]:
        scenario = self.scenario
        return [Material(one, self.counter, seed=scenario.seed, api=scenario.target.api) for one in self.traffic]

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

    # what a user asks for ---------------------------------------------------------------

    def client(self) -> StreamingClient:
        target = self.scenario.target
        return StreamingClient(
            self._endpoint, target.api, self._headers, target.timeouts, target.tls, keep_alive=self._keep_alive
        )

    def session(self, ticket: Ticket) -> tuple[ChatTraffic, ChatSession]:
        """The session that a ticket names: the same for the same ticket in every process.

        Lengths and pauses come from the seed alone. Words differ from run to run: the server may still have the
        last run's prompts in its prefix cache.
        """
        index = self._mix.pick(ticket.number)
        ticket_key = (None if ticket.level is None else ticket.level.index, ticket.phase, ticket.number)
        session = ChatSession(
            self.traffic[index],
            self._materials[index],
            session_rng(self.scenario.seed, *ticket_key),
            self._ordinal(ticket, index),
            session_rng(self.scenario.seed, *ticket_key, self.run),
        )
        return self.traffic[index], session

    def _ordinal(self, ticket: Ticket, index: int) -> int:
        """Number of the session among those of its class in the whole run."""
        first, rank = self._first_ordinals[index], self._mix.rank(ticket.number)
        if ticket.level is None or ticket.number >= FILL_BLOCK:
            return first[-1] + rank
        warmups = 0 if ticket.phase == Phase.WARMUP else self._mix.count(index, ticket.level.warmup_sessions)
        return first[ticket.level.index] + warmups + rank

    def body(self, turn: Turn) -> bytes:
        """The request body, ready to be sent."""
        extra = self.scenario.target.request
        if turn.messages is not None:
            return chat_body(
                self.model, turn.messages, max_tokens=turn.max_tokens, ignore_eos=turn.ignore_eos, extra=extra
            )
        return completion_body(
            self.model, turn.prompt or "", max_tokens=turn.max_tokens, ignore_eos=turn.ignore_eos, extra=extra
        )

    # to other processes and to the run folder -------------------------------------------

    def to_message(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario.model_dump_json(),
            "url": self.url,
            "model": self.model,
            "counter": msgspec.json.encode(self.counter),
            "simulated": self.simulated,
            "kind": self.kind,
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


class Planner:
    """Makes the plan of each run: Locust's page can name another host than the command line did."""

    def __init__(self, scenario: Scenario, kind: str | None, simulator_url: str | None) -> None:
        self.scenario = scenario
        self._kind = kind
        self._simulator_url = simulator_url
        self._made: tuple[str | None, Plan] | None = None

    def plan(self, host: str | None) -> Plan:
        """The plan for ``host`` (None: the scenario's own target); the target is asked anew when it has changed.

        Raises ``TargetError`` or ``InputError``.
        """
        if self._made is None or self._made[0] != host:
            scenario = self.scenario.with_target(url=host) if host else self.scenario
            simulator_url = None if host else self._simulator_url
            self._made = host, make_plan(scenario, self._kind, simulator_url=simulator_url)
        return self._made[1]


def make_plan(scenario: Scenario, kind: str | None = None, *, simulator_url: str | None = None) -> Plan:
    """Check the target, find its model and what words cost there. Raises ``TargetError`` or ``InputError``."""
    url = simulator_url or scenario.target.url
    if not url:
        raise InputError("no server named: give its URL with --host (-H), or target.url in the scenario")
    endpoint = Endpoint.parse(url)
    target = scenario.target
    headers = request_headers(endpoint, target)
    model = find_model(endpoint, target, headers)
    counter = survey_scenario(scenario, counting_server(endpoint, target, headers, model))
    simulated = simulator_url is not None or is_simulated(endpoint, target, headers)
    plan = Plan(scenario, url, model, counter, simulated, kind)
    _ = plan.traffic, plan.notes()  # prompt files are read now, so that their mistakes show before any load
    return plan
