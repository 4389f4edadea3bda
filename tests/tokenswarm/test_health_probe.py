"""The probe of a load-generating process: standstills show, rows keep to levels, and what is unknown is blank."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from time import perf_counter

import gevent
import pytest

from tokenswarm.health import COLUMNS, Counts
from tokenswarm.health_probe import BEAT_S, HealthProbe, lateness, rss_bytes
from tokenswarm.quantiles import LogHistogram


class Worker:
    """What a probe asks, and the rows that it writes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.level: int | None = 0
        self.counts = Counts(events=100, in_session=3, waiting=1)
        self.probe = HealthProbe("w1", self.write, lambda: self.level, lambda: self.counts)

    def write(self, file: str, text: str) -> None:
        assert file == "health"
        self.lines.append(text)

    def rows(self) -> list[dict[str, str]]:
        self.probe.close()
        return list(csv.DictReader(io.StringIO(",".join(COLUMNS) + "\n" + "".join(self.lines))))


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker()
    one.probe.start()
    yield one
    one.probe.close()


def test_a_process_that_stands_still_for_100_ms_has_that_loop_lag(worker: Worker) -> None:
    """A block of 100 ms is seen as a beat that comes 80 to 100 ms late, and as the beats that were due meanwhile."""
    gevent.sleep(0.05)
    time.sleep(0.1)  # the real one: the whole process stands still
    gevent.sleep(0.05)
    (row,) = worker.rows()
    assert float(row["loop_lag_max_s"]) >= 0.079
    counts = {int(b): int(n) for b, n in (pair.split(":") for pair in row["loop_lags"].split())}
    late = sum(n for bucket, n in counts.items() if LogHistogram.value_of(bucket) > BEAT_S)
    assert late >= 3  # of the beats 80, 60, 40 and 20 ms late at least
    assert float(row["loop_lag_p95_s"]) >= 0.04


@pytest.mark.parametrize(
    ("lag_s", "late_s"),
    [
        (-0.0004, [0.0]),
        (0.003, [0.003]),
        (0.1, [0.1, 0.08, 0.06, 0.04, 0.02, 0.0]),
        (0.05, [0.05, 0.03, 0.01]),
    ],
)
def test_every_beat_that_was_due_in_a_standstill_is_late(lag_s: float, late_s: list[float]) -> None:
    """One every 20 ms, each by what was left; a beat that comes early is in time."""
    assert lateness(lag_s) == pytest.approx(late_s)


def test_a_standstill_of_an_hour_is_no_flood() -> None:
    """Fewer beats at larger distances stand for it: half of them are later than half an hour."""
    late_s = sorted(lateness(3600.0))
    assert 2500 <= len(late_s) <= 5001
    assert late_s[len(late_s) // 2] == pytest.approx(1800.0, rel=0.01)


def test_a_row_ends_with_its_level(worker: Worker) -> None:
    """No row lies in two levels, their times touch, and between levels the level is blank."""
    gevent.sleep(0.06)
    worker.level = None
    gevent.sleep(0.06)
    worker.level = 1
    gevent.sleep(0.06)
    rows = worker.rows()
    assert [row["level"] for row in rows] == ["0", "", "1"]
    ends = [float(row["begin_s"]) + float(row["length_s"]) for row in rows]
    assert [float(row["begin_s"]) for row in rows[1:]] == pytest.approx(ends[:-1], abs=1e-3)


def test_totals_become_differences_and_unknown_is_blank(worker: Worker) -> None:
    """Events of the row are the new ones; what nobody tells is blank, and so is a hold that cannot happen."""
    gevent.sleep(0.03)
    worker.counts = Counts(events=350, in_session=5, waiting=2)
    (row,) = worker.rows()
    assert (row["worker"], row["events"], row["in_session"], row["waiting"]) == ("w1", "250", "5", "2")
    assert (row["backlog_bytes"], row["held_s"]) == ("", "")


def test_time_held_back_is_that_of_the_row(worker: Worker) -> None:
    """A total of 2 s that became 2.5 s is half a second; one that began anew is its own time."""
    worker.counts = Counts(0, 0, 0, backlog_bytes=10, held_s=2.0)
    worker.level = 1
    gevent.sleep(0.05)
    worker.counts = Counts(0, 0, 0, backlog_bytes=4000, held_s=2.5)
    worker.level = 2
    gevent.sleep(0.05)
    worker.counts = Counts(0, 0, 0, backlog_bytes=0, held_s=0.25)
    rows = worker.rows()
    assert [row["held_s"] for row in rows[1:]] == ["0.500000", "0.250000"]
    assert [row["backlog_bytes"] for row in rows] == ["10", "4000", "0"]


def test_cpu_share_is_of_one_core(worker: Worker) -> None:
    """A process that computes for about half of the time has about half a core; the machine may give it less."""
    until_s = perf_counter() + 0.4
    while perf_counter() < until_s:
        busy_s = time.process_time() + 0.02
        while time.process_time() < busy_s:
            pass
        gevent.sleep(0.02)
    (row,) = worker.rows()
    assert 0.1 < float(row["cpu_share"]) < 0.75


def test_a_long_run_has_a_row_a_second(worker: Worker) -> None:
    """Rows come by themselves, and the time between them is about 1 s."""
    gevent.sleep(1.1)
    assert len(worker.lines) == 1
    first, _ = worker.rows()
    assert float(first["length_s"]) >= 1.0


def test_memory_is_that_of_this_process() -> None:
    """At least what a new list of 50 MB holds."""
    before = rss_bytes()
    if before is None:
        pytest.skip("no /proc here")
    ballast = b"x" * 50_000_000
    after = rss_bytes()
    assert after is not None
    assert after - before > 0.9 * len(ballast)
