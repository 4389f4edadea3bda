"""What a log tells of each level of a run, once its clock is laid on that of the run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from analysis import window as windows
from analysis.engine_concerns import Concern, log_concerns
from analysis.engine_log import EngineLog
from analysis.figures import ratio
from analysis.levels import LevelRow
from analysis.log_alignment import Alignment
from analysis.log_curve import LogCurve
from analysis.log_entries import Drafting, Kind, LogSample
from analysis.run_folder import Run
from tokenswarm.records import Phase


@dataclass(frozen=True)
class LogLevel:
    """One level as the log shows it; None where no line of it tells. Counts of requests are sums over the engines.

    ``moments``: lines about the load, in the measured time of the level. ``generation_tok_s`` rests on the intervals
    that lie wholly in it. Hit rates are those of the last line: over the last 1,000 requests, so that a level with
    fewer also shows what came before it. ``preemptions`` None: the log does not tell them.
    """

    row: LevelRow
    moments: int = 0
    running_mean: float | None = None
    running_max: float | None = None
    waiting_mean: float | None = None
    waiting_max: float | None = None
    waiting_share: float | None = None  # of the lines
    kv_usage_max: float | None = None
    generation_tok_s: float | None = None
    preemptions: int | None = None
    cached_share: float | None = None  # of the prompt tokens of the level's prefill batches, where those are told
    prefix_hit_rate: float | None = None
    mm_hit_rate: float | None = None
    accept_rate: float | None = None
    accept_len: float | None = None
    concerns: list[Concern] = field(default_factory=list)


def log_levels(run: Run, rows: list[LevelRow], log: EngineLog, curve: LogCurve, aligned: Alignment) -> list[LogLevel]:
    """In the order of ``rows``."""
    found = []
    for row in rows:
        window = _window(run, row, aligned, curve.step_s)
        level = LogLevel(row) if window is None else _level(row, log, curve, window)
        level.concerns.extend(log_concerns(level))
        found.append(level)
    return found


def _window(run: Run, row: LevelRow, aligned: Alignment, step_s: float) -> tuple[float, float] | None:
    """The measured time on the log's clock, without what the offset leaves uncertain."""
    rows = run.requests[run.requests["phase"] == Phase.MEASURED]
    measured = windows.window_of(rows[rows["level"].isna() if row.level is None else rows["level"] == row.level])
    if measured is None or run.unix_minus_master_s is None:
        return None
    shift = run.unix_minus_master_s - aligned.offset_s
    margin = step_s / 2 if aligned.uncertainty_s is None else aligned.uncertainty_s
    window = measured.start_s + shift + margin, measured.end_s + shift - margin
    return window if window[1] > window[0] else None


def _level(row: LevelRow, log: EngineLog, curve: LogCurve, window: tuple[float, float]) -> LogLevel:
    half_s = curve.step_s / 2  # stamps of whole seconds are on average so much too early, in the curve they are not
    stamped = window[0] - half_s, window[1] - half_s
    samples = [one for one in log.found.samples if _inside(one.time_s, stamped)]
    drafts = [one for one in log.found.drafting if _inside(one.time_s, stamped)]
    # A prefill batch tells how many ran beside it, not with it.
    running = _over_engines([one for one in samples if one.kind != Kind.PREFILL], "running")
    waiting = _over_engines(samples, "waiting")
    last = samples[-1] if samples else None
    rate, length = _acceptance(drafts, samples)
    if log.found.samples and log.found.samples[0].kind == Kind.REQUEST:
        running = [_mean_busy(log.found.samples, window)]
    return LogLevel(
        row,
        moments=len(samples),
        running_mean=_mean(running),
        running_max=max(running, default=None),
        waiting_mean=_mean(waiting),
        waiting_max=max(waiting, default=None),
        waiting_share=_mean([float(value > 0) for value in waiting]),
        kv_usage_max=max((one.kv_usage for one in samples if one.kv_usage is not None), default=None),
        generation_tok_s=_rate(curve, window),
        preemptions=_preemptions(log, samples, stamped),
        cached_share=_cached_share(samples),
        prefix_hit_rate=None if last is None else last.prefix_hit_rate,
        mm_hit_rate=None if last is None else last.mm_hit_rate,
        accept_rate=rate,
        accept_len=length,
    )


def _inside(time_s: float | None, window: tuple[float, float]) -> bool:
    return time_s is not None and window[0] <= time_s <= window[1]


def _over_engines(samples: list[LogSample], name: str) -> list[float]:
    """One sum for each stamp that all engines of the level have; a single engine has one for each line."""
    engines = {one.engine for one in samples}
    if len(engines) < 2:
        return [float(value) for one in samples if (value := getattr(one, name)) is not None]
    latest: dict[str, float] = {}
    sums = []
    for one in samples:
        if (value := getattr(one, name)) is not None:
            latest[one.engine] = float(value)
        if len(latest) == len(engines):
            sums.append(sum(latest.values()))
            latest.clear()
    return sums


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _mean_busy(samples: list[LogSample], window: tuple[float, float]) -> float:
    """Requests at work, averaged over the window, where each line is about one request that ended."""
    ends = np.array([one.time_s or 0.0 for one in samples])
    begins = ends - np.array([one.busy_s or 0.0 for one in samples])
    inside = np.minimum(ends, window[1]) - np.maximum(begins, window[0])
    return float(np.clip(inside, 0.0, None).sum()) / (window[1] - window[0])


def _rate(curve: LogCurve, window: tuple[float, float]) -> float | None:
    inside = (curve.begin_s >= window[0]) & (curve.end_s <= window[1])
    if not inside.any():
        return None
    # Engines side by side have stretches of the same time: the rates of each are added.
    span = float(curve.end_s[inside].max() - curve.begin_s[inside].min())
    return float(curve.tokens[inside].sum()) / span


def _preemptions(log: EngineLog, samples: list[LogSample], window: tuple[float, float]) -> int | None:
    told = [one.preemptions for one in samples if one.preemptions is not None]
    told += [one.requests for one in log.found.preempted if _inside(one.time_s, window)]
    return sum(told) if told else None


def _cached_share(samples: list[LogSample]) -> float | None:
    told = [(one.cached_tokens, one.new_tokens) for one in samples if one.kind == Kind.PREFILL]
    cached, new = (sum(count or 0 for count in counts) for counts in zip(*told, strict=True)) if told else (0, 0)
    return ratio(cached, cached + new)


def _acceptance(drafts: list[Drafting], samples: list[LogSample]) -> tuple[float | None, float | None]:
    """Accepted / drafted tokens of all intervals together, and tokens a step; where only rates are told, their mean."""
    counted = [(one.accepted, one.drafted) for one in drafts if one.accepted is not None and one.drafted]
    if counted:
        accepted, drafted = (sum(numbers) for numbers in zip(*counted, strict=True))
        steps = [_steps(one) for one in drafts]
        length = 1 + accepted / sum(filter(None, steps)) if all(steps) else None
        return accepted / drafted, length
    rates = [one.rate for one in drafts if one.rate is not None]
    rates += [one.accept_rate for one in samples if one.accept_rate is not None]
    return _mean(rates), _mean([one.accept_len for one in samples if one.accept_len is not None])


def _steps(one: Drafting) -> float | None:
    """Steps in which something was drafted: each verifies one token of its own beside those accepted."""
    if one.accepted is None or one.mean_length is None or one.mean_length <= 1:
        return None
    return one.accepted / (one.mean_length - 1)
