"""Lays the clock of a log on that of a run: the offset at which both tell the same throughput.

The tokens that a log tells of each of its intervals are held against those that arrived at the client in the same time
(``timeline.csv``), for every offset that is possible: time zones in quarters of an hour and two minutes of clock error
around each, or any offset at all for stamps that count from the engine's start. The one with the highest correlation
holds, if the log covers the run. Its uncertainty is the range of offsets that fit hardly worse (95 %, by the sum of
squares), and half of what the stamps can tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.figures import Values
from analysis.log_curve import LogCurve

LEAST_FIT = 0.8  # correlation: below it the log is not taken to be of this run
LEAST_COVERED = 0.5  # of the run's tokens
_LEAST_STRETCHES = 4
_ZONE_S = 900.0
_ZONES = range(-56, 53)  # of what is added to the log's clock: UTC+14 to UTC-13
_DRIFT_S = 120.0  # of a clock that is not set well
_CHI_SQUARE_95 = 3.84


@dataclass(frozen=True)
class Alignment:
    """``offset_s``: to add to the log's time to get seconds since 1970 on the clock of the run's load generator.

    ``uncertainty_s``: half width, None where somebody gave the offset. ``correlation`` and ``covered`` (share of the
    run's tokens in the time of the log) say how well both fit; None likewise.
    """

    offset_s: float
    uncertainty_s: float | None = None
    correlation: float | None = None
    covered: float | None = None

    @property
    def text(self) -> str:
        """As people read it."""
        shift = f"log clock {'-' if self.offset_s < 0 else '+'} {abs(self.offset_s):.1f}"
        if self.uncertainty_s is None:
            return f"{shift} s = clock of the run (as given)"
        return (
            f"{shift} ± {self.uncertainty_s:.1f} s = clock of the run, from the generation throughput of both "
            f"(correlation {self.correlation:.3f}, the log covers {self.covered:.0%} of the tokens)"
        )


@dataclass(frozen=True)
class _RunCurve:
    """Tokens that had arrived by a moment, seconds since 1970."""

    knots_s: Values
    arrived: Values

    @classmethod
    def of(cls, timeline: pd.DataFrame) -> _RunCurve:
        seconds = timeline.dropna(subset=["second"]).groupby("second")["tokens"].sum().sort_index()
        starts = seconds.index.to_numpy(dtype="float64")
        knots = np.stack([starts, starts + 1.0], axis=1).ravel()
        before = np.concatenate([[0.0], seconds.to_numpy(dtype="float64").cumsum()])
        return cls(knots, np.stack([before[:-1], before[1:]], axis=1).ravel())

    @property
    def total(self) -> float:
        return float(self.arrived[-1]) if len(self.arrived) else 0.0

    def between(self, begin_s: Values, end_s: Values) -> Values:
        return np.interp(end_s, self.knots_s, self.arrived) - np.interp(begin_s, self.knots_s, self.arrived)


def align(curve: LogCurve, timeline: pd.DataFrame, *, uptime: bool = False) -> Alignment | None:
    """None where the log and the run do not fit together. ``uptime``: stamps count from the engine's start."""
    run = _RunCurve.of(timeline)
    if run.total <= 0 or len(curve) < _LEAST_STRETCHES:
        return None
    step_s = max(0.5, min(curve.interval_s / 2, 10.0))
    best = _best(curve, run, _candidates(curve, run, step_s, uptime))
    if best is None:
        return None
    for finer_s in (step_s / 8, step_s / 64):
        around: Values = best[0] + np.arange(-16, 17, dtype=np.float64) * finer_s
        best = _best(curve, run, around) or best
    offset_s, correlation, covered = best
    if correlation < LEAST_FIT or covered < LEAST_COVERED:
        return None
    return Alignment(offset_s, _uncertainty_s(curve, run, offset_s, correlation), correlation, covered)


def _candidates(curve: LogCurve, run: _RunCurve, step_s: float, uptime: bool) -> Values:
    if uptime:
        first, last = run.knots_s[0] - curve.end_s[-1], run.knots_s[-1] - curve.begin_s[0]
        return np.arange(first, last + step_s, step_s)
    fine = np.arange(-_DRIFT_S, _DRIFT_S + step_s, step_s)
    overlap = (run.knots_s[0] - curve.end_s[-1], run.knots_s[-1] - curve.begin_s[0])
    every = (np.array(_ZONES) * _ZONE_S)[:, None] + fine
    near: Values = every[(every > overlap[0]) & (every < overlap[1])]
    nearest: Values = near[np.argsort(np.abs(near), kind="stable")]  # of equals the clock that needs no correction
    return nearest


def _best(curve: LogCurve, run: _RunCurve, offsets: Values) -> tuple[float, float, float] | None:
    """Offset, correlation and share of the run's tokens that the log covers, at the best of the offsets."""
    best: tuple[float, float, float] | None = None
    score = 0.0
    for offset_s in offsets:
        correlation, covered = _fit(curve, run, float(offset_s))
        if correlation * covered > score + 1e-9:
            best, score = (float(offset_s), correlation, covered), correlation * covered
    return best


def _fit(curve: LogCurve, run: _RunCurve, offset_s: float) -> tuple[float, float]:
    """Correlation of the rates of both over the stretches that end about the run, and the share of its tokens there."""
    pad = 2 * curve.interval_s
    borders = (run.knots_s[0] - pad - offset_s, run.knots_s[-1] + pad - offset_s)
    first, last = np.searchsorted(curve.end_s, borders)
    if last - first < _LEAST_STRETCHES:
        return 0.0, 0.0
    near = slice(first, last)
    begin, end = curve.begin_s[near] + offset_s, curve.end_s[near] + offset_s
    lengths = end - begin
    arrived = run.between(begin, end)
    correlation = _correlation(curve.tokens[near] / lengths, arrived / lengths, lengths)
    # Engines side by side cover the same time: then so much of it is covered several times.
    span = run.between(np.array([begin.min()]), np.array([end.max()]))[0]
    return correlation, min(float(span), float(arrived.sum())) / run.total


def _correlation(one: Values, other: Values, weights: Values) -> float:
    weights = weights / weights.sum()
    left, right = one - weights @ one, other - weights @ other
    spread = float(np.sqrt((weights @ left**2) * (weights @ right**2)))
    return float(weights @ (left * right)) / spread if spread > 0 else 0.0


def _uncertainty_s(curve: LogCurve, run: _RunCurve, offset_s: float, correlation: float) -> float:
    """The offsets whose sum of squares is not significantly larger, from the best one outward."""
    allowed = (1 - correlation**2) * (1 + _CHI_SQUARE_95 / max(1, len(curve) - 2)) + 1e-6
    step_s = max(0.05, curve.interval_s / 50)
    reach = 0.0
    for side in (-1.0, 1.0):
        away = step_s
        while (
            away <= 10 * curve.interval_s and 1 - max(0.0, _fit(curve, run, offset_s + side * away)[0]) ** 2 <= allowed
        ):
            away += step_s
        reach = max(reach, away)
    return reach + curve.step_s / 2
