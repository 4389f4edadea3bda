"""What became of the sessions that arrived by the clock in one level: an open loop, or a replayed trace.

Counts are of sessions, because these arrive: of one that has several turns, the later ones follow its answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from analysis.censored import censored_figures
from analysis.effective_sample import EffectiveSample
from analysis.figures import Figure, Values, number, quantile_figure, ratio
from analysis.limits import mapping
from analysis.requests_csv import values_of
from analysis.run_folder import Run
from analysis.window import Window
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Phase

# Each with the fact from which it counts.
_TIMES = (("scheduled_ttft", "scheduled_s"), ("scheduled_e2e", "scheduled_s"), ("ttft", "sent_s"), ("e2e", "sent_s"))


class Fate(StrEnum):
    """What became of one session."""

    OK = "ok"
    FAILED = "failed"
    NOT_ADMITTED = "not_admitted"
    CUT = "cut"  # by the end of the level or the run
    OPEN = "open"  # its last row is no end: its worker died, or the run did


@dataclass
class LevelArrivals:
    """The measured sessions of a level or of one class of it.

    ``scheduled``: as the load generator counted them. ``lost``: handed to a worker that died. Both are ``None`` where
    nobody tells, ``lost`` also for one class among several. ``rate_per_s``: mean rate asked for.
    """

    rate_per_s: float | None
    scheduled: int | None
    ok: int
    failed: int
    not_admitted: int
    unfinished: int
    lost: int | None
    figures: dict[str, Figure] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """Scheduled ones of which nothing is known; below 0 where more are known than were scheduled."""
        known = self.ok + self.failed + self.not_admitted + self.unfinished + (self.lost or 0)
        return 0 if self.scheduled is None else self.scheduled - known


def clocked_levels(run: Run) -> set[int]:
    """The levels whose sessions arrive by the clock: as the scenario, the plan or ``levels.csv`` has it, else those
    without users."""
    load = mapping(run.scenario.get("load"))
    by_clock = bool(load.get("open") or load.get("replay"))
    planned = {level["level"]: level for level in run.planned_levels if "level" in level}
    clocked = {
        number
        for number, level in planned.items()
        if by_clock or level.get("arrivals") or level.get("replayed") or level.get("rate_per_s") is not None
    }
    clocked |= {int(level) for level in run.levels.loc[run.levels["rate_per_s"].notna(), "level"].dropna()}
    rows = run.requests[run.requests["level"].notna() & run.requests["scheduled_s"].notna()]
    userless = rows["concurrency"].isna().groupby(rows["level"]).all()
    return clocked | {int(level) for level in userless.index[userless] if int(level) not in planned}


def waits_when_full(run: Run, level: int) -> bool:
    """Whether arrivals beyond the largest number of sessions wait their turn instead of being refused."""
    plan: dict[str, Any] = next((one for one in run.planned_levels if one.get("level") == level), {})
    load = mapping(run.scenario.get("load"))
    asked = [plan, mapping(load.get("open")), mapping(load.get("replay"))]
    return any(one.get("when_full") == "wait" for one in asked)


def ended_s(run: Run, level: int, measured: pd.DataFrame) -> float | None:
    """When the level was over, seconds on the master's axis."""
    return _known(level_entry(run, level).get("ended_s"), _known(measured["finished_s"].max()))


def scheduled_window(run: Run, level: int, measured: pd.DataFrame) -> Window | None:
    """The measured time of a level, in which its arrivals are scheduled; shorter where the level ended before it did.

    Without a plan: from the first arrival on, as long as so many arrivals take.
    """
    entry = level_entry(run, level)
    due = sessions_of(measured, ends_told=False)["scheduled_s"]
    start = _known(entry.get("measured_started_s"), _known(due.min()))
    plan: dict[str, Any] = next((one for one in run.planned_levels if one.get("level") == level), {})
    length = _known(plan.get("duration_s"), ratio(_known(entry.get("scheduled")), _known(entry.get("rate_per_s"))))
    if length is None and len(due) > 1:
        length = float(due.max() - due.min()) * len(due) / (len(due) - 1)
    if start is None or not length:
        return None
    ended = _known(entry.get("ended_s"), start + length)
    end = start + length if ended is None else min(start + length, ended)
    return Window(start, end) if end > start else None


