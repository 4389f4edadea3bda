"""Servers that keep their connections, and one that says so and closes them: llama.cpp's after every stream."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import gevent

from tests.contract.clients import client
from tests.contract.replay import Replay, stream
from tokenswarm.keepalive import KeepAlive

EVENT = 'data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
CLOSES = {
    "raw": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    f"Keep-Alive: timeout=5, max=100\r\n\r\n{len(EVENT):x}\r\n{EVENT}\r\n0\r\n\r\n"
}


def test_server_that_closes_after_each_answer(tmp_path: Path) -> None:
    """Requests back to back: none fails and none is sent twice."""
    with Replay(tmp_path, {"*": CLOSES}) as server:
        one = client(server.url)
        exchanges = [one.send(b"{}") for _ in range(30)]
        log = server.log()
    assert [exchange.error for exchange in exchanges if not exchange.ok] == []
    assert len(log) == len({entry["connection"] for entry in log}) == 30


def test_server_that_keeps_is_watched_only_once(tmp_path: Path) -> None:
    """One connection serves all requests."""
    with Replay(tmp_path, {"*": stream((0, EVENT))}) as server:
        one = client(server.url)
        assert all(one.send(b"{}").ok for _ in range(30))
        log = server.log()
    assert len(log) == 30
    assert len({entry["connection"] for entry in log}) == 1


def test_idle_limit_is_no_reason_to_give_up_keep_alive(tmp_path: Path) -> None:
    """After a long pause there is a new connection; without a pause it is used again."""
    with Replay(tmp_path, {"*": stream((0, EVENT))}, idle_close_s=0.3) as server:
        one = client(server.url)
        for pause_s in (0, 0.6, 0, 0):
            gevent.sleep(pause_s)
            assert one.send(b"{}").ok
        log = server.log()
    assert [entry["connection"] == log[0]["connection"] for entry in log] == [True, False, False, False]
    assert len({entry["connection"] for entry in log}) == 2


def test_doubt_after_a_surprise() -> None:
    """What was taken for a server that keeps is watched again; one that closes is never trusted again."""
    learned = KeepAlive()
    learned.saw_open()
    learned.doubt()
    assert learned.kept is None
    learned.saw_closed(ended_s=perf_counter())
    learned.saw_open()
    learned.doubt()
    assert learned.kept is False
