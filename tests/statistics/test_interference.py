"""How often interference is found where there is some, and claimed where there is none: seeds 1 to 100 in virtual time.

Where each class has an engine of its own, the others cost it nothing: whatever is claimed then is false.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from analysis.figures import quantile_figure
from analysis.interference_test import MEASURES, Answer, ClassResult, Interference, interference_of
from analysis.run_folder import read_run
from simulator.engine import Engine
from simulator.settings import Drift
from tests.statistics.virtual_blocks import UserClass, VirtualBlocks, engine_settings, write_run

SEEDS = range(1, 101)
LEAST_FOUND, MOST_FALSE, LEAST_COVERED = 90, 8, 90  # of 100
# Six people chat with pauses, two programs send documents: 6,000 prompt tokens take 0.6 s, and everybody waits.
CALM = [
    UserClass("chat", 6, 300, (10, 40), think_s=(0.5, 2.0)),
    UserClass("documents", 2, 6000, (20, 60), think_s=(0.2, 1.0)),
]
# Eight that hardly pause, with prompts of very different lengths: each class alone has long queues already.
CROWDED = [
    UserClass("chat", 8, 1500, (5, 40), think_s=(0.0, 1.0), sigma=0.8),
    UserClass("documents", 3, 6000, (20, 60), think_s=(0.0, 0.5), sigma=1.0),
]
BLOCKS, BLOCK_S, WARMUP_S = 6, 20.0, 3.0
RUN_S = 3 * BLOCKS * (BLOCK_S + WARMUP_S + 2.0)


def play(classes: list[UserClass], seed: int, *, shared: bool, drift: Drift | None = None) -> VirtualBlocks:
    settings = engine_settings(drift=drift)
    first = Engine(settings, seed)
    engines = [first, first if shared else Engine(settings, seed + 1_000_000)]
    return VirtualBlocks(engines, classes, seed, blocks=BLOCKS, block_s=BLOCK_S, warmup_s=WARMUP_S).run()


def judged(folder: Path, played: VirtualBlocks) -> Interference:
    """The product's own reading of these blocks, files and all."""
    (group,) = interference_of(read_run(write_run(folder, played)))
    assert group.left_out == []
    for result in group.classes:
        assert (len(result.alone.blocks), len(result.together.blocks)) == (BLOCKS, BLOCKS)
        assert (result.alone.failed, result.together.cut) == (0, 0)
    return group


def claims(group: Interference) -> set[tuple[str, str]]:
    """Class and figure of all that is said to have changed."""
    return {
        (result.name, cell.measure.key)
        for result in group.classes
        for cell in result.cells
        if cell.answer in (Answer.WORSE, Answer.BETTER)
    }


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> list[Interference]:
    """A hundred runs in which each crowd has an engine of its own, and both get 10 % slower until the end."""
    folder, drift = tmp_path_factory.mktemp("crowded"), Drift(until_s=RUN_S, factor=1.10)
    return [judged(folder / str(seed), play(CROWDED, seed, shared=False, drift=drift)) for seed in SEEDS]


@pytest.mark.slow
def test_planted_interference_is_found(tmp_path: Path) -> None:
    """One engine for both classes: documents hold up the chats, which is seen in every latency that is late for it."""
    found: Counter[tuple[str, str]] = Counter()
    for seed in SEEDS:
        group = judged(tmp_path / str(seed), play(CALM, seed, shared=True))
        chat = group.classes[0]
        assert chat.cell("ttft_p95").together.value > 3 * chat.cell("ttft_p95").alone.value  # type: ignore[operator]
        found.update(claims(group))
    planted = ("ttft_p50", "ttft_p95", "tpot_p95", "e2e_p50", "tok_s")
    assert min(found["chat", key] for key in planted) >= LEAST_FOUND, found


@pytest.mark.slow
def test_none_is_claimed_of_classes_that_never_meet(crowded: list[Interference]) -> None:
    """Long queues of their own, in both classes, on servers that get slower: in at most 8 of 100 matrices stands any
    effect at all."""
    wrong = [claims(group) for group in crowded]
    assert sum(bool(one) for one in wrong) <= MOST_FALSE, Counter(key for one in wrong for key in one)


@pytest.mark.slow
def test_intervals_hold_the_truth_where_requests_share_a_queue(crowded: list[Interference]) -> None:
    """The truth is that of all hundred runs together, alone and together alike; intervals that take requests for
    independent would hold it far less often."""
    chats = [result for group in crowded for result in group.classes if result.name == "chat"]
    for measure in MEASURES[:5]:
        name, label = measure.key.split("_")
        q = int(label[1:]) / 100
        truth = float(np.quantile(np.concatenate([values(one, name) for one in chats]), q))
        held = naive = 0
        for one in chats:
            figure = one.cell(measure.key).alone
            held += (figure.low or 0.0) <= truth <= (np.inf if figure.high is None else figure.high)
            all_alike = quantile_figure(np.sort(alone_values(one, name)), q)
            naive += (all_alike.low or 0.0) <= truth <= (all_alike.high or np.inf)
        assert held >= LEAST_COVERED, (measure.key, held)
        if measure.key == "ttft_p95":
            assert naive <= held - 10


def alone_values(result: ClassResult, name: str) -> np.ndarray:
    return np.concatenate([block.latencies[f"{name}_s"] for block in result.alone.blocks])


def values(result: ClassResult, name: str) -> np.ndarray:
    blocks = [*result.alone.blocks, *result.together.blocks]
    return np.concatenate([block.latencies[f"{name}_s"] for block in blocks])
