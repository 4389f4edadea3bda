"""Locust's users: each takes a ticket, plays its session turn by turn, and leaves one record a request."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import gevent
from locust import User, constant, task

from tokenswarm.arms import pair_of
from tokenswarm.client import Exchange, StreamingClient
from tokenswarm.errors import ErrorKind, InputError
from tokenswarm.failures import error_group, sample
from tokenswarm.gate import Facts, Gate, SessionCut, completion_facts
from tokenswarm.records import RequestRecord
from tokenswarm.schedule import Ticket
from tokenswarm.traffic.session import Answer, Heard
from tokenswarm.traffic.turn import Turn

if TYPE_CHECKING:
    from tokenswarm.gallery import Gallery
    from tokenswarm.image_store import Served
    from tokenswarm.plan import Plan
    from tokenswarm.recorder import LocustStatistics, Recorder


FAILURE_PAUSE_S = 1.0  # after a session without pictures: where none can be had, rows must not come by the thousand

_UNHEARD = Heard()  # a request that failed has no answer


class Instrument:
    """What the users of one process share; stands at ``environment.tokenswarm``."""

    def __init__(
        self,
        run: str,
        worker: str,
        plan: Plan,
        gate: Gate,
        recorder: Recorder,
        statistics: LocustStatistics,
        gallery: Gallery | None = None,
    ) -> None:
        self.run = run
        self.worker = worker
        self.plan = plan
        self.gate = gate
        self.recorder = recorder
        self.statistics = statistics
        self.gallery = gallery
        self.running_users: int | None = None  # free-running: as many as the whole run has
        self.users_started = 0

    def refuse(self, ticket: Ticket) -> None:
        """A session that arrived while all users were busy is one failed request that was never sent."""
        plan, exchange = self.plan, Exchange(error_kind=ErrorKind.NOT_ADMITTED)
        label = "" if ticket.level is None else ticket.level.label
        record = self.record(ticket, exchange, plan.casting.traffic_of(ticket).name, scheduled_s=ticket.due_s)
        self.recorder.add(record, (), None)
        self.statistics.add(record, label, ErrorKind.NOT_ADMITTED)

    def record(self, ticket: Ticket, exchange: Exchange, traffic: str, **identity: Any) -> RequestRecord:
        """Complete the client's facts by who sent the request and why."""
        level = ticket.level
        finished_s = exchange.finished_s or perf_counter()
        return RequestRecord(
            level=None if level is None else level.index,
            concurrency=self.running_users if level is None else None if level.by_clock else level.concurrency,
            phase=self.gate.phase_of(ticket, finished_s, cut=exchange.killed is not None),
            ticket=ticket.number,
            worker=self.worker,
            traffic=traffic,
            session=_session_name(ticket),
            **identity,
            **exchange.facts(),
        )


