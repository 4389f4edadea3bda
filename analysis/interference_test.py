"""What traffic classes do to each other: each alone and beside all others, over the same number of its users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis.arm_check import Finding
from analysis.block_figures import mean_of_blocks, quantile_of_blocks
from analysis.blocks import Block, ClassBlock, Side, block_groups_of
from analysis.company_check import findings_of
from analysis.figures import Figure
from analysis.run_folder import Run

# An effect below the first and the second is not worth the name; no effect is one that the intervals keep within the
# third. The second is seconds; rates have none.
LEAST_SHARE, LEAST_S, NONE_SHARE = 0.05, {"ttft": 0.001, "tpot": 0.0001, "e2e": 0.001}, 0.10


class Answer(StrEnum):
    """Does the company change this figure of this class?"""

    WORSE = "worse"
    BETTER = "better"
    NONE = "no effect"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Measure:
    """``figure``: of the blocks of one class. Latencies are seconds."""

    key: str
    title: str
    figure: Callable[[Sequence[ClassBlock]], Figure]
    higher: bool = False  # more is better

    @property
    def least(self) -> float:
        return LEAST_S.get(self.key.split("_")[0], 0.0)


def _latency(name: str, title: str, label: str, q: float) -> Measure:
    def figure(blocks: Sequence[ClassBlock]) -> Figure:
        return quantile_of_blocks([block.latencies[f"{name}_s"] for block in blocks], q)

    return Measure(f"{name}_{label}", f"{title} {label}", figure)


def _tok_s(blocks: Sequence[ClassBlock]) -> Figure:
    return mean_of_blocks([block.tok_s for block in blocks if block.tok_s is not None])


MEASURES = (
    _latency("ttft", "TTFT", "p50", 0.50),
    _latency("ttft", "TTFT", "p95", 0.95),
    _latency("tpot", "TPOT", "p50", 0.50),
    _latency("tpot", "TPOT", "p95", 0.95),
    _latency("e2e", "E2E", "p50", 0.50),
    Measure("tok_s", "tok/s", _tok_s, higher=True),
)


@dataclass(frozen=True)
class Cell:
    """One figure of one class: alone, and together with the others."""

    measure: Measure
    alone: Figure
    together: Figure

    @property
    def ratio(self) -> Figure:
        """Together / alone. Its interval holds every ratio of two values inside both intervals, so that it leaves out
        1 exactly where the two do not overlap."""
        alone, together = self.alone, self.together
        return Figure(
            _ratio(together.value, alone.value),
            None,
            _ratio(together.low, alone.high),
            _ratio(together.high, alone.low),
        )

    @property
    def answer(self) -> Answer:
        value, low, high = self.ratio.value, self.ratio.low, self.ratio.high
        if value is None or self.alone.value is None or self.together.value is None:
            return Answer.UNKNOWN
        large = abs(self.together.value - self.alone.value) >= self.measure.least
        if low is not None and low > 1.0 and value >= 1.0 + LEAST_SHARE and large:
            return Answer.BETTER if self.measure.higher else Answer.WORSE
        if high is not None and high < 1.0 and value <= 1.0 / (1.0 + LEAST_SHARE) and large:
            return Answer.WORSE if self.measure.higher else Answer.BETTER
        within = low is not None and high is not None and low > 1.0 / (1.0 + NONE_SHARE) and high < 1.0 + NONE_SHARE
        return Answer.NONE if within else Answer.UNKNOWN


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None or below <= 0 or above == below == float("inf") else above / below


@dataclass(frozen=True)
class ClassResult:
    """One class. ``others``: users of each class beside which it runs together."""

    name: str
    users: int
    others: dict[str, int]
    alone: Side
    together: Side
    cells: tuple[Cell, ...]
    findings: list[Finding]

    def cell(self, key: str) -> Cell:
        return next(cell for cell in self.cells if cell.measure.key == key)


@dataclass(frozen=True)
class Interference:
    """All classes at one number of users. ``left_out``: blocks that were planned and cannot be used."""

    users: int
    blocks: list[Block]
    classes: list[ClassResult]

    @property
    def left_out(self) -> list[Block]:
        return [block for block in self.blocks if not block.complete]


def interference_of(run: Run) -> list[Interference]:
    """One for each number of users; none where the run did not measure interference."""
    return [_group(blocks) for blocks in block_groups_of(run)]


def _group(blocks: list[Block]) -> Interference:
    together = max((block.users for block in blocks), key=len)
    return Interference(
        users=sum(together.values()),
        blocks=blocks,
        classes=[_class_result(blocks, name, together) for name in together],
    )


def _class_result(blocks: list[Block], name: str, users: dict[str, int]) -> ClassResult:
    alone, together = (Side.of(blocks, name, together=company) for company in (False, True))
    cells = tuple(Cell(one, one.figure(alone.blocks), one.figure(together.blocks)) for one in MEASURES)
    others = {other: count for other, count in users.items() if other != name}
    return ClassResult(name, users[name], others, alone, together, cells, findings_of(alone, together))