def level_arrivals(
    rows: pd.DataFrame, entry: dict[str, Any], window: Window | None, *, whole_level: bool, ends_told: bool
) -> LevelArrivals:
    """``rows``: requests of all phases of the level or of a class; ``entry``: the level's line of ``levels.csv``.

    ``ends_told``: rows say how sessions ended, so that one without an end had none.
    """
    sessions = sessions_of(rows, ends_told=ends_told)
    measured = sessions[sessions["phase"] == Phase.MEASURED]
    fates = {fate: int((measured["fate"] == fate).sum()) for fate in Fate}
    lost = _whole(entry.get("lost"))
    gone = min(fates[Fate.OPEN], lost or 0)  # sessions that a dead worker began are among the lost
    scheduled = _whole(entry.get("scheduled"))
    if not whole_level:
        scheduled, lost = (None, None) if lost else (len(measured), 0)
    return LevelArrivals(
        rate_per_s=_known(entry.get("rate_per_s")) if whole_level else None,
        scheduled=scheduled,
        ok=fates[Fate.OK],
        failed=fates[Fate.FAILED],
        not_admitted=fates[Fate.NOT_ADMITTED],
        unfinished=fates[Fate.CUT] + fates[Fate.OPEN] - gone,
        lost=lost,
        figures=_rates(sessions, scheduled, window) | _delays(rows),
    )


def clocked_latencies(
    measured: pd.DataFrame, failed: int, end_s: float | None, *, waits: bool, failures_infinite: bool
) -> dict[str, Figure]:
    """TTFT and E2E from the scheduled time and from the send. Requests that were cut took at least until then, and with
    ``waits`` those that were not admitted until the level's end.

    ``failures_infinite``: the ``failed`` ones and those that were cut are infinitely late.
    """
    good = measured[measured["error_kind"].isna()]
    cancelled = measured["error_kind"] == ErrorKind.CANCELLED
    failed += int(cancelled.sum())
    cut = measured[cancelled | (waits & (measured["error_kind"] == ErrorKind.NOT_ADMITTED))]
    ends = cut["finished_s"].fillna(np.nan if end_s is None else end_s)
    figures: dict[str, Figure] = {}
    for name, origin in _TIMES:
        known = values_of(good[f"{name}_s"])
        if failures_infinite:
            worth = _worth_in_order(measured["scheduled_s"], good[f"{name}_s"])
            figures |= censored_figures(name, known, np.zeros(0), failed, worth)
            continue
        answered = cut["first_token_s"].notna() if name.endswith("ttft") else pd.Series(False, index=cut.index)
        exact = values_of(cut.loc[answered, f"{name}_s"])
        lasted = (ends - cut[origin])[~answered]
        worth = _worth_in_order(measured["scheduled_s"], good[f"{name}_s"], cut.loc[answered, f"{name}_s"], lasted)
        figures |= censored_figures(name, np.concatenate([known, exact]), values_of(lasted), worth=worth)
    return figures


def _worth_in_order(due_s: pd.Series[float], *times_s: pd.Series[float]) -> EffectiveSample:
    """Of the times together, in the order in which their requests were due."""
    known = pd.concat(times_s).dropna()
    order = np.argsort(due_s.reindex(known.index).to_numpy(dtype="float64"), kind="stable")
    return EffectiveSample(np.asarray(known, dtype=np.float64)[order])


