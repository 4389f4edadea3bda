"""Pictures for the sessions of one load process, made ahead of their use by a process of their own.

The load process only orders (microseconds), reads finished data URLs from a pipe as they come (copying 150 kB takes
tens of microseconds) and copies them into bodies. Drawing, encoding and base64 happen in ``image_maker``. Why a pipe,
and not a spool on disk: nothing has to be removed afterwards, no slow disk can hold up the load, and a full pipe makes
the maker wait. Memory is bounded: at most 64 MB of pictures that nobody has taken yet, and what sessions have in hand.

``expect`` orders ahead of use. ``take`` waits for what is not ready yet, while all other streams go on, and says how
long: that time belongs to the request (``prepare_s``) and is outside every latency.
"""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from time import perf_counter

import gevent.event
import msgspec

from tokenswarm.errors import InputError, ScenarioError
from tokenswarm.image_frames import READY, Checked, Made, Shown, Wanted
from tokenswarm.image_pipe import MakerProcess
from tokenswarm.image_settings import Images
from tokenswarm.images import ImageFacts
from tokenswarm.pictures import Order

UNDER_WAY = 4  # orders that one maker has at a time: it is never idle, and an urgent order waits for few others
AHEAD_BYTES = 64_000_000


class Served(msgspec.Struct, frozen=True):
    """The pictures of one session, ready to be sent, and the data set's questions about them, if it has some.

    ``made_s``: how long the maker worked on them. ``waited_s``: how long the session waited. Seconds.
    """

    pictures: list[Shown]
    questions: list[str]
    made_s: float
    waited_s: float


