"""Has pictures decoded outside the server's process, so that one that takes long delays nobody else's tokens."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from simulator.api_error import ApiError
from simulator.picture import Outcome, Picture
from simulator.vision import Vision

_ENDED = Outcome(None, 500, "The process that decodes images has ended.", "InternalServerError")

Then = Callable[[list[Picture] | ApiError], None]


class _Child(asyncio.Protocol):
    """One decoding process; it answers in the order it is asked."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.asked: deque[Callable[[Outcome], None]] = deque()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._decode = msgspec.json.Decoder(Outcome).decode

    def ask(self, url: bytes, then: Callable[[Outcome], None]) -> None:
        if self._transport is None:
            then(_ENDED)
            return
        self.asked.append(then)
        self._transport.writelines([len(url).to_bytes(4), url])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self.asked.popleft()(self._decode(line))

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        for then in self.asked:
            then(_ENDED)
        self.asked.clear()

    def close(self) -> None:
        self.asked.clear()
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Reading:
    """The pictures of one request, as they come."""

    def __init__(self, count: int, then: Then) -> None:
        self._found: dict[int, Outcome] = {}
        self._count = count
        self._then = then

    def take(self, place: int, outcome: Outcome) -> None:
        """The picture in this place, the last of which hands all of them over, or the first mistake."""
        self._found[place] = outcome
        if len(self._found) < self._count:
            return
        pictures: list[Picture] = []
        for _, found in sorted(self._found.items()):
            if found.picture is None:
                self._then(ApiError(found.status, found.message, found.kind))
                return
            pictures.append(found.picture)
        self._then(pictures)


class PictureReader:
    """As many processes as the machine has processors to spare, four at the most, from the first image on."""

    def __init__(self, vision: Vision) -> None:
        self._vision = vision
        self._children: list[_Child] = []
        self._started: asyncio.Task[None] | None = None

    def read(self, urls: Sequence[str], then: Then) -> None:
        """Calls ``then`` in the event loop with the pictures, or with the first thing that was wrong."""
        if self._started is None:
            self._started = asyncio.get_running_loop().create_task(self._start())
        self._started.add_done_callback(partial(self._ask, urls, then))

    def close(self) -> None:
        """Ends the processes."""
        if self._started is not None:
            self._started.cancel()
        for child in self._children:
            child.close()

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        command = [sys.executable, "-m", "simulator.decoder", msgspec.json.encode(self._vision).decode()]
        for _ in range(max(1, min(4, (os.cpu_count() or 2) - 1))):
            ours, theirs = socket.socketpair()
            with theirs:
                process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
            _, child = await loop.create_unix_connection(partial(_Child, process), sock=ours)
            self._children.append(child)

    def _ask(self, urls: Sequence[str], then: Then, started: asyncio.Task[None]) -> None:
        if started.cancelled():
            return
        if (error := started.exception()) is not None:
            then(ApiError(500, f"The process that decodes images cannot be started: {error}", "InternalServerError"))
            return
        reading = _Reading(len(urls), then)
        for place, url in enumerate(urls):
            child = min(self._children, key=lambda one: len(one.asked))
            child.ask(url.encode(errors="replace"), partial(reading.take, place))
