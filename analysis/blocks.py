"""The blocks of a measurement of interference: what each traffic class met in the measured time of each.

A request belongs to a block when it was *sent* in its measured time, whatever became of its session: those that began
in the warm-up go on into that time, and a slow answer must not drop out because the time was up first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from analysis import window as windows
from analysis.figures import Values
from analysis.level_state import state_of
from analysis.levels import levels_of
from analysis.run_folder import Run
from tokenswarm.errors import ErrorKind

LATENCIES = ("ttft_s", "tpot_s", "e2e_s")
# Of a row of requests.csv, what is needed here and where blocks are compared; with fewer columns all goes faster.
_COLUMNS = [
    *("level", "traffic", "worker", "user", "sent_s", "first_token_s", "last_token_s", "error_kind", *LATENCIES),
    *("send_delay_s", "prompt_tokens", "output_tokens", "clock", "lag_max_s", "reads", "merged_reads"),
]


@dataclass(frozen=True)
class ClassBlock:
    """One class in one block. ``latencies`` by metric, in the order in which the requests were sent; a request that was
    cut before its time was known is infinitely late. ``rows`` are the requests that were sent in the measured time."""

    users: int
    rows: pd.DataFrame
    latencies: dict[str, Values]
    tok_s: float | None  # tokens that arrived in the measured time, by its length; None where none were counted
    senders: int  # users that sent anything in the block, warm-up included

    @property
    def failed(self) -> int:
        return int((self.rows["error_kind"].notna() & ~_cut(self.rows)).sum())

    @property
    def cut(self) -> int:
        return int(_cut(self.rows).sum())


@dataclass(frozen=True)
class Block:
    """``round`` counts from 0. ``classes`` is empty where the block did not come to its end or was never begun."""

    level: int
    name: str
    round: int
    users: dict[str, int]  # by class
    state: str
    reason: str
    classes: dict[str, ClassBlock] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return bool(self.classes)


def block_groups_of(run: Run) -> list[list[Block]]:
    """All planned blocks in order, those of each number of users together; none where the run has no such blocks."""
    groups: list[list[Block]] = []
    last = 0
    rows = run.requests.loc[run.requests["sent_s"].notna(), _COLUMNS]
    by_level = dict(levels_of(rows))
    for level in run.planned_levels:
        if not isinstance(level.get("users_by_class"), dict) or not isinstance(level.get("round"), int):
            continue
        if not groups or level["round"] < last:
            groups.append([])
        last = level["round"]
        groups[-1].append(_block(run, level, by_level.get(level["level"], rows.iloc[:0])))
    return groups


def _block(run: Run, level: dict[str, Any], rows: pd.DataFrame) -> Block:
    number = int(level["level"])
    state, reason = state_of(run, number)
    users = {str(name): int(count) for name, count in level["users_by_class"].items()}
    window = _window(run, number, level.get("duration_s"))
    name = str(level.get("label") or f"level {number}")
    if window is None or state != "complete":
        reason = reason or ("no measured time is known" if state == "complete" else "")
        return Block(number, name, level["round"], users, state, reason)
    classes = {one: _class_block(rows[rows["traffic"] == one], count, window) for one, count in users.items()}
    return Block(number, name, level["round"], users, state, reason, classes)


def _window(run: Run, level: int, duration_s: Any) -> windows.Window | None:
    started = run.levels.loc[run.levels["level"] == level, "measured_started_s"].dropna()
    if started.empty or not isinstance(duration_s, int | float):
        return None
    return windows.Window(float(started.iloc[-1]), float(started.iloc[-1]) + float(duration_s))


def _class_block(rows: pd.DataFrame, users: int, window: windows.Window) -> ClassBlock:
    sent = rows[rows["sent_s"].between(window.start_s, window.end_s)].sort_values("sent_s")
    uncounted = rows["first_token_s"].notna().any() and not rows["output_tokens"].notna().any()
    return ClassBlock(
        users=users,
        rows=sent,
        latencies={name: _latencies(sent, name) for name in LATENCIES},
        tok_s=None if uncounted else windows.tokens_arrived(rows, window) / window.length_s,
        senders=len(rows[["worker", "user"]].drop_duplicates()),
    )


def _latencies(rows: pd.DataFrame, name: str) -> Values:
    """Of the requests that did not fail. TPOT needs all tokens, so that what was cut has none."""
    cut, values = _cut(rows).to_numpy(), rows[name].to_numpy(dtype="float64")
    kept = rows["error_kind"].isna().to_numpy()
    if name != "tpot_s":
        values, kept = np.where(cut & ((name == "e2e_s") | np.isnan(values)), np.inf, values), kept | cut
    return np.asarray(values[kept & ~np.isnan(values)], dtype=np.float64)


def _cut(rows: pd.DataFrame) -> pd.Series[bool]:
    return rows["error_kind"] == ErrorKind.CANCELLED


@dataclass(frozen=True)
class Side:
    """The complete blocks of one class in which it was ``alone``, or ``together`` with the others."""

    name: str
    blocks: list[ClassBlock]

    @classmethod
    def of(cls, blocks: list[Block], traffic: str, *, together: bool) -> Side:
        mine = [block for block in blocks if block.complete and traffic in block.users]
        chosen = [block.classes[traffic] for block in mine if (len(block.users) > 1) == together]
        return cls("together" if together else "alone", chosen)

    @property
    def requests(self) -> int:
        return sum(len(block.rows) for block in self.blocks)

    @property
    def failed(self) -> int:
        return sum(block.failed for block in self.blocks)

    @property
    def cut(self) -> int:
        return sum(block.cut for block in self.blocks)

    @cached_property
    def good(self) -> pd.DataFrame:
        """The requests that succeeded."""
        none = pd.DataFrame(columns=_COLUMNS, dtype="float64")
        rows = pd.concat([block.rows for block in self.blocks]) if self.blocks else none
        return rows[rows["error_kind"].isna()]

    def mean(self, column: str) -> float | None:
        """Over the requests that succeeded; None where nothing is known."""
        known = self.good[column].dropna()
        return float(known.mean()) if len(known) else None
