"""What a scenario file means once it is accepted."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tokenswarm.errors import InputError, ScenarioError
from tokenswarm.scenario import (
    Closed,
    PromptFile,
    Scenario,
    Sessions,
    Target,
    default_scenario,
    load_scenario,
    parse_scenario,
)

MIXED = """\
target:
  url: https://h.example/v1
  api_key: ${SOME_KEY}
  headers: {api-key: "${OTHER_KEY}", X-Plain: text}
  request: {chat_template_kwargs: {enable_thinking: false}, temperature: 0}
  timeouts: {connect_s: 2.5}
traffic:
  - name: support
    weight: 6
    objective: interactive
    turns: {uniform: [1, 6]}
    input_tokens: {normal: {mean: 512, std: 128, min: 16}}
    output_tokens: {fixed: 256}
    think_time_s: {exponential: 8}
    system_prompt: |
      Two lines,
      of text.
  - name: other
    prompts: random_ids
    ignore_eos: false
load:
  closed: {users: [1, 2, 4], sessions: {per_user: 4, at_least: 8}, warmup_sessions: 2, tail: drain, time_limit_s: 900}
objectives:
  interactive: {ttft_s: {p95: 1.0}, tpot_s: {p95: 0.1, mean: 0.05}, failed: 0.02}
seed: 11
"""
ENVIRON = {"SOME_KEY": "sk-1", "OTHER_KEY": "sk-2"}


def test_every_part_of_a_scenario_arrives_as_written():
    """Values of a rich scenario stand under their attribute names, with their types."""
    scenario = parse_scenario(MIXED, "rich.yaml", environ=ENVIRON)
    target, (support, other) = scenario.target, scenario.traffic
    assert (scenario.name, scenario.seed, scenario.source, scenario.text) == ("rich", 11, "rich.yaml", MIXED)
    assert (target.url, target.api_key, target.simulator) == ("https://h.example/v1", "${SOME_KEY}", None)
    assert target.request == {"chat_template_kwargs": {"enable_thinking": False}, "temperature": 0}
    assert (target.timeouts.connect_s, target.timeouts.first_byte_s) == (2.5, 600)
    assert (support.weight, support.objective, support.kind) == (6, "interactive", "chat")
    assert (support.turns.lowest, support.turns.highest, support.turns.mean) == (1, 6, 3.5)
    assert (support.output_tokens.mean, support.think_time_s.mean) == (256, 8)
    assert support.system_prompt == "Two lines,\nof text.\n"
    assert (other.prompts, other.ignore_eos, other.turns.mean) == ("random_ids", False, 1)
    assert scenario.load is not None
    closed = scenario.load.closed
    assert (closed.users, closed.warmup_sessions, closed.tail) == ((1, 2, 4), 2, "drain")
    assert (closed.time_limit_s, closed.duration_s, closed.drain_limit_s) == (900, None, 60)
    objective = scenario.objectives["interactive"]
    assert (objective.ttft_s, objective.e2e_s, objective.failed) == ({"p95": 1.0}, None, 0.02)
    assert objective.tpot_s == {"p95": 0.1, "mean": 0.05}


@pytest.mark.parametrize(
    ("written", "users", "count"),
    [
        ("{per_user: 4, at_least: 8}", 1, 8),
        ("{per_user: 4, at_least: 8}", 2, 8),
        ("{per_user: 4, at_least: 8}", 32, 128),
        ("{per_user: 2, at_least: 4}", 16, 32),
        ("{per_user: 3}", 5, 15),
        ("{at_least: 7}", 100, 7),
        ("25", 100, 25),
    ],
)
@pytest.mark.parametrize("word", ["sessions", "requests"])
def test_sessions_of_a_level(word, written, users, count):
    """A number holds at every level, else a level has max(at_least, per_user × users); requests is a synonym."""
    scenario = parse_scenario(f"load: {{closed: {{users: {users}, {word}: {written}}}}}")
    assert scenario.load is not None
    assert scenario.load.closed.users == (users,)
    assert scenario.load.closed.sessions is not None
    assert scenario.load.closed.sessions.count(users) == count


def test_equal_levels_stay_apart():
    """A level that is asked for twice is run twice, in the order written."""
    scenario = parse_scenario("load: {closed: {users: [8, 8, 4], sessions: 3}}")
    assert scenario.load is not None
    assert scenario.load.closed.users == (8, 8, 4)


def test_default_scenario():
    """Without a file: one class of chat, generated words, 512 tokens in, 128 out, one turn, free running, seed 7."""
    scenario = default_scenario("chat")
    (chat,) = scenario.traffic
    assert (chat.name, chat.prompts, chat.turns.mean) == ("chat", "words", 1)
    assert (chat.input_tokens.mean, chat.output_tokens.mean, chat.think_time_s.mean) == (512, 128, 0)
    assert (scenario.load, scenario.seed, scenario.target.url, scenario.target.model) == (None, 7, None, "auto")


def test_default_agent():
    """Without a file for agents: replayed jobs with a shared system prompt of 2,000 tokens, free running."""
    (agent,) = default_scenario("agentic").traffic
    assert (agent.kind, agent.name, agent.mode, agent.tool_choice) == ("agentic", "agentic", "replay", "auto")
    assert (agent.system_prompt.tokens, agent.system_prompt.share, agent.system_prompt.pool) == (2000, 1, 1)
    assert (agent.exact_output, agent.first_tokens) == (True, 2000)


def test_default_captioning():
    """Without a file for captions: two questions about one made-up JPEG of 3,136 to 500,000 pixels, free running."""
    (captions,) = default_scenario("captioning").traffic
    assert (captions.kind, captions.name) == ("captioning", "captioning")
    assert (captions.turns.mean, captions.images_per_session.mean) == (2, 1)
    assert (captions.question_tokens.mean, captions.followup_tokens.mean, captions.output_tokens.mean) == (32, 24, 128)
    made_up = captions.images.made_up
    assert made_up is not None
    assert (made_up.pixels.lowest, made_up.pixels.highest, made_up.format, made_up.quality) == (
        3136,
        500_000,
        "jpeg",
        85,
    )
    assert (made_up.distinct, captions.images.columns, captions.ignore_eos) == (None, None, True)


def test_classes_without_a_name_are_named_by_their_kind():
    """One class of each kind needs no names; each has its own keys, and captions of one turn are requests too."""
    scenario = parse_scenario(
        "traffic: [{}, {kind: agentic, steps: 1}, {kind: captioning}]\nload: {closed: {users: 1, sessions: 3}}\n"
    )
    assert [one.name for one in scenario.traffic] == ["chat", "agentic", "captioning"]
    counted = parse_scenario("traffic: [{kind: captioning, turns: 1}]\nload: {closed: {users: 1, requests: 3}}\n")
    assert counted.load is not None
    assert counted.load.closed.sessions is not None
    assert counted.load.closed.sessions.count(1) == 3


def test_a_scenario_is_frozen():
    """Nobody can change a loaded scenario by accident."""
    scenario = default_scenario()
    with pytest.raises(ValidationError):
        scenario.seed = 8  # type: ignore[misc]
    with pytest.raises(ValidationError):
        scenario.traffic[0].weight = 8  # type: ignore[misc]


def test_the_command_line_aims_a_scenario_elsewhere():
    """A URL from the command line replaces URL or simulator, a model the model; the original stays as it was."""
    scenario = parse_scenario("target: {simulator: demo, request: {temperature: 0}}\nseed: 3", "a.yaml")
    aimed = scenario.with_target(url="http://other:1", model="m")
    assert (aimed.target.url, aimed.target.simulator, aimed.target.model) == ("http://other:1", None, "m")
    assert (aimed.seed, aimed.name, aimed.text, aimed.source) == (3, "a", scenario.text, "a.yaml")
    assert aimed.target.request == {"temperature": 0}
    assert (scenario.target.url, scenario.target.simulator) == (None, "demo")
    assert scenario.with_target() == scenario
    with pytest.raises(ScenarioError, match=r"target\.url: .*http://") as caught:
        scenario.with_target(url="other:1")
    assert len(caught.value.problems) == 1


def test_the_digest_follows_the_content_and_not_the_spelling():
    """Written defaults, order, comments, the synonym and the URL leave the digest alone; a changed value does not."""
    base = parse_scenario("name: a\nload: {closed: {users: 1, sessions: 4}}")
    same = parse_scenario(
        "# comment\nseed: 7\nload:\n  closed:\n    tail: fill\n    requests: {at_least: 4}\n    users: [1]\n"
        "traffic: [{turns: {fixed: 1.0}, input_tokens: 512}]\nname: a\n"
        "target: {url: 'http://h:1', timeouts: {connect_s: 10}}"
    )
    other = parse_scenario("name: a\nload: {closed: {users: 1, sessions: 5}}")
    assert base.digest == same.digest == base.with_target(url="http://elsewhere").digest
    assert base.digest != other.digest
    content = base.to_dict()
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    assert base.digest == hashlib.sha256(canonical).hexdigest()


def test_to_dict_is_a_scenario_again():
    """What run.json keeps can be run again: it loads, and to the same digest."""
    scenario = parse_scenario(MIXED, "rich.yaml", environ=ENVIRON)
    again = parse_scenario(yaml.safe_dump(scenario.to_dict()), environ=ENVIRON)
    assert again.to_dict() == scenario.to_dict()
    assert again.digest == scenario.digest


def test_secrets_are_named_and_never_kept():
    """Keys come from the environment or a file when asked for; neither dict, text nor repr of a scenario has them."""
    scenario = parse_scenario(MIXED, environ=ENVIRON)
    assert scenario.target.read_key(ENVIRON) == "sk-1"
    assert scenario.target.read_headers(ENVIRON) == {"api-key": "sk-2", "X-Plain": "text"}
    assert scenario.to_dict()["target"]["api_key"] == "${SOME_KEY}"
    assert "sk-" not in json.dumps(scenario.to_dict()) + repr(scenario) + scenario.text
    with pytest.raises(InputError, match="SOME_KEY"):
        scenario.target.read_key({})
    assert Target().read_key({}) is None


def test_files_count_from_the_folder_of_the_scenario(tmp_path: Path):
    """Relative paths become absolute when loaded, and relative again in what is written down."""
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "hi"}\n')
    (folder / "key").write_text("sk-file\n")
    (folder / "ca.pem").write_text("")
    (folder / "tok").mkdir()
    file = folder / "s.yaml"
    file.write_text(
        "target: {api_key_file: key, tls: {ca_file: ca.pem}, tokenizer: tok}\n"
        "traffic: [{prompts: {file: ../prompts.jsonl}}]\n"
    )
    scenario = load_scenario(file)
    prompts = scenario.traffic[0].prompts
    assert isinstance(prompts, PromptFile)
    assert prompts.file == str((tmp_path / "prompts.jsonl").resolve())
    assert scenario.target.tls.ca_file == str((folder / "ca.pem").resolve())
    assert scenario.target.tokenizer == str((folder / "tok").resolve())
    assert scenario.target.read_key() == "sk-file"
    content = scenario.to_dict()
    assert content["traffic"][0]["prompts"] == {"file": "../prompts.jsonl"}
    assert content["target"]["api_key_file"] == "key"
    assert content["target"]["tokenizer"] == "tok"
    assert content["target"]["tls"]["ca_file"] == "ca.pem"


def test_a_trace_counts_from_the_folder_of_the_scenario(tmp_path: Path):
    """It is found from anywhere, and written down relative to the scenario."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "t.jsonl").touch()
    file = tmp_path / "s.yaml"
    file.write_text("traffic: [{kind: trace}]\nload: {replay: {trace: traces/t.jsonl}}\n")
    scenario = load_scenario(file)
    assert scenario.load is not None
    assert scenario.load.replay is not None
    assert scenario.load.replay.trace == str((tmp_path / "traces" / "t.jsonl").resolve())
    assert scenario.to_dict()["load"]["replay"]["trace"] == "traces/t.jsonl"


