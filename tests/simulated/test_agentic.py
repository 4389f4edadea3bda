"""Agents through a whole Locust: replayed and live jobs, what the server saw of them, and what their rows say."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.simulated.conftest import ROOT, Run, Simulator, assert_as_served, sessions_of

AGENTIC = ROOT / "locustfiles" / "agentic.py"
TOOLS = ROOT / "scenarios" / "material" / "tools" / "coding.yaml"
TRAJECTORIES = ROOT / "scenarios" / "material" / "trajectories" / "coding.jsonl"


def _scenario(traffic: str, load: str = "users: [2], sessions: 4, tail: drain", extra: str = "") -> str:
    return f"traffic:\n  - {{kind: agentic, {traffic}}}\nload: {{closed: {{{load}}}}}\n{extra}"


def test_generated_jobs_are_replayed_with_exact_lengths_and_one_shared_prefix(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """Four steps a job, the first prompt exactly as long as asked; after the first job every job finds the shared
    prompt in the cache, in whole blocks, and nothing more; tool time lies between requests."""
    server = simulator("--speed", "20")
    traffic = (
        "system_prompt: {tokens: 800}, steps: 4, task_tokens: 50, tool_time_s: 0.2, tool_result_tokens: 60, "
        "output_tokens: 12"
    )
    load = "users: [1], sessions: 3, warmup_sessions: 1, tail: drain"
    run = locust("-H", server.url, scenario=_scenario(traffic, load), locustfile=AGENTIC)
    assert_as_served(run, server, "cached_tokens")
    jobs = list(sessions_of(run.measured()).values())
    assert [len(job) for job in jobs] == [4, 4, 4]
    for job in jobs:
        assert [row["session_end"] for row in job] == ["", "", "", "done"]
        assert {row["output_tokens"] for row in job} == {"12"}
        first = job[0]
        assert first["prompt_tokens"] == first["asked_input_tokens"]
        assert int(first["prompt_tokens"]) > 850
        prefix = int(first["prefix_tokens"])
        assert prefix > 800
        assert int(first["cached_tokens"]) == prefix // 16 * 16
        for before, row in pairwise(job):
            assert int(row["history_tokens"]) == int(before["prompt_tokens"])
            # whole blocks; one more where the model's own answer happened to begin as the recorded one does
            assert abs(int(row["history_tokens"]) - int(row["cached_tokens"])) < 16
            assert float(row["pause_s"]) == 0.2
            assert float(row["sent_s"]) - float(before["finished_s"]) >= 0.2
    assert run.table()["levels"][0]["cache"]["state"] == "confirmed"


def test_recorded_jobs_are_replayed_whatever_the_model_says(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """The model's made-up calls differ from the recorded ones and are counted so; every job runs its course, and no
    two jobs share more than their system prompt even where the same recording comes twice."""
    server = simulator("--speed", "50")
    traffic = f"tools: {TOOLS}, trajectories: {TRAJECTORIES}, tool_time_s: 0"
    load = "users: [3], sessions: 9, tail: drain"
    run = locust("-H", server.url, scenario=_scenario(traffic, load), locustfile=AGENTIC)
    assert_as_served(run, server, "cached_tokens")
    jobs = list(sessions_of(run.measured()).values())
    assert len(jobs) == 9
    assert {job[-1]["session_end"] for job in jobs} == {"done"}
    kinds = {row["divergence"] for job in jobs for row in job}
    assert kinds - {"same", "no_call", "called", "other_tools", "other_arguments"} == set()
    assert kinds & {"no_call", "other_tools", "other_arguments"}
    for job in jobs:
        assert int(job[0]["cached_tokens"]) <= int(job[0]["prefix_tokens"] or 0)


@pytest.mark.parametrize(
    ("choice", "malformed"), [("auto", "0"), ("required", "0"), ("read_file", "0"), ("auto", "0.5")]
)
def test_live_jobs_follow_the_models_own_calls(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], choice: str, malformed: str
) -> None:
    """Calls are put together and answered, malformed ones are counted and told to the model, jobs end with an answer
    or at the step limit; a forced choice is lifted for the last step."""
    server = simulator("--speed", "50", "--set", f"malformed_call_share={malformed}")
    traffic = (
        f"mode: live, tools: {TOOLS}, tool_choice: {choice}, steps: 3, step_limit: 8, tool_time_s: 0.01, "
        "tool_result_tokens: 30, output_tokens: 120, system_prompt: {tokens: 200}"
    )
    load = "users: [4], sessions: 16, tail: drain"  # a job without a malformed call has a chance of 1 in 3
    run = locust("-H", server.url, scenario=_scenario(traffic, load), locustfile=AGENTIC)
    truth = assert_as_served(run, server, "cached_tokens")
    jobs = list(sessions_of(run.measured()).values())
    assert len(jobs) == 16
    assert sum(int(row["tool_calls"]) for job in jobs for row in job) > 0
    assert {job[-1]["session_end"] for job in jobs} <= {"done", "step_limit"}
    whole = [row for job in jobs for row in job if row["finish_reason"] != "length"]
    assert whole
    for row in whole:
        assert int(row["malformed_calls"]) == truth[row["request_id"]]["malformed_calls"]
    assert any(row["malformed_calls"] != "0" for row in whole) == (malformed != "0")
    if choice != "auto":
        assert {len(job) for job in jobs} == {3}
        assert all(int(row["tool_calls"]) >= 1 for job in jobs for row in job[:-1])
        assert all(row["tool_calls"] == "0" for row in (job[-1] for job in jobs))
        assert {job[-1]["session_end"] for job in jobs} == {"done"}


def test_the_same_jobs_are_played_by_any_number_of_workers(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """Two workers play the same tickets with the same steps and lengths as one process."""
    server = simulator("--speed", "50")
    traffic = "system_prompt: {tokens: 300, pool: 2, share: 0.5}, steps: {uniform: [2, 5]}, tool_time_s: 0"
    load = "users: [4], sessions: 8, tail: drain"
    shapes = []
    for options in ((), ("--processes", "2")):
        run = locust("-H", server.url, *options, scenario=_scenario(traffic, load), locustfile=AGENTIC)
        assert_as_served(run, server, "cached_tokens")
        shapes.append(
            sorted(
                (int(row["ticket"]), int(row["turn"]), row["asked_output_tokens"], row["asked_input_tokens"])
                for row in run.measured()
            )
        )
    assert shapes[0] == shapes[1]


def test_repeated_prompts_are_marked_as_contaminated(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """With fresh_prompts: false the second level finds the first one's prompts in the cache and is marked; the table's
    share is the server's own."""
    server = simulator("--speed", "20")
    load = "users: [2, 2], sessions: 6, tail: drain, fresh_prompts: false"
    run = locust("-H", server.url, scenario=closed_scenario(load, ", ignore_eos: true").replace("40, 80", "100, 200"))
    assert run.code == 3, run.output  # a contaminated level is not credible
    assert len(run.measured()) == 12
    truth = {row["id"]: row for row in server.truth()}
    levels = run.table()["levels"]
    assert levels[0]["cache"]["state"] == "confirmed"
    assert levels[1]["cache"]["state"] == "contaminated"
    rows = [truth[row["request_id"]] for row in run.measured() if row["level"] == "1"]
    share = sum(row["cached_tokens"] for row in rows) / sum(row["prompt_tokens"] for row in rows)
    assert share > 0.8
    assert levels[1]["cache"]["measured"] == pytest.approx(share)
