"""Takes the record of each request off the user's hands and sends it on in batches, with bounded memory.

In a worker the batches go to the master as CSV bytes; in a single process straight into the run folder.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import gevent

from tokenswarm.clocks import wall_s
from tokenswarm.errors import ErrorKind
from tokenswarm.metrics import METRICS
from tokenswarm.quantiles import LogHistogram
from tokenswarm.records import Phase, RequestRecord, to_csv
from tokenswarm.rundir import csv_lines

FLUSH_INTERVAL_S = 0.5
FLUSH_ROWS = 2000  # more rows than this waiting are written at once
GAPS_EVERY = 20  # flushes: a histogram is many lines, and its increments need not be fresh

Sink = Callable[[str, str], None]  # (file of the run folder, CSV lines)
Key = tuple[int | None, str, str]  # level, traffic, phase


class Recorder:
    """Collects rows, per-second increments and chunk gaps of one process."""

    def __init__(self, worker: str, sink: Sink, wall_offset_s: float) -> None:
        """``wall_offset_s``: what to add to this process' monotonic seconds to get unix time."""
        self.worker = worker
        self._sink = sink
        self._wall_offset_s = wall_offset_s
        self._rows: list[RequestRecord] = []
        self._seconds: dict[tuple[Key, int], list[float]] = defaultdict(lambda: [0.0] * 5)
        self._gaps: dict[Key, LogHistogram] = defaultdict(LogHistogram)
        self._flusher: gevent.Greenlet | None = None

    def start(self) -> None:
        self._flusher = gevent.spawn(self._flush_for_ever)

    def add(self, record: RequestRecord, token_times: Sequence[float], tokens_per_event: Sequence[int] | None) -> None:
        """One finished exchange; ``token_times`` are monotonic seconds of its token events."""
        self._rows.append(record)
        key = (record.level, record.traffic, record.phase)
        if token_times:
            self._add_tokens(key, record, token_times, tokens_per_event)
        if record.sent_s is not None and record.finished_s is not None:
            self._add_flight(key, record.sent_s, record.finished_s, failed=not record.ok)
        if len(self._rows) >= FLUSH_ROWS:
            self.flush()

    def _add_tokens(
        self, key: Key, record: RequestRecord, times: Sequence[float], counts: Sequence[int] | None
    ) -> None:
        """Spread the tokens over the seconds in which their events came; where the server does not tell how
        many an event carried, every event gets the same share."""
        offset = self._wall_offset_s
        share = (record.output_tokens or len(times)) / len(times)
        seconds = self._seconds
        start, end = 0, len(times)
        while start < end:
            second = int(times[start] + offset)
            stop = max(start + 1, bisect_left(times, second + 1 - offset, start))
            seconds[(key, second)][0] += sum(counts[start:stop]) if counts else share * (stop - start)
            start = stop
        self._gaps[key].add_gaps(times)

    def _add_flight(self, key: Key, sent_s: float, finished_s: float, *, failed: bool) -> None:
        start, end = sent_s + self._wall_offset_s, finished_s + self._wall_offset_s
        first, last = int(start), int(end)
        seconds = self._seconds
        seconds[(key, first)][1] += 1
        seconds[(key, last)][3 if failed else 2] += 1
        for second in range(first, last + 1):
            seconds[(key, second)][4] += min(end, second + 1) - max(start, second)

    def flush(self, *, gaps: bool = False) -> None:
        """Hand the rows and seconds collected so far to the sink, and the chunk gaps where asked."""
        if self._rows:
            rows, self._rows = self._rows, []
            self._sink("requests", to_csv(rows))
        if self._seconds:
            seconds, self._seconds = self._seconds, defaultdict(lambda: [0.0] * 5)
            self._sink("timeline", csv_lines(_timeline_row(self.worker, *item) for item in seconds.items()))
        if gaps and self._gaps:
            histograms, self._gaps = self._gaps, defaultdict(LogHistogram)
            self._sink("chunk_gaps", csv_lines(_gap_rows(histograms)))

    def _flush_for_ever(self) -> None:
        for count in itertools.count(1):
            gevent.sleep(FLUSH_INTERVAL_S)
            self.flush(gaps=count % GAPS_EVERY == 0)

    def close(self) -> None:
        if self._flusher is not None:
            self._flusher.kill(block=False)
        self.flush(gaps=True)


def _timeline_row(worker: str, key_second: tuple[Key, int], values: list[float]) -> list[Any]:
    (level, traffic, phase), second = key_second
    tokens, *events, in_flight_s = values
    return [worker, level, traffic, phase, second, round(tokens, 3), *map(int, events), in_flight_s]


def _gap_rows(gaps: dict[Key, LogHistogram]) -> list[list[Any]]:
    return [
        [*key, bucket, count] for key, histogram in gaps.items() for bucket, count in sorted(histogram.counts.items())
    ]


_BESIDE = tuple((METRICS[f"{title.lower()}_s"], title) for title in ("TTFT", "TPOT", "E2E"))


class LocustStatistics:
    """What one record adds to Locust's own statistics.

    The request event fires once. TTFT, TPOT, E2E and tokens stand beside it as rows of type ``LLM`` that do
    not count in Locust's Aggregated row. Row names carry traffic class and level, so that Locust's own CSV
    files alone give the table.
    """

    def __init__(self, environment: Any) -> None:
        self._wall_offset_s = wall_s() - perf_counter()
        self._fire = environment.events.request.fire
        self._stats = environment.stats
        self._names: dict[Key, str] = {}

    def add(self, record: RequestRecord, label: str, reason: str | None) -> None:
        """``label``: of the level, or empty; ``reason``: the failure's group, ``None`` for a success."""
        cut = record.error_kind == ErrorKind.CANCELLED  # by the end of the run: neither success nor failure
        part = "cut" if cut else record.phase
        key = (record.level, record.traffic, part)
        name = self._names.get(key)
        if name is None:
            words = (record.traffic, label, "" if part == Phase.MEASURED else part)
            name = self._names[key] = " ".join(word for word in words if word)
        sent_s = record.sent_s or 0.0
        self._fire(
            request_type="POST",
            name=name,
            response_time=None if record.sent_s is None else ((record.finished_s or sent_s) - sent_s) * 1e3,
            response_length=record.response_bytes or 0,
            exception=None if cut else reason,
            context={"record": record},
            response=None,
            start_time=sent_s + self._wall_offset_s,
            url=None,
        )
        if reason is None and record.phase == Phase.MEASURED:
            self._beside(name, record)

    def _beside(self, name: str, record: RequestRecord) -> None:
        for metric, title in _BESIDE:
            value = metric.of(record)
            if value is not None:
                self._stats.get(f"{name} {title}", "LLM").log(value * 1e3, 0)
        if record.output_tokens is not None:
            self._stats.get(f"{name} tokens", "LLM").log(record.output_tokens, 0)

    def level(self, label: str, wall_s: float, window_tokens: float) -> None:
        """The two rows of a finished level, one sample each."""
        prefix = f"{label} " if label else ""
        self._stats.get(f"{prefix}wall", "LLM").log(wall_s * 1e3, 0)
        self._stats.get(f"{prefix}window tokens", "LLM").log(window_tokens, 0)

    def simulated(self, preset: str | None) -> None:
        """Mark Locust's own tables and files: no real server was measured."""
        self._stats.get(f"SIMULATED {preset or ''}".strip(), "LLM").log(0, 0)
