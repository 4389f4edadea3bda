"""What ships for agents: tools, recorded jobs and scenarios fit together."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tokenswarm.arguments import make_arguments
from tokenswarm.conversations import Trajectory
from tokenswarm.toolset import read_tools
from tokenswarm.trajectories import read_trajectories

MATERIAL = Path(__file__).parents[2] / "scenarios" / "material"
JOBS = {"coding": 6, "support": 8, "research": 5}  # the fewest of each kind


def jobs_of(kind: str) -> list[Trajectory]:
    return read_trajectories(MATERIAL / "trajectories" / f"{kind}.jsonl")


@pytest.mark.parametrize("kind", JOBS)
def test_recorded_calls_fit_their_tools(kind: str) -> None:
    """Every call names a tool of its kind and has arguments that the tool's JSON schema accepts."""
    tools = read_tools(MATERIAL / "tools" / f"{kind}.yaml")
    problems = [
        (job.name, tools.judge(call).problem)
        for job in jobs_of(kind)
        for step in job.steps
        for call in step.calls
        if tools.judge(call).problem
    ]
    assert problems == []


@pytest.mark.parametrize("kind", JOBS)
def test_every_tool_is_used(kind: str) -> None:
    """No tool stands there that no recorded job calls."""
    called = {call.name for job in jobs_of(kind) for step in job.steps for call in step.calls}
    assert called == set(read_tools(MATERIAL / "tools" / f"{kind}.yaml").names)


@pytest.mark.parametrize("kind", JOBS)
def test_arguments_can_be_made_up_for_every_tool(kind: str) -> None:
    """Without recordings a scenario makes arguments up; those fit the schemas of the tools that ship."""
    for tool in read_tools(MATERIAL / "tools" / f"{kind}.yaml").tools.values():
        for seed in range(20):
            rng = Random(seed)
            made = make_arguments(tool.schema, lambda count: " ".join(["word"] * count), 12, rng)
            assert tool.complaint(made) is None, (tool.name, made)


@pytest.mark.parametrize("kind", JOBS)
def test_recorded_jobs_are_whole(kind: str) -> None:
    """Different jobs of 3 to 12 steps, an answer at the end, some calls at once, lengths and tool times known."""
    jobs = jobs_of(kind)
    assert len(jobs) >= JOBS[kind]
    assert len({job.name for job in jobs}) == len({job.task for job in jobs}) == len(jobs)
    assert len({job.system for job in jobs}) == 1
    for job in jobs:
        assert 3 <= len(job.steps) <= 12, job.name
        assert not job.steps[-1].calls, job.name
        assert job.steps[-1].text, job.name
        assert all(step.output_tokens for step in job.steps), job.name
        assert all(step.tool_time_s is not None for step in job.steps[:-1]), job.name
    assert any(len(step.calls) > 1 for job in jobs for step in job.steps)


def test_results_of_research_are_long() -> None:
    """Pages that the research agent opens have some thousand characters, and its contexts grow far beyond a chat's."""
    jobs = jobs_of("research")
    longest = [max(len(result) for step in job.steps for result in step.results) for job in jobs]
    assert min(longest) > 3000
    assert min(job.context_characters for job in jobs) > 15_000


def test_recordings_are_small_and_show_no_machine() -> None:
    """The material stays small in git, and no path of the machine it was made on is in it."""
    files = [path for path in MATERIAL.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 600_000
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert "/tmp/" not in text, path
        assert "/root" not in text, path
