"""Opens connections to one server: name resolution, all its addresses in turn, TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import gevent
import gevent.ssl
from geventhttpclient.connectionpool import ConnectionPool, SSLConnectionPool

from tokenswarm.connection import HAS_KERNEL_CLOCK, Clock, Connection, Timeouts
from tokenswarm.endpoint import Endpoint


class Tls(Protocol):
    """``ca_file`` is trusted instead of the system's certificates; without ``verify`` everything is."""

    @property
    def verify(self) -> bool: ...
    @property
    def ca_file(self) -> Any: ...


class Dialer:
    """For one server. ``clock`` forces the watcher's time where kernel stamps would be used."""

    def __init__(self, endpoint: Endpoint, limits: Timeouts, tls: Tls, clock: Clock | None = None) -> None:
        self._limits = limits
        plain = endpoint.scheme == "http"
        self._clock: Clock = "kernel" if HAS_KERNEL_CLOCK and plain and clock != "watcher" else "watcher"
        address = (endpoint.host, endpoint.port, endpoint.host, endpoint.port)
        options = {"size": 1, "connection_timeout": limits.connect_s, "network_timeout": None}
        self._pool = (
            ConnectionPool(*address, **options)
            if plain
            else SSLConnectionPool(
                *address,
                insecure=not tls.verify,
                ssl_context_factory=_context_factory(tls.verify, str(tls.ca_file or "")),
                **options,
            )
        )

    def open(self) -> Connection:
        """Raises the ``OSError`` of the first address that failed; ``TimeoutError`` beyond ``connect_s``."""
        with gevent.Timeout(self._limits.connect_s, TimeoutError("connect timed out")):
            sock = self._pool._create_socket()
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return Connection(sock, self._limits, self._clock)
        except BaseException:
            sock.close()
            raise


@cache
def _context_factory(verify: bool, ca_file: str) -> Callable[..., Any]:
    """Certificates are read once for all connections: it takes tens of milliseconds."""
    made: list[Any] = []

    def factory(cafile: str | None = None) -> Any:
        if not made:
            context = gevent.ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cafile=ca_file or cafile)
            if not verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols(["http/1.1"])
            made.append(context)
        return made[0]

    return factory