class _Entry:
    """One order and what has become of it. ``bytes``: of pictures that are finished and not yet taken."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.made: gevent.event.AsyncResult[Made] = gevent.event.AsyncResult()
        self.bytes = 0
        self.sent = False
        self.taken = False
        self.dropped = False  # nobody wants it any more


class ImageStore:
    """Takes keys that name sessions: the same key is the same pictures.

    ``taken``, ``waits`` (sessions that waited more than a millisecond) and ``skipped`` (rows passed over) count;
    ``held_bytes`` are those of pictures that are ready and not yet taken.
    """

    def __init__(self, sources: Sequence[Images], *, makers: int = 1, ahead_bytes: int = AHEAD_BYTES) -> None:
        """Starts ``makers`` processes; each load process needs its own store, made after any fork."""
        self._ahead_bytes = ahead_bytes
        self.held_bytes = 0
        self._entries: dict[Hashable, _Entry] = {}  # expected and not yet taken
        self._urgent: deque[_Entry] = deque()
        self._expected: OrderedDict[int, _Entry] = OrderedDict()  # by ticket; not yet sent to a maker
        self._under_way: dict[int, tuple[_Entry, int]] = {}  # by ticket, with the number of the maker
        self._loads = [0] * makers
        self._tickets = itertools.count()
        self._broken: InputError | None = None
        self._ready: list[gevent.event.AsyncResult[Made]] = [gevent.event.AsyncResult() for _ in range(makers)]
        self.taken = self.waits = self.skipped = 0
        self._makers = [
            MakerProcess(sources, functools.partial(self._on_made, number), self._on_end) for number in range(makers)
        ]

    def wait_ready(self) -> None:
        """Until the makers have started, which takes about half a second.

        Raises ``InputError`` where one has not, or where the pictures are not on this machine.
        """
        for one in self._ready:
            problem = one.get().problem
            if problem is not None:
                raise InputError(problem)

    @property
    def pids(self) -> list[int]:
        """Process ids of the makers."""
        return [maker.pid for maker in self._makers]

    def close(self) -> None:
        for maker in self._makers:
            maker.close()
        self._on_end(InputError("the store of pictures is closed"))

    # the sessions' side -------------------------------------------------------------------

    def expect(self, key: Hashable, source: int, orders: list[Order]) -> None:
        """These pictures will be taken soon. ``source``: number of their class in ``sources``."""
        if key not in self._entries and self._broken is None:
            self._entries[key] = entry = self._entry(source, orders)
            self._expected[entry.wanted.ticket] = entry
            self._send()

    def take(self, key: Hashable, source: int, orders: list[Order]) -> Served:
        """The pictures, made now where they were not expected; other greenlets run while they are not ready.

        Raises ``InputError`` where a file is unusable, or where a maker has ended.
        """
        began_s = perf_counter()
        if self._broken is not None:
            raise self._broken
        entry = self._entries.pop(key, None) or self._entry(source, orders)
        entry.taken = True
        if not entry.sent:
            self._expected.pop(entry.wanted.ticket, None)
            self._urgent.append(entry)
            self._send()
        try:
            made = entry.made.get()
        finally:
            self._drop(entry)
            self._send()
        return self._served(made, perf_counter() - began_s)

    def forget(self) -> None:
        """Nothing of what is expected will be taken."""
        for entry in self._entries.values():
            self._drop(entry)
        self._entries.clear()
        self._expected.clear()
        self._send()

    def _served(self, made: Made, waited_s: float) -> Served:
        self.taken += 1
        self.waits += waited_s > 0.001
        self.skipped += made.skipped
        if made.problem is not None:
            raise InputError(made.problem)
        return Served(made.pictures, made.questions, made.made_s, waited_s)

    def _entry(self, source: int, orders: list[Order]) -> _Entry:
        return _Entry(Wanted(next(self._tickets), source, orders))

    def _drop(self, entry: _Entry) -> None:
        entry.dropped = True
        self.held_bytes -= entry.bytes
        entry.bytes = 0

    # the makers' side ---------------------------------------------------------------------

    def _send(self) -> None:
        """Keep every maker busy: first with what sessions wait for, then ahead as far as memory allows."""
        while True:
            maker = self._loads.index(min(self._loads))
            if self._loads[maker] >= UNDER_WAY or (entry := self._next()) is None:
                return
            entry.sent = True
            self._loads[maker] += 1
            self._under_way[entry.wanted.ticket] = entry, maker
            self._makers[maker].order(entry.wanted)

    def _next(self) -> _Entry | None:
        while self._urgent:
            entry = self._urgent.popleft()
            if not entry.dropped:
                return entry
        if self._expected and self.held_bytes < self._ahead_bytes:
            return self._expected.popitem(last=False)[1]
        return None

    def _on_made(self, maker: int, made: Made) -> None:
        if made.ticket == READY:
            self._ready[maker].set(made)
            return
        entry, _ = self._under_way.pop(made.ticket)
        self._loads[maker] -= 1
        if not (entry.taken or entry.dropped):
            entry.bytes = sum(len(picture.url) for picture in made.pictures)
            self.held_bytes += entry.bytes
        if not entry.dropped:
            entry.made.set(made)
        self._send()

    def _on_end(self, problem: InputError) -> None:
        """Without this maker the others would fall behind without a word: all sessions are told."""
        self._broken = self._broken or problem
        waiting = [*self._entries.values(), *self._urgent, *(entry for entry, _ in self._under_way.values())]
        for result in (*(entry.made for entry in waiting), *self._ready):
            if not result.ready():
                result.set_exception(problem)


def check_images(images: Images) -> ImageFacts:
    """Looks at the pictures of a class before a run, files in a process of its own, which may take seconds.

    Raises ``InputError`` where none can be had, ``ScenarioError`` with a line for each unusable file of a folder.
    """
    if images.made_up is not None:
        return ImageFacts(images.made_up.distinct)
    command = [sys.executable, "-m", "tokenswarm.image_maker", "--check", images.model_dump_json()]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InputError(f"the process that looks at pictures has ended: {last}")
    found = msgspec.json.decode(done.stdout, type=Checked)
    if found.facts is None:
        raise ScenarioError(found.problems)
    return found.facts
