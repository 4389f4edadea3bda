"""A process that makes pictures for a load process: ``python -m tokenswarm.image_maker``.

Drawing and encoding take milliseconds for each picture; done in the load process they would hold up every stream that
is being measured there. A thread would not do either: Pillow and numpy keep the interpreter's lock for most of that
time. This process has neither Locust nor gevent and runs at a lower priority than the load. It reads orders from its
standard input, answers each on its standard output with the data URL in base64, and ends when the input closes, however
the load process ends. With ``--check`` it looks at the pictures of one source instead, and says what it found.
"""

from __future__ import annotations

import argparse
import base64
import os
import signal
import sys
from time import perf_counter
from typing import BinaryIO

import msgspec

from tokenswarm.errors import InputError
from tokenswarm.image_frames import HEAD, READY, Checked, Made, Shown, Wanted, frame
from tokenswarm.image_settings import Images
from tokenswarm.images import ImageSource
from tokenswarm.pictures import Order, Picture

_NICENESS = 5
_SMALL = Order(0, 56, 56)  # made once before all others, so that libraries are loaded and files are found

_sources = msgspec.msgpack.Decoder(list[str]).decode
_wanted = msgspec.msgpack.Decoder(Wanted).decode


def made(source: ImageSource, order: Wanted) -> Made:
    """The answer to one order."""
    began_s = perf_counter()
    try:
        exhibits = [source.exhibit(one) for one in order.orders]
    except InputError as error:
        return Made(order.ticket, problem=str(error))
    return Made(
        order.ticket,
        pictures=[_shown(picture) for exhibit in exhibits for picture in exhibit.pictures],
        questions=[question for exhibit in exhibits for question in exhibit.questions],
        made_s=perf_counter() - began_s,
        skipped=sum(exhibit.skipped for exhibit in exhibits),
    )


def _shown(picture: Picture) -> Shown:
    url = b'"data:%b;base64,%b"' % (picture.media_type.encode(), base64.b64encode(picture.data))
    return Shown(url, picture.width, picture.height, len(picture.data), picture.origin)


def _read(file: BinaryIO) -> bytes | None:
    """One message; None at the end of the input."""
    head = file.read(HEAD)
    size = int.from_bytes(head, "little")
    content = file.read(size) if len(head) == HEAD else b""
    return content if content and len(content) == size else None


def serve(given: BinaryIO, taken: BinaryIO) -> None:
    """Answer orders until the input closes, or nobody reads the answers any more."""
    first = _read(given)
    if first is None:
        return
    sources = [_source(settings) for settings in _sources(first)]
    started = [made(source, Wanted(READY, number, [_SMALL])) for number, source in enumerate(sources)]
    problem = next((one.problem for one in started if one.problem is not None), None)
    taken.write(frame(Made(READY, problem=problem)))
    taken.flush()
    while (message := _read(given)) is not None:
        order = _wanted(message)
        taken.write(frame(made(sources[order.source], order)))
        taken.flush()


def _source(settings: str) -> ImageSource:
    """Only what makes pictures matters here: seed and name have done their work in the orders."""
    return ImageSource(Images.model_validate_json(settings), name="", seed=0)


def _step_back() -> None:
    """Let the load process go first, also where that was started with real-time priority."""
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(_NICENESS)


def checked(settings: str) -> Checked:
    try:
        return Checked(_source(settings).check())
    except InputError as error:
        return Checked(problems=str(error).splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tokenswarm.image_maker", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--check", metavar="IMAGES", help="look at this source, given as JSON, and print what was found"
    )
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not stand between the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the load process, which then closes our input
    if options.check is not None:
        answers.write(msgspec.json.encode(checked(options.check)))
        answers.close()
        return 0
    _step_back()
    try:
        serve(sys.stdin.buffer, answers)
    except BrokenPipeError:
        os._exit(0)  # without flushing what nobody reads
    return 0


if __name__ == "__main__":
    sys.exit(main())
