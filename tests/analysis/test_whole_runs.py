"""Whole Locust runs against the simulated engine: what the tables say beside the rows and the server's own counters."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from tests.locust_process import ROOT, Run, run_locust

AGENTS = """
target: {simulator: demo}
traffic:
  - name: agent
    kind: agentic
    system_prompt: {tokens: 600}
    steps: 3
    task_tokens: 60
    output_tokens: 12
    tool_time_s: 0.05
    tool_result_tokens: 80
load: {closed: {users: [1, 3], sessions: 6, warmup_sessions: 1, tail: drain}}
"""

ONE_SEED = """
target: {simulator: demo}
traffic: [{name: chat, input_tokens: 512, output_tokens: 8}]
load: {closed: {users: [2, 4, 8], sessions: {per_user: 1}, fresh_prompts: false, tail: drain}}
"""

CAPTIONS = """
target: {simulator: rtx-pro-6000-captioning}
cache_probe: always
traffic:
  - {name: captions, kind: captioning, output_tokens: 24}
  - {name: chat, weight: 0.5, input_tokens: 64, output_tokens: 24}
load: {closed: {users: [3], sessions: 15, warmup_sessions: 2, tail: fill}}
"""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("agents")
    run = run_locust(folder, scenario=AGENTS, locustfile=ROOT / "locustfiles" / "agentic.py")
    assert run.code == 0, run.output
    assert len(run.measured()) == 2 * 6 * 3
    assert not any(row["error_kind"] for row in run.rows)
    return run


def test_job_times_are_those_of_the_rows(agents: Run) -> None:
    """Worked out again from the rows alone: six jobs of three steps a level, and the parts of their time."""
    sessions = defaultdict(list)
    for row in agents.measured():
        sessions[(row["level"], row["session"])].append(row)
    for level in agents.table()["levels"]:
        jobs = [rows for (number, _), rows in sessions.items() if int(number) == level["level"]]
        assert level["jobs"]["states"] == {"done": 6}
        walls = [max(float(r["finished_s"]) for r in rows) - min(float(r["sent_s"]) for r in rows) for rows in jobs]
        model = [sum(float(r["finished_s"]) - float(r["sent_s"]) for r in rows) for rows in jobs]
        figures = {name: figure["value"] for name, figure in level["figures"].items()}
        assert figures["job_mean_s"] == pytest.approx(statistics.fmean(walls), abs=1e-5)
        assert figures["job_p50_s"] == pytest.approx(statistics.median(walls), abs=1e-5)
        assert figures["job_model_mean_s"] == pytest.approx(statistics.fmean(model), abs=1e-5)
        assert figures["job_tools_mean_s"] == pytest.approx(0.1)  # two tools of 0.05 s
        parts = sum(figures[f"job_{part}_mean_s"] for part in ("model", "tools", "client"))
        assert parts == pytest.approx(figures["job_mean_s"])
        assert 0 < figures["job_client_mean_s"] < 0.5
        measured = [row for row in agents.measured() if int(row["level"]) == level["level"]]
        window = max(float(r["finished_s"]) for r in measured) - min(float(r["sent_s"]) for r in measured)
        assert figures["jobs_per_h"] == pytest.approx(6 * 3600 / window, rel=1e-4)


def test_what_the_cache_served_is_what_the_workload_implies(agents: Run) -> None:
    """Each step finds the one before, each job the shared head; the engine's counters of a level say the same."""
    samples = agents.file("engine.csv")
    for level in agents.table()["levels"]:
        cache = level["cache"]
        assert cache["state"] == "confirmed", cache
        assert cache["measured"] > 0.5
        assert cache["measured"] == pytest.approx(cache["implied"], abs=0.02)
        start, end = (
            next(s for s in samples if s["edge"] == edge and int(s["level"]) == level["level"])
            for edge in ("start", "end")
        )
        found = int(end["prefix_hits"]) - int(start["prefix_hits"])
        rows = [row for row in agents.rows if int(row["level"]) == level["level"]]
        assert found == sum(int(row["cached_tokens"]) for row in rows)


def test_one_seed_at_every_level_is_marked(tmp_path: Path) -> None:
    """2, 4 and 8 equal prompts: nothing, half and half came from the cache, not 43 % at the last level; exit code 3."""
    run = run_locust(tmp_path, scenario=ONE_SEED)
    assert len(run.measured()) == 14
    assert not any(row["error_kind"] for row in run.rows)
    assert run.code == 3
    levels = run.table()["levels"]
    assert [level["cache"]["state"] for level in levels] == ["confirmed", "contaminated", "contaminated"]
    # of 512 tokens 31 blocks of 16 can be found, the last one is computed in any case
    assert [level["cache"]["measured"] for level in levels] == pytest.approx([0, 0.5 * 496 / 512, 0.5 * 496 / 512])
    assert "repeats the prompts of the first level" in run.output


def test_captions_beside_a_chat(tmp_path: Path) -> None:
    """Every second look-up of a picture is served, by the engine's own count; its prefix cache is enabled but inert."""
    run = run_locust(tmp_path, scenario=CAPTIONS, locustfile=ROOT / "locustfiles" / "mixed.py")
    assert run.code == 0, run.output
    assert len(run.measured()) == 10 * 2 + 5
    assert not any(row["error_kind"] for row in run.rows)
    (level,) = run.table()["levels"]
    start, end = (next(s for s in run.file("engine.csv") if s["edge"] == edge) for edge in ("start", "end"))
    looked_up, found = (int(end[name]) - int(start[name]) for name in ("mm_queries", "mm_hits"))
    assert looked_up == sum(int(row["images"] or 0) for row in run.rows)
    assert level["image_cache"]["images"] == looked_up
    assert level["image_cache"]["measured"] == pytest.approx(found / looked_up)
    assert level["image_cache"]["state"] == "confirmed"
    assert (level["cache"]["state"], level["cache"]["measured"]) == ("below", 0)
    assert "enabled but inert" in run.output
    captions = [row for row in run.measured() if row["traffic"] == "captions"]
    assert level["captions"].pop("wait_share") < 0.5
    assert level["captions"] == {
        "captions": 20, "pictures": 10, "sessions": 10,
        "waits": sum(float(row["prepare_s"] or 0) > 0.001 for row in captions),
    }  # fmt: skip
    tokens = sum(int(row["image_tokens"]) for row in captions) / 20
    assert level["figures"]["tokens_per_image"]["value"] == pytest.approx(tokens)
    first = statistics.median(
        float(row["first_token_s"]) - float(row["sent_s"]) for row in captions if row["turn"] == "0"
    )
    assert level["figures"]["ttft_first_p50_s"]["value"] == pytest.approx(first, abs=1e-5)
    assert run.output.index("By class") < run.output.index("All classes together") < run.output.index("Captions")
