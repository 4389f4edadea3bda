"""Batches of rows, per-second increments and chunk gaps; Locust's own rows beside."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from tokenswarm.quantiles import LogHistogram
from tokenswarm.recorder import LocustStatistics, Recorder
from tokenswarm.records import COLUMNS, RequestRecord
from tokenswarm.rundir import HEADERS


class Files:
    """What was handed to the sink, as CSV rows by file."""

    def __init__(self) -> None:
        self.text: dict[str, str] = defaultdict(str)
        self.recorder = Recorder("w0", self._sink, wall_offset_s=1000.0)

    def _sink(self, file: str, lines: str) -> None:
        self.text[file] += lines

    def rows(self, file: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.text[file]), fieldnames=HEADERS[file]))


def _record(**changes: Any) -> RequestRecord:
    facts: dict[str, Any] = {
        "phase": "measured", "ticket": 3, "traffic": "chat", "level": 0, "concurrency": 4, "sent_s": 10.25,
        "first_token_s": 10.5, "last_token_s": 12.5, "finished_s": 12.75, "output_tokens": 5, "chunks": 5,
    }  # fmt: skip
    return RequestRecord(**(facts | changes))


TIMES = [10.5, 11.0, 11.5, 12.0, 12.5]


def test_a_row_has_every_column_and_blanks_for_the_unknown() -> None:
    """Unknown facts are blank and never 0; times have microseconds; text with commas and lines is quoted."""
    files = Files()
    files.recorder.add(_record(error_kind="reset", error='cut, "hard"\nreally', cached_tokens=0), TIMES, None)
    files.recorder.flush()
    (row,) = files.rows("requests")
    assert tuple(row) == COLUMNS
    assert (row["sent_s"], row["finished_s"], row["ticket"]) == ("10.250000", "12.750000", "3")
    assert (row["prompt_tokens"], row["cached_tokens"], row["retry_after_s"]) == ("", "0", "")
    assert row["error"] == 'cut, "hard"\nreally'


def test_the_timeline_adds_up_by_hand() -> None:
    """Five tokens from 10.5 to 12.5 s, one second of wall time a row: 1, 2 and 2; in flight 0.75, 1 and 0.75 s."""
    files = Files()
    files.recorder.add(_record(), TIMES, None)
    files.recorder.flush()
    rows = {row["second"]: row for row in files.rows("timeline")}
    assert {second: float(row["tokens"]) for second, row in rows.items()} == {"1010": 1, "1011": 2, "1012": 2}
    assert [float(rows[second]["in_flight_s"]) for second in ("1010", "1011", "1012")] == [0.75, 1.0, 0.75]
    assert (rows["1010"]["started"], rows["1012"]["finished"], rows["1012"]["failed"]) == ("1", "1", "0")


def test_tokens_of_an_event_are_the_servers_where_it_tells_them() -> None:
    """Two events of 1 and 4 tokens: told by the server as such, else half of five each."""
    for counts, expected in (([1, 4], [1.0, 4.0]), (None, [2.5, 2.5])):
        files = Files()
        files.recorder.add(_record(chunks=2), [10.5, 11.5], counts)
        files.recorder.flush()
        tokens = {row["second"]: float(row["tokens"]) for row in files.rows("timeline") if float(row["tokens"])}
        assert list(tokens.values()) == expected


def test_chunk_gaps_are_a_histogram_within_one_percent() -> None:
    """Four gaps of half a second; TTFT is not among them. They are written when the recorder closes."""
    files = Files()
    files.recorder.add(_record(), TIMES, None)
    files.recorder.flush()
    assert files.rows("chunk_gaps") == []
    files.recorder.close()
    rows = files.rows("chunk_gaps")
    counts = {int(row["bucket"]): int(row["count"]) for row in rows}
    assert sum(counts.values()) == 4
    assert LogHistogram(counts).quantile(0.5) == pytest.approx(0.5, rel=0.01)


def test_nothing_is_kept_after_a_flush() -> None:
    """Memory is bounded: a second flush has nothing to write."""
    files = Files()
    files.recorder.add(_record(), TIMES, None)
    files.recorder.flush(gaps=True)
    before = dict(files.text)
    files.recorder.flush(gaps=True)
    assert dict(files.text) == before


class Environment:
    """Stands for Locust's: a request event and statistics that keep what they are told. The real ones patch sockets
    on import; whole Locust runs are tested elsewhere."""

    def __init__(self) -> None:
        self.fired: list[dict[str, Any]] = []
        self.beside: dict[str, float] = {}
        self.events = SimpleNamespace(request=SimpleNamespace(fire=lambda **event: self.fired.append(event)))
        self.stats = SimpleNamespace(get=self._entry)

    def _entry(self, name: str, kind: str) -> Any:
        assert kind == "LLM"
        return SimpleNamespace(log=lambda value, _size: self.beside.update({name: value}))


def test_the_request_event_fires_once_and_metrics_stand_beside_it() -> None:
    """One event of 2,500 ms; TTFT 250, TPOT 500, E2E 2,250 ms and 5 tokens as rows."""
    environment = Environment()
    LocustStatistics(environment).add(_record(), "c=4", None)
    (event,) = environment.fired
    assert (event["name"], event["response_time"], event["exception"]) == ("chat c=4", 2500.0, None)
    assert environment.beside == {
        "chat c=4 TTFT": 250.0,
        "chat c=4 TPOT": 500.0,
        "chat c=4 E2E": 2250.0,
        "chat c=4 tokens": 5,
    }


def test_a_failure_has_no_latencies_and_a_cut_request_is_no_failure() -> None:
    """Failures carry their group; what the end of the run cut has a row of its own."""
    environment = Environment()
    statistics = LocustStatistics(environment)
    statistics.add(_record(error_kind="http_5xx"), "c=4", "HTTP 503")
    statistics.add(_record(error_kind="cancelled", phase="drain"), "c=4", "cancelled")
    statistics.add(_record(phase="warmup"), "", None)
    assert [(event["name"], event["exception"]) for event in environment.fired] == [
        ("chat c=4", "HTTP 503"),
        ("chat c=4 cut", None),
        ("chat warmup", None),
    ]
    assert environment.beside == {}
