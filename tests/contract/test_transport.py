"""Every way in which a request can end, over real sockets: exactly one exchange, of the right kind."""

from __future__ import annotations

import gzip
import resource
import shutil
import socket
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from tests.contract.clients import client, send
from tests.contract.replay import Replay, plain, recorded, stream
from tokenswarm.client import error_group
from tokenswarm.connection import Waker

CASES = Path(__file__).parent / "cases"
KEY = "sk-acc-CANARY-7f3a9c21d4"


def event(text: str, finish: str = "null") -> str:
    return f'data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":{finish}}}]}}\n\n'


GOOD = stream((0, event("a")), (20, event("b", '"stop"')), (20, "data: [DONE]\n\n"))


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the program openssl to make a certificate")
    folder = tmp_path_factory.mktemp("certificate")
    paths = {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", paths["key"], "-out", paths["cert"]]
    subprocess.run(command, check=True, capture_output=True)
    return paths


# ---------------------------------------------------------------------------------------------- ends of a stream


ENDS = {
    "good": (GOOD, None, 2),
    "content-length": (
        {
            **GOOD,
            "framing": "content-length",
            "headers": [["Content-Length", str(len(event("a") + event("b", '"stop"')) + 14)]],
        },
        None,
        2,
    ),
    "read until close": ({**GOOD, "framing": "close", "headers": [["Content-Type", "text/event-stream"]]}, None, 2),
    "closed in the middle": (stream((0, event("a")), end="abort"), "truncated", 1),
    "reset in the middle": (stream((0, event("a")), (50, event("b")), end="reset"), "reset", None),
    "closed without an answer": ({"raw": ""}, "reset", 0),
    "half a head": ({"raw": "HTTP/1.1 200 OK\r\nContent-Ty"}, "truncated", 0),
    "no HTTP": ({"raw": "SSH-2.0-OpenSSH_9.2\r\n"}, "malformed", 0),
    "broken chunk": ({"raw": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc"}, "malformed", 0),
    "no JSON": (stream((0, event("a")), (1, "data: oops\n\n"), (2, "data: [DONE]\n\n")), "malformed", 1),
    "no stream": (
        plain(200, '{"choices":[{"message":{"content":"hi"}}]}', ("Content-Type", "application/json")),
        "non_stream",
        0,
    ),
    "JSON said to be a stream": (plain(200, '{"a":1}', ("Content-Type", "text/event-stream")), "non_stream", 0),
    "a page": (plain(200, "<html><b>Welcome</b></html>", ("Content-Type", "text/html")), "non_stream", 0),
    "plain words": (plain(200, "Internal Server Error", ("Content-Type", "text/plain")), "non_stream", 0),
    "comments only": (stream((0, ": ping\n\n")), "truncated", 0),
    "nothing": (stream(), "truncated", 0),
    "redirect": (plain(307, "", ("Location", "http://other/v1")), "http_3xx", 0),
    "400": (plain(400, '{"error":{"message":"too long"}}'), "http_4xx", 0),
    "401": (plain(401, '{"error":"Unauthorized"}'), "http_401", 0),
    "403": (plain(403, "no"), "http_401", 0),
    "404": (plain(404, '{"detail":"Not Found"}'), "http_4xx", 0),
    "429": (plain(429, "busy"), "http_429", 0),
    "500": (plain(500, ""), "http_5xx", 0),
    "unknown coding": ({**GOOD, "headers": [*GOOD["headers"], ["Content-Encoding", "br"]]}, "malformed", 0),
    "500 in an unknown coding": (plain(500, "xyz", ("Content-Encoding", "br")), "http_5xx", 0),
    "interim response": (
        {"raw": "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
        "http_401",
        0,
    ),
    "bytes after the end": ({"raw": "HTTP/1.1 429 No\r\nContent-Length: 2\r\n\r\nab and more"}, "http_429", 0),
}


@pytest.mark.parametrize("name", ENDS)
def test_each_end_is_one_exchange(name: str, tmp_path: Path) -> None:
    """Kind, number of token events and times that are in order; the next request on the same client works."""
    answer, kind, chunks = ENDS[name]
    with Replay(tmp_path, {"*": [answer, GOOD]}) as server:
        one = client(server.url)
        exchange, after = one.send(b"{}"), one.send(b"{}")
        one.close()
        assert len(server.log()) == 2
    assert exchange.error_kind == kind, exchange.error
    assert (exchange.error is None) == (kind is None)
    assert chunks is None or exchange.chunks == chunks
    assert exchange.sent_s <= (exchange.headers_s or exchange.sent_s) <= exchange.finished_s
    assert after.ok, after.error


@pytest.mark.parametrize(
    ("limits", "kind", "after_s"),
    [
        ({"idle_s": 0.4}, "idle_timeout", 0.4),
        ({"total_s": 0.5}, "total_timeout", 0.5),
    ],
)
def test_stall(limits: dict[str, float], kind: str, after_s: float, tmp_path: Path) -> None:
    """A stream that stops is cut by the limit it passes, with what had come before."""
    with Replay(tmp_path, {"*": stream((0, event("a")), end="stall")}) as server:
        exchange = send(server.url, **limits)
    assert exchange.error_kind == kind
    assert exchange.chunks == 1
    assert after_s <= exchange.finished_s - exchange.sent_s < after_s + 2


def test_silence_before_the_first_byte_has_its_own_limit(tmp_path: Path) -> None:
    """Headers alone are no byte of the answer: a long prefill is not an idle stream."""
    slow = stream((900, event("a", '"stop"')))
    with Replay(tmp_path, {"*": slow}) as server:
        assert send(server.url, first_byte_s=0.3).error_kind == "first_byte_timeout"
        assert send(server.url, idle_s=0.3).ok


def test_slow_but_healthy_stream(tmp_path: Path) -> None:
    """Gaps of 0.5 s under an idle limit of 1 s are no failure over 3.5 s; a total limit of 2 s is its own kind."""
    with Replay(tmp_path, {"*": recorded(CASES / "D13")}) as server:
        jobs = [gevent.spawn(send, server.url, idle_s=1.0, total_s=total_s) for total_s in (60, 2)]
        gevent.joinall(jobs)
    healthy, cut = (job.value for job in jobs)
    assert healthy.ok, healthy.error
    assert healthy.output_tokens == 7
    assert abs((healthy.last_token_s - healthy.first_token_s) / 6 - 0.5) < 0.02
    assert cut.error_kind == "total_timeout"
    assert 2 <= cut.finished_s - cut.sent_s < 3


# ---------------------------------------------------------------------------------------------------- connecting


def test_refused() -> None:
    """Nobody listens."""
    exchange = send(f"http://127.0.0.1:{closed_port()}")
    assert (exchange.error_kind, exchange.http_status) == ("refused", None)
    assert exchange.sent_s <= exchange.finished_s


def test_unknown_host() -> None:
    """The name has no address."""
    assert send("http://no-such-host.invalid").error_kind == "dns"


def test_connect_timeout() -> None:
    """A listener whose queue is full does not answer: the limit for connecting holds, not the system's minutes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):  # fill the queue
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
            waiting.append(one)
        started_s = time.perf_counter()
        exchange = send(f"http://127.0.0.1:{listener.getsockname()[1]}", connect_s=0.3, first_byte_s=0.3)
        if exchange.error_kind == "first_byte_timeout":
            pytest.skip("this system accepts more connections than the listener asked for")
        assert exchange.error_kind == "connect_timeout"
        assert time.perf_counter() - started_s < 3
        for one in waiting:
            one.close()


def test_connecting_is_not_part_of_the_first_token(tmp_path: Path) -> None:
    """``connect_s`` is a duration of its own, blank on a kept connection."""
    with Replay(tmp_path, {"*": GOOD}) as server:
        one = client(server.url)
        first, second = one.send(b"{}"), one.send(b"{}")
        log = server.log()
    assert first.connect_s is not None
    assert first.connect_s > 0
    assert second.connect_s is None
    assert len({entry["connection"] for entry in log}) == 1
    assert all(entry["at_s"] - exchange.sent_s < 0.2 for entry, exchange in zip(log, (first, second), strict=True))


def test_idle_connections_closed_by_the_server(tmp_path: Path) -> None:
    """Twenty requests with pauses longer than the server keeps connections: none fails, none is sent twice."""
    with Replay(tmp_path, {"*": stream((0, event("a", '"stop"')))}, idle_close_s=0.1) as server:
        one = client(server.url)
        for _ in range(20):
            exchange = one.send(b"{}")
            assert exchange.ok, exchange.error
            gevent.sleep(0.15)
        log = server.log()
    assert len(log) == 20
    assert len({entry["connection"] for entry in log}) == 20


def test_close_unseen_by_the_event_loop(tmp_path: Path) -> None:
    """A close that arrived while this process did not run its loop is found before sending."""
    with Replay(tmp_path, {"*": GOOD}, idle_close_s=0.05) as server:
        one = client(server.url)
        assert one.send(b"{}").ok
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.3)"], check=True)  # waits outside the loop
        assert one.send(b"{}").ok
        assert len(server.log()) == 2


def test_kept_connection_that_closes_on_the_request(tmp_path: Path) -> None:
    """It is told as such, and never sent again behind the user's back."""
    with Replay(tmp_path, {"*": [GOOD, {"raw": ""}]}) as server:
        one = client(server.url)
        assert one.send(b"{}").ok
        exchange = one.send(b"{}")
        assert exchange.error_kind == "stale_connection"
        assert len(server.log()) == 2


def test_big_body_to_a_slow_reader_blocks_nobody(tmp_path: Path) -> None:
    """8 MB go out while other greenlets keep running."""
    ticks = []

    def tick() -> None:
        while True:
            ticks.append(1)
            gevent.sleep(0.001)

    with Replay(tmp_path, {"*": GOOD}) as server:
        ticker = gevent.spawn(tick)
        exchange = send(server.url, b"x" * 8_000_000)
        ticker.kill()
        assert exchange.ok, exchange.error
        assert server.log()[0]["bytes"] == exchange.request_bytes == 8_000_000
    assert len(ticks) > 3


@contextmanager
def one_connection(code: str) -> Iterator[str]:
    """URL of a process that accepts one connection as ``c`` and runs ``code`` on it."""
    prelude = "import json, socket\ns = socket.create_server(('127.0.0.1', 0))\n"
    prelude += "print(s.getsockname()[1], flush=True)\nc, _ = s.accept()\n"
    command = [sys.executable, "-c", prelude + textwrap.dedent(code)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield f"http://127.0.0.1:{int(child.stdout.readline())}"
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("then", ["while c.recv(65536): pass", "import time; time.sleep(20)"])
def test_answer_before_the_body_is_read(then: str) -> None:
    """A server that refuses a big request is heard at once, whether it reads the rest or not."""
    code = 'c.recv(1000)\nc.sendall(b"HTTP/1.1 413 No\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")\n'
    with one_connection(code + then) as url:
        exchange = send(url, b"x" * 40_000_000)
    assert (exchange.error_kind, exchange.http_status) == ("http_4xx", 413)
    assert exchange.finished_s - exchange.sent_s < 10


def test_ipv6(tmp_path: Path) -> None:
    """A literal address in brackets, in the URL and in the Host header."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback ::1")
    with Replay(tmp_path, {"*": GOOD}, host="::1") as server:
        exchange = send(server.url)
        assert exchange.ok, exchange.error
        assert server.log()[0]["headers"]["host"] == f"[::1]:{server.port}"


# ----------------------------------------------------------------------------------------------------------- TLS


def test_certificates(certificate: dict[str, str], tmp_path: Path) -> None:
    """Refused by default with the cause; accepted with the CA file, or with the check switched off; kept alive."""
    with Replay(tmp_path, {"*": GOOD}, **certificate) as server:
        refused = send(server.url)
        assert refused.error_kind == "tls"
        assert "certificate" in (refused.error or "")
        for options in ({"ca_file": certificate["cert"]}, {"verify": False}):
            one = client(server.url, **options)
            exchanges = [one.send(b"{}") for _ in range(3)]
            one.close()
            assert [exchange.error for exchange in exchanges] == [None] * 3
            assert {exchange.clock for exchange in exchanges} == {"watcher"}
            assert [exchange.connect_s is None for exchange in exchanges] == [False, True, True]
            assert exchanges[0].text == "ab"


@pytest.mark.parametrize(
    ("answer", "limits", "kind"),
    [
        (stream((0, event("a")), end="abort"), {}, "truncated"),
        (stream((0, event("a")), end="stall"), {"idle_s": 0.3}, "idle_timeout"),
        ({"raw": ""}, {}, "reset"),
    ],
)
def test_ends_under_tls(
    certificate: dict[str, str], answer: Any, limits: dict[str, float], kind: str, tmp_path: Path
) -> None:
    """A close without TLS's goodbye is the same failure as on plain http."""
    with Replay(tmp_path, {"*": answer}, **certificate) as server:
        exchange = send(server.url, ca_file=certificate["cert"], **limits)
    assert exchange.error_kind == kind, exchange.error


def test_plain_server_asked_by_tls() -> None:
    """A wrong scheme is a TLS failure."""
    with one_connection('c.recv(1000)\nc.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")') as url:
        assert send(url.replace("http:", "https:")).error_kind == "tls"


# ------------------------------------------------------------------------------------------------------- clocks


def test_kernel_stamps_lie_within_the_servers_writes(tmp_path: Path) -> None:
    """Ten tokens 10 ms apart: each has the time at which the server wrote it, though this process read late."""
    if sys.platform != "linux":
        pytest.skip("kernel receive stamps need Linux")
    segments = [(10.0 * number, event("x")) for number in range(1, 11)]
    answer = stream(*segments, (101, event("", '"stop"')))

    def hog() -> None:
        while True:  # holds the event loop 30 ms at a time
            end_s = time.perf_counter() + 0.03
            while time.perf_counter() < end_s:
                pass
            gevent.sleep(0)

    with Replay(tmp_path, {"*": answer}) as server:
        one = client(server.url)
        one.send(b"{}")  # the kernel starts stamping a moment after the first socket asks for it
        hogging = gevent.spawn(hog)
        exchange = one.send(b"{}")
        hogging.kill()
        writes = server.log()[1]["writes"][:10]
    assert exchange.clock == "kernel"
    assert exchange.ok, exchange.error
    assert exchange.chunks == 10
    assert exchange.lag_max_s > 0.005
    assert exchange.merged_reads >= 1
    ends = [end_s for _, end_s in writes]
    for at in exchange.token_times:  # a read has the stamp of the last segment in it
        assert any(start_s - 0.001 <= at <= end_s + 0.005 for start_s, end_s in writes), (at, writes)
    assert exchange.token_times[-1] >= ends[-1] - 0.005


def test_watcher_clock_can_be_forced(tmp_path: Path) -> None:
    """Then the exchange says so and has no lag to tell."""
    with Replay(tmp_path, {"*": GOOD}) as server:
        exchange = send(server.url, clock="watcher")
    assert (exchange.clock, exchange.lag_max_s, exchange.ok) == ("watcher", None, True)


def test_events_of_one_read_are_counted(tmp_path: Path) -> None:
    """Three events in one segment share a stamp: one read, and it was merged."""
    with Replay(
        tmp_path, {"*": stream((0, event("a")), (50, event("b") + event("c") + event("d", '"stop"')))}
    ) as server:
        exchange = send(server.url)
    assert exchange.ok, exchange.error
    assert (exchange.chunks, exchange.reads, exchange.merged_reads) == (4, 2, 1)


# ------------------------------------------------------------------------------------------------ content coding


def _coded(body: bytes, coding: str) -> dict[str, Any]:
    pieces = [body[start : start + 7] for start in range(0, len(body), 7)]
    answer = stream(*((0, "") for _ in pieces))
    answer["segments"] = [{"at_ms": 0, "data": piece.decode("latin-1")} for piece in pieces]
    answer["headers"].append(["Content-Encoding", coding])
    return answer


def test_compressed_streams(tmp_path: Path) -> None:
    """gzip, in one or two members, and both kinds of deflate, cut anywhere; none was asked for."""
    text = (event("a") + event("b", '"stop"')).encode()
    raw = zlib.compressobj(wbits=-15)
    bodies = {
        "/gzip": (gzip.compress(text), "gzip"),
        "/members": (gzip.compress(text[:100]) + gzip.compress(text[100:]), "gzip"),
        "/zlib": (zlib.compress(text), "deflate"),
        "/raw": (raw.compress(text) + raw.flush(), "deflate"),
        "/broken": (b"\x1f\x8b\x08broken, not gzip at all", "gzip"),
    }
    answers = {f"{path}/v1/chat/completions": _coded(*body) for path, body in bodies.items()}
    with Replay(tmp_path, answers) as server:
        found = {path: send(server.url + path) for path in bodies}
        assert {entry["headers"]["accept-encoding"] for entry in server.log()} == {"identity"}
    assert found.pop("/broken").error_kind == "malformed"
    assert {path: (exchange.text, exchange.error) for path, exchange in found.items()} == dict.fromkeys(
        found, ("ab", None)
    )


# ----------------------------------------------------------------------------------------------- errors and keys


def test_key_in_an_error_text_is_blanked(tmp_path: Path) -> None:
    """A server that repeats the key in its 401 does not get it into the record."""
    headers = {"Authorization": f"Bearer {KEY}"}
    late = stream((0, 'data: {"error":{"message":"key ' + KEY + ' revoked"}}\n\n'))
    with Replay(tmp_path, {"*": [recorded(CASES / "D09"), late]}) as server:
        one = client(server.url, headers=headers)
        first, second = one.send(b"{}"), one.send(b"{}")
        assert server.log()[0]["headers"]["authorization"] == f"Bearer {KEY}"
    assert (first.error_kind, second.error_kind) == ("http_401", "stream_error")
    for exchange in (first, second):
        assert "***" in (exchange.error or "")
        assert KEY not in repr(exchange)


def test_long_error_page_is_shortened(tmp_path: Path) -> None:
    """HTML loses its tags, the sample stays one short line."""
    page = "<html><style>p {}</style>\n<p>down &amp; out</p>" + "<p>x</p>" * 5000 + "</html>"
    with Replay(tmp_path, {"*": plain(502, page, ("Content-Type", "text/html"))}) as server:
        exchange = send(server.url)
    assert exchange.error_kind == "http_5xx"
    assert len(exchange.error or "") <= 300
    assert "\n" not in (exchange.error or "")
    assert "<p>" not in (exchange.error or "")
    assert "down" in (exchange.error or "")


@pytest.mark.parametrize(("value", "low", "high"), [("2", 2, 2), ("1.5", 1.5, 1.5), ("soon", None, None), ("-3", 0, 0)])
def test_retry_after(value: str, low: float | None, high: float | None, tmp_path: Path) -> None:
    """Seconds, or blank where it cannot be read."""
    with Replay(tmp_path, {"*": plain(429, "busy", ("Retry-After", value))}) as server:
        assert send(server.url).retry_after_s in (low, high)


def test_retry_after_as_a_date(tmp_path: Path) -> None:
    """An HTTP date becomes seconds from now."""
    from email.utils import formatdate

    date = formatdate(time.time() + 100, usegmt=True)
    with Replay(tmp_path, {"*": plain(503, "busy", ("Retry-After", date))}) as server:
        assert 90 < send(server.url).retry_after_s <= 100


def test_a_thousand_texts_make_few_groups(tmp_path: Path) -> None:
    """Ids and addresses stand in the sample only; the text that Locust groups by has none."""
    answers = [plain(500, f'{{"error":{{"message":"internal error, id {n:040x}","code":500}}}}') for n in range(30)]
    answers += [{"raw": ""}] * 10 + [plain(503, f"node {n}") for n in range(10)]
    with Replay(tmp_path, {"*": answers}) as server:
        exchanges = [send(server.url) for _ in answers]
    assert len({exchange.error for exchange in exchanges}) == 41
    groups = [error_group(exchange.error_kind, exchange.http_status) for exchange in exchanges]
    assert {group: groups.count(group) for group in groups} == {"HTTP 500": 30, "reset": 10, "HTTP 503": 10}


# ---------------------------------------------------------------------------------------------- the end of a run


@pytest.mark.parametrize(
    ("answer", "chunks"),
    [(stream((0, event("a")), (100, event("b")), end="stall"), 2), (stream((5000, event("a"))), 0)],
)
def test_killed_in_the_middle(answer: Any, chunks: int, tmp_path: Path) -> None:
    """A kill gives one cancelled exchange with what had come, and the exception to raise again."""
    found = []

    def user(url: str) -> None:
        exchange = send(url)
        found.append(exchange)
        assert exchange.killed is not None
        raise exchange.killed

    with Replay(tmp_path, {"*": answer}) as server:
        job = gevent.spawn(user, server.url)
        gevent.sleep(0.6)
        job.kill()
    assert isinstance(job.value, gevent.GreenletExit)
    assert [exchange.error_kind for exchange in found] == ["cancelled"]
    assert found[0].chunks == chunks
    assert isinstance(found[0].killed, gevent.GreenletExit)


def test_killed_while_connecting(certificate: dict[str, str]) -> None:
    """Also before anything was sent: here in a TLS handshake that the server never answers."""
    found = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        job = gevent.spawn(lambda: found.append(send(f"https://127.0.0.1:{listener.getsockname()[1]}")))
        gevent.sleep(0.3)
        job.kill()
    assert [exchange.error_kind for exchange in found] == ["cancelled"]
    assert isinstance(found[0].killed, gevent.GreenletExit)


# ------------------------------------------------------------------------------------- limits of this process


def run_apart(code: str, *arguments: object, **options: Any) -> str:
    """Runs code in a process of its own, whose limits it may change; with Locust's patches in place."""
    prelude = "import locust, resource, sys, gevent\nfrom tests.contract.clients import client, send\n"
    command = [sys.executable, "-c", prelude + textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2], **options
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_descriptors_beyond_1024(tmp_path: Path) -> None:
    """Keep-alive works where select() no longer does."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1200:
        pytest.skip("the hard limit of open files is below 1200")
    code = """
        import os
        resource.setrlimit(resource.RLIMIT_NOFILE, (1200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        held = [os.dup(0) for _ in range(1050)]
        one = client(sys.argv[1])
        print([one.send(b"{}").error for _ in range(3)])
    """
    with Replay(tmp_path, {"*": GOOD}) as server:
        assert run_apart(code, server.url, stdin=subprocess.DEVNULL) == "[None, None, None]"
        log = server.log()
    assert len(log) == 3
    assert len({entry["connection"] for entry in log}) == 1


def test_no_descriptor_left(tmp_path: Path) -> None:
    """Running out of open files is the generator's failure, by address and by name."""
    code = """
        import os
        send(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = []
        try:
            while True: held.append(os.dup(0))
        except OSError: pass
        found = [send(url).error_kind for url in (sys.argv[1], sys.argv[1].replace("127.0.0.1", "localhost"))]
        os.close(held.pop()); os.close(held.pop())
        print(*found)
    """
    with Replay(tmp_path, {"*": GOOD}) as server:
        assert run_apart(code, server.url, stdin=subprocess.DEVNULL) == "client_limit client_limit"


def test_long_stream_keeps_memory_bounded(tmp_path: Path) -> None:
    """100,000 chunks of 300 bytes (30 MB) are decoded on the way: memory grows by their texts and stamps only."""
    code = """
        chunk = json.dumps({"pad": "p" * 230, "choices": [{"index": 0, "delta": {"content": "x"}}]})
        event = f"data: {chunk}\\n\\n".encode()
        piece = (b"%x\\r\\n%b\\r\\n" % (len(event), event)) * 100
        last = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\\n\\n'
        c.recv(65536)
        c.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        for _ in range(1000):
            c.sendall(piece)
        c.sendall(b"%x\\r\\n%b\\r\\n0\\r\\n\\r\\n" % (len(last), last))
        c.recv(1)
    """
    check = """
        send("http://127.0.0.1:9")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        exchange = send(sys.argv[1])
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(exchange.error, exchange.chunks, len(exchange.text), exchange.response_bytes > 28e6)
        print(grown < 14_000 or grown)
    """
    with one_connection(code) as url:
        assert run_apart(check, url) == "None 100000 100000 True\nTrue"


def test_unpatched_process(tmp_path: Path) -> None:
    """The client does not depend on monkey patching: two streams run at once in a plain process."""
    code = """
import gevent, sys
from tests.contract.clients import send
jobs = [gevent.spawn(send, sys.argv[1]) for _ in range(2)]
gevent.joinall(jobs)
print([job.value.error for job in jobs], abs(jobs[0].value.first_token_s - jobs[1].value.first_token_s) < 0.2)
"""
    with Replay(tmp_path, {"*": stream((400, event("a", '"stop"')))}) as server:
        done = subprocess.run(
            [sys.executable, "-c", code, server.url],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=Path(__file__).parents[2],
        )
    assert done.stdout.strip() == "[None, None] True", done.stderr


class _Loop:
    """A hub's loop by hand: callbacks run in this turn, timers in the next."""

    def __init__(self) -> None:
        self.now: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []

    def run_callback(self, call: Callable[[], None]) -> None:
        self.now.append(call)

    def timer(self, after: float) -> Any:
        assert after == 0.0
        return SimpleNamespace(start=lambda call: self.later.append(call))

    def turn(self) -> None:
        due, self.now, self.later = [*self.now, *self.later], [], []
        for call in due:
            call()


def test_users_are_woken_a_few_at_a_time_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty users of 0.3 ms each: the millisecond is over with the fourth, then sockets are read. None is lost, also
    where one of the woken raises."""
    loop, woken = _Loop(), []
    waker = Waker(loop)
    monkeypatch.setattr("tokenswarm.connection.perf_counter", lambda: 0.0003 * len(woken))

    def wake(number: int) -> Callable[[], None]:
        def call() -> None:
            woken.append(number)
            if number == 3:
                raise RuntimeError("a user failed")

        return call

    for number in range(20):
        waker.add(wake(number))
    with pytest.raises(RuntimeError):
        loop.turn()
    seen = [len(woken)]
    while loop.now or loop.later:
        loop.turn()
        seen.append(len(woken))
    assert seen == [4, 8, 12, 16, 20]
    assert woken == list(range(20))
    waker.add(wake(20))
    loop.turn()
    assert woken[-1] == 20
