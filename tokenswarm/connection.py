"""One open socket under gevent: its read watcher, its clock and its time limits.

A greenlet that waits for an answer sleeps until the answer has ended. The bytes are read by a callback of the event
loop, which keeps each read with its stamp and does nothing else: no switch of greenlets, no parsing until the end or
until much has gathered. On plain http under Linux the stamp is the kernel's own receive time, so that it holds
even where this process reads late.
"""

from __future__ import annotations

import itertools
import select
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import Callable
from functools import cache
from time import perf_counter
from typing import Any, Literal, Protocol

import gevent
import gevent.ssl
from gevent import monkey

from tokenswarm.errors import ErrorKind
from tokenswarm.reception import Reception, ResponseParser

Clock = Literal["kernel", "watcher"]

# Linux, every architecture Python wheels exist for. The control message carries a struct timespec of two longs.
SO_TIMESTAMPNS = 35
HAS_KERNEL_CLOCK = sys.platform == "linux" and struct.calcsize("l") == 8

_READ_SIZE = 65536
_BIG_READ = 2048  # bytes: above it reads are worth decoding at once
_BATCH = 32  # reads kept undecoded; with the limit above at most 64 KiB
# After how many reads a request is decoded for the first time: all different, so that streams that began together
# and get their tokens in the same step do not decode in the same step too.
_FIRST_BATCHES = itertools.cycle([11 * i % _BATCH + 1 for i in range(_BATCH)])
_WAKING_S = 0.001  # users go on for so long before the sockets are looked at again: well below a token interval
_LAST_BYTES = b"\r\n\r\n"  # a chunked body always ends in these

_poll = monkey.get_original("select", "poll")
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Timeouts(Protocol):
    """Seconds. ``first_byte_s`` runs from sending to the first byte of the body, ``idle_s`` between any two reads."""

    @property
    def connect_s(self) -> float: ...
    @property
    def first_byte_s(self) -> float: ...
    @property
    def idle_s(self) -> float: ...
    @property
    def total_s(self) -> float: ...


class LimitPassed(Exception):
    """One of the time limits of a request, as the kind of failure that it is."""

    def __init__(self, kind: ErrorKind, limit_s: float) -> None:
        super().__init__(f"{kind.value.replace('_', ' ')} of {limit_s:g} s")
        self.kind = kind


class _Ended(BaseException):
    """Thrown into a greenlet that still writes."""


