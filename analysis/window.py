"""What arrived between two moments of a level: tokens, steady rate, requests in flight, the best second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.figures import BLANK, Figure, Values
from analysis.rates import rate_figure, stretch_edges
from tokenswarm.records import Phase

# A user that starts its next session within this time counts as active throughout.
HAND_OVER_S = 0.1
# Less time at the target than this says nothing about a steady rate.
SHORTEST_STEADY_S = 1.0

# Requests after the warm-up: those that are counted and those that keep the concurrency up beside them.
_AFTER_WARMUP = (Phase.MEASURED.value, Phase.FILL.value, Phase.DRAIN.value)


@dataclass(frozen=True)
class Window:
    """From the first measured send to the last measured finish, seconds on the master's axis."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Counting:
    """How the rates of a level are counted.

    ``whole_window``: as tokens are with ``tail: fill``, whatever of any phase after the warm-up, by the share of its
    time that lies in the window; otherwise only what is measured. ``cut_is_late``: what the end of the level cut
    took at least until then; else it is left out.
    """

    window: Window | None
    whole_window: bool
    failures_infinite: bool
    cut_is_late: bool = False

    def inside(self, starts_s: pd.Series[float], ends_s: pd.Series[float]) -> pd.Series[float]:
        """Shares of these times that lie in the window, 0 to 1."""
        if self.window is None:
            return starts_s * 0.0
        lengths = ends_s - starts_s
        overlap = ends_s.clip(upper=self.window.end_s) - starts_s.clip(lower=self.window.start_s)
        return (overlap.clip(lower=0.0) / lengths).where(lengths > 0, 1.0)


def window_of(measured: pd.DataFrame) -> Window | None:
    """``None`` where nothing was sent or nothing ended."""
    start, end = measured["sent_s"].min(), measured["finished_s"].max()
    if pd.isna(start) or pd.isna(end) or end <= start:
        return None
    return Window(float(start), float(end))


def tokens_arrived(rows: pd.DataFrame, window: Window) -> float:
    """Tokens of these requests inside the window, failed requests included: their tokens did arrive.

    The first token of each counts at its time, the others as spread evenly (``metrics.tokens_in_window``).
    """
    known = rows[["first_token_s", "last_token_s", "output_tokens"]].dropna()
    first, last, tokens = (known[name].to_numpy(dtype="float64") for name in known)
    begun = (window.start_s <= first) & (first <= window.end_s) & (tokens > 0)
    spread = (tokens > 1) & (last > first)
    inside = np.minimum(last, window.end_s) - np.maximum(first, window.start_s)
    share = np.clip(inside, 0.0, None) / np.where(spread, last - first, 1.0)
    return float(np.where(spread, begun + (tokens - 1) * share, np.where(begun, tokens, 0.0)).sum())


def mean_in_flight(rows: pd.DataFrame, window: Window) -> float:
    """Requests in flight, averaged over the window. A request whose end is unknown counts to its last sign of life."""
    sent, ended = _span(rows)
    inside = np.minimum(ended, window.end_s) - np.maximum(sent, window.start_s)
    return float(np.clip(inside, 0.0, None).sum() / window.length_s)


@dataclass(frozen=True)
class Steady:
    """Stretches of the window in which the number of active sessions was at the target; arrays of equal length."""

    starts_s: Values
    ends_s: Values

    @property
    def length_s(self) -> float:
        return float((self.ends_s - self.starts_s).sum())

    def holds(self, moments_s: Values) -> npt.NDArray[np.bool_]:
        """Which moments lie in a stretch; an unknown one does not."""
        if not len(self.starts_s):
            return np.zeros(len(moments_s), dtype=np.bool_)
        at = np.searchsorted(self.starts_s, moments_s, side="right") - 1
        inside: npt.NDArray[np.bool_] = (at >= 0) & (moments_s <= self.ends_s[np.maximum(at, 0)])
        return inside

    def token_rate(self, rows: pd.DataFrame, request_s: float | None) -> Figure:
        """Tokens of these rows that arrived inside the stretches, by their length, per second; blank when that is too
        short. ``request_s``: how long requests take in the mean."""
        length = self.length_s
        if length < SHORTEST_STEADY_S:
            return BLANK
        arrived = Arrivals.of(rows)
        lengths = self.ends_s - self.starts_s
        gained = arrived.until(self.ends_s) - arrived.until(self.starts_s)
        before, reached = lengths.cumsum() - lengths, gained.cumsum() - gained
        edges = stretch_edges(0.0, length, request_s)
        at = np.clip(np.searchsorted(before, edges, side="right") - 1, 0, None)
        moments = np.minimum(self.starts_s[at] + edges - before[at], self.ends_s[at])
        total = reached[at] + arrived.until(moments) - arrived.until(self.starts_s[at])
        return rate_figure(float(gained.sum()) / length, total, edges)


