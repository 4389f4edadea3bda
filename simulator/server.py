"""The simulated inference server: the step loop of ``engine`` behind HTTP, in real time."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import time
import uuid
from urllib.parse import parse_qs

from simulator import api
from simulator.answering import JSON, Answer, StreamedAnswer, WholeAnswer
from simulator.api import Ask
from simulator.api_error import ApiError
from simulator.chunks import Api, Chunks
from simulator.engine import Engine, Sequence, Step
from simulator.faults import Fault, FaultPlan, Kind
from simulator.metrics_text import Book
from simulator.replies import Replies
from simulator.settings import Settings
from simulator.timer import DeadlineTimer
from simulator.truth import PAGE_ROWS, Row, Truth
from simulator.wire import Connection, Request

_TEXT = "text/plain; version=1.0.0; charset=utf-8"
_POST: dict[str, Api] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
_GET = ("/v1/models", "/health", "/metrics", "/truth", "/version")
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
    ) -> None:
        self.settings = settings
        self.truth = Truth(every_token)
        self._engine = Engine(settings.engine(), seed)
        self._replies = Replies(settings, seed)
        self._faults = FaultPlan(settings.faults, seed)
        self._book = Book(settings.model)
        self._key = f"Bearer {api_key}".encode() if api_key else None
        self._speed = speed
        self._epoch = _now()
        self._created = int(time.time())
        self._ids = itertools.count(1)
        self._run_id = uuid.uuid4().hex[:8]
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
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Ends every connection and stops listening."""
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
        book = self._book
        speed = self._speed
        book.generation_tokens += len(step.first) + len(step.decoded) + len(step.resumed) + step.accepted
        if step.decoded:
            book.between_tokens.observe((step.end_s - step.start_s) / speed, len(step.decoded))
        for gap_s in step.resumed_gaps_s:
            book.between_tokens.observe(gap_s / speed)
        for sequence in step.first:
            started_s = sequence.started_s if sequence.started_s is not None else step.start_s
            book.prompt_tokens += len(sequence.prompt)
            book.first_token.observe((step.end_s - sequence.arrival_s) / speed)
            book.queue.observe((started_s - sequence.arrival_s) / speed)
            row: Row = sequence.owner.row
            row.cached_tokens = sequence.cached_tokens
            row.queue_wait_s = (started_s - sequence.arrival_s) / speed
        for sequence in step.finished:
            book.whole_request.observe((step.end_s - sequence.arrival_s) / speed)

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
        elif path in ("/tokenize", "/detokenize") and request.method == "POST":
            convert = api.tokenize if path == "/tokenize" else api.detokenize
            connection.respond(200, convert(request.body, self.settings), JSON)
        elif path in _GET and request.method == "GET":
            self._get(connection, request)
        elif path in (*_POST, *_GET, "/tokenize", "/detokenize"):
            connection.respond(405, b'{"detail":"Method Not Allowed"}', JSON)
        else:
            connection.respond(404, b'{"detail":"Not Found"}', JSON)

    def _authorised(self, request: Request) -> bool:
        given = request.headers.get("authorization", "").encode("latin-1")
        return self._key is None or hmac.compare_digest(given, self._key)

    def _get(self, connection: Connection, request: Request) -> None:
        match request.path:
            case "/v1/models":
                connection.respond(200, api.models(self.settings, self._created), JSON)
            case "/metrics" if not self.settings.metrics:
                connection.respond(404, b'{"detail":"Not Found"}', JSON)
            case "/metrics":
                connection.respond(200, self._metrics(), _TEXT)
            case "/truth":
                connection.respond(200, self._truth_page(request.query), JSON)
            case "/version":
                connection.respond(200, b'{"version":"tokenswarm-simulator"}', JSON)
            case _:
                connection.respond(200, b"", _TEXT)

    def _truth_page(self, query: str) -> bytes:
        options = {key: values[-1] for key, values in parse_qs(query).items()}
        since, limit = options.get("since", "0"), options.get("limit", str(PAGE_ROWS))
        if not (since.isdecimal() and limit.isdecimal()):
            raise ApiError(400, "since and limit are whole numbers")
        return self.truth.page(int(since), int(limit), self._speed)

    def _metrics(self) -> bytes:
        engine = self._engine
        gauges = {
            "num_requests_running": float(len(engine.running)),
            "num_requests_waiting": float(len(engine.waiting)),
            "kv_cache_usage_perc": engine.pool.usage,
        }
        counters = {
            "prefix_cache_queries": engine.prefix_queries,
            "prefix_cache_hits": engine.prefix_hits,
            "num_preemptions": engine.preemptions,
        }
        cache: dict[str, object] = {
            "block_size": self.settings.block_size,
            "num_gpu_blocks": self.settings.kv_blocks,
            "enable_prefix_caching": self.settings.caches_prefixes,
            "kv_cache_size_tokens": self.settings.kv_blocks * self.settings.block_size,
        }
        return self._book.text(gauges, counters, cache, engine.drafts)

    # -- generation ------------------------------------------------------------------------------------------------

    def _generate(self, connection: Connection, request: Request, kind: Api, arrival_s: float) -> None:
        row = self.truth.add(arrival_s)
        row.client_id = request.headers.get("x-request-id")
        try:
            ask = api.parse_ask(kind, request.body, self.settings)
            fault = self._faults.for_request(len(self._open) + 1)
            if fault is not None and fault.kind in (Kind.HTTP_429, Kind.HTTP_503):
                self._turn_away(connection, fault, row)
                return
        except ApiError as error:
            row.finished_s, row.ended, row.http_status = _now(), "rejected", error.status
            raise
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
        sequence = Sequence(ask.prompt, reply.tokens, answer, ask.salt)
        connection.answer = answer
        self._open[answer] = sequence
        answer.accepted()
        at_s = self._virtual(row.arrival_s)
        self._catch_up(at_s)
        self._engine.submit(sequence, at_s)
        self._arm()
