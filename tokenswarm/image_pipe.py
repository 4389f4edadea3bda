"""The load process' end of one maker of pictures: orders in, finished pictures out, without holding up the loop."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import IO

import gevent
import msgspec
from gevent import monkey

from tokenswarm.errors import InputError
from tokenswarm.image_frames import HEAD, Made, Wanted, frame
from tokenswarm.image_settings import Images

_PIPE_BYTES = 1 << 20  # a maker that is ahead is not held up by a reader that is busy for a moment
_BUFFER_BYTES = 1 << 18
_STOP_S = 5.0

_close = monkey.get_original("os", "close")  # gevent's own closes when the loop comes round: the maker would wait
_made = msgspec.msgpack.Decoder(Made).decode


class MakerProcess:
    """One child process and the greenlet that reads from it. The first ``Made`` that comes says that it is ready."""

    def __init__(
        self, sources: Sequence[Images], take: Callable[[Made], None], ended: Callable[[InputError], None]
    ) -> None:
        """``take`` is called with every answer, ``ended`` once, when no more can come."""
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        _widen(answers)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        command = [sys.executable, "-m", "tokenswarm.image_maker"]
        try:
            self._process = subprocess.Popen(command, stdin=orders, stdout=answers, stderr=self._errors)
        finally:
            _close(orders)
            _close(answers)
        self.pid = self._process.pid
        self._take, self._ended = take, ended
        self._open = True
        self._buffer = bytearray(_BUFFER_BYTES)  # kept: fresh memory for every picture would cost more than reading it
        os.set_blocking(self._answers, False)
        self._send([images.model_dump_json() for images in sources])
        self._reader = gevent.spawn(self._read_for_ever)
        atexit.register(self.close)

    def order(self, wanted: Wanted) -> None:
        """Only a few may be under way: they fit into the pipe, so that this never waits."""
        self._send(wanted)

    def _send(self, message: object) -> None:
        if self._open:
            with contextlib.suppress(BrokenPipeError):  # the reader finds the end, and why
                os.write(self._orders, frame(message))

    def _read_for_ever(self) -> None:
        loop = gevent.get_hub().loop
        with contextlib.closing(loop.io(self._answers, 1)) as watcher:
            try:
                while True:
                    size = int.from_bytes(self._read(HEAD, watcher), "little")
                    self._take(_made(self._read(size, watcher)))
                    gevent.sleep(0)
            except EOFError:
                pass
        if self._open:
            self._ended(InputError(f"the process that makes pictures has ended: {self._last_words()}"))

    def _read(self, size: int, watcher: object) -> memoryview:
        """So many bytes, valid until the next call; other greenlets run while they are not there."""
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        content = memoryview(self._buffer)[:size]
        view = content
        while view:
            try:
                count = os.readv(self._answers, [view])
            except BlockingIOError:
                gevent.get_hub().wait(watcher)
                continue
            if not count:
                raise EOFError
            view = view[count:]
        return content

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_STOP_S)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def close(self) -> None:
        """The maker ends when its input does. Harmless when called again."""
        if not self._open:
            return
        self._open = False
        atexit.unregister(self.close)
        self._reader.kill()
        _close(self._orders)
        _close(self._answers)
        try:
            self._process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def _widen(pipe: int) -> None:
    """Linux gives a pipe 64 kB; where it refuses more, reading takes a few more rounds."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