class ScenarioUser(User):  # type: ignore[misc]
    """Plays whatever session its ticket names. Subclasses that set ``kind`` ask only for their kind of traffic."""

    abstract = True
    kind: ClassVar[str | None] = None
    wait_time = constant(0)
    _began = False  # until the master has sent what a run needs

    def on_start(self) -> None:
        instrument: Instrument = self.environment.tokenswarm.ready()
        self.instrument = instrument
        self.number = instrument.users_started
        instrument.users_started += 1
        self.client: StreamingClient = instrument.plan.client()
        self._began = True

    def on_stop(self) -> None:
        if self._began:
            self.client.close()

    def stop(self, force: bool = False) -> bool:
        """A user that waits for a ticket has nothing to finish and leaves at once."""
        idle = not self._began or self.instrument.gate.idle(self.greenlet)
        return bool(super().stop(force=force or idle))

    @task  # type: ignore[untyped-decorator]
    def play(self) -> None:
        """One session, from ticket to last record."""
        gate = self.instrument.gate
        ticket = gate.take()
        facts: list[Facts] = []
        played = False
        try:
            self._play(ticket, facts)
            played = True
        except SessionCut:
            pass
        finally:
            gate.done(ticket, facts, played=played)

    def _play(self, ticket: Ticket, facts: list[Facts]) -> None:
        gallery = self.instrument.gallery
        try:
            pictures = None if gallery is None else gallery.take(ticket)
        except InputError as error:
            self._give_up(str(error), ticket, facts)
        else:
            self._session(ticket, pictures, facts)

    def _give_up(self, problem: str, ticket: Ticket, facts: list[Facts]) -> None:
        """A session that has no pictures is one failed request, and not the server's fault."""
        plan, now_s = self.instrument.plan, perf_counter()
        exchange = Exchange(sent_s=now_s, finished_s=now_s, error_kind=ErrorKind.CLIENT, error=sample(problem, []))
        traffic, arm, pair = plan.casting.traffic_of(ticket), plan.arm(ticket), pair_of(ticket)
        record = self.instrument.record(
            ticket, exchange, traffic.name, user=self.number, arm=arm, pair=pair, scheduled_s=ticket.taken_s
        )
        self._leave(record, exchange, ticket, facts)
        gevent.sleep(FAILURE_PAUSE_S)

    def _session(self, ticket: Ticket, pictures: Served | None, facts: list[Facts]) -> None:
        plan = self.instrument.plan
        traffic, session = plan.casting.session(ticket, pictures)
        arm, pair = plan.arm(ticket), pair_of(ticket)
        due_s = ticket.taken_s if ticket.due_s is None else ticket.due_s
        history: int | None = 0
        number = 0
        while (turn := session.next()) is not None:
            body = plan.body(turn, ticket, number)
            if turn.pause_s > 0:
                due_s = perf_counter() + turn.pause_s
                gevent.sleep(turn.pause_s)
            elif number == 0:
                self.instrument.gate.wait_until_due(ticket)
            exchange = self.client.send(body)
            heard = session.hear(_answer(exchange)) if exchange.ok else _UNHEARD
            record = self.instrument.record(
                ticket,
                exchange,
                traffic.name,
                user=self.number,
                turn=number,
                session_end=heard.end,
                arm=arm,
                pair=pair,
                prefix=turn.prefix,
                **_about(turn, pictures if number == 0 else None),
                pause_s=turn.pause_s or None,
                scheduled_s=due_s,
                **plan.lengths(turn, number),
                asked_output_tokens=turn.max_tokens,
                history_tokens=history,
                malformed_calls=heard.malformed_calls,
                divergence=heard.divergence,
            )
            self._leave(record, exchange, ticket, facts)
            if exchange.killed is not None:
                raise exchange.killed
            if not record.ok:
                return
            history = _history(record, answers=session.keeps_answers)
            due_s = record.finished_s or perf_counter()
            number += 1

    def _leave(self, record: RequestRecord, exchange: Exchange, ticket: Ticket, facts: list[Facts]) -> None:
        instrument = self.instrument
        fact = completion_facts(record)
        if fact is not None:
            facts.append(fact)
        instrument.recorder.add(record, exchange.token_times, exchange.per_event_tokens)
        reason = None if record.error_kind is None else error_group(record.error_kind, record.http_status)
        instrument.statistics.add(record, ticket.level.label if ticket.level else "", reason)


def _about(turn: Turn, pictures: Served | None) -> dict[str, Any]:
    """What a record says of the pictures in a prompt, and in the first one of how they came to be there."""
    facts: dict[str, Any] = {name: getattr(turn, name) for name in ("images", "image_pixels", "image_bytes")}
    return facts if pictures is None else facts | {"prepare_s": pictures.waited_s, "encode_s": pictures.made_s}


def _session_name(ticket: Ticket) -> str:
    """Unique within the run, also where another worker has played the beginning of it already."""
    name = f"{'' if ticket.level is None else ticket.level.index}.{ticket.phase}.{ticket.number}"
    return f"{name}.{ticket.again}" if ticket.again else name


def _answer(exchange: Exchange) -> Answer:
    return Answer(exchange.text, exchange.calls, exchange.finish_reason == "length")


def _history(record: RequestRecord, *, answers: bool) -> int | None:
    """Tokens that the session's next prompt begins with and the server has seen; None where it does not count them."""
    if record.prompt_tokens is None or (answers and record.output_tokens is None):
        return None
    return record.prompt_tokens + (record.output_tokens or 0 if answers else 0)


class AgentUser(ScenarioUser):
    """Agentic traffic of the scenario, and no other kind."""

    abstract = True
    kind = "agentic"


class CaptionUser(ScenarioUser):
    """Captioning traffic of the scenario, and no other kind."""

    abstract = True
    kind = "captioning"


class ChatUser(ScenarioUser):
    """Chat traffic of the scenario, and no other kind."""

    abstract = True
    kind = "chat"
