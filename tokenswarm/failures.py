"""Why a request failed: exceptions, statuses and incomplete answers, as one of the closed list of kinds and a text."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import ssl
from email.utils import parsedate_to_datetime

from geventhttpclient._parser import HTTPParseError

from tokenswarm.clocks import wall_s
from tokenswarm.connection import LimitPassed
from tokenswarm.errors import ErrorKind
from tokenswarm.protocols import AnswerDecoder, error_text
from tokenswarm.reception import CutShort, Reception, UndecodableBody

Failure = tuple[ErrorKind, str]

_SAMPLE = 300  # characters of an error text that are kept
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOMEM, errno.ENOBUFS}
_SECRET_HEADERS = ("authorization", "api-key", "x-api-key", "proxy-authorization")
_GROUPS = {
    ErrorKind.HTTP_3XX: "redirect",
    ErrorKind.HTTP_401: "key not accepted",
    ErrorKind.HTTP_429: "too many requests",
    ErrorKind.HTTP_4XX: "",
    ErrorKind.HTTP_5XX: "",
}


def error_group(kind: str, status: int | None = None) -> str:
    """A text that is the same for all errors of one sort: the kind and, for HTTP errors, the status; nothing else."""
    words = _GROUPS.get(ErrorKind(kind))
    if words is None:
        return kind.replace("_", " ")
    return f"HTTP {status or kind.removeprefix('http_')} {words}".strip()


def secrets_of(headers: dict[str, str]) -> list[str]:
    """Keys inside the headers, longest first."""
    values = [value for name, value in headers.items() if name.lower() in _SECRET_HEADERS]
    keys = {value.split(" ", 1)[-1].strip() for value in values}
    return sorted((key for key in keys if len(key) >= 4), key=len, reverse=True)


def sample(text: str, secrets: list[str]) -> str:
    """One short line of an error text, without keys."""
    for secret in secrets:
        text = text.replace(secret, "***")
    text = " ".join(text.split())
    return text if len(text) <= _SAMPLE else text[: _SAMPLE - 1] + "…"


def connect_failure(error: BaseException) -> Failure:
    """Of opening a connection."""
    if not isinstance(error, Exception):
        return ErrorKind.CANCELLED, "cut by the end of the run, before it was sent"
    return _connect_kind(error), str(error) or type(error).__name__


def _connect_kind(error: BaseException) -> ErrorKind:
    if _is_client_limit(error):
        return ErrorKind.CLIENT_LIMIT
    match error:
        case socket.gaierror():
            return ErrorKind.DNS
        case ssl.SSLError():
            return ErrorKind.TLS
        case TimeoutError():
            return ErrorKind.CONNECT_TIMEOUT
        case ConnectionRefusedError():
            return ErrorKind.REFUSED
        case OSError():
            return ErrorKind.CONNECT
    return _own_kind(error)


def stream_failure(error: BaseException, reception: Reception, reused: bool) -> Failure:
    """Of an exchange that did not end with a complete response."""
    text = str(error) or type(error).__name__
    if isinstance(error, LimitPassed):
        return error.kind, text
    if _is_client_limit(error):
        return ErrorKind.CLIENT_LIMIT, text
    if isinstance(error, UndecodableBody) and (failure := status_failure(reception)):
        return failure  # the status says enough
    if isinstance(error, CutShort | OSError) and not reception.begun:
        kind = ErrorKind.STALE_CONNECTION if reused else ErrorKind.RESET
        return kind, "connection closed before any byte of the answer"
    match error:
        case CutShort():
            return ErrorKind.TRUNCATED, text
        case OSError():
            return ErrorKind.RESET, text
        case HTTPParseError() | UndecodableBody():
            return ErrorKind.MALFORMED, text
    return _own_kind(error), text if isinstance(error, Exception) else "cut by the end of the run"


def _own_kind(error: BaseException) -> ErrorKind:
    return ErrorKind.CLIENT if isinstance(error, Exception) else ErrorKind.CANCELLED


def _is_client_limit(error: BaseException) -> bool:
    """Name resolution reports a full table of descriptors as an unknown host."""
    if isinstance(error, socket.gaierror):
        return _no_descriptor_left()
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _OUT_OF_RESOURCES)


def _no_descriptor_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _OUT_OF_RESOURCES
    return False


def status_failure(reception: Reception) -> Failure | None:
    """Of a complete response whose status is not 200."""
    status = reception.status
    if status == 200:
        return None
    kind = _STATUS_KINDS.get(status) or _CLASS_KINDS.get(status // 100, ErrorKind.NON_STREAM)
    if kind is ErrorKind.HTTP_3XX:
        return kind, f"HTTP {status}: redirect to {reception.headers.get('location', 'nowhere')}"
    return kind, f"HTTP {status}: {body_text(reception.body)}"


_STATUS_KINDS = {401: ErrorKind.HTTP_401, 403: ErrorKind.HTTP_401, 429: ErrorKind.HTTP_429}
_CLASS_KINDS = {3: ErrorKind.HTTP_3XX, 4: ErrorKind.HTTP_4XX, 5: ErrorKind.HTTP_5XX}


def answer_failure(answer: AnswerDecoder, body: bytes) -> Failure | None:
    """Of a complete 200 response; ``body`` is what came instead of an event stream."""
    if answer.error is not None or answer.finish_reason == "error":
        return ErrorKind.STREAM_ERROR, f"{answer.error_type or 'error'}: {answer.error or 'finish_reason is error'}"
    if answer.malformed is not None:
        return ErrorKind.MALFORMED, f"an event is no JSON object: {answer.malformed}"
    if answer.events == 0 and not answer.done and body:
        return ErrorKind.NON_STREAM, f"no event stream: {body_text(body)}"
    if not answer.complete:
        return ErrorKind.TRUNCATED, "the stream ended without finish_reason and [DONE]"
    if not answer.token_times:
        return ErrorKind.EMPTY, "the answer has no text, no reasoning and no tool call"
    return None


def body_text(body: bytes) -> str:
    """What an error body says: JSON's message, HTML without its tags, else the text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return error_text(json.loads(text))
    except ValueError:
        return re.sub(r"<[^>]*>", " ", text).strip() if text[:1] == "<" else text or "empty body"


def retry_after_s(value: str) -> float | None:
    """Seconds from now; the header has seconds or an HTTP date."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - wall_s())
    except (TypeError, ValueError):
        return None
