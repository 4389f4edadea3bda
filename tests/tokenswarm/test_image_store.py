"""Pictures made ahead by a process of their own: what sessions get, how long they wait, and what happens in trouble."""

from __future__ import annotations

import base64
import gc
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import gevent
import msgspec
import pytest
from PIL import Image

from tokenswarm.errors import InputError, ScenarioError
from tokenswarm.image_frames import Made
from tokenswarm.image_settings import Images
from tokenswarm.image_store import UNDER_WAY, ImageStore, Served, check_images
from tokenswarm.images import ImageFacts, ImageSource
from tokenswarm.pictures import Order

LIMIT_S = 30.0
SMALL = Images.model_validate({"synthetic": {"pixels": 4_000}})
LARGE = Images.model_validate({"synthetic": {"pixels": 500_000}})
LARGEST_BYTES = 250_000  # of a LARGE one as a data URL


@contextmanager
def store(*sources: Images, **options: Any) -> Iterator[ImageStore]:
    made = ImageStore(sources, **options)
    try:
        with gevent.Timeout(LIMIT_S):
            made.wait_ready()
            yield made
    finally:
        made.close()


def orders(images: Images, number: int, count: int = 1) -> list[Order]:
    return ImageSource(images, name="captions", seed=7).orders(Random(number), Random(-number), number, count)


def file_of(served: Served) -> bytes:
    """The file in the one data URL, read by a JSON decoder and a base64 decoder."""
    (picture,) = served.pictures
    url = msgspec.json.decode(msgspec.json.encode({"url": picture.json}))["url"]
    return base64.b64decode(url.partition(",")[2], validate=True)


def until(condition: Callable[[], bool]) -> None:
    with gevent.Timeout(LIMIT_S):
        while not condition():
            gevent.sleep(0.002)