def steady_of(rows: pd.DataFrame, window: Window, target: int) -> Steady:
    """Where at least ``target`` sessions were active, from the sessions of all phases."""
    starts, ends = _sessions(rows)
    times = np.concatenate([starts, ends])
    change = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))])
    order = np.lexsort((-change, times))  # a start before an end at the same instant
    times, active = times[order], change[order].cumsum()
    full = active >= target
    begins = times[:-1][full[:-1]]
    stops = times[1:][full[:-1]]
    begins, stops = np.maximum(begins, window.start_s), np.minimum(stops, window.end_s)
    inside = stops > begins
    return Steady(begins[inside], stops[inside])


@dataclass(frozen=True)
class Arrivals:
    """Number of tokens that had arrived by a moment, for many requests at once.

    As in ``metrics.tokens_in_window``, the first token counts at its own time and the others are spread evenly.
    """

    knots_s: Values
    tokens: Values
    slopes: Values

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Arrivals:
        known = rows.dropna(subset=["first_token_s", "last_token_s", "output_tokens"])
        first = known["first_token_s"].to_numpy(dtype="float64")
        last = known["last_token_s"].to_numpy(dtype="float64")
        tokens = known["output_tokens"].to_numpy(dtype="float64")
        spread = (tokens > 1) & (last > first)
        rate = np.where(spread, (tokens - 1) / np.where(spread, last - first, 1.0), 0.0)
        knots = np.concatenate([first, last])
        jumps = np.concatenate([np.where(spread, 1.0, tokens), np.zeros(len(last))])
        order = np.argsort(knots, kind="stable")
        knots = knots[order]
        slopes = np.concatenate([rate, -rate])[order].cumsum()
        grown = np.concatenate([[0.0], (slopes[:-1] * np.diff(knots)).cumsum()]) if len(knots) else knots
        return cls(knots, grown + jumps[order].cumsum(), slopes)

    def until(self, moments_s: Values) -> Values:
        """Tokens that had arrived at each moment."""
        if not len(self.knots_s):
            return np.zeros(len(moments_s))
        at = np.searchsorted(self.knots_s, moments_s, side="right") - 1
        before = np.maximum(at, 0)
        value = self.tokens[before] + self.slopes[before] * (moments_s - self.knots_s[before])
        return np.where(at >= 0, value, 0.0)


def best_second(timeline: pd.DataFrame, window: Window, unix_minus_master_s: float | None) -> float | None:
    """Largest number of tokens in one whole second of the window; ``None`` where the timeline has no such second.

    Without the clock pair of the master the rows' own phases have to do as the window.
    """
    if unix_minus_master_s is None:
        rows = timeline[timeline["phase"].isin(_AFTER_WARMUP)]
    else:
        start, end = window.start_s + unix_minus_master_s, window.end_s + unix_minus_master_s
        rows = timeline[(timeline["second"] >= start) & (timeline["second"] + 1 <= end)]
    if rows.empty:
        return None
    return float(rows.groupby("second")["tokens"].sum().max())


def _span(rows: pd.DataFrame) -> tuple[Values, Values]:
    """Send and end of every request that was sent."""
    sent = rows["sent_s"]
    ended = rows["finished_s"].fillna(rows["last_token_s"]).fillna(sent)
    known = sent.notna()
    return sent[known].to_numpy(dtype="float64"), ended[known].to_numpy(dtype="float64")


def _sessions(rows: pd.DataFrame) -> tuple[Values, Values]:
    """First send and last finish of every session, stretched over short hand-overs to the same user's next one."""
    columns = ["sent_s", "finished_s", "last_token_s", "worker", "user", "session"]
    sent = rows.loc[rows["sent_s"].notna(), columns]
    spans = pd.DataFrame(
        {
            "start": sent["sent_s"],
            "end": sent["finished_s"].fillna(sent["last_token_s"]).fillna(sent["sent_s"]),
            "worker": sent["worker"].cat.codes,
            "user": sent["user"].fillna(-1),
        }
    )
    if sent["session"].notna().all():
        spans["session"] = sent["session"].cat.codes
        spans = spans.groupby("session", sort=False).agg(
            start=("start", "min"), end=("end", "max"), worker=("worker", "first"), user=("user", "first")
        )
    spans = spans.sort_values(["worker", "user", "start"])
    following = spans.groupby(["worker", "user"], sort=False)["start"].shift(-1)
    gap = following - spans["end"]
    bridged = spans["end"].where(~((gap > 0) & (gap <= HAND_OVER_S)), following)
    return spans["start"].to_numpy(dtype="float64"), bridged.to_numpy(dtype="float64")
