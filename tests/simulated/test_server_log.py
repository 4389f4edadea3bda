"""A run, the log that the engine wrote meanwhile, its counters and its own record: all tell the same."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import __main__ as analysis
from tests.simulated.conftest import Run, Simulator, assert_as_served

SCENARIO = (
    "traffic: [{name: chat, input_tokens: 200, output_tokens: {uniform: [180, 220]}}]\n"
    "load: {closed: {users: [2, 12], sessions: {at_least: 6, per_user: 2}, warmup_sessions: 2, tail: fill}}\n"
)
NINE_HOURS_S = 9 * 3600.0


def ingest(*arguments: str) -> Any:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert analysis.main(["ingest", *arguments, "--json"]) == 0
    return json.loads(out.getvalue())


def test_log_counters_and_truth_of_one_run(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log in the time of another zone is laid on the run within a second, and shows in each level as many requests as
    there were users; requests and tokens of the counters close with the rows, and are those of the server's record."""
    log = tmp_path / "server.log"
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    server = simulator("--log-interval", "0.25", "--log-file", str(log), "--no-stall", "--set", "max_num_seqs=8")
    monkeypatch.delenv("TZ")
    run = locust("-H", server.url, scenario=SCENARIO)
    truth = assert_as_served(run, server)

    (beside,) = ingest(str(run.folder), str(log))["logs"]
    aligned, levels = beside["alignment"], beside["levels"]
    assert aligned["offset_s"] == pytest.approx(-NINE_HOURS_S, abs=aligned["uncertainty_s"])
    assert aligned["uncertainty_s"] <= 1.5
    assert [level["label"] for level in levels] == ["c=2", "c=12"]
    assert levels[0]["running_mean"] == pytest.approx(2, abs=0.5)
    assert levels[1]["running_mean"] == pytest.approx(8, abs=0.5)
    assert levels[1]["waiting_mean"] == pytest.approx(4, abs=1)
    assert [one["what"] for one in levels[1]["concerns"]] == ["queued"]

    table = run.table()
    for level in (0, 1):
        rows = [row for row in run.rows if row["level"] == str(level)]
        served = [truth[row["request_id"]] for row in rows]
        view = table["server"][level]
        assert view["counts"] == "closes"
        assert view["requests"]["engine"] == len(rows)
        assert view["totals"]["generation_tokens"] == sum(one["output_tokens"] for one in served)
        assert view["totals"]["prompt_tokens"] == sum(one["prompt_tokens"] for one in served)
        waits = [one["queue_wait_s"] for one in served]
        assert view["means_s"]["queue"] == pytest.approx(np.mean(waits), abs=0.01)
