"""Throughput of levels relative to each other: only levels that send the same kind of load are compared.

The arms of a prefix-cache test and the classes that have users make levels different. Within one kind, the first level
that has a throughput is the base. Levels by the clock are left out: their throughput is what was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.figures import ratio
from analysis.levels import LevelRow


@dataclass(frozen=True)
class ScalingRow:
    """Throughput of a level over that of its base, and that ratio over the ratio of their concurrencies.

    ``base``: the label of the level it is relative to; empty where no level of its kind has a throughput.
    """

    concurrency: int | None
    output_tok_s: float | None
    throughput_ratio: float | None
    efficiency: float | None
    label: str = ""
    base: str = ""
    across_epochs: bool = False  # the server was started again between the two


def scaling_rows(rows: list[LevelRow]) -> list[ScalingRow]:
    """One for each level of a closed loop; blank where a throughput is unknown."""
    return [_scaled(row, _base_of(row, rows)) for row in rows if not row.by_clock]


def scaling_levels(rows: list[LevelRow]) -> list[LevelRow]:
    """The levels of which others of the same kind have another number of users and a throughput: the rest have nothing
    to be compared with."""
    return [row for row in rows if not row.by_clock and len(_users(row, rows)) > 1]


def _scaled(row: LevelRow, base: LevelRow | None) -> ScalingRow:
    rate = row.figure("output_tok_s").value
    throughput = ratio(rate, None if base is None else base.figure("output_tok_s").value)
    users = ratio(row.concurrency, None if base is None else base.concurrency)
    efficiency = ratio(throughput, users)
    across = base is not None and base.epoch is not None and row.epoch is not None and base.epoch != row.epoch
    name = "" if base is None else base.name
    return ScalingRow(row.concurrency, rate, throughput, efficiency, row.name, name, across and throughput is not None)


def _base_of(row: LevelRow, rows: list[LevelRow]) -> LevelRow | None:
    return next((one for one in rows if one.load == row.load and one.figure("output_tok_s").value), None)


def _users(row: LevelRow, rows: list[LevelRow]) -> set[int | None]:
    """Numbers of users of the level itself and of those of its kind that have a throughput."""
    alike = [one for one in rows if one.load == row.load and one.figure("output_tok_s").value]
    return {one.concurrency for one in alike} | ({row.concurrency} if alike else set())
