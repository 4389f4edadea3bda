"""A TCP relay that delays every byte by the same time in both directions, and that can be cut, healed and broken.

Runs as a process of its own (``python relay.py HOST TARGET_PORT PORTS DELAY_S``): it prints its ports, one for each
worker, and obeys a line at a time on standard input: ``cut 0`` (nothing is passed on, connections stay), ``deafen 0``
(nothing is passed on to the worker), ``heal 0`` (what was held back goes on, in order), ``kill 0`` (connections are
reset), ``name 0`` (what the master calls that worker).
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import subprocess
import sys
from collections import deque
from types import TracebackType

RESET = struct.pack("ii", 1, 0)  # linger of no seconds: close sends RST
HELD_BYTES = 4_000_000  # on the way in one direction; beyond that the sender has to wait
CONNECT_TRIES = 100
NAME = re.compile(rb"\xa6worker\xa2(w\d)")  # in the message that begins a run, as msgpack


class Relay:
    """The process as a context. ``ports``: where the worker of each number connects to."""

    def __init__(self, host: str, target_port: int, ports: int, delay_s: float) -> None:
        self._command = [sys.executable, __file__, host, str(target_port), str(ports), str(delay_s)]
        self.ports: list[int] = []

    def __enter__(self) -> Relay:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.ports = [int(word) for word in self._process.stdout.readline().split()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def _tell(self, order: str, number: int) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order} {number}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def cut(self, number: int) -> None:
        assert self._tell("cut", number) == "done"

    def deafen(self, number: int) -> None:
        assert self._tell("deafen", number) == "done"

    def heal(self, number: int) -> None:
        assert self._tell("heal", number) == "done"

    def kill(self, number: int) -> None:
        assert self._tell("kill", number) == "done"

    def name(self, number: int) -> str:
        """As the master calls the worker behind this port; empty until a run has begun there."""
        return self._tell("name", number)


class _Line:
    """The connections through one port."""

    def __init__(self, host: str, target_port: int, delay_s: float) -> None:
        self._target = (host, target_port)
        self._delay_s = delay_s
        self.up, self.down = asyncio.Event(), asyncio.Event()  # to the master, to the worker: set while they pass
        self.obey("heal")
        self.name = ""
        self._writers: set[asyncio.StreamWriter] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either end closes it."""
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            other_reader, other = await self._connect()
            self._writers.add(other)
            ways = (self._carry(reader, other, self.up), self._carry(other_reader, writer, self.down))
            tasks = [asyncio.create_task(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        except OSError:
            pass
        finally:
            for end in (writer, other):
                if end is not None:
                    self._writers.discard(end)
                    end.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in range(CONNECT_TRIES):
            try:
                return await asyncio.open_connection(*self._target)
            except OSError:
                await asyncio.sleep(0.1)
        raise ConnectionRefusedError

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event) -> None:
        """Each piece is written the delay after it was read, whatever else is on the way."""
        loop = asyncio.get_running_loop()
        way: deque[tuple[float, bytes]] = deque()
        changed = asyncio.Event()

        async def read() -> None:
            while data := await reader.read(65536):
                way.append((loop.time() + self._delay_s, data))
                changed.set()
                while sum(len(piece) for _, piece in way) > HELD_BYTES:
                    await asyncio.sleep(0.01)
            way.append((loop.time() + self._delay_s, b""))
            changed.set()

        reading = asyncio.create_task(read())
        seen = b""
        try:
            while True:
                while not way:
                    changed.clear()
                    await changed.wait()
                due_s, data = way[0]
                await asyncio.sleep(due_s - loop.time())
                await passing.wait()
                way.popleft()
                if not data:
                    return
                if passing is self.down and not self.name:
                    seen = (seen + data)[-4096 - len(data) :]
                    found = NAME.search(seen)
                    self.name = found[1].decode() if found else ""
                writer.write(data)
                await writer.drain()
        finally:
            reading.cancel()

    def kill(self) -> None:
        for writer in self._writers:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()

    def obey(self, order: str) -> str:
        match order:
            case "cut":
                self.up.clear()
                self.down.clear()
            case "deafen":
                self.down.clear()
            case "heal":
                self.up.set()
                self.down.set()
            case "kill":
                self.kill()
            case "name":
                return self.name
        return "done"


async def _main(host: str, target_port: int, ports: int, delay_s: float) -> None:
    lines = [_Line("127.0.0.1", target_port, delay_s) for _ in range(ports)]
    servers = [await asyncio.start_server(line.accept, host, 0) for line in lines]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while words := (await orders.readline()).decode().split():
        print(lines[int(words[1])].obey(words[0]), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