class Waker:
    """Wakes the greenlets of ended answers for a short while: then the loop reads what has arrived meanwhile.

    Where many streams end in one engine step, the next requests of all of them would else be made in one go, and the
    first tokens of the earliest would merge with their second ones.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._timer = loop.timer(0.0)
        self._ended: deque[Callable[[], None]] = deque()
        self._running = False

    def add(self, wake: Callable[[], None]) -> None:
        """``wake`` is called after the other descriptors that are ready now have been read."""
        self._ended.append(wake)
        if not self._running:
            self._running = True
            self._loop.run_callback(self._run)

    def _run(self) -> None:
        ended, due_s = self._ended, perf_counter() + _WAKING_S
        try:
            while ended:
                ended.popleft()()
                if perf_counter() >= due_s:
                    break
        finally:
            if self._ended:
                self._timer.start(self._run)
            else:
                self._running = False


@cache
def _waker(hub: Any) -> Waker:
    return Waker(hub.loop)


class Connection:
    """For one request at a time. ``alive`` says whether it may serve the next one."""

    __slots__ = (
        "_batch",
        "_eager",
        "_greenlet",
        "_hub",
        "_limits",
        "_marks",
        "_on_readable",
        "_outcome",
        "_poller",
        "_read",
        "_reads",
        "_reception",
        "_sock",
        "_timer",
        "_times",
        "_waker",
        "_watcher",
        "_write",
        "_writing",
        "alive",
        "clock",
        "fresh",
        "parser",
    )

    def __init__(self, sock: Any, limits: Timeouts, clock: Clock) -> None:
        self._sock = sock
        self._limits = limits
        self.clock = clock
        self.parser = ResponseParser()
        self.alive = True
        self.fresh = True  # no request has been sent on it
        self._hub = gevent.get_hub()
        self._waker = _waker(self._hub)
        self._greenlet: Any = None
        self._reception: Reception | None = None
        self._outcome: BaseException | bool = True
        self._eager = True
        self._batch = _BATCH
        self._writing = False  # of a request that does not fit into the socket's buffer
        self._reads: list[bytes] = []
        self._times: list[float] = []
        self._marks: list[bytes | None] = []
        self._timer: Any = None
        self._on_readable = self._setup(sock, clock)
        self._poller = _poll()
        self._poller.register(sock.fileno(), _READABLE)
        self._watcher = self._hub.loop.io(sock.fileno(), 1)
        self._watcher.start(self._on_readable)

    def _setup(self, sock: Any, clock: Clock) -> Callable[[], None]:
        if isinstance(sock, gevent.ssl.SSLSocket):
            self._write, self._read = sock._sslobj.write, sock._sslobj.read
            return self._on_tls_bytes
        raw = sock._sock  # the plain socket under gevent's, which is non-blocking
        self._write = raw.send
        if clock == "kernel":
            raw.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self._read = raw.recvmsg
            return self._on_stamped_bytes
        self._read = raw.recv
        return self._on_bytes

    def exchange(self, request: bytes, reception: Reception) -> None:
        """Writes the request and waits until the answer has ended properly. Raises what ended it otherwise."""
        self._reception = reception
        self._batch = next(_FIRST_BATCHES)
        self._outcome = False
        self._greenlet = gevent.getcurrent()
        if self._timer is None:
            limits = self._limits
            self._arm(min(limits.first_byte_s, limits.idle_s, limits.total_s))
        try:
            reception.begin()
            self._send(request)
            while not self._outcome:
                self._hub.switch()
        finally:
            self._greenlet = self._reception = None
            self._eager = True
            self.fresh = False
            if self._outcome is not True or not reception.reusable:
                self.close()
                self._rescue(reception)
        if self._outcome is not True:
            raise self._outcome

    def is_fit(self) -> bool:
        """Also sees a close by the server that has arrived while no greenlet let the event loop run."""
        if self.alive and self._poller.poll(0):
            self._on_readable()
        return self.alive

    def close(self) -> None:
        """Idempotent; the watcher ends before the descriptor's number can be used again."""
        if not self.alive:
            return
        self.alive = False
        self._watcher.stop()
        self._watcher.close()
        self._stop_timer()
        self._sock.close()

    def _send(self, request: bytes) -> None:
        """A failed write is told by the read side: a server may have answered before it closed."""
        try:
            written = self._write(request)
            if written == len(request):
                return
            rest = memoryview(request)[written:]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            rest = memoryview(request)
        except OSError:
            return
        self._sock.settimeout(self._limits.first_byte_s)
        self._writing = True
        try:
            self._sock.sendall(rest)
        except _Ended:
            return
        except TimeoutError:
            raise LimitPassed(ErrorKind.FIRST_BYTE_TIMEOUT, self._limits.first_byte_s) from None
        except OSError:
            return
        finally:
            self._writing = False

    def _on_stamped_bytes(self) -> None:
        try:
            data, marks, _, _ = self._read(_READ_SIZE, 64)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error)
            return
        self._times.append(perf_counter())
        self._reads.append(data)
        self._marks.append(marks[0][2] if marks else None)
        if self._eager or not 4 <= len(data) <= _BIG_READ or len(self._reads) >= self._batch:
            self._digest()
        elif data[-4:] == _LAST_BYTES:
            self._hub.loop.run_callback(self._digest)  # after the other descriptors that are ready now have been read

    def _on_bytes(self) -> None:
        try:
            data = self._read(_READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error)
            return
        self._times.append(perf_counter())
        self._reads.append(data)
        if self._eager or not 4 <= len(data) <= _BIG_READ or len(self._reads) >= self._batch:
            self._digest()
        elif data[-4:] == _LAST_BYTES:
            self._hub.loop.run_callback(self._digest)  # after the other descriptors that are ready now have been read

    def _on_tls_bytes(self) -> None:
        """Until the TLS layer holds nothing more: it may have decrypted several records of one arrival."""
        try:
            while True:
                self._reads.append(self._read(_READ_SIZE))
                self._times.append(perf_counter())
                if not self._reads[-1]:
                    break
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._reads.append(b"")
            self._times.append(perf_counter())
        except OSError as error:
            self._end(error)
            return
        if self._reads:
            self._digest()

    def _digest(self) -> None:
        """Hands what was read to the parser and the decoder."""
        if not self._reads:
            return
        self._batch = _BATCH
        reads, times, marks = self._reads, self._times, self._marks
        self._reads, self._times, self._marks = [], [], []
        reception = self._reception
        if reception is None:  # closed by the server between two requests, or bytes nobody asked for
            self.close()
            return
        if self._outcome:
            reception.reusable = False
            return
        try:
            complete = reception.add(reads, times, marks)
        except Exception as error:  # noqa: BLE001 - boundary: the event loop would only print it
            self._end(error)
            return
        self._eager = reception.eager
        if complete:
            self._end(True)

    def _rescue(self, reception: Reception) -> None:
        """What had arrived before the exchange was cut is part of its facts."""
        if self._reads:
            try:
                reception.add(self._reads, self._times, self._marks)
            except Exception:  # noqa: BLE001, S110 - boundary: the exchange has failed already, for a reason of its own
                pass

    def _end(self, outcome: BaseException | bool) -> None:
        """Wakes the waiting greenlet after the other descriptors that are ready now have been read."""
        if self._reception is None:
            self.close()
        elif not self._outcome:
            self._outcome = outcome
            self._waker.add(self._wake)

    def _wake(self) -> None:
        if self._writing:  # the answer has ended before the request: there is no use in writing the rest
            self._greenlet.throw(_Ended())
        elif self._greenlet is not None:
            self._greenlet.switch()

    def _arm(self, seconds: float) -> None:
        self._timer = self._hub.loop.timer(max(seconds, 0.001), ref=False)
        self._timer.start(self._on_timer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _on_timer(self) -> None:
        """One timer serves many requests: it looks what is due when it fires, instead of being set for each request."""
        self._stop_timer()
        if self._reads:
            self._digest()
        reception = self._reception
        if reception is None or self._outcome:
            return
        kind, limit_s, due_s = reception.due(self._limits)
        left_s = due_s - perf_counter()
        if left_s <= 0:
            self._end(LimitPassed(kind, limit_s))
        else:
            self._arm(min(left_s, self._limits.idle_s))
