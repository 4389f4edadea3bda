"""How often a comparison of runs errs, on servers whose difference is known: seeds 1 to 100 in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

import numpy as np
import pytest

from analysis.compared_level import Cell, Verdict
from analysis.comparison import comparisons
from tests.statistics.virtual_load import Load, Server, played

SEEDS = range(1, 101)
MOST_FALSE, LEAST_FOUND = 8, 80  # of 100
PLANTED = 1.05
RUN_S = 40.0
ABBA = "ABBAABBA"


def cells_of(base: Server, candidate: Server, seed: int, load: Load) -> list[Cell]:
    """One run a side, of the same scenario."""
    runs = [played(server, 2 * seed + side, load) for side, server in enumerate((base, candidate))]
    (found,) = comparisons(runs[:1], [runs[1:]])
    return found.cells


def blocks(order: str, server: dict[str, Server], seed: int, load: Load) -> list[Cell]:
    """Runs one after the other in this order of sides."""
    runs = [(side, played(server[side], 100 * seed + i, load, start_s=i * RUN_S)) for i, side in enumerate(order)]
    (found,) = comparisons([run for side, run in runs if side == "A"], [[run for side, run in runs if side == "B"]])
    return found.cells


def claimed(cells: Iterable[Cell]) -> set[tuple[str, Verdict]]:
    return {(cell.figure, cell.verdict) for cell in cells if cell.verdict != Verdict.UNKNOWN}


@cache
def pilot(seed: int, requests: int) -> list[Cell]:
    """A first comparison of the server with itself."""
    return cells_of(Server(), Server(), 1000 + seed, Load(requests=requests))


def recommended(figure: str, seed: int) -> int:
    """What the tool recommends after a first comparison, which is made again with twice as many requests where they are
    too few for an interval."""
    for requests in (256, 512, 1024):
        (needed,) = [cell.needed for cell in pilot(seed, requests) if cell.figure == figure]
        if needed is not None:
            return needed
    raise AssertionError("1,024 requests are too few for an interval")


def test_neighbours_are_alike() -> None:
    """The load is worth testing with: requests that follow each other resemble each other."""
    correlations = []
    for seed in SEEDS:
        (sample,) = [run.sample(key) for run in [played(Server(), seed)] for key in run.levels]
        assert sample is not None
        assert len(sample.sent_s) == 256
        e2e = sample.known("tpot_s")
        correlations.append(np.corrcoef(e2e[:-1], e2e[1:])[0, 1])
    assert 0.1 < float(np.mean(correlations)) < 0.5


@pytest.mark.parametrize("load", [Load(1, 64), Load(8, 64), Load(8, 256), Load(32, 512)], ids=str)
def test_a_server_against_itself(load: Load) -> None:
    """In at most 8 of 100 comparisons any cell at all says better or worse."""
    verdicts = [claimed(cells_of(Server(), Server(), seed, load)) for seed in SEEDS]
    assert sum(bool(one) for one in verdicts) <= MOST_FALSE, Counter(cell for one in verdicts for cell in one)


@pytest.mark.slow
@pytest.mark.parametrize("figure", ["output_tok_s", "tpot_p50_s", "e2e_mean_s", "e2e_p50_s"])
def test_five_percent_are_found_with_the_recommended_requests(figure: str) -> None:
    """Of 100 comparisons with a server that takes 5 % longer for everything, each as large as a first one recommends,
    80 or more find this figure worse, and the interval holds the truth in 90."""
    truth = 1 / PLANTED if figure == "output_tok_s" else PLANTED
    found = held = 0
    for seed in SEEDS:
        load = Load(requests=recommended(figure, seed))
        (cell,) = [one for one in cells_of(Server(), Server(PLANTED), seed, load) if one.figure == figure]
        found += cell.verdict == Verdict.WORSE
        low, high = cell.effect.interval() or (0.0, 0.0)
        held += low <= truth <= high
    assert found >= LEAST_FOUND
    assert held >= 90


def drifting(factor: float = 1.0) -> dict[str, Server]:
    """10 % slower at the end of the last block, whoever is asked."""
    return {side: Server(by, drift=0.10, until_s=len(ABBA) * RUN_S) for side, by in (("A", 1.0), ("B", factor))}


@pytest.mark.slow
def test_drift_fools_sequential_runs_and_not_alternated_ones() -> None:
    """The same server twice, 10 % slower at the end: first all of A and then all of B is seldom silent where the drift
    is not known of; in turns there is nothing to be found."""
    load = Load(requests=96)
    in_turns = [claimed(blocks(ABBA, drifting(), seed, load)) for seed in SEEDS]
    assert sum(bool(one) for one in in_turns) <= MOST_FALSE
    fooled = 0
    for seed in SEEDS:
        first = played(drifting()["A"], 2 * seed, Load(requests=512))
        last = played(drifting()["A"], 2 * seed + 1, Load(requests=512), start_s=len(ABBA) * RUN_S)
        (found,) = comparisons([first], [[last]])
        fooled += ("e2e_mean_s", Verdict.WORSE) in claimed(found.cells)
    assert fooled >= 90


@pytest.mark.slow
def test_five_percent_are_found_in_turns_under_drift() -> None:
    """B takes 5 % longer while both get 10 % slower: at least 80 of 100 alternated comparisons find E2E worse by what
    it is, and no more than chance may have any cell say the opposite."""
    load, effects, found, opposite = Load(requests=128), [], 0, 0
    for seed in SEEDS:
        cells = blocks(ABBA, drifting(PLANTED), seed, load)
        (cell,) = [one for one in cells if one.figure == "e2e_mean_s"]
        effects.append(cell.effect.ratio)
        found += cell.verdict == Verdict.WORSE
        opposite += any(verdict == Verdict.BETTER for _, verdict in claimed(cells))
    assert found >= LEAST_FOUND
    assert opposite <= MOST_FALSE
    assert float(np.mean(effects)) == pytest.approx(PLANTED, abs=0.005)
