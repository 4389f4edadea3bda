"""How the tokens of one request reach its client: as a stream or as one body, and every way in which that can fail."""

from __future__ import annotations

import time
from array import array

from simulator.api import ApiError, Ask
from simulator.chunks import DONE, END_OF_STREAM, Chunks, error_event, text_of, usage_of, whole_answer
from simulator.engine import Sequence
from simulator.faults import Fault, Kind
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

    def __init__(self, connection: Connection, ask: Ask, finish_reason: str, row: Row, fault: Fault | None) -> None:
        self.connection = connection
        self.ask = ask
        self.finish_reason = finish_reason
        self.row = row
        self.fault = fault

    def accepted(self) -> None:
        """The request is in the engine's queue."""

    def token(self, sequence: Sequence, planned_s: float) -> bool:
        """The last ``sequence.gained`` tokens are new; they were planned for ``planned_s``."""
        raise NotImplementedError

    def told_cached(self, sequence: Sequence) -> int | None:
        """``cached_tokens`` of the usage object, ``None`` where this server does not tell."""
        return sequence.cached_tokens if self.ask.cached_usage else None

    def note_written(self, tokens: int, planned_s: float) -> None:
        """Stamps ``tokens`` tokens as written now."""
        row = self.row
        now = _now()
        if row.first_token_s is None:
            row.first_token_s = now
            row.planned_first_token_s = planned_s
        row.last_token_s = now
        row.planned_last_token_s = planned_s
        row.output_tokens += tokens
        row.chunks += 1
        late = now - planned_s
        if late > row.max_late_s:
            row.max_late_s = late
        if self.connection.buffered:
            row.buffered = True
        if row.token_s is not None:
            row.token_s.extend(array("d", [now]) * tokens)

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
        finish_reason: str,
        row: Row,
        fault: Fault | None,
        settings: Settings,
        chunks: Chunks,
    ) -> None:
        super().__init__(connection, ask, finish_reason, row, fault)
        self._chunks = chunks
        self._per_chunk = settings.tokens_per_chunk
        self._role = settings.role_chunk if ask.api == "chat" else "none"
        self._held: list[int] = []
        self._fails_at = fault.after_tokens if fault is not None else -1

    def accepted(self) -> None:
        """Headers go out at once, before any token exists, as they do in vLLM."""
        head = self.connection.head(200, _STREAM_HEADERS)
        if self._role == "at-acceptance":
            self.connection.write(head + self._chunks.role())
            self.row.role_s = _now()
        else:
            self.connection.write(head)

    def token(self, sequence: Sequence, planned_s: float) -> bool:
        count = sequence.generated
        plain = self._per_chunk == 1 and not self.ask.running_usage and self.fault is None
        if plain and sequence.gained == 1 and 1 < count < len(sequence.answer):
            self.connection.write(self._chunks.one(sequence.answer[count - 1]))
            self.note_written(1, planned_s)
            return True
        if self.fault is not None and (count > self._fails_at or count == len(sequence.answer)):
            self._fail(self.fault)
            return False
        self._held += sequence.answer[count - sequence.gained : count]
        last = count == len(sequence.answer)
        if count == 1 or last or len(self._held) >= self._per_chunk:
            self._write_held(sequence, last, planned_s)
        return True

    def _write_held(self, sequence: Sequence, last: bool, planned_s: float) -> None:
        held, self._held = self._held, []
        with_role = sequence.generated == 1 and self._role == "with-first-token"
        data = self._chunks.role() if with_role else b""
        data += self._chunks.some(held, sequence.generated, self.finish_reason if last else None)
        if last:
            if self.ask.usage:
                data += self._chunks.usage(sequence.generated, self.told_cached(sequence))
            data += DONE + END_OF_STREAM
        begun_s = _now()
        self.connection.write(data)
        self.note_written(len(held), planned_s)
        if sequence.generated == len(held):
            self.row.first_token_begun_s = begun_s
        if with_role:
            self.row.role_s = self.row.first_token_s
        if last:
            self.row.last_token_begun_s = begun_s
            self.end(self.finish_reason)
            self.connection.finish()

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
        finish_reason: str,
        row: Row,
        fault: Fault | None,
        settings: Settings,
        created: int,
    ) -> None:
        super().__init__(connection, ask, finish_reason, row, fault)
        self._model = settings.model
        self._created = created

    def token(self, sequence: Sequence, planned_s: float) -> bool:
        if sequence.generated < len(sequence.answer):
            return True
        tokens = list(sequence.answer)
        usage = usage_of(len(sequence.prompt), len(tokens), self.told_cached(sequence)) if self.ask.usage else None
        text = text_of(tokens, at_start=True).decode()
        body = whole_answer(
            self.ask.api, self.row.id or "", self._model, self._created, text, self.finish_reason, usage
        )
        if self.fault is not None:
            self._fail(self.fault, body)
            return False
        self.row.first_token_begun_s = self.row.last_token_begun_s = _now()
        self.connection.respond(200, body, JSON)
        self.note_written(len(tokens), planned_s)
        self.end(self.finish_reason)
        return True

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
