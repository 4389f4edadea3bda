"""What is measured: each section runs its loads one after the other and returns its table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from benchmarks import analysis_rows, figures, images, master, one_core, veth
from benchmarks.figures import Row
from benchmarks.load import Bench, Shape, steady_run, wait_until, watch

SECONDS = 8.0
LIMIT_S = 300.0


def paced(bench: Bench, streams: Sequence[int] = (1, 32, 128, 512), *, client: str = "locust") -> list[Row]:
    """TTFT 50 ms, 128 tokens of 10 ms; streams spread over the interval, then all in step."""
    rows = []
    for in_step in (False, True):
        for count in streams:
            shape = Shape(count, in_step=in_step)
            part = bench.part(f"{client}-{'in-step' if in_step else 'spread'}-{count}")
            row, _ = steady_run(part, shape, SECONDS, client=client)
            rows.append({"client": client, "streams": count, "in_step": in_step, **row})
    return rows


def truth(bench: Bench, streams: Sequence[int] = (32, 128), repeat: int = 5) -> list[Row]:
    """The client's times against the server's stamps at 10 ms a token, median of several runs."""
    rows = []
    for count in streams:
        runs = [steady_run(bench.part(f"truth-{count}"), Shape(count), 3.0)[0] for _ in range(repeat)]
        rows.append({"streams": count, "runs": repeat, **figures.medians(runs)})
    return rows


def unpaced(bench: Bench, repeat: int = 3) -> list[Row]:
    """As fast as it goes: 64 streams of 256 tokens, then one-token requests of 64 users; medians."""
    rows = []
    for name, tokens in (("64 streams x 256 tokens", 256), ("64 users, one token", 1)):
        shape = Shape(64, tokens=tokens, ttft_us=0, itl_us=0, jitter_us=0, input_tokens=16)
        runs = [_flood(bench.part(f"unpaced-{tokens}"), shape) for _ in range(repeat)]
        rows.append({"load": name, "runs": repeat, **figures.medians(runs)})
    return rows


def _flood(bench: Bench, shape: Shape) -> Row:
    with bench.server() as server:
        closed = {"duration_s": 8, "drain_limit_s": 10}
        with bench.locust(server.url, shape, closed) as process:
            started = 2 * shape.streams
            wait_until(lambda: server.stats()["requests"] >= started, process, 60, "load")
            row = watch(server, process, 5.0)
            row["exit_code"] = process.wait(LIMIT_S)
    row["failed"] = _failed(bench)
    return row


def _failed(bench: Bench) -> int:
    return sum(1 for row in bench.requests() if row["error_kind"] not in ("", "cancelled"))


def memory(bench: Bench, requests: int = 100_000) -> list[Row]:
    """Peak resident memory of one Locust process over many one-token requests, and at a tenth of them."""
    part = bench.part("memory")
    shape = Shape(64, tokens=1, ttft_us=0, itl_us=0, jitter_us=0, input_tokens=16)
    peaks: dict[int, float] = {}
    with part.server("--records", str(requests + 100_000)) as server:
        closed = {"sessions": requests, "tail": "drain", "time_limit_s": LIMIT_S}
        with part.locust(server.url, shape, closed) as process:
            while process.running:
                done, peak = server.stats()["finished"], process.peak_rss_mb()
                if peak is not None:
                    peaks[done] = peak
                time.sleep(0.1)
            code = process.wait(1)
    tenth = [peak for done, peak in peaks.items() if done >= requests / 10]
    rows = part.requests()
    return [
        {
            "requests": len(rows),
            "failed": _failed(part),
            "exit_code": code,
            "peak_rss_mb": max(peaks.values()),
            "peak_rss_mb_at_a_tenth": tenth[0] if tenth else None,
        }
    ]


def start_up(bench: Bench, repeat: int = 5) -> list[Row]:
    """From the command to the first chat request at the server; and which heavy packages the load process imports."""
    seconds = [_first_request(bench.part("start-up"))[0] for _ in range(repeat)]
    part = bench.part("imports")
    _first_request(part, {"PYTHONPROFILEIMPORTTIME": "1"})
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in (part.folder / "client.log").read_text(errors="replace").splitlines()
        if line.startswith("import time:")
    }
    return [
        {
            "runs": repeat,
            "first_request_s": median(seconds),
            "slowest_s": max(seconds),
            "heavy_imports": " ".join(sorted(imported & {"pandas", "numpy", "transformers", "torch", "tokenizers"})),
            "packages": len(imported),
        }
    ]


def _first_request(bench: Bench, environment: dict[str, str] | None = None) -> tuple[float, int]:
    """Seconds from the start of the command to the server's receive stamp of the first request in the run's rows."""
    with bench.server() as server:
        shape = Shape(1, tokens=1, ttft_us=0, itl_us=0)
        with bench.locust(server.url, shape, {"sessions": 2}, environment=environment) as process:
            code = process.wait(60)
        own = {row["request_id"] for row in bench.requests()}
        received = [row.received_ns for row in server.truth() if row.request_id in own]
    return (min(received) - process.started_ns) * 1e-9, code


SECTIONS: dict[str, Callable[[Bench], list[Row]]] = {
    "start-up": start_up,
    "paced": paced,
    "client": lambda bench: paced(bench, client="client"),
    "truth": truth,
    "unpaced": unpaced,
    "memory": memory,
    "images": images.images,
    "beside": images.beside,
    "veth": veth.run,
    "thinking": one_core.thinking,
    "streams": one_core.streams,
    "arrivals": one_core.arrivals,
    "rows": master.rows,
    "analysis": analysis_rows.analysis,
}
