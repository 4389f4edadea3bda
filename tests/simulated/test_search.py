"""A search through a whole Locust: each level is judged by what the table says of it afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.simulated.conftest import Run, Simulator

LOAD = "users: {search: {start: 2, limit: 4}}, sessions: 80"
OBJECTIVE = "objectives: {quick: {ttft_s: {p95: 5}}}\n"


def test_a_search_up_to_its_limit(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """Two users, then four; the verdict between two levels rests on all their rows, because it is the one that the
    table gives at the end."""
    server = simulator("--no-stall")
    run = locust("-H", server.url, scenario=closed_scenario(LOAD, ", objective: quick", OBJECTIVE))
    assert run.measured(), run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    found = json.loads((run.folder / "search.json").read_text(encoding="utf-8"))
    document = run.table()
    told = [{name: one[name] for name in ("label", "judgement", "why")} for one in document["verdicts"]]
    assert [{name: step[name] for name in ("label", "judgement", "why")} for step in found["steps"]] == told
    assert told[0]["label"] == "c=2"
    assert run.ended(0), run.output
    if run.code == 0:  # else the machine had no time for the load
        assert [one["label"] for one in told] == ["c=2", "c=4"]
        assert (found["ended"], found["best"]["label"], found["first_bad"]) == ("limit", "c=4", None)
        assert document["search"]["best"]["label"] == "c=4"
        assert {row["request_id"] for row in run.measured()} <= {row["id"] for row in server.truth()}