def gone(pid: int) -> bool:
    """The process has ended, even where its parent has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_sessions_get_what_their_key_says() -> None:
    """Expected or not, of one class or another: the file is the one that the source makes in this process."""
    with store(SMALL, LARGE) as pictures:
        pictures.expect("a", 0, orders(SMALL, 1))
        pictures.expect("b", 1, orders(LARGE, 2))
        for key, source, images, number in (("b", 1, LARGE, 2), ("a", 0, SMALL, 1), ("new", 0, SMALL, 3)):
            served = pictures.take(key, source, orders(images, number))
            (expected,) = ImageSource(images, name="", seed=0).exhibit(orders(images, number)[0]).pictures
            assert file_of(served) == expected.data
            (shown,) = served.pictures
            facts = (shown.width, shown.height, shown.file_bytes, shown.origin)
            assert facts == (expected.width, expected.height, len(expected.data), "synthetic")
            assert shown.url.startswith(b'"data:image/jpeg;base64,')
        assert pictures.taken == 3


def test_several_pictures_of_a_session_come_in_order() -> None:
    """Three pictures, as the session ordered them, also from two makers."""
    with store(SMALL, makers=2) as pictures:
        for number in range(12):
            served = pictures.take(number, 0, orders(SMALL, number, 3))
            expected = [(one.width, one.height) for one in orders(SMALL, number, 3)]
            assert [(one.width, one.height) for one in served.pictures] == expected
        assert len(set(pictures.pids)) == 2


def test_what_is_ready_is_taken_without_a_pause() -> None:
    """A session whose pictures were made ahead does not even let other users go first."""
    with store(SMALL) as pictures:
        pictures.expect("a", 0, orders(SMALL, 1))
        until(lambda: pictures.held_bytes > 0)
        others: list[str] = []
        gevent.spawn(others.append, "ran")
        served = pictures.take("a", 0, orders(SMALL, 1))
        assert others == []
        assert served.made_s > 0
        assert pictures.held_bytes == 0


def test_a_wait_is_measured_and_holds_up_nobody() -> None:
    """What was not expected is waited for: at least as long as making it took, while others go on."""
    beats: list[float] = []

    def beat() -> None:
        while True:
            beats.append(time.perf_counter())
            gevent.sleep(0.001)

    with store(LARGE) as pictures:
        heart = gevent.spawn(beat)
        began_s = time.perf_counter()
        served = pictures.take("a", 0, orders(LARGE, 1, 4))
        ended_s = time.perf_counter()
        heart.kill()
    assert served.waited_s >= served.made_s > 0
    assert served.waited_s == pytest.approx(ended_s - began_s, abs=0.001)
    assert pictures.waits == 1
    assert sum(began_s < one < ended_s for one in beats) >= 4


def test_memory_is_bounded_and_nothing_is_lost() -> None:
    """Of fifty expected pictures only so many are made as may be held; all of them come when they are taken."""
    with store(LARGE, ahead_bytes=400_000) as pictures:
        for number in range(50):
            pictures.expect(number, 0, orders(LARGE, number))
        until(lambda: pictures.held_bytes >= 400_000)
        gevent.sleep(0.1)
        assert pictures.held_bytes < 400_000 + UNDER_WAY * LARGEST_BYTES
        urls = {pictures.take(number, 0, orders(LARGE, number)).pictures[0].url for number in range(50)}
        assert len(urls) == 50
        assert pictures.held_bytes == 0


def test_nothing_is_kept_of_what_has_been_taken() -> None:
    """Users who take pictures faster than they can be made, and always expect more, leave nothing behind."""
    kept: list[int] = []
    with store(SMALL) as pictures:

        def play(user: int) -> None:
            for number in range(user, 96, 8):
                pictures.expect(number + 8, 0, orders(SMALL, number + 8))
                pictures.take(number, 0, orders(SMALL, number))
            kept.append(sum(isinstance(one, Made) and bool(one.pictures) for one in gc.get_objects()))

        gevent.joinall([gevent.spawn(play, user) for user in range(8)], raise_error=True)
        assert pictures.taken == 96
    assert kept[0] <= 2 * 8


def test_who_waits_goes_first() -> None:
    """A session that waits is served when no more than what was under way has been made of forty expected ones."""
    with store(LARGE) as pictures:
        for number in range(40):
            pictures.expect(number, 0, orders(LARGE, number))
        pictures.take("late", 0, orders(LARGE, 99))
        assert pictures.held_bytes < UNDER_WAY * LARGEST_BYTES
        until(lambda: pictures.held_bytes > 2 * UNDER_WAY * LARGEST_BYTES)


def test_a_session_that_is_cut_leaves_nothing_behind() -> None:
    """Its picture is not kept when it comes, and the next session of that key gets its own."""
    with store(LARGE) as pictures:
        waiting = gevent.spawn(pictures.take, "a", 0, orders(LARGE, 1))
        gevent.sleep(0)
        waiting.kill()
        again = pictures.take("a", 0, orders(LARGE, 1))
        assert again.pictures[0].file_bytes > 0
        assert (pictures.held_bytes, pictures.taken) == (0, 1)


def test_what_is_forgotten_is_not_kept() -> None:
    """At the end of a level, pictures of tickets that nobody will play are given up, made or not."""
    with store(LARGE) as pictures:
        for number in range(30):
            pictures.expect(number, 0, orders(LARGE, number))
        until(lambda: pictures.held_bytes > 0)
        pictures.forget()
        assert pictures.held_bytes == 0
        assert pictures.take(29, 0, orders(LARGE, 29)).waited_s > 0
        gevent.sleep(0.05)
        assert pictures.held_bytes == 0


def test_a_file_that_has_gone_fails_its_session_only(tmp_path: Path) -> None:
    """One line for the session whose file cannot be read any more; the others have theirs."""
    for name in ("a.png", "b.png"):
        file = io.BytesIO()
        Image.new("RGB", (20, 10)).save(file, "PNG")
        (tmp_path / name).write_bytes(file.getvalue())
    images = Images(folder=str(tmp_path))
    with store(images) as pictures:
        (tmp_path / "b.png").unlink()
        with pytest.raises(InputError, match=rf"^{tmp_path}/b\.png: cannot be read \(No such file or directory\)$"):
            pictures.take(1, 0, orders(images, 1))
        assert file_of(pictures.take(0, 0, orders(images, 0))) == (tmp_path / "a.png").read_bytes()


def test_pictures_that_are_not_on_this_machine(tmp_path: Path) -> None:
    """A worker elsewhere without the folder says so when it starts, in one line."""
    pictures = ImageStore([Images(folder=str(tmp_path / "nowhere"))])
    with gevent.Timeout(LIMIT_S), pytest.raises(InputError, match=r"/nowhere: cannot be read \(No such file or dir"):
        pictures.wait_ready()
    pictures.close()


def test_a_look_before_the_run(tmp_path: Path) -> None:
    """How many pictures there are, or every problem as a line."""
    assert check_images(Images()) == ImageFacts()
    assert check_images(Images.model_validate({"synthetic": {"distinct": 9}})) == ImageFacts(9)
    (tmp_path / "one.png").write_text("no image")
    (tmp_path / "two.png").write_text("no image")
    with pytest.raises(ScenarioError) as caught:
        check_images(Images(folder=str(tmp_path)))
    assert [line.partition(":")[0] for line in caught.value.problems] == [f"{tmp_path}/one.png", f"{tmp_path}/two.png"]


def test_the_end_of_the_maker_is_told_at_once() -> None:
    """Sessions that wait, and those that come later, fail with a line instead of waiting for ever."""
    with store(LARGE) as pictures:
        waiting = gevent.spawn(pictures.take, "a", 0, orders(LARGE, 1, 50))
        gevent.sleep(0)
        os.kill(pictures.pids[0], signal.SIGKILL)
        line = r"^the process that makes pictures has ended: exit code -9$"
        with pytest.raises(InputError, match=line):
            waiting.get()
        with pytest.raises(InputError, match=line):
            pictures.take("b", 0, orders(LARGE, 2))
        pictures.expect("c", 0, orders(LARGE, 3))


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="needs Linux")
def test_the_maker_lets_the_load_go_first() -> None:
    """It runs as a batch job of lower priority than this process."""
    with store(SMALL) as pictures:
        (pid,) = pictures.pids
        assert os.sched_getscheduler(pid) == os.SCHED_BATCH
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)


def test_ctrl_c_and_close() -> None:
    """The maker outlives a Ctrl-C in the terminal, as sessions may still end; it ends with the store."""
    with store(SMALL) as pictures:
        (pid,) = pictures.pids
        os.kill(pid, signal.SIGINT)
        assert len(pictures.take("a", 0, orders(SMALL, 1)).pictures) == 1
    assert gone(pid)


_LOAD = """
from gevent import monkey
monkey.patch_all()
import gevent, os, signal, sys
from random import Random
from tokenswarm.image_frames import Made
from tokenswarm.image_settings import Images
from tokenswarm.image_store import ImageStore
from tokenswarm.images import ImageSource
images = Images()
source = ImageSource(images, name="captions", seed=7)
store = ImageStore([images])
store.wait_ready()
taken = []
def play(user):
    for number in range(user, 64, 8):
        orders = source.orders(Random(number), Random(-number), number)
        taken.append(store.take(number, 0, orders).pictures[0].file_bytes)
gevent.joinall([gevent.spawn(play, user) for user in range(8)], raise_error=True)
print(len(set(taken)), *store.pids, flush=True)
if sys.argv[1:]:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_in_a_process_that_gevent_has_patched(killed: bool) -> None:
    """As under Locust: eight users take 64 pictures; the maker ends with the load process, killed or not."""
    command = [sys.executable, "-c", _LOAD, *(["killed"] if killed else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stderr == ""
    assert done.returncode == (-signal.SIGKILL if killed else 0)
    different, pid = done.stdout.split()
    assert int(different) > 60
    until(lambda: gone(int(pid)))