def test_pictures_count_from_the_folder_of_the_scenario_too(tmp_path: Path):
    """Paths of pictures are relative in what is written down, which is a scenario again; no text column stays none."""
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (tmp_path / "pictures").mkdir()
    (tmp_path / "rows.parquet").touch()
    file = folder / "s.yaml"
    file.write_text(
        "traffic:\n"
        "  - {kind: captioning, name: a, images: {folder: ../pictures}}\n"
        "  - {kind: captioning, name: b, images: {parquet: {file: ../rows.parquet, text_column: null}}}\n"
        "  - {kind: captioning, name: c, images: {parquet: {file: ../rows.parquet, image_column: x}}}\n"
    )
    scenario = load_scenario(file)
    a, b, _ = scenario.traffic
    assert a.images.folder == str((tmp_path / "pictures").resolve())
    assert b.images.parquet.file == str((tmp_path / "rows.parquet").resolve())
    written = [one["images"] for one in scenario.to_dict()["traffic"]]
    assert written == [
        {"folder": "../pictures"},
        {"parquet": {"file": "../rows.parquet", "image_column": "images", "text_column": None}},
        {"parquet": {"file": "../rows.parquet", "image_column": "x", "text_column": "conversation"}},
    ]
    again = parse_scenario(yaml.safe_dump(scenario.to_dict()), folder=folder)
    assert (again.to_dict(), again.digest) == (scenario.to_dict(), scenario.digest)


