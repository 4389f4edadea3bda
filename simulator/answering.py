"""How the tokens of one request reach its client: as a stream or as one body, and every way in which that can fail."""

from __future__ import annotations

import time
from array import array
from typing import Any

from simulator.api import Ask
from simulator.api_error import ApiError
from simulator.chunks import DONE, END_OF_STREAM, Chunks, error_event, usage_of, whole_answer
from simulator.engine import Sequence
from simulator.faults import Fault, Kind
from simulator.reply import Reply
from simulator.settings import Settings
from simulator.truth import Row
from simulator.wire import Connection

JSON = "application/json"
_STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
_now = time.perf_counter


class Answer:
    """One request on its way. ``token`` is called at the end of each step that gave it one or, with draft tokens,
    several; it returns False once the engine need not go on, because a failure was due.
    """

    def __init__(self, connection: Connection, ask: Ask, reply: Reply, row: Row, fault: Fault | None) -> None:
        self.connection = connection
        self.ask = ask
        self.reply = reply
        self.row = row
        self.fault = fault

    def accepted(self) -> None:
        """The request is in the engine's queue."""

    def token(self, sequence: Sequence, planned_s: float) -> bool:
        """The last ``sequence.gained`` tokens are new; they were planned for ``planned_s``."""
        raise NotImplementedError

    def prompt_details(self, sequence: Sequence) -> dict[str, Any] | None:
        """``prompt_tokens_details`` of the usage object, ``None`` where this server does not tell."""
        if not self.ask.cached_usage:
            return None
        details: dict[str, Any] = {"cached_tokens": sequence.cached_tokens}
        if self.ask.images:
            details["multimodal_tokens"] = {"image": sum(image.stop - image.start for image in self.ask.images)}
        return details

    def note_written(self, tokens: int, planned_s: float, *, visible: bool = True) -> None:
        """Stamps ``tokens`` tokens as written now; not ``visible``: in a chunk that carries nothing of them."""
        row = self.row
        now = _now()
        row.output_tokens += tokens
        if row.token_s is not None:
            row.token_s.extend(array("d", [now]) * tokens)
        if not visible:
            return
        if row.first_token_s is None:
            row.first_token_s = now
            row.planned_first_token_s = planned_s
        row.last_token_s = now
        row.planned_last_token_s = planned_s
        row.chunks += 1
        late = now - planned_s
        if late > row.max_late_s:
            row.max_late_s = late
        if self.connection.buffered:
            row.buffered = True

    def complete(self) -> None:
        """Closes the row of an answer that came to its end."""
        calls = self.reply.calls
        self.row.reasoning_tokens = self.reply.reasoning_tokens
        self.row.tool_calls = len(calls)
        self.row.malformed_calls = sum(not call.complete for call in calls)
        self.end(self.reply.finish_reason)

    def end(self, how: str, http_status: int = 200) -> None:
        """Closes the row."""
        self.row.finished_s = _now()
        self.row.ended = how
        self.row.http_status = http_status


