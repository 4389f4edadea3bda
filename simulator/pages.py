"""Everything the server answers that needs no generation: models, counts of tokens, metrics, the truth, resets."""

from __future__ import annotations

import time
from urllib.parse import parse_qs

from simulator import api
from simulator.api import Tokenize
from simulator.api_error import ApiError
from simulator.engine import Engine
from simulator.engine_log import EngineLog
from simulator.metrics_text import Book
from simulator.picture import Picture
from simulator.processor import Processor
from simulator.settings import Settings
from simulator.truth import PAGE_ROWS, Truth
from simulator.wire import Connection, Request

_JSON = "application/json"
_TEXT = "text/plain; version=1.0.0; charset=utf-8"
_POST = ("/tokenize", "/detokenize", "/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")
_GET = ("/v1/models", "/health", "/metrics", "/truth", "/version")


class Pages:
    """Of one server; the objects given are its own."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        processor: Processor,
        book: Book,
        truth: Truth,
        log: EngineLog | None,
        speed: float,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._processor = processor
        self._book = book
        self._truth = truth
        self._log = log
        self._speed = speed
        self._created = int(time.time())

    def answer(self, connection: Connection, request: Request, other: tuple[str, ...]) -> None:
        """Responds, or raises ``ApiError``. ``other`` are paths that exist elsewhere, for other methods."""
        path, method = request.path, request.method
        if path in _POST and method == "POST":
            self._call(connection, request)
        elif path in _GET and method == "GET":
            self._get(connection, request)
        elif path in (*_POST, *_GET, *other):
            connection.respond(405, b'{"detail":"Method Not Allowed"}', _JSON)
        else:
            connection.respond(404, b'{"detail":"Not Found"}', _JSON)

    def _get(self, connection: Connection, request: Request) -> None:
        match request.path:
            case "/v1/models":
                connection.respond(200, api.models(self._settings, self._created), _JSON)
            case "/metrics" if not self._settings.metrics:
                connection.respond(404, b'{"detail":"Not Found"}', _JSON)
            case "/metrics":
                page = self._book.text(self._engine, self._processor.cache, self._settings)
                connection.respond(200, page, _TEXT)
            case "/truth":
                connection.respond(200, self._truth_page(request.query), _JSON)
            case "/version":
                connection.respond(200, b'{"version":"tokenswarm-simulator"}', _JSON)
            case _:
                connection.respond(200, b"", _TEXT)

    def _truth_page(self, query: str) -> bytes:
        options = {key: values[-1] for key, values in parse_qs(query).items()}
        since, limit = options.get("since", "0"), options.get("limit", str(PAGE_ROWS))
        if not (since.isdecimal() and limit.isdecimal()):
            raise ApiError(400, "since and limit are whole numbers")
        return self._truth.page(int(since), int(limit), self._speed)

    def _call(self, connection: Connection, request: Request) -> None:
        match request.path:
            case "/tokenize":
                asked, urls = api.read_tokenize(request.body, self._settings)
                self._processor.read(urls, lambda pictures: self._tokenize(connection, asked, pictures))
            case "/detokenize":
                connection.respond(200, api.detokenize(request.body, self._settings), _JSON)
            case "/reset_prefix_cache":
                done = self._engine.pool.forget()
                if done and self._log is not None:
                    self._log.prefix.clear()
                connection.respond(200, b'{"success":true}' if done else b'{"success":false}', _JSON)
            case "/reset_mm_cache":
                self._processor.clear()
                connection.respond(200, b"", _TEXT)
            case _:
                self._engine.encoder.clear()
                connection.respond(200, b"", _TEXT)

    def _tokenize(self, connection: Connection, asked: Tokenize, pictures: list[Picture] | ApiError) -> None:
        try:
            if isinstance(pictures, ApiError):
                raise pictures
            connection.respond(200, api.tokenize(asked, pictures, self._settings), _JSON)
        except ApiError as error:
            connection.respond(error.status, error.body(), _JSON)
