"""The process that decodes the simulator's images: only who sends one waits for it, and it outlives nobody."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drawings import about, data_url, drawing, image_part, text_part
from sim_process import Simulator

CHAT = "/v1/chat/completions"
VISION = ("--set", "vision={patch: 14}", "--speed", "10")

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux to find the process")


def decoders(simulator: Simulator) -> list[int]:
    """Process ids of the server's children, which there are from the first image on."""
    pid = simulator.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def test_others_get_their_tokens_while_an_image_is_decoded(start: Callable[..., Any]) -> None:
    """With the decoding stopped for good, chats are served and the one with an image waits; it goes on with it."""
    body = about([image_part(data_url(drawing(1)))])
    with start(*VISION) as simulator:
        assert decoders(simulator) == []
        assert simulator.call("POST", CHAT, about([image_part(data_url(drawing(2)))]))[0] == 200
        for pid in decoders(simulator):
            os.kill(pid, signal.SIGSTOP)
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(simulator.call("POST", CHAT, body)[0]))
        asking.start()
        assert wait_until(lambda: len(simulator.truth()) == 2)
        for _ in range(5):
            assert simulator.call("POST", CHAT, about([text_part("hello")], 20))[0] == 200
        assert answers == []
        for pid in decoders(simulator):
            os.kill(pid, signal.SIGCONT)
        asking.join(10)
        assert answers == [200]
        _, first, *chats = simulator.truth()
    assert all(chat["finished_s"] < first["first_token_s"] for chat in chats)
    assert first["decoding_s"] > chats[-1]["finished_s"] - chats[0]["arrival_s"]
    assert first["queue_wait_s"] < 0.5, "waiting for the picture is no waiting in the engine's queue"


def test_without_its_decoder_a_server_still_answers(start: Callable[..., Any]) -> None:
    """500 for images, those in work included, and text as before."""
    with start(*VISION) as simulator:
        assert decoders(simulator) == []
        assert simulator.call("POST", CHAT, about([image_part(data_url(drawing(2)))]))[0] == 200
        (pid, *others) = decoders(simulator)
        for one in (pid, *others):
            os.kill(one, signal.SIGKILL)
        for _ in range(2):
            status, _, raw = simulator.call("POST", CHAT, about([image_part(data_url(drawing(1)))]))
            assert (status, json.loads(raw)["error"]["type"]) == (500, "InternalServerError")
        assert simulator.call("POST", CHAT, about([text_part("hello")]))[0] == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_decoder_ends_with_its_server(start: Callable[..., Any], number: signal.Signals) -> None:
    """However the server ends."""
    with start(*VISION) as simulator:
        assert decoders(simulator) == []
        assert simulator.call("POST", CHAT, about([image_part(data_url(drawing(2)))]))[0] == 200
        found = decoders(simulator)
        assert found
        os.kill(simulator.process.pid, number)
        simulator.process.wait(10)
        assert wait_until(lambda: not any(map(runs, found)))
