"""Users of one load process that take pictures as fast as they can get them, and a heartbeat that feels every stall.

Runs as a process of its own: ``python -m benchmarks.image_users WAY IMAGES USERS PICTURES``. WAY is ``idle`` (nobody
takes any), ``store`` (as a load process does it) or ``loop`` (made in the load process itself, for comparison).
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()  # as Locust does it

import gc  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from random import Random  # noqa: E402
from statistics import fmean  # noqa: E402
from time import perf_counter, thread_time  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402

from tokenswarm.image_settings import Images  # noqa: E402
from tokenswarm.image_store import ImageStore, Served  # noqa: E402
from tokenswarm.images import ImageSource  # noqa: E402
from tokenswarm.pictures import data_url  # noqa: E402
from tokenswarm.protocols import chat_body  # noqa: E402
from tokenswarm.quantiles import quantile  # noqa: E402

BEAT_S = 0.001
IDLE_S = 5.0
AHEAD = 16  # sessions whose pictures are expected
_PAGE = resource.getpagesize()


class Heart:
    """How late a greenlet comes that wants to run every millisecond, and how much the process worked meanwhile.

    ``late`` includes whatever else the machine does; ``busy``, CPU time of this thread from one beat to the next, does
    not.
    """

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self.busy_s: list[float] = []
        self._greenlet = gevent.spawn(self._beat)

    def _beat(self) -> None:
        due_s, cpu_s = perf_counter() + BEAT_S, thread_time()
        while True:
            gevent.sleep(max(0.0, due_s - perf_counter()))
            now_s, now_cpu_s = perf_counter(), thread_time()
            self.late_s.append(now_s - due_s)
            self.busy_s.append(now_cpu_s - cpu_s)
            due_s, cpu_s = now_s + BEAT_S, now_cpu_s

    def stop(self) -> dict[str, float | None]:
        self._greenlet.kill()
        return _spread("late", self.late_s) | _spread("busy", self.busy_s)


def _spread(name: str, values_s: list[float]) -> dict[str, float | None]:
    found = {"p50": quantile(values_s, 0.5), "p99": quantile(values_s, 0.99), "max": max(values_s, default=None)}
    return {f"{name}_{part}_ms": None if value is None else value * 1e3 for part, value in found.items()}


class Users:
    """``take`` gives the picture of one session as (width x height, bytes of the file, JSON of its URL)."""

    def __init__(self, images: Images, pictures: int) -> None:
        self._source = ImageSource(images, name="benchmark", seed=7)
        self._numbers: Iterator[int] = iter(range(pictures))
        self.pixels: list[int] = []
        self.bytes: list[int] = []
        self.made_s: list[float] = []
        self.waited_s: list[float] = []
        self.body_bytes = 0
        self.peaks: list[float] = []  # resident MB of this process, as pictures go by

    def orders(self, number: int) -> list[Any]:
        return self._source.orders(Random(number), Random(-number - 1), number)

    def play(self, take: Callable[[int], None]) -> None:
        for number in self._numbers:
            take(number)
            if number % 500 == 0:
                self.peaks.append(_resident_mb("self"))
            gevent.sleep(0)

    def from_loop(self, number: int) -> None:
        began_s = perf_counter()
        (picture,) = self._source.exhibit(self.orders(number)[0]).pictures
        self._send(data_url(picture))
        self.made_s.append(perf_counter() - began_s)
        self.pixels.append(picture.width * picture.height)
        self.bytes.append(len(picture.data))

    def from_store(self, store: ImageStore, number: int) -> None:
        store.expect(number + AHEAD, 0, self.orders(number + AHEAD))
        served: Served = store.take(number, 0, self.orders(number))
        (picture,) = served.pictures
        self._send(picture.json)
        self.made_s.append(served.made_s)
        self.waited_s.append(served.waited_s)
        self.pixels.append(picture.width * picture.height)
        self.bytes.append(picture.file_bytes)

    def _send(self, url: Any) -> None:
        parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is this?"}]
        self.body_bytes += len(chat_body("m", [{"role": "user", "content": parts}], max_tokens=8))

    def figures(self, wall_s: float) -> dict[str, Any]:
        return {
            "pictures": len(self.pixels),
            "pictures_per_s": len(self.pixels) / wall_s,
            "bytes_per_pixel": sum(self.bytes) / sum(self.pixels),
            "kb_per_picture": fmean(self.bytes) / 1e3,
            "made_ms": fmean(self.made_s) * 1e3,
            "waited_p95_ms": (quantile(self.waited_s, 0.95) or 0.0) * 1e3 if self.waited_s else None,
        }


def _resident_mb(process: int | str) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE / 1e6


def _cpu_s(process: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _together(users: int, play: Callable[[], None]) -> float:
    began_s = perf_counter()
    gevent.joinall([gevent.spawn(play) for _ in range(users)], raise_error=True)
    return perf_counter() - began_s


def measure(way: str, images: Images, users: int, pictures: int) -> dict[str, Any]:
    load = Users(images, pictures)
    if way == "idle":
        heart = Heart()
        gevent.sleep(IDLE_S)
        return heart.stop()
    if way == "loop":
        load.from_loop(0)  # the libraries are loaded before anything is measured
        load = Users(images, pictures)
        heart = Heart()
        wall_s = _together(users, lambda: load.play(load.from_loop))
        return heart.stop() | load.figures(wall_s)
    store = ImageStore([images])
    store.wait_ready()
    heart, cpu_s = Heart(), _cpu_s(store.pids[0])
    wall_s = _together(users, lambda: load.play(lambda number: load.from_store(store, number)))
    figures = heart.stop() | load.figures(wall_s)
    figures |= {"rss_mb": max(load.peaks), "rss_mb_at_a_tenth": max(load.peaks[: max(1, len(load.peaks) // 10)])}
    figures |= {"maker_cpu_ms": (_cpu_s(store.pids[0]) - cpu_s) * 1e3 / len(load.pixels)}
    figures |= {"maker_rss_mb": _resident_mb(store.pids[0]), "waits": store.waits}
    store.close()
    return figures


def main() -> None:
    way, images, users, pictures = sys.argv[1:]
    gc.collect()
    gc.freeze()
    print(json.dumps(measure(way, Images.model_validate_json(images), int(users), int(pictures))))


if __name__ == "__main__":
    main()
