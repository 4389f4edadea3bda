"""The simulated inference server: the step loop of ``engine`` behind HTTP, in real time."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import time
import uuid

from simulator import api
from simulator.answering import JSON, Answer, StreamedAnswer, WholeAnswer
from simulator.api import Ask, Draft
from simulator.api_error import ApiError
from simulator.chunks import Api, Chunks
from simulator.engine import Engine, Sequence, Step
from simulator.engine_log import EngineLog
from simulator.faults import Fault, FaultPlan, Kind
from simulator.metrics_text import Book
from simulator.pages import Pages
from simulator.picture import Picture
from simulator.processor import Processor
from simulator.replies import Replies
from simulator.settings import Settings
from simulator.timer import DeadlineTimer
from simulator.truth import Row, Truth
from simulator.vision import Vision
from simulator.wire import Connection, Request

_POST: dict[str, Api] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
_now = time.perf_counter


class Server:
    """Serves one simulated engine.

    The engine's virtual second ``v`` is the real moment ``epoch + v / speed``; that is computed anew for every
    step, so that a late wake-up delays one step's bytes and never the clock.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        speed: float = 1.0,
        seed: int = 0,
        api_key: str | None = None,
        every_token: bool = False,
        log: EngineLog | None = None,
    ) -> None:
        self.settings = settings
        self.truth = Truth(every_token)
        self._engine = Engine(settings.engine(), seed)
        self._replies = Replies(settings, seed)
        self._faults = FaultPlan(settings.faults, seed)
        self._book = Book(settings.model)
        self._processor = Processor(settings.vision or Vision(), log)
        self._log = log
        self._key = f"Bearer {api_key}".encode() if api_key else None
        self._speed = speed
        self._epoch = _now()
        self._ids = itertools.count(1)
        self._run_id = uuid.uuid4().hex[:8]
        self._pages = Pages(settings, self._engine, self._processor, self._book, self.truth, log, speed)
        self._open: dict[Answer, Sequence] = {}
        self._connections: set[Connection] = set()
        self._timer: DeadlineTimer | None = None
        self._listener: asyncio.Server | None = None

    # -- life ------------------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port, which the system chooses when 0 is asked for."""
        loop = asyncio.get_running_loop()
        self._timer = DeadlineTimer(loop, self._tick)
        self._listener = await loop.create_server(
            lambda: Connection(self._accept, self._handle, self._gone), host, port, backlog=4096
        )
        if self._log is not None:
            loop.call_later(self._log.interval_s, self._write_log, self._log)
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    def _write_log(self, log: EngineLog) -> None:
        log.write(self._engine)
        if self._timer is not None:
            asyncio.get_running_loop().call_later(log.interval_s, self._write_log, log)

    async def stop(self) -> None:
        """Ends every connection and stops listening."""
        self._processor.close()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close()
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        await asyncio.sleep(0)

    # -- time ------------------------------------------------------------------------------------------------------

    def _real(self, virtual_s: float) -> float:
        return self._epoch + virtual_s / self._speed

    def _virtual(self, real_s: float) -> float:
        return (real_s - self._epoch) * self._speed

    def _tick(self) -> None:
        self._catch_up(self._virtual(_now()))
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            next_s = self._engine.next_s
            self._timer.set(None if next_s is None else self._real(next_s))

    def _catch_up(self, virtual_s: float) -> None:
        """Completes every step that is due and writes its tokens, all streams of a step in one pass."""
        while self._engine.next_s is not None and self._engine.next_s <= virtual_s:
            self._deliver(self._engine.complete_step())

    # -- tokens out ------------------------------------------------------------------------------------------------

    def _deliver(self, step: Step) -> None:
        planned_s = self._real(step.end_s)
        for sequences in (step.first, step.decoded, step.resumed):
            for sequence in sequences:
                answer: Answer = sequence.owner
                if not answer.token(sequence, planned_s):
                    self._engine.cancel(sequence)
                    self._forget(answer, "error")
        self._count(step)
        for sequence in step.finished:
            if self._open.get(sequence.owner) is sequence:
                self._forget(sequence.owner, sequence.owner.reply.engine_reason)

    def _count(self, step: Step) -> None:
        self._book.note(step, self._speed)
        if self._log is not None:
            self._log.note(step, self.settings.caches_prefixes)
        for sequence in step.first:
            started_s = sequence.started_s if sequence.started_s is not None else step.start_s
            row: Row = sequence.owner.row
            row.cached_tokens = sequence.cached_tokens
            row.queue_wait_s = (started_s - sequence.arrival_s) / self._speed

    def _forget(self, answer: Answer, reason: str) -> None:
        del self._open[answer]
        self._book.finished[reason] += 1

    # -- connections -----------------------------------------------------------------------------------------------

    def _accept(self, connection: Connection) -> None:
        self._connections.add(connection)
        fault = self._faults.for_connection(len(self._open) + 1)
        if fault is not None:
            row = self.truth.add(_now())
            row.finished_s, row.ended = row.arrival_s, fault.kind
            connection.close()

    def _gone(self, connection: Connection) -> None:
        self._connections.discard(connection)
        answer = connection.answer
        if isinstance(answer, Answer) and answer in self._open:
            self._engine.cancel(self._open.pop(answer))
            answer.end("client-left")
            self._arm()

    # -- requests in -----------------------------------------------------------------------------------------------

    def _handle(self, connection: Connection, request: Request) -> None:
        arrival_s = _now()
        try:
            self._route(connection, request, arrival_s)
        except ApiError as error:
            connection.respond(error.status, error.body(), JSON)

    def _route(self, connection: Connection, request: Request, arrival_s: float) -> None:
        path = request.path
        if path.startswith("/v1/") and not self._authorised(request):
            connection.respond(401, b'{"error":"Unauthorized"}', JSON)
        elif path in _POST and request.method == "POST":
            self._generate(connection, request, _POST[path], arrival_s)
        else:
            self._pages.answer(connection, request, other=tuple(_POST))

    def _authorised(self, request: Request) -> bool:
        given = request.headers.get("authorization", "").encode("latin-1")
        return self._key is None or hmac.compare_digest(given, self._key)

    # -- generation ------------------------------------------------------------------------------------------------

    def _generate(self, connection: Connection, request: Request, kind: Api, arrival_s: float) -> None:
        row = self.truth.add(arrival_s)
        row.client_id = request.headers.get("x-request-id")
        try:
            draft = api.read_draft(kind, request.body, self.settings)
        except ApiError as error:
            self._reject(connection, row, error)
            return
        self._processor.read(draft.urls, lambda pictures: self._begin(connection, draft, pictures, row))

    def _reject(self, connection: Connection, row: Row, error: ApiError) -> None:
        row.finished_s, row.ended, row.http_status = _now(), "rejected", error.status
        connection.respond(error.status, error.body(), JSON)

    def _begin(self, connection: Connection, draft: Draft, pictures: list[Picture] | ApiError, row: Row) -> None:
        """Goes on with a request whose pictures have been read."""
        if not connection.open:
            row.finished_s, row.ended = _now(), "client-left"
            return
        try:
            if isinstance(pictures, ApiError):
                raise pictures
            ask = api.make_ask(draft, pictures, self.settings)
        except ApiError as error:
            self._reject(connection, row, error)
            return
        if pictures:
            self._processor.look_up(pictures, row)
        fault = self._faults.for_request(len(self._open) + 1)
        if fault is not None and fault.kind in (Kind.HTTP_429, Kind.HTTP_503):
            self._turn_away(connection, fault, row)
        else:
            self._submit(connection, ask, fault, row)

    def _turn_away(self, connection: Connection, fault: Fault, row: Row) -> None:
        status = int(fault.kind)
        error = ApiError(status, "The simulated server takes no more requests now.", "ServiceUnavailableError")
        connection.respond(status, error.body(), JSON, {"retry-after": str(fault.retry_after_s)})
        row.finished_s, row.ended, row.http_status = _now(), fault.kind, status

    def _submit(self, connection: Connection, ask: Ask, fault: Fault | None, row: Row) -> None:
        reply = self._replies.reply(ask)
        prefix = "chatcmpl" if ask.api == "chat" else "cmpl"
        row.id = f"{prefix}-{row.client_id or f'{self._run_id}{next(self._ids):08x}'}"
        row.prompt_tokens = len(ask.prompt)
        self.truth.expect_tokens(row, len(reply.tokens))
        answer: Answer
        if ask.stream:
            created = int(time.time())
            chunks = Chunks(ask.api, row.id, self.settings.model, created, len(ask.prompt), ask.running_usage)
            answer = StreamedAnswer(connection, ask, reply, row, fault, self.settings, chunks)
        else:
            answer = WholeAnswer(connection, ask, reply, row, fault, self.settings, int(time.time()))
        sequence = Sequence(ask.prompt, reply.tokens, answer, ask.salt, ask.images)
        connection.answer = answer
        self._open[answer] = sequence
        answer.accepted()
        at_s = self._virtual(row.arrival_s if row.decoding_s is None else _now())
        self._catch_up(at_s)
        self._engine.submit(sequence, at_s)
        self._arm()
