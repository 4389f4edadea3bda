"""The generation throughput that a log tells, as stretches of time with the tokens made in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analysis.figures import Values
from analysis.log_entries import Kind, LogSample

_USUAL_S = 10.0  # between two lines of vLLM, unless told otherwise
_LONGEST_S = 600.0  # a longer silence is no interval between two lines


@dataclass(frozen=True)
class LogCurve:
    """Stretches in order of their ends; arrays of equal length, times in seconds on the log's clock.

    ``interval_s``: the usual distance of two lines of one engine; ``step_s``: how finely its stamps tell the time.
    """

    begin_s: Values
    end_s: Values
    tokens: Values
    interval_s: float
    step_s: float

    def __len__(self) -> int:
        return len(self.end_s)


def curve_of(samples: list[LogSample]) -> LogCurve:
    """Empty where no sample has a time and tells of generated tokens."""
    known = [one for one in samples if one.time_s is not None]
    fine = any("." in one.stamp for one in known)
    requests = [one for one in known if one.kind == Kind.REQUEST]
    if requests:
        return _of_requests(requests)
    stretches: list[tuple[float, float, float]] = []
    intervals: list[float] = []
    for engine in dict.fromkeys(one.engine for one in known):
        some = [one for one in known if one.engine == engine and one.generation_tok_s is not None]
        usual_s = _usual_interval_s(some)
        intervals.append(usual_s)
        stretches += _of_lines(some, usual_s, whole_seconds=not fine)
    return _curve(stretches, max(intervals, default=_USUAL_S), 0.0 if fine else 1.0)


def _of_lines(samples: list[LogSample], usual_s: float, *, whole_seconds: bool) -> list[tuple[float, float, float]]:
    """A line tells of the time since the line before. Idle intervals, which vLLM does not print, have no tokens."""
    times = _moments(samples, whole_seconds)
    if not times:
        return []
    stretches: list[tuple[float, float, float]] = []
    before = times[0] - usual_s
    interval = samples[0].kind == Kind.INTERVAL
    for sample, time_s in zip(samples, times, strict=True):
        begin = max(before, time_s - (1.5 * usual_s if interval else _LONGEST_S))
        if begin > before:
            begin = time_s - usual_s
            stretches.append((before, begin, 0.0))
        if time_s > begin:
            stretches.append((begin, time_s, (sample.generation_tok_s or 0.0) * (time_s - begin)))
        before = time_s
    return stretches


def _moments(samples: list[LogSample], whole_seconds: bool) -> list[float]:
    """Times of the lines; those that a stamp of whole seconds cannot tell apart are spread evenly over the second."""
    times = [one.time_s or 0.0 for one in samples]
    if not whole_seconds:
        return times
    counts, seen = Counter(times), Counter[float]()
    spread = []
    for time_s in times:
        spread.append(time_s + (seen[time_s] + 0.5) / counts[time_s])
        seen[time_s] += 1
    return spread


def _usual_interval_s(samples: list[LogSample]) -> float:
    times = [one.time_s or 0.0 for one in samples]
    gaps = [after - before for before, after in pairwise(times) if 0 < after - before < _LONGEST_S]
    return float(np.median(gaps)) if gaps else _USUAL_S


def _of_requests(requests: list[LogSample]) -> LogCurve:
    """The tokens of each request, spread over the time of its decoding, in bins of a second."""
    ends = np.array([one.time_s for one in requests], dtype=np.float64)
    lengths = np.array([_decode_s(one) for one in requests])
    tokens = np.array([one.output_tokens or 0 for one in requests], dtype=np.float64)
    edges = np.arange(np.floor((ends - lengths).min()), np.ceil(ends.max()) + 2.0)
    shares = (edges[:, None] - (ends - lengths)) / np.maximum(lengths, 1e-9)
    made = np.clip(shares, 0.0, 1.0) @ tokens
    return LogCurve(edges[:-1], edges[1:], np.diff(made), 1.0, 0.0)


def _decode_s(request: LogSample) -> float:
    if request.generation_tok_s and request.output_tokens:
        return request.output_tokens / request.generation_tok_s
    return request.busy_s or 0.0


def _curve(stretches: list[tuple[float, float, float]], interval_s: float, step_s: float) -> LogCurve:
    columns = np.array(sorted(stretches, key=lambda one: one[1]), dtype=np.float64).reshape(-1, 3)
    return LogCurve(columns[:, 0], columns[:, 1], columns[:, 2], interval_s, step_s)
