"""The first request of a run and its warm-up: results of their own, never mixed into the levels."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.figures import BLANK, mean_figure
from analysis.levels import LevelRow, levels_of
from analysis.outcome import ColdStart, WarmupRow
from analysis.requests_csv import values_of
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Phase


def cold_start_of(requests: pd.DataFrame, rows: list[LevelRow]) -> ColdStart | None:
    """The request sent first, whatever its phase; ``None`` where none was sent."""
    if requests["sent_s"].isna().all():
        return None
    first = requests.iloc[int(requests["sent_s"].argmin())]
    level = None if pd.isna(first["level"]) else int(first["level"])
    own = next((row for row in rows if row.level == level), None)
    return ColdStart(
        phase=str(first["phase"]),
        traffic=str(first["traffic"]),
        concurrency=None if pd.isna(first["concurrency"]) else int(first["concurrency"]),
        error_kind=None if pd.isna(first["error_kind"]) else str(first["error_kind"]),
        ttft_s=_known(first["ttft_s"]),
        e2e_s=_known(first["e2e_s"]),
        later_ttft_s=BLANK if own is None else own.figure("ttft_p50_s"),
        label="" if own is None else own.label,
    )


def warmup_rows(requests: pd.DataFrame, names: dict[int, str]) -> list[WarmupRow]:
    """One row for every level that was warmed up; ``names`` of the levels by number."""
    warmup = requests[requests["phase"] == Phase.WARMUP]
    rows = []
    for level, part in levels_of(warmup):
        good = part[part["error_kind"].isna()]
        users = part["concurrency"].max()
        rows.append(
            WarmupRow(
                concurrency=None if pd.isna(users) else int(users),
                requests=len(part),
                failed=int((part["error_kind"].notna() & (part["error_kind"] != ErrorKind.CANCELLED)).sum()),
                ttft_mean_s=mean_figure(values_of(good["ttft_s"])),
                ttft_max_s=_known(good["ttft_s"].max()),
                e2e_mean_s=mean_figure(values_of(good["e2e_s"])),
                label="" if level is None else names.get(level, ""),
            )
        )
    return rows


def _known(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