def sessions_of(rows: pd.DataFrame, *, ends_told: bool) -> pd.DataFrame:
    """One row a session: phase, scheduled_s and sent_s of its first request, end_s of its last, and its fate. A request
    without a session is one by itself."""
    keys = rows["session"].astype("object").where(rows["session"].notna(), rows.index.to_series().map("#{}".format))
    rows = rows.assign(key=keys, end_s=rows["finished_s"].fillna(rows["last_token_s"]).fillna(rows["sent_s"]))
    grouped = rows.sort_values(["turn", "scheduled_s"], kind="stable").groupby("key", sort=False)
    sessions = grouped.agg(end_s=("end_s", "max"))
    first = rows.sort_values(["turn", "scheduled_s"], kind="stable").drop_duplicates("key").set_index("key")
    sessions = sessions.join(first[["phase", "scheduled_s", "sent_s"]])
    kinds = rows["error_kind"].astype("object")

    def any_of(these: pd.Series[bool]) -> pd.Series[bool]:
        return these.groupby(rows["key"], sort=False).any().reindex(sessions.index)

    ended = any_of(rows["session_end"].notna()) if ends_told else pd.Series(True, index=sessions.index)
    fate = pd.Series(Fate.OPEN.value, index=sessions.index, dtype="object").mask(ended, Fate.OK.value)
    fate = fate.mask(any_of(kinds.notna()), Fate.FAILED.value)
    fate = fate.mask(any_of(kinds == ErrorKind.CANCELLED), Fate.CUT.value)
    sessions["fate"] = fate.mask(any_of(kinds == ErrorKind.NOT_ADMITTED), Fate.NOT_ADMITTED.value)
    return sessions


def level_entry(run: Run, level: int | None) -> dict[str, Any]:
    """The level's last line in ``levels.csv``; empty where it has none."""
    lines = run.levels[run.levels["level"] == level]
    return {} if lines.empty else {str(name): value for name, value in lines.iloc[-1].items()}


def _rates(sessions: pd.DataFrame, scheduled: int | None, window: Window | None) -> dict[str, Figure]:
    """Sessions a second that were scheduled, begun and completed in the window, and how many were in flight."""
    if window is None:
        return {}
    begun = sessions["sent_s"].between(window.start_s, window.end_s)
    done = (sessions["fate"] == Fate.OK) & sessions["end_s"].between(window.start_s, window.end_s)
    due = int((sessions["phase"] == Phase.MEASURED).sum()) if scheduled is None else scheduled
    in_flight = sessions.dropna(subset=["sent_s"])
    starts = np.maximum(in_flight["sent_s"].to_numpy(dtype="float64"), window.start_s)
    ends = np.minimum(in_flight["end_s"].to_numpy(dtype="float64"), window.end_s)
    inside = ends > starts
    return {
        "scheduled_per_s": number(due / window.length_s),
        "sent_per_s": number(int(begun.sum()) / window.length_s),
        "done_per_s": number(int(done.sum()) / window.length_s),
        "sessions_mean": number(float((ends[inside] - starts[inside]).sum()) / window.length_s),
        "sessions_max": number(float(_most_at_once(starts[inside], ends[inside]))),
    }


def _most_at_once(starts: Values, ends: Values) -> int:
    """Of half-open stretches: one that ends where another begins is not beside it."""
    if not len(starts):
        return 0
    times = np.concatenate([starts, ends])
    change = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))])
    return int(change[np.lexsort((change, times))].cumsum().max())


def _delays(rows: pd.DataFrame) -> dict[str, Figure]:
    """How late the measured requests were sent."""
    known = values_of(rows.loc[rows["phase"] == Phase.MEASURED, "send_delay_s"])
    figures = {f"send_delay_{label}_s": quantile_figure(known, q) for label, q in (("p50", 0.5), ("p95", 0.95))}
    return figures | {"send_delay_max_s": number(float(known[-1]) if len(known) else None)}


def _known(value: Any, otherwise: float | None = None) -> float | None:
    return otherwise if value is None or pd.isna(value) else float(value)


def _whole(value: Any) -> int | None:
    return None if value is None or pd.isna(value) else int(value)
