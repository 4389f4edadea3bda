"""A job is one session: from its first send to the last finish, on the clock of the one worker that played it.

Its time divides into *model* (requests, each to the end of its stream), *tools* (tool and think times between them) and
*client* (all the rest: making prompts, decoding answers, and lateness).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from analysis.arrivals import clocked_levels
from analysis.censored import censored_figures
from analysis.effective_sample import EffectiveSample
from analysis.figures import BLANK, Figure, Values, mean_figure, number
from analysis.goodput import within_limits
from analysis.limits import limits_by_class, mapping
from analysis.requests_csv import values_of
from analysis.run_folder import Run
from analysis.window import Counting
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Divergence, Phase, SessionEnd

PARTS = ("model", "queue", "prefill", "decode", "tools", "client")  # of a job's time
MOST_UNTOLD = 0.05  # share of the jobs of which a server may leave out its durations
_SERVER = {"queue": "server_queue_s", "prefill": "server_prefill_s", "decode": "server_decode_s"}
_LATENCIES = ("ttft_s", "tpot_s", "e2e_s")
_COLUMNS = [
    *("level", "traffic", "phase", "session", "turn", "session_end", "sent_s", "finished_s", "pause_s", "error_kind"),
    *(*_LATENCIES, "scheduled_ttft_s", "scheduled_e2e_s", *_SERVER.values()),
]


class JobState(StrEnum):
    DONE = SessionEnd.DONE.value
    STEP_LIMIT = SessionEnd.STEP_LIMIT.value
    FAILED = "failed"  # a request failed, and its session with it
    CUT = "cut"  # by the end of the level or the run
    UNFINISHED = "unfinished"  # the run died before its last request


COMPLETED = (JobState.DONE.value, JobState.STEP_LIMIT.value)  # played to their end


@dataclass
class LevelJobs:
    """The jobs that began in the measured part of a level, or those of one class of them.

    ``figures``: ``job_p50_s`` and so on over the completed jobs, means of the parts of their time, jobs per hour.
    """

    states: dict[str, int]
    figures: dict[str, Figure] = field(default_factory=dict)
    tool_calls: int | None = None
    malformed_calls: int | None = None
    divergences: dict[str, int] = field(default_factory=dict)  # answers by Divergence, ``same`` among them

    @property
    def count(self) -> int:
        return sum(self.states.values())

    @property
    def completed(self) -> int:
        return sum(self.states.get(state, 0) for state in COMPLETED)


def jobs_of(run: Run) -> pd.DataFrame:
    """One row a session of ``run.requests``.

    Columns: level, traffic, phase (of the first request), state, start_s, end_s, job_s, steps, ``…_s`` for each of
    ``PARTS`` (blank where unknown), and meets (whether its class' objective holds for it; blank without limits).
    """
    rows = run.requests.loc[run.requests["session"].notna() & run.requests["sent_s"].notna(), _COLUMNS]
    rows = rows.assign(session=rows["session"].cat.codes).sort_values(["turn", "sent_s"], kind="stable")
    clocked = rows["level"].isin(clocked_levels(run)).to_numpy()
    rows["met"] = within_limits(rows, limits_by_class(run.scenario), clocked)
    rows["model_s"] = rows["finished_s"] - rows["sent_s"]
    first = ~rows.duplicated("session")
    known_pauses = bool(run.requests["history_tokens"].notna().any())  # written by the same runs as pauses
    rows["tools_s"] = rows["pause_s"].fillna(0.0 if known_pauses else np.nan).mask(first, 0.0)
    sessions = rows.groupby("session", sort=False)
    jobs = sessions.agg(
        level=("level", "first"),
        traffic=("traffic", "first"),
        phase=("phase", "first"),
        start_s=("sent_s", "min"),
        end_s=("finished_s", "max"),
        steps=("sent_s", "size"),
    )
    jobs["state"] = _states(rows, sessions, left=JobState.UNFINISHED if run.end is None else JobState.CUT)
    jobs["job_s"] = jobs["end_s"] - jobs["start_s"]
    for part in ("model", "tools"):
        jobs[f"{part}_s"] = _sum_of_known(rows, f"{part}_s")
    jobs["client_s"] = jobs["job_s"] - jobs["model_s"] - jobs["tools_s"]
    for part, fact in _SERVER.items():
        jobs[f"{part}_s"] = _sum_of_known(rows, fact)
    jobs["meets"] = _meets(jobs, sessions["met"].min(), limits_by_class(run.scenario))
    return jobs


def level_jobs(jobs: pd.DataFrame, rows: pd.DataFrame, counting: Counting) -> LevelJobs:
    """The jobs of a level or of one class of it, and its request rows.

    Jobs per hour with ``whole_window`` are all completed ones after the warm-up, each by its share of the window;
    otherwise the measured ones that completed in it.
    """
    measured = jobs[jobs["phase"] == Phase.MEASURED]
    completed = measured[measured["state"].isin(COMPLETED)]
    states = {str(state): int(count) for state, count in measured["state"].value_counts().items() if count}
    cut = measured[measured["state"] == JobState.CUT] if counting.cut_is_late else measured.iloc[:0]
    unsent = (rows["phase"] == Phase.MEASURED) & (rows["error_kind"] == ErrorKind.NOT_ADMITTED)
    late = states.get(JobState.FAILED.value, 0) + len(cut) + int(unsent.sum()) if counting.failures_infinite else 0
    at_least = np.zeros(0) if counting.failures_infinite else values_of(cut["job_s"])
    counted = completed
    if counting.whole_window:
        counted = jobs[jobs["state"].isin(COMPLETED) & (jobs["phase"] != Phase.WARMUP)]
    figures = _durations(completed, at_least, late) | _parts(completed) | _rates(counted, counting)
    good = (rows["phase"] == Phase.MEASURED) & rows["error_kind"].isna()
    answers = rows.loc[good, ["tool_calls", "malformed_calls", "divergence"]]
    return LevelJobs(
        states,
        figures,
        tool_calls=_total(answers["tool_calls"]),
        malformed_calls=_total(answers["malformed_calls"]),
        divergences={str(kind): int(n) for kind, n in answers["divergence"].value_counts().items() if n},
    )


def differing(jobs: LevelJobs) -> int:
    """Answers that are not what the recording goes on with."""
    return sum(count for kind, count in jobs.divergences.items() if kind != Divergence.SAME)


def _states(rows: pd.DataFrame, sessions: Any, *, left: JobState) -> pd.Series[Any]:
    """``left``: the state of those that the end of the run found between two requests. Runs that did not write how
    a session ended have none that ended otherwise than by itself or with an error.
    """
    last: pd.Series[Any] = sessions["session_end"].last().astype("object")
    if rows["session_end"].isna().all():
        last = last.fillna(JobState.DONE.value)
    kinds = rows["error_kind"].astype("object")
    failed = (kinds.notna() & (kinds != ErrorKind.CANCELLED)).groupby(rows["session"], sort=False).any()
    cut = (kinds == ErrorKind.CANCELLED).groupby(rows["session"], sort=False).any()
    states = last.fillna(left.value)
    return states.mask(cut, JobState.CUT.value).mask(failed, JobState.FAILED.value)


def _sum_of_known(rows: pd.DataFrame, column: str) -> pd.Series[float]:
    """Sums over each session; blank where one of its requests does not tell."""
    sums: pd.Series[float] = rows.groupby("session", sort=False)[column].sum()
    return sums.mask(rows[column].isna().groupby(rows["session"], sort=False).any())


def _meets(jobs: pd.DataFrame, requests_met: pd.Series[bool], limits: dict[str, dict[str, Any]]) -> pd.Series[float]:
    """1 where the job and all its requests keep to the limits, 0 where not, blank where its class has none."""
    met = (jobs["state"].isin(COMPLETED) & requests_met).astype("float64")
    for name, of_class in limits.items():
        limit = max(mapping(of_class.get("job_s")).values(), default=None)
        if limit is not None:
            met = met.mask((jobs["traffic"] == name) & ~(jobs["job_s"] <= limit), 0.0)
    named = [name for name, of_class in limits.items() if any(of_class.get(key) for key in (*_LATENCIES, "job_s"))]
    return met.where(jobs["traffic"].isin(named))


def _durations(completed: pd.DataFrame, at_least: Values, late: int) -> dict[str, Figure]:
    known = values_of(completed["job_s"])
    in_order = completed.sort_values("start_s", kind="stable")["job_s"].dropna().to_numpy(dtype="float64")
    worth = EffectiveSample(in_order)
    figures = censored_figures("job", known, at_least, late, worth)
    return figures | {"job_mean_s": mean_figure(known, worth), "steps_mean": mean_figure(values_of(completed["steps"]))}


def _parts(completed: pd.DataFrame) -> dict[str, Figure]:
    figures = {}
    for part in PARTS:
        known = values_of(completed[f"{part}_s"])
        told = len(known) and len(known) >= (1 - MOST_UNTOLD) * len(completed)
        figures[f"job_{part}_mean_s"] = mean_figure(known) if told else BLANK
    return figures


def _rates(counted: pd.DataFrame, counting: Counting) -> dict[str, Figure]:
    window = counting.window
    if window is None or counted.empty:
        return {"jobs_per_h": BLANK, "good_jobs_per_h": BLANK}
    weights = (counted["end_s"] <= window.end_s).astype("float64")
    if counting.whole_window:
        weights = counting.inside(counted["start_s"], counted["end_s"])
    per_hour = 3600.0 / window.length_s
    told = bool(counted["meets"].notna().all())
    good = float((weights * counted["meets"]).sum()) * per_hour if told else None
    return {"jobs_per_h": number(float(weights.sum()) * per_hour), "good_jobs_per_h": number(good)}


def _total(counts: pd.Series[float]) -> int | None:
    return int(counts.sum()) if counts.notna().any() else None
