"""``python -m simulator.decoder VISION``: decodes the pictures of one server, in a process of its own.

Its standard input is a socket. In come data URLs, four bytes of length before each; out goes a line of JSON for each,
an :class:`Outcome`, in the same order. It ends when the other end does.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sys
from collections import OrderedDict

import msgspec

from simulator.api_error import ApiError
from simulator.image_file import read_picture
from simulator.picture import Outcome, Picture
from simulator.vision import Vision

_REMEMBERED = 10_000  # pictures, a few hundred bytes each
_NICENESS = 5  # the step loop goes first


class Decoder:
    """Remembers what it has decoded by the hash of the URL: a conversation comes with its pictures at every turn."""

    def __init__(self, vision: Vision) -> None:
        self._vision = vision
        self._known: OrderedDict[bytes, Picture] = OrderedDict()

    def outcome(self, url: bytes) -> Outcome:
        """Of one URL."""
        name = hashlib.sha256(url).digest()
        picture = self._known.get(name)
        if picture is not None:
            self._known.move_to_end(name)
            return Outcome(picture)
        try:
            picture = read_picture(url.decode(errors="replace"), self._vision)
        except ApiError as error:
            return Outcome(None, error.status, str(error), error.kind)
        except Exception as error:  # noqa: BLE001 - whatever a broken file makes Pillow do, the next one is decoded
            return Outcome(None, 500, f"Failed to load image: {error!r}", "InternalServerError")
        self._known[name] = picture
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return Outcome(picture)


def main() -> int:
    """Until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the server ends this process
    os.nice(_NICENESS)
    decoder = Decoder(msgspec.json.decode(sys.argv[1], type=Vision))
    with socket.socket(fileno=0) as peer, peer.makefile("rb") as requests:
        while len(head := requests.read(4)) == 4:
            outcome = decoder.outcome(requests.read(int.from_bytes(head)))
            peer.sendall(msgspec.json.encode(outcome) + b"\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
