"""The folder by which the cost of a table is measured is a run like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.source import read_outcome
from benchmarks.analysis_rows import LEVELS, cost_of, write_folder

ROWS = 3_200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("rows") / "run", ROWS)


def test_every_row_is_read_and_every_figure_known(folder: Path) -> None:
    """Nothing is damaged or unmeasured: levels, jobs, goodput and the cache have their figures."""
    outcome = read_outcome(str(folder))
    assert [row.concurrency for row in outcome.levels] == list(LEVELS)
    assert sum(row.requests for row in outcome.levels) == ROWS
    assert 0 < sum(row.failed for row in outcome.levels) < 0.05 * ROWS
    for row in (*outcome.levels, *outcome.classes):
        for name in ("output_tok_s", "ttft_p95_s", "tpot_p95_s", "job_p50_s", "goodput_per_s", "cache_share"):
            assert row.figure(name).value is not None, (row.name, name)


def test_the_cost_is_that_of_the_command(folder: Path) -> None:
    """Time and memory of a process that has loaded pandas are more than nothing."""
    cost = cost_of(folder)
    assert cost["table_s"] >= 0.5 * cost["cpu_s"] > 0.1
    assert cost["peak_rss_mb"] > 50
