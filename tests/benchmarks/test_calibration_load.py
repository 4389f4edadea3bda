"""Which levels a calibration takes of a scenario, and what it changes in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.build import BenchmarkError
from benchmarks.calibration_load import calibration_scenario, planned_loads
from tokenswarm.scenario import Scenario, parse_scenario


def _scenario(load: str, more: str = "") -> Scenario:
    good_enough = "objectives: {good: {ttft_s: {p95: 1}}}"
    return parse_scenario(f"traffic: [{{name: chat, objective: good}}]\nload: {load}\n{good_enough}\n{more}")


@pytest.mark.parametrize(
    ("load", "axis", "loads"),
    [
        ("{closed: {users: [8, 1, 8], sessions: 4}}", "users", [1, 8]),
        ("{closed: {users: [1, 2, 4, 8, 16, 32, 64, 128, 256], sessions: 4}}", "users", [1, 4, 16, 64, 256]),
        ("{closed: {users: {search: {start: 1, limit: 256}}, sessions: 4}}", "users", [1, 4, 16, 64, 256]),
        ("{open: {requests_per_s: [{ramp: [5, 1]}, {steps: [2, 9]}, 0.5], duration_s: 60}}", "rate", [0.5, 5, 9]),
        ("{open: {sessions_per_s: {search: {start: 1, limit: 16}}, duration_s: 60}}", "rate", [1, 2, 4, 8, 16]),
    ],
)
def test_five_levels_at_most_over_the_planned_range(load: str, axis: str, loads: list[float]) -> None:
    """The lowest and the highest are among them; of ramp and steps the highest rate counts; a search goes by ratio."""
    planned = _scenario(load).load
    assert planned is not None
    assert planned_loads(planned) == (axis, pytest.approx(loads))


def test_a_trace_is_refused_in_words(tmp_path: Path) -> None:
    """Its rates are known only to who reads it."""
    (tmp_path / "t.jsonl").write_text("{}\n")
    text = "traffic: [{kind: trace}]\nload: {replay: {trace: t.jsonl}}"
    load = parse_scenario(text, folder=tmp_path).load
    assert load is not None
    with pytest.raises(BenchmarkError, match="trace"):
        planned_loads(load)


def test_the_traffic_stays_and_the_target_goes(tmp_path: Path) -> None:
    """Files are found from elsewhere, the server and the question asked of it are others, the arrivals the same."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "own.jsonl").write_text('{"prompt": "Hello"}\n')
    text = (
        "target: {url: 'http://example.org', model: m, api_key: '${KEY}', request: {top_p: 0.5}}\n"
        "traffic: [{name: a, prompts: {file: own.jsonl}, weight: 2}, {name: b, output_tokens: {uniform: [5, 9]}}]\n"
        "load: {open: {sessions_per_s: [1, 4], arrivals: {gamma: {burstiness: 0.5}}, duration_s: 600, max_users: 33}}\n"
        "cache_probe: always\n"
    )
    scenario = parse_scenario(text, folder=tmp_path, check_env=False)
    made = calibration_scenario(scenario, "http://127.0.0.1:1", [1, 4], 5.0, {"ttft_us": 7})
    again = parse_scenario(yaml.safe_dump(made), folder=tmp_path / "sub")
    assert again.traffic == scenario.traffic
    assert (again.target.url, again.target.model, again.target.api_key) == ("http://127.0.0.1:1", "auto", None)
    assert again.target.request == {"top_p": 0.5, "reference": {"ttft_us": 7}}
    assert again.cache_probe == "never"
    assert again.load is not None
    assert again.load.open is not None
    assert again.load.open.model_dump(include={"arrivals", "max_users", "duration_s", "requests_per_s"}) == {
        "arrivals": {"gamma": {"burstiness": 0.5}}, "max_users": 33, "duration_s": 5.0, "requests_per_s": None,
    }  # fmt: skip


def test_a_question_becomes_a_plain_load() -> None:
    """Neither blocks nor pairs: users, each for its time."""
    scenario = _scenario("{closed: {users: 4, sessions: 8}}", "prefix_cache: {}\n")
    made = calibration_scenario(scenario, "http://127.0.0.1:1", [4], 5.0, None)
    assert "prefix_cache" not in made
    assert made["load"] == {"closed": {"users": [4], "duration_s": 5.0, "drain_limit_s": 10.0}}
    assert parse_scenario(yaml.safe_dump(made)).target.request == {}
