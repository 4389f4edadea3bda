"""What can go wrong, in two kinds that never mix.

A *request* that fails is data: it becomes a row whose ``error_kind`` is one of :class:`ErrorKind`.
A *user's mistake* or an unusable target is an exception, told in one line before any load starts::

    TokenswarmError
    ├── InputError            a file, option or value is wrong            exit code 2
    │   └── ScenarioError     one or more mistakes in a scenario file     exit code 2
    ├── TargetError           the server cannot be used as asked          exit code 2
    └── RunFolderError        a results folder cannot be read or written  exit code 2
"""

from __future__ import annotations

from enum import StrEnum

BAD_INPUT, NOT_CREDIBLE = 2, 3  # exit codes


class ErrorKind(StrEnum):
    """The closed list of ways in which one request fails."""

    NOT_ADMITTED = "not_admitted"  # open loop: max_users sessions were in flight; nothing was sent
    REFUSED = "refused"  # nobody listens on that port
    DNS = "dns"  # the host name has no address
    TLS = "tls"  # handshake or certificate
    CONNECT = "connect"  # any other failure to open the connection
    CONNECT_TIMEOUT = "connect_timeout"  # the connection was not open within timeouts.connect_s
    HTTP_3XX = "http_3xx"  # a redirect; following it would hide where the time went
    HTTP_401 = "http_401"  # 401 and 403: the key was not accepted
    HTTP_429 = "http_429"  # the server pushes back
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    NON_STREAM = "non_stream"  # 200, but the body is no event stream
    STREAM_ERROR = "stream_error"  # an error object inside a 200 stream
    MALFORMED = "malformed"  # bytes that are neither HTTP nor server-sent events nor JSON
    TRUNCATED = "truncated"  # the body ended without finish_reason and [DONE], or without its last chunk
    EMPTY = "empty"  # a complete answer without a single token event
    RESET = "reset"  # connection reset by the server
    STALE_CONNECTION = "stale_connection"  # a kept-alive connection closed as the request was sent on it
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"  # no byte of the answer within timeouts.first_byte_s
    IDLE_TIMEOUT = "idle_timeout"  # nothing more for timeouts.idle_s inside an answer
    TOTAL_TIMEOUT = "total_timeout"  # longer than timeouts.total_s
    CANCELLED = "cancelled"  # cut by the end of the run: unfinished, not the server's failure
    CLIENT_LIMIT = "client_limit"  # open files, ports or memory ran out in the load generator
    CLIENT = "client"  # any other failure inside the load generator

    @property
    def blames_generator(self) -> bool:
        """True where the failure says nothing about the server."""
        return self in (ErrorKind.CANCELLED, ErrorKind.CLIENT_LIMIT, ErrorKind.CLIENT)


class TokenswarmError(Exception):
    """Root of the tree above; its text is one line for a person."""


class InputError(TokenswarmError):
    """Names the place, the value and what was wanted."""


class ScenarioError(InputError):
    """All mistakes of one scenario file, one line each in ``problems``."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class TargetError(TokenswarmError):
    """Names the URL that was called and the cause."""


class RunFolderError(TokenswarmError):
    """Names the folder or file and what is wrong with it."""
