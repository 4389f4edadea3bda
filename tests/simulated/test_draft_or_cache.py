"""One draft token or prefix caching, asked as a user asks it: one scenario, two servers, whole Locusts.

The engines run 40 times as fast as they are, so the tools do too.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.simulated.conftest import ROOT, Run, Simulator

SPEED = 40.0
PUBLISHED = ROOT / "scenarios" / "published"
AGENTIC = ROOT / "locustfiles" / "agentic.py"

pytestmark = pytest.mark.slow


def scenario(folder: Path) -> Path:
    """The published one, at four users only, with four jobs of at most six calls."""
    content = yaml.safe_load((PUBLISHED / "spark-mtp1-or-prefix-cache.yaml").read_text(encoding="utf-8"))
    (agents,) = content["traffic"]
    agents["tools"] = str(PUBLISHED / agents["tools"])
    agents["tool_time_s"]["lognormal"]["median"] /= SPEED
    agents["steps"]["geometric"] = {"mean": 4, "max": 6}
    content["load"]["closed"] |= {"users": [4], "sessions": 4, "warmup_sessions": 1}
    path = folder / "agents.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def job_seconds(run: Run) -> dict[str, float]:
    """From the first request of each measured job to the end of its last answer, in the engine's time."""
    rows = defaultdict(list)
    for row in run.measured():
        rows[row["session"]].append(row)
    return {
        session: (max(float(row["finished_s"]) for row in job) - min(float(row["sent_s"]) for row in job)) * SPEED
        for session, job in rows.items()
    }


def test_both_servers_get_the_same_jobs_and_the_cache_is_faster(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], tmp_path: Path
) -> None:
    """Same jobs and lengths; a draft token shows as 1.7 tokens a chunk, a cache as cached prompt tokens; and jobs are
    faster with the cache, by the prefill of 6,000 tokens a call.
    """
    path = scenario(tmp_path)
    runs = {}
    for name in ("mtp1", "30ms"):
        server = simulator("--speed", str(SPEED), preset=f"spark-qwen3.6-35b-fp8-{name}")
        runs[name] = locust("--scenario", str(path), "-H", server.url, locustfile=AGENTIC, timeout=120)
        rows = runs[name].measured()
        assert rows, runs[name].output
        assert [row["error"] for row in rows if row["error_kind"]] == []
        assert all(row["output_tokens"] == row["asked_output_tokens"] for row in rows)
    drafted, cached = runs["mtp1"].measured(), runs["30ms"].measured()
    asked = [
        sorted((row["session"], row["turn"], row["asked_output_tokens"]) for row in rows) for rows in (drafted, cached)
    ]
    assert asked[0] == asked[1]
    assert {row["cached_tokens"] for row in drafted} == {"0"}
    assert share_cached(cached) > 0.8
    after_first = [(int(row["output_tokens"]) - 1, int(row["chunks"]) - 1) for row in drafted]
    assert sum(tokens for tokens, _ in after_first) / sum(steps for _, steps in after_first) == pytest.approx(
        1.7, rel=0.05
    )
    assert all(row["output_tokens"] == row["chunks"] for row in cached)
    assert statistics.median(job_seconds(runs["30ms"]).values()) < statistics.median(job_seconds(runs["mtp1"]).values())


def share_cached(rows: list[dict[str, str]]) -> float:
    return sum(int(row["cached_tokens"]) for row in rows) / sum(int(row["prompt_tokens"]) for row in rows)
