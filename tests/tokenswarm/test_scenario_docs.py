"""The reference for users, the JSON Schema and the scenarios in git say what the code does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenswarm.distributions import SHAPES
from tokenswarm.errors import ScenarioError
from tokenswarm.scenario import SIMULATOR_PRESETS, json_schema, load_scenario, parse_scenario

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
SCENARIOS = sorted(file for file in (ROOT / "scenarios").rglob("*.y*ml") if "material" not in file.parts)


def models(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mapping of the schema under the heading that documents it."""
    headings = {
        "Target": "target",
        "Tls": "target.tls",
        "Timeouts": "target.timeouts",
        "ChatTraffic": "traffic",
        "PromptFile": "traffic[].prompts",
        "AgenticTraffic": "kind: agentic",
        "SystemPrompt": "traffic[].system_prompt",
        "CaptioningTraffic": "kind: captioning",
        "Images": "traffic[].images",
        "SyntheticImages": "traffic[].images.synthetic",
        "ParquetImages": "traffic[].images.parquet",
        "HubImages": "traffic[].images.hub",
        "PrefixCacheTest": "prefix_cache",
        "Interference": "interference",
        "Load": "load",
        "Closed": "load.closed",
        "UserSearch": "load.closed.users",
        "UserRange": "load.closed.users",
        "Open": "load.open",
        "Steady": "load.open.requests_per_s",
        "Ramp": "load.open.requests_per_s",
        "Steps": "load.open.requests_per_s",
        "RateSearch": "load.open.requests_per_s",
        "RateRange": "load.open.requests_per_s",
        "Gamma": "load.open.arrivals",
        "GammaProcess": "load.open.arrivals",
        "Replay": "load.replay",
        "LengthRange": "load.replay",
        "TraceTraffic": "kind: trace",
        "Sessions": "load.closed.sessions",
        "Objective": "objectives",
    }
    yield "Top level", schema
    for name, definition in schema["$defs"].items():
        if definition["type"] == "object":
            yield headings.get(name, "Distributions"), definition


def section(heading: str) -> str:
    """The text between this heading and the next."""
    found = re.search(rf"^#+ `?{re.escape(heading)}`?\n(.*?)(?=^#|\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading}"
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """First cell without backticks → the other cells, of all tables in a text."""
    cells = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    )
    return {first.strip("`"): rest for first, *rest in cells}


def written_default(key: str, field: dict[str, Any], model: dict[str, Any]) -> Any:
    """What must stand in the reference as the default: a word, or a value as YAML has it."""
    if key in model.get("required", []):
        return "required"
    default = field.get("default")
    if isinstance(default, dict) and len(default) == 1 and "fixed" in default:
        default = default["fixed"]
    return "—" if default is None else without_none(default)