class StreamedAnswer(Answer):
    """Server-sent events."""

    def __init__(
        self,
        connection: Connection,
        ask: Ask,
        reply: Reply,
        row: Row,
        fault: Fault | None,
        settings: Settings,
        chunks: Chunks,
    ) -> None:
        super().__init__(connection, ask, reply, row, fault)
        self._chunks = chunks
        self._per_chunk = settings.tokens_per_chunk
        self._role = settings.role_chunk if ask.api == "chat" else "none"
        self._begun_s: float | None = None  # when the last write that showed any of them began
        self._sent = 0  # tokens that have been written, or passed over in silence before ones that have
        plain = self._per_chunk == 1 and not ask.running_usage and fault is None
        self._plain_from = reply.plain_from if plain else len(reply.tokens)
        self._fails_at = fault.after_tokens if fault is not None else -1

    def accepted(self) -> None:
        """Headers go out at once, before any token exists, as they do in vLLM."""
        head = self.connection.head(200, _STREAM_HEADERS)
        if self._role == "at-acceptance":
            self.connection.write(head + self._chunks.role(self.reply.reasoning_among(0)))
            self.row.role_s = _now()
        else:
            self.connection.write(head)

    def token(self, sequence: Sequence, planned_s: float) -> bool:
        count = sequence.generated
        if sequence.gained == 1 and self._plain_from < count < len(sequence.answer):
            self.connection.write(self._chunks.one(sequence.answer[count - 1]))
            self._sent = count
            self.note_written(1, planned_s)
            return True
        last = count == len(sequence.answer)
        if self.fault is not None and (count > self._fails_at or last):
            self._fail(self.fault)
            return False
        if count == 1 or last or count - self._sent >= self._per_chunk:
            self._write(sequence, last, planned_s)
        return True

    def _write(self, sequence: Sequence, last: bool, planned_s: float) -> None:
        """Writes what has not been sent yet, unless nobody is to see it: it is then passed over until more comes."""
        count, sent = sequence.generated, self._sent
        with_role = count == 1 and self._role == "with-first-token"
        delta = self.reply.delta(sent, count)
        data = self._chunks.role(self.reply.reasoning_among(0)) if with_role else b""
        if delta or last:
            reasoning, reason = self.reply.reasoning_among(count), self.reply.finish_reason if last else None
            data += self._chunks.some(delta, count, reasoning, reason)
            self._sent = count
        if last:
            data += self._usage(sequence) + DONE + END_OF_STREAM
        if data:
            begun_s = _now()
            self.connection.write(data)
            if with_role:
                self.row.role_s = _now()
            if delta:
                self._note_begun(begun_s)
            self.note_written(self._sent - sent, planned_s, visible=bool(delta))
        if last:
            self.row.last_token_begun_s = self._begun_s
            self.complete()
            self.connection.finish()

    def _note_begun(self, begun_s: float) -> None:
        self._begun_s = begun_s
        if self.row.first_token_begun_s is None:
            self.row.first_token_begun_s = begun_s

    def _usage(self, sequence: Sequence) -> bytes:
        if not self.ask.usage:
            return b""
        reasoning = self.reply.reasoning_among(sequence.generated)
        return self._chunks.usage(sequence.generated, self.prompt_details(sequence), reasoning)

    def _fail(self, fault: Fault) -> None:
        self.end(fault.kind)
        match fault.kind:
            case Kind.ERROR_IN_STREAM:
                event = error_event("The simulated engine failed on purpose.", "InternalServerError", 500)
                self.connection.write(event + DONE + END_OF_STREAM)
                self.connection.finish()
            case Kind.RESET:
                self.connection.reset()
            case Kind.TRUNCATE:
                self.connection.close()
            case _:  # a stall: say nothing more and wait for the client to leave
                pass


class WholeAnswer(Answer):
    """One JSON body at the end."""

    def __init__(
        self,
        connection: Connection,
        ask: Ask,
        reply: Reply,
        row: Row,
        fault: Fault | None,
        settings: Settings,
        created: int,
    ) -> None:
        super().__init__(connection, ask, reply, row, fault)
        self._model = settings.model
        self._created = created

    def token(self, sequence: Sequence, planned_s: float) -> bool:
        if sequence.generated < len(sequence.answer):
            return True
        tokens = len(sequence.answer)
        body = self._body(
            usage_of(len(sequence.prompt), tokens, self.prompt_details(sequence), self.reply.reasoning_tokens)
        )
        if self.fault is not None:
            self._fail(self.fault, body)
            return False
        self.row.first_token_begun_s = self.row.last_token_begun_s = _now()
        self.connection.respond(200, body, JSON)
        self.note_written(tokens, planned_s)
        self.complete()
        return True

    def _body(self, usage: dict[str, Any]) -> bytes:
        message = self.reply.message(forced=self.ask.choice.how in ("named", "required"))
        told = usage if self.ask.usage else None
        name, reason = self.row.id or "", self.reply.finish_reason
        return whole_answer(self.ask.api, name, self._model, self._created, message, reason, told)

    def _fail(self, fault: Fault, body: bytes) -> None:
        self.end(fault.kind)
        match fault.kind:
            case Kind.ERROR_IN_STREAM:
                error = ApiError(500, "The simulated engine failed on purpose.", "InternalServerError")
                self.row.http_status = 500
                self.connection.respond(500, error.body(), JSON)
            case Kind.RESET:
                self.connection.reset()
            case Kind.TRUNCATE:
                head = self.connection.head(200, {"content-type": JSON, "content-length": str(len(body))})
                self.connection.write(head + body[: len(body) // 2])
                self.connection.close()
            case _:
                pass
