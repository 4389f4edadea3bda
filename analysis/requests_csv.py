"""``requests.csv`` as a frame: one row a request, the facts of ``RequestRecord`` and every metric as a column."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.csv_file import CsvFile, read_csv
from analysis.figures import Values
from tokenswarm.metrics import METRICS, Metric
from tokenswarm.records import COLUMNS

_TEXT = (
    "phase",
    "worker",
    "traffic",
    "session",
    "session_end",
    "arm",
    "prefix",
    "divergence",
    "token_source",
    "clock",
    "finish_reason",
    "error_kind",
    "error",
)
# Facts that no table here needs; leaving them out keeps a million rows in memory.
_UNUSED = ("request_id", "retry_after_s", "response_bytes", "headers_s")
_KINDS: dict[str, str] = {name: "category" if name in _TEXT else "float64" for name in COLUMNS if name not in _UNUSED}
_REQUIRED = ("phase", "traffic", "sent_s", "first_token_s", "last_token_s", "finished_s", "output_tokens", "error_kind")
_CLOCK_COLUMNS = (
    "scheduled_s",
    "sent_s",
    "first_token_s",
    "first_output_s",
    "last_token_s",
    "finished_s",
)
_CLOCKS_DIFFER_S = 1.0  # more than the stamps of kernel and process within one request ever do


def read_requests(path: Path, offsets: Mapping[str, float] | None = None) -> CsvFile:
    """All rows, times laid on the master's axis by ``offsets`` (seconds to add, by worker).

    Columns that the file lacks are there and blank. Metric columns carry the names of ``METRICS``.
    """
    file = read_csv(path, _KINDS, required=_REQUIRED, wanted="a requests.csv of a run")
    frame = file.frame
    for name, kind in _KINDS.items():
        if name not in frame:
            frame[name] = pd.Series(index=frame.index, dtype=kind)
    incomplete = _incomplete(frame)
    if incomplete.any():
        file.notes.append(
            f"{path.name}: {int(incomplete.sum())} damaged rows (no phase, a success without times, or times that run "
            "backwards) left out"
        )
        frame = frame[~incomplete].reset_index(drop=True)
    impossible = frame["cached_tokens"].lt(0) | frame["cached_tokens"].gt(frame["prompt_tokens"])
    if impossible.any():
        file.notes.append(
            f"{path.name}: {int(impossible.sum())} answers tell more cached tokens than their prompts have, or fewer "
            "than none: taken as not told"
        )
        frame = frame.assign(cached_tokens=frame["cached_tokens"].mask(impossible))
    _lay_on_master_axis(frame, offsets or {})
    _part_by_worker(frame)
    for metric in METRICS.values():
        frame[metric.name] = column_of(metric, frame)
    file.frame = frame
    return file


def _part_by_worker(frame: pd.DataFrame) -> None:
    """A session that was played again, because its first worker died, is two: no job spans two workers' clocks."""
    played = frame[["session", "worker"]].dropna().drop_duplicates()
    twice = set(played.loc[played["session"].duplicated(), "session"])
    if twice:
        names, workers = frame["session"].astype("object"), frame["worker"].astype("object")
        frame["session"] = names.mask(names.isin(twice), names + "@" + workers).astype("category")


def _incomplete(frame: pd.DataFrame) -> pd.Series[bool]:
    """Rows that no request can have left: a success has at least its send and its end, and the one before the other."""
    timeless = frame["sent_s"].isna() | frame["finished_s"].isna()
    return frame["phase"].isna() | (frame["error_kind"].isna() & timeless) | _backwards(frame)


def _backwards(frame: pd.DataFrame) -> pd.Series[bool]:
    """Tokens or the end long before the send, or tokens long after the end; stamps of two clocks differ by far less."""
    late = frame["sent_s"].gt(frame["finished_s"] + _CLOCKS_DIFFER_S)
    for name in ("first_token_s", "last_token_s"):
        late |= frame["sent_s"].gt(frame[name] + _CLOCKS_DIFFER_S)
        late |= frame[name].gt(frame["finished_s"] + _CLOCKS_DIFFER_S)
    return late


def column_of(metric: Metric, frame: pd.DataFrame) -> pd.Series[float]:
    """One metric for every row; blank where a fact it needs is unknown or its condition does not hold."""
    values: pd.Series[float] = metric.compute(frame)
    return values if metric.holds is None else values.where(metric.holds(frame))


def kept(rows: pd.DataFrame, mask: pd.Series[bool]) -> pd.DataFrame:
    """``rows[mask]``, without a copy where that is all of them."""
    return rows if mask.all() else rows[mask]


def values_of(column: pd.Series[float]) -> Values:
    """Known values in ascending order."""
    return np.sort(np.asarray(column.dropna(), dtype=np.float64))


def _lay_on_master_axis(frame: pd.DataFrame, offsets: Mapping[str, float]) -> None:
    if not any(offsets.values()):
        return
    shift = frame["worker"].astype("object").map(dict(offsets)).fillna(0.0).astype("float64")
    for name in _CLOCK_COLUMNS:
        frame[name] = frame[name] + shift