def without_none(value: Any) -> Any:
    """A default as a person writes it, without keys that have no value."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return value


def shown_default(cell: str) -> Any:
    return yaml.safe_load(cell.strip("`")) if cell.startswith("`") else cell


def test_every_key_stands_in_the_reference_with_its_default():
    """Key by key: a row in the section of its mapping, the right default, and no row for a key that does not exist."""
    described = {"name": "the file's name", "target": "see below", "traffic": "one class of chat"}
    seen: dict[str, set[str]] = {}
    for heading, model in models(json_schema()):
        table = rows(section(heading))
        seen.setdefault(heading, set()).update(model["properties"])
        for key, field in model["properties"].items():
            if heading == "Distributions":
                assert f"`{key}`" in section(heading), f"{key} is missing under Distributions"
                continue
            assert key in table, f"{heading}.{key} is not documented"
            expected = written_default(key, field, model)
            if heading == "Top level":
                expected = described.get(key, expected)
            elif key in ("tls", "timeouts"):
                expected = "see below"
            assert shown_default(table[key][0]) == expected, f"{heading}.{key}"
    for heading, keys in seen.items():
        if heading != "Distributions":
            assert set(rows(section(heading))) == keys, heading
    assert set(rows(section("Distributions"))) == set(SHAPES)


def test_every_schema_field_has_a_description():
    """An editor shows a sentence for every key."""
    for heading, model in models(json_schema()):
        for key, field in model["properties"].items():
            assert field.get("description", "").endswith("."), f"{heading}.{key}"


def examples() -> list[str]:
    texts = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("agents.md", "captioning.md", "traces.md")]
    return re.findall(r"^```yaml\n(.*?)^```", "".join([REFERENCE, *texts]), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", examples())
def test_every_example_in_the_reference_loads(example, tmp_path):
    """YAML blocks of the reference and of the pages about agents, captions and traces are accepted as they stand."""
    for name in ("my-prompts.jsonl", "my-tools.yaml", "my-jobs.jsonl", "jobs.jsonl", "my-trace.jsonl", "my-trace.csv"):
        (tmp_path / name).write_text('{"prompt": "hi"}\n')  # what is in them is looked at when a run begins
    (tmp_path / "my-photos").mkdir()
    (tmp_path / "my-questions.parquet").touch()
    assert parse_scenario(example, "docs", folder=tmp_path, check_env=False).traffic


def test_the_reference_has_examples():
    """The test above runs over more than nothing."""
    assert len(examples()) >= 6


def test_the_mistakes_in_the_reference_are_what_one_sees():
    """The sample messages are the real ones."""
    text = "load:\n  closed:\n    tail: fill\n    usres: 8\n    duration_s: 30s\n"
    sample = re.search(r"```text\n(.*?)```", REFERENCE, re.DOTALL)
    assert sample
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "sweep.yaml")
    shown = [line for line in caught.value.problems if "tail" not in line]
    assert sample[1].splitlines() == shown


def test_the_schema_file_is_current():
    """`python -m tokenswarm.scenario --schema > docs/scenario.schema.json` would change nothing."""
    stored = json.loads((ROOT / "docs" / "scenario.schema.json").read_text(encoding="utf-8"))
    assert stored == json_schema()


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.name)
def test_every_scenario_in_git_loads(file):
    """No stored scenario is broken, and each points an editor at the schema."""
    scenario = load_scenario(file, check_env=False)
    assert scenario.name == file.stem
    first = file.read_text(encoding="utf-8").splitlines()[0]
    schema = first.removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / schema).resolve() == ROOT / "docs" / "scenario.schema.json"


def test_there_are_scenarios():
    """The test above runs over more than nothing."""
    names = {file.relative_to(ROOT / "scenarios").as_posix() for file in SCENARIOS}
    assert names >= {
        "agentic.yaml",
        "captioning.yaml",
        "chat.yaml",
        "chat-sweep.yaml",
        "demo.yaml",
        "interference.yaml",
        "mixed.yaml",
        "prefix-cache.yaml",
        "replay.yaml",
        "published/spark-fp8-sweep.yaml",
        "published/two-spark-sweep.yaml",
        "published/real-prompt-check.yaml",
    }


def test_published_sweeps_ask_for_what_the_tables_say():
    """Requests a level as in the published tables: max(8, 4 × c) and max(4, 2 × c), drained, lengths as described."""
    for name, counts, output in (
        ("spark-fp8-sweep", {1: 8, 2: 8, 4: 16, 8: 32, 16: 64, 32: 128}, 256),
        ("two-spark-sweep", {1: 4, 2: 4, 4: 8, 8: 16, 16: 32}, 500),
    ):
        scenario = load_scenario(ROOT / "scenarios" / "published" / f"{name}.yaml")
        assert scenario.load is not None
        closed = scenario.load.closed
        assert closed.sessions is not None
        assert {users: closed.sessions.count(users) for users in closed.users} == counts
        assert closed.tail == "drain"
        assert scenario.traffic[0].output_tokens.mean == output
        assert scenario.traffic[0].ignore_eos


def test_presets_are_those_of_the_simulator():
    """A preset that a scenario may name exists, and each that exists may be named."""
    files = (ROOT / "simulator" / "presets").glob("*.yaml")
    assert {file.stem for file in files} == set(SIMULATOR_PRESETS)