def test_a_tokenizer_name_that_is_no_folder_stays_a_name(tmp_path: Path):
    """A tokenizer may be a name for transformers; only what looks like a path has to exist."""
    assert parse_scenario("target: {tokenizer: org/model}", folder=tmp_path).target.tokenizer == "org/model"
    with pytest.raises(ScenarioError, match=r"target\.tokenizer: value \./tok: there is no folder"):
        parse_scenario("target: {tokenizer: ./tok}", folder=tmp_path)


def test_aliases_and_quoting_are_plain_yaml():
    """Anchors may be reused, keys may be quoted, words that YAML takes for something else may be quoted."""
    scenario = parse_scenario(
        'traffic:\n  - {name: "no", input_tokens: &size {uniform: [5, 9]}, output_tokens: *size}\n"seed": 0x10\n'
    )
    assert scenario.traffic[0].name == "no"
    assert scenario.traffic[0].output_tokens == scenario.traffic[0].input_tokens
    assert scenario.seed == 16


def test_windows_line_ends_and_byte_order_mark(tmp_path: Path):
    """Files from a Windows editor load, and their mistakes have the right line."""
    file = tmp_path / "w.yaml"
    file.write_bytes(b"\xef\xbb\xbfseed: 3\r\ntraffic:\r\n  - name: a\r\n")
    assert load_scenario(file).seed == 3
    file.write_bytes(b"\xef\xbb\xbfseed: 3\r\ntraffic:\r\n  - nam: a\r\n")
    with pytest.raises(ScenarioError, match=r"w\.yaml:3: traffic\[0\]\.nam: unknown key \(did you mean 'name'\?\)"):
        load_scenario(file)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("a/b/chat sweep.yaml", "chat sweep"),
        ("x/..yaml", "scenario"),
        ("<ui>", "ui"),
        ("ä$b.yml", "ä-b"),
        ("/.yaml", "yaml"),
    ],
)
def test_a_scenario_without_a_name_takes_the_files(source, name):
    """The name is safe as a folder's name whatever the file is called."""
    assert parse_scenario("seed: 1", source).name == name


def test_models_can_be_built_in_code():
    """Other modules and tests build parts without YAML."""
    closed = Closed(users=(1, 2), sessions=Sessions(per_user=2, at_least=3))
    assert closed.sessions is not None
    assert closed.sessions.count(2) == 4
    assert Scenario.model_validate({"load": {"closed": closed}}).load is not None


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 1000))
def test_session_count_is_the_larger_of_both_rules(per_user, at_least, users):
    """Never fewer than at_least, never fewer than per_user for each user, and one of both exactly."""
    count = Sessions(per_user=per_user, at_least=at_least).count(users)
    assert count >= at_least
    assert count >= per_user * users
    assert count in (at_least, per_user * users)


def test_loading_needs_no_heavy_library():
    """Neither pandas, numpy, transformers, locust nor gevent is imported to read a scenario."""
    code = (
        "import sys; from tokenswarm.scenario import default_scenario, json_schema; default_scenario(); json_schema();"
        "print([m for m in ('pandas', 'numpy', 'transformers', 'locust', 'gevent', 'requests') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
