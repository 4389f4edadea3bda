"""What 2,000 rows a second cost the master of two workers, and whether any is lost on the way."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.build import BenchmarkError
from benchmarks.figures import Row
from benchmarks.load import END_LIMIT_S, READY_LIMIT_S, RECORDS, Bench, Shape, wait_until, watch
from benchmarks.one_core import Arriving
from benchmarks.process import PinnedProcess
from benchmarks.server import ReferenceServer

WORKERS = 2
ROWS_PER_S = 2_000
SECONDS = 60.0
TTFT_S = 0.1


def rows(bench: Bench) -> list[Row]:
    """Requests for one token each, from two workers that share the client's core; the master is on the server's.

    A closed loop, whose master hands out a ticket for each row, and an open one, whose master hands out arrival times.
    """
    one = {"tokens": 1, "ttft_us": round(TTFT_S * 1e6), "itl_us": 0, "jitter_us": 0}
    # What a request costs beside its time to first token, about 4 ms, is made up by as many more users.
    closed = Shape(round(ROWS_PER_S * (TTFT_S + 0.004)), **one)
    open_ = Arriving(2_000, per_s=ROWS_PER_S, **one)
    return [
        {"load": name, **_run(bench.part(f"rows-{name}"), shape)}
        for name, shape in (("closed", closed), ("open", open_))
    ]


def _run(part: Bench, shape: Shape, seconds: float = SECONDS) -> Row:
    with ExitStack() as stack:
        server = stack.enter_context(part.server("--records", str(RECORDS)))
        master, workers = _start(stack, part, server, shape, seconds)
        wait_until(lambda: server.stats()["requests"] >= ROWS_PER_S, master, READY_LIMIT_S, "a steady load")
        workers_s = sum(worker.cpu_s() for worker in workers)
        row = watch(server, master, seconds)
        share = (sum(worker.cpu_s() for worker in workers) - workers_s) / seconds
        codes = [process.wait(END_LIMIT_S) for process in (master, *workers)]
        answered = [one.request_id for one in server.truth() if one.first_token_ns is not None]
    if any(codes):
        raise BenchmarkError(f"master and workers ended with {codes}: {master.last_line()}")
    return {
        "rows_per_s": row["requests_per_s"],
        "seconds": seconds,
        "master_cpu": row["client_cpu"],
        "master_us_per_row": row["cpu_us_per_request"],
        "master_rss_mb": row["peak_rss_mb"],
        "workers_cpu": share,
        "others_cpu": max(0.0, row["others_cpu"] - share),
        **held_against(answered, (one["request_id"] for one in part.requests() if one["first_token_s"])),
    }


def held_against(answered: Iterable[str], written: Iterable[str]) -> Row:
    """Ids of the requests that the server answered, and those of the rows in ``requests.csv``."""
    made, found = Counter(answered), Counter(written)
    return {
        "answered": made.total(),
        "rows": found.total(),
        "lost": (made - found).total(),
        "twice": sum(count - 1 for count in found.values()),
    }


def _start(
    stack: ExitStack, bench: Bench, server: ReferenceServer, shape: Shape, seconds: float
) -> tuple[PinnedProcess, list[PinnedProcess]]:
    command = bench.command(server.url, shape, {"duration_s": seconds + 3, "drain_limit_s": 10})
    port = _free_port()
    options = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port]
    on_servers_core = replace(bench, client_core=bench.server_core)
    master = stack.enter_context(on_servers_core.client([*command, *options, "--expect-workers", str(WORKERS)]))
    worker = [*command[:5], "--worker", "--master-host", "127.0.0.1", "--master-port", port]
    workers = [stack.enter_context(bench.client(worker, log=f"worker{number}.log")) for number in range(WORKERS)]
    return master, workers


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
