"""What a scenario file is refused for, and in which words."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenswarm.errors import ScenarioError
from tokenswarm.scenario import load_scenario, parse_scenario

TARGET = "target: {url: 'http://127.0.0.1:8101/v1'}\n"


def problems(text: str, **options) -> list[str]:
    """The lines that a text is refused with; none where it is accepted."""
    found: list[str] = []
    try:
        parse_scenario(text, "s.yaml", **options)
    except ScenarioError as refused:
        found = refused.problems or ["refused without a word"]
    assert [line for line in found if "\n" in line or not re.match(r"s\.yaml:\d+: ", line)] == []
    return found


def test_misspelt_keys_are_refused_together_with_the_nearest_name():
    """Two misspelt keys in two places are two lines, each with line, path and suggestion, and nothing else."""
    text = """\
target:
  url: http://127.0.0.1:8101/v1
load:
  closed:
    usres: [1, 8]
    duration_s: 30
traffic:
  - output_token: 64
"""
    assert problems(text) == [
        "s.yaml:5: load.closed.usres: unknown key (did you mean 'users'?)",
        "s.yaml:8: traffic[0].output_token: unknown key (did you mean 'output_tokens'?)",
    ]


def test_a_misspelt_body_field_is_refused():
    """A slip in a body field, which servers ignore silently, is told; a field of one engine only passes."""
    text = "target:\n  request:\n    max_token: 64\n    temprature: 0.1\n    guided_regex: a+\n"
    assert problems(text) == [
        "s.yaml:3: target.request.max_token: value 64: "
        "servers ignore a misspelt field without a word (did you mean 'max_tokens'?)",
        "s.yaml:4: target.request.temprature: value 0.1: "
        "servers ignore a misspelt field without a word (did you mean 'temperature'?)",
    ]
    assert problems("target: {request: {guided_regex: a+, engine_x: 3}}") == []


def test_a_key_that_stands_twice_is_refused_with_both_lines():
    """Equal keys at the top and deeper down, where PyYAML silently keeps the last."""
    text = """\
target:
  url: http://127.0.0.1:8101/v1
load:
  closed: {users: 8, duration_s: 30}

load:
  closed: {users: 16}
traffic:
  - output_tokens: 1024
    output_tokens: 64
"""
    assert problems(text) == [
        "s.yaml:6: load: key stands twice, on lines 3 and 6",
        "s.yaml:10: traffic[0].output_tokens: key stands twice, on lines 9 and 10",
    ]


USERS = "a whole number from 1 to 100000 is wanted"
SECONDS = "seconds are wanted: a number above 0 and at most 604800, without a unit"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("users: ten", f"value ten: {USERS}"),
        ("users: true", f"value true: {USERS}"),
        ("users: 2.5", f"value 2.5: {USERS}"),
        ("users: 0", f"value 0: {USERS}"),
        ("users: -4", f"value -4: {USERS}"),
        ("users: 1000000000000", f"value 1000000000000: {USERS}"),
        ("users: .inf", f"value .inf: {USERS}"),
        ("users: .nan", f"value .nan: {USERS}"),
        ("users: '8'", f"value '8': {USERS}"),
        ("users: []", "value []: at least one is wanted"),
        ("users: {a: 1}", f"value {{a}}: {USERS}"),
        ("duration_s: .nan", f"value .nan: {SECONDS}"),
        ("duration_s: .inf", f"value .inf: {SECONDS}"),
        ("duration_s: -.inf", f"value -.inf: {SECONDS}"),
        ("duration_s: 0", f"value 0: {SECONDS}"),
        ("duration_s: -1", f"value -1: {SECONDS}"),
        ("duration_s: 1.0e+99", f"value 1.0e+99: {SECONDS}"),
        ("duration_s: true", f"value true: {SECONDS}"),
        ("duration_s: 30 parsecs", f"value 30 parsecs: {SECONDS}"),
        ("duration_s: 30s", f"value 30s: {SECONDS} (write 30)"),
        ("duration_s: 5m", f"value 5m: {SECONDS} (write 300)"),
        ("duration_s: 1.5 h", f"value 1.5 h: {SECONDS} (write 5400)"),
        ("duration_s: [30s]", f'value ["30s"]: {SECONDS}'),
        ("duration_s: 1e3", f"value 1e3: {SECONDS} (YAML takes 1e3 for text; write 1000)"),
        ("duration_s: 1e308", f"value 1e308: {SECONDS}"),
        ("duration_s: 1:30", "value 1:30: YAML reads this as 90; write 90, or quote it as text"),
        ("users: 010", "value 010: YAML reads this as 8; write 8, or quote it as text"),
        ("tail: drian", "value drian: one of fill, drain is wanted (did you mean 'drain'?)"),
    ],
)
def test_one_wrong_value_of_a_load(text, line):
    """Wrong type, zero, negative, NaN, infinite, huge, empty, with a unit: one line with place, value and the rule."""
    key, _, _ = text.partition(":")
    others = {"users": "users: 8", "duration_s": "duration_s: 30"}
    if key == "tail":
        others["duration_s"] = "sessions: 8"
    others[key] = text
    lines = ["load:", "  closed:", *(f"    {other}" for other in others.values())]
    number = 1 + lines.index(f"    {text}") + 1
    place = f"load.closed.{key}"
    expected = f"s.yaml:{number}: {place}: {line}"
    got = problems(TARGET + "\n".join(lines))
    assert [entry.replace("users[0]", "users") for entry in got] == [expected]


DISTRIBUTION = "or one distribution (fixed, uniform, normal, lognormal, exponential, geometric)"
TOKENS = f"a whole number from 1 to 10000000 {DISTRIBUTION} is wanted"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("weight: 0", "weight: value 0: a number above 0 and at most 1000000 is wanted"),
        ("weight: -1", "weight: value -1: a number above 0 and at most 1000000 is wanted"),
        ("weight: heavy", "weight: value heavy: a number above 0 and at most 1000000 is wanted"),
        ("turns: 0", f"turns: value 0: a whole number from 1 to 10000 {DISTRIBUTION} is wanted"),
        ("turns: 2.5", f"turns: value 2.5: a whole number from 1 to 10000 {DISTRIBUTION} is wanted"),
        ("turns: true", f"turns: value true: a whole number from 1 to 10000 {DISTRIBUTION} is wanted"),
        ("turns: {uniform: [0, 6]}", "turns: value {uniform}: every value must be a whole number from 1 to 10000"),
        ("turns: {uniform: [1, 6.5]}", "turns: value {uniform}: every value must be a whole number from 1 to 10000"),
        ("output_tokens: 30 tokens", f"output_tokens: value 30 tokens: {TOKENS}"),
        ("output_tokens: .inf", f"output_tokens: value .inf: {TOKENS}"),
        ("output_tokens: [1, 2]", f"output_tokens: value [1, 2]: {TOKENS}"),
        ("output_tokens: {exponential: 20000000}", "output_tokens: value {exponential}: every value must be "
         "a whole number from 1 to 10000000"),
        ("input_tokens: {unifrom: [1, 6]}", "input_tokens.unifrom: value [1, 6]: unknown distribution; one of "
         "fixed, uniform, normal, lognormal, exponential, geometric is wanted (did you mean 'uniform'?)"),
        ("input_tokens: {uniform: [500, 100]}", "input_tokens.uniform: value [500, 100]: "
         "the smallest value comes first: [100, 500]"),
        ("input_tokens: {uniform: [5]}", "input_tokens.uniform[1]: missing; it has no default"),
        ("input_tokens: {normal: {mean: 300, std: 10, min: 500, max: 100}}",
         "input_tokens.normal.max: value 100: a number above min (500) is wanted"),
        ("input_tokens: {normal: {mean: 300, std: 10, min: 500}}",
         "input_tokens.normal: value {mean, std, min}: min and max leave less than 0.1 % of the curve; "
         "move them, or use uniform"),
        ("input_tokens: {normal: {mean: 300, std: 0}}",
         "input_tokens.normal.std: value 0: a number above 0 and at most 1000000000 is wanted"),
        ("input_tokens: {normal: {mean: 300}}", "input_tokens.normal.std: missing; it has no default"),
        ("input_tokens: {lognormal: {median: 3, sgima: 1}}",
         "input_tokens.lognormal.sgima: unknown key (did you mean 'sigma'?)"),
        ("input_tokens: {geometric: {mean: 0.5}}",
         "input_tokens.geometric.mean: value 0.5: a number from 1 to 1000000000 is wanted"),
        ("input_tokens: {fixed: 3, uniform: [1, 2]}",
         f"input_tokens: value {{fixed, uniform}}: a number {DISTRIBUTION} is wanted"),
        ("think_time_s: .nan",
         f"think_time_s: value .nan: a number of seconds from 0 to 86400 {DISTRIBUTION} is wanted"),
        ("think_time_s: 2 min",
         f"think_time_s: value 2 min: a number of seconds from 0 to 86400 {DISTRIBUTION} is wanted (write 120)"),
        ("think_time_s: {exponential: -8}",
         "think_time_s.exponential: value -8: a number above 0 and at most 1000000000 is wanted"),
        ("ignore_eos: 1", "ignore_eos: value 1: true or false is wanted"),
        ("ignore_eos: 'yes'", "ignore_eos: value 'yes': true or false is wanted"),
        ("prompts: wrods", "prompts: value wrods: one of words, random_ids or {file: PATH} is wanted "
         "(did you mean 'words'?)"),
        ("prompts: {flie: a}", "prompts.flie: unknown key (did you mean 'file'?)"),
        ("prompts: {file: no/such.jsonl}", "prompts.file: value no/such.jsonl: there is no file HERE/no/such.jsonl"),
        ("kind: chatt", "kind: value chatt: unknown kind; one of chat, agentic, captioning, trace is wanted "
         "(did you mean 'chat'?)"),
        ("kind: agent", "kind: value agent: unknown kind; one of chat, agentic, captioning, trace is wanted "
         "(did you mean 'agentic'?)"),
        ("kind: images", "kind: value images: unknown kind; one of chat, agentic, captioning, trace is wanted"),
        ("images: {}", "images: a key of another kind; leave it out"),
        ("system_prompt: {tokens: 6000}", "system_prompt: value {tokens}: text of at most 500000 characters is wanted"),
        ("step_limit: 5", "step_limit: a key of another kind; leave it out"),
        ("objective: fast", "objective: value fast: no such objective; defined under objectives: interactive, batch"),
        ("objective: interactve", "objective: value interactve: no such objective; defined under objectives: "
         "interactive, batch (did you mean 'interactive'?)"),
    ],
)  # fmt: skip
def test_one_wrong_value_of_a_traffic_class(text, line, tmp_path: Path):
    """Each mistake in a class of traffic is one line with the key's path."""
    whole = f"objectives: {{interactive: {{}}, batch: {{}}}}\ntraffic:\n  - name: a\n    {text}\n"
    expected = line.replace("HERE", str(tmp_path.resolve()))
    assert problems(whole, folder=tmp_path) == [f"s.yaml:4: traffic[0].{expected}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("mode: life", "mode: value life: one of replay, live is wanted (did you mean 'live'?)"),
        ("turns: 3", "turns: a key of another kind; leave it out"),
        ("system_prompt: be brief", "system_prompt: value be brief: keys with values are wanted"),
        ("system_prompt: {}", "system_prompt: value {}: one of tokens and text is wanted"),
        ("system_prompt: {tokens: 9, text: be brief}",
         "system_prompt: value {tokens, text}: one of tokens and text is wanted"),
        ("system_prompt: {text: be brief, pool: 2}", "system_prompt: value {text, pool}: pool and share go with tokens "
         "only; a text of your own is shared by all sessions"),
        ("system_prompt: {tokens: 9, share: 2}", "system_prompt.share: value 2: a number from 0 to 1 is wanted"),
        ("system_prompt: {token: 9}", "system_prompt.token: unknown key (did you mean 'tokens'?)"),
        ("tools: no.yaml", "tools: value no.yaml: there is no file HERE/no.yaml"),
        ("steps: 0", "steps: value 0: a whole number from 1 to 10000 or one distribution (fixed, uniform, normal, "
         "lognormal, exponential, geometric) is wanted"),
        ("step_limit: 1.5", "step_limit: value 1.5: a whole number from 1 to 10000 is wanted"),
        ("tool_time: 3", "tool_time: unknown key (did you mean 'tool_time_s'?)"),
    ],
)  # fmt: skip
def test_one_wrong_value_of_an_agent(text, line, tmp_path: Path):
    """An agent has keys of its own, and each mistake in them is one line with the key's path."""
    expected = line.replace("HERE", str(tmp_path.resolve()))
    lines = problems(f"traffic:\n  - kind: agentic\n    {text}\n", folder=tmp_path)
    assert [one for one in lines if "missing" not in one] == [f"s.yaml:3: traffic[0].{expected}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("input_tokens: 4", "input_tokens: a key of another kind; leave it out"),
        ("image: {}", "image: unknown key (did you mean 'images'?)"),
        ("images:", "images: value (nothing): keys with values are wanted"),
        ("images: 4", "images: value 4: keys with values are wanted"),
        ("images: {foldr: pictures}", "images.foldr: unknown key (did you mean 'folder'?)"),
        ("images: {folder: nowhere}", "images.folder: value nowhere: there is no folder HERE/nowhere"),
        ("images: {folder: x.parquet}", "images.folder: value x.parquet: there is no folder HERE/x.parquet"),
        ("images: {folder: pictures, synthetic: {}}",
         "images: value {folder, synthetic}: synthetic and folder exclude each other; keep one"),
        ("images: {parquet: x.parquet}", "images.parquet: value x.parquet: keys with values are wanted"),
        ("images: {parquet: {fil: x.parquet}}", "images.parquet.fil: unknown key (did you mean 'file'?)"),
        ("images: {parquet: {file: y.parquet}}",
         "images.parquet.file: value y.parquet: there is no file or folder HERE/y.parquet"),
        ("images: {hub: a/b}", "images.hub: value a/b: keys with values are wanted"),
        ("images: {synthetic: {pixels: 63}}", "images.synthetic.pixels: value 63: a whole number from 64 to 16000000 "
         f"{DISTRIBUTION} is wanted"),
        ("images: {synthetic: {pixels: {uniform: [64, 16000001]}}}",
         "images.synthetic.pixels: value {uniform}: every value must be a whole number from 64 to 16000000"),
        ("images: {synthetic: {aspect: 17}}",
         f"images.synthetic.aspect: value 17: a number from 0.0625 to 16 {DISTRIBUTION} is wanted"),
        ("images: {synthetic: {format: jpg}}",
         "images.synthetic.format: value jpg: one of jpeg, png, webp is wanted (did you mean 'jpeg'?)"),
        ("images: {synthetic: {quality: 0}}",
         "images.synthetic.quality: value 0: a whole number from 1 to 100 is wanted"),
        ("images: {synthetic: {distinct: 0}}",
         "images.synthetic.distinct: value 0: a whole number from 1 to 10000000 is wanted"),
        ("images_per_session: 0",
         f"images_per_session: value 0: a whole number from 1 to 100 {DISTRIBUTION} is wanted"),
        ("question_tokens: 0", f"question_tokens: value 0: a whole number from 1 to 10000000 {DISTRIBUTION} is wanted"),
        ("objective: fast", "objective: value fast: no such objective; defined under objectives: none"),
    ],
)  # fmt: skip
def test_one_wrong_value_of_captioning(text, line, tmp_path: Path):
    """Streams of captions have keys of their own, and each mistake in them is one line with the key's path."""
    (tmp_path / "pictures").mkdir()
    (tmp_path / "x.parquet").touch()
    expected = line.replace("HERE", str(tmp_path.resolve()))
    lines = problems(f"traffic:\n  - kind: captioning\n    {text}\n", folder=tmp_path)
    assert [one for one in lines if "missing" not in one] == [f"s.yaml:3: traffic[0].{expected}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("url: localhost:8000", "url: value localhost:8000: a URL that begins with http:// or https:// is wanted "
         "(did you mean 'http://localhost:8000'?)"),
        ("url: 'ftp://h'", "url: value 'ftp://h': a URL that begins with http:// or https:// is wanted"),
        ("url: 'http://h:99999'", "url: value 'http://h:99999': not a URL: Port out of range 0-65535"),
        ("simulator: spark-qwen3.6-35b", "simulator: value spark-qwen3.6-35b: one of the presets "
         "cache-inert, cache-off, demo, rtx-pro-6000-captioning, spark-qwen3.6-35b-fp8, spark-qwen3.6-35b-fp8-30ms, "
         "spark-qwen3.6-35b-fp8-mtp1, two-spark-qwen3.5-122b is wanted (did you mean 'spark-qwen3.6-35b-fp8'?)"),
        ("model: 3", "model: value 3: a model's name of at most 1000 characters is wanted (put it in quotes)"),
        ("api: chats", "api: value chats: one of chat, completions is wanted (did you mean 'chat'?)"),
        ("api_key: ${NO_SUCH_KEY}", "api_key: value (not shown): the environment variable NO_SUCH_KEY is not set"),
        ("headers: {X-A: 3}", "headers.X-A: value (not shown): one line of text is wanted (put numbers in quotes)"),
        ("headers: {'X A': b}", "headers.X A: value (not shown): not a header's name"),
        ("headers: {X-A: '${NO_SUCH_KEY}'}",
         "headers.X-A: value (not shown): the environment variable NO_SUCH_KEY is not set"),
        ("request: {temperature: -1}", "request.temperature: value -1: a number from 0 to 100 is wanted"),
        ("request: {temperature: hot}", "request.temperature: value hot: a number from 0 to 100 is wanted"),
        ("request: {top_p: true}", "request.top_p: value true: a number from 0 to 1 is wanted"),
        ("request: {a: [{b: .nan}]}", "request.a: value (a list): JSON knows neither NaN nor infinity"),
        ("request: {max_tokens: 5}",
         "request.max_tokens: value 5: output_tokens of the traffic decides this field"),
        ("request: {stream: false}", "request.stream: value false: every answer is streamed; leave it out"),
        ("tls: {verify: 0}", "tls.verify: value 0: true or false is wanted"),
        ("tls: {ca_file: ca.pem}", "tls.ca_file: value ca.pem: there is no file HERE/ca.pem"),
        ("timeouts: {idle_s: 5 s}", "timeouts.idle_s: value 5 s: seconds are wanted: "
         "a number above 0 and at most 86400, without a unit (write 5)"),
        ("timeouts: 30", "timeouts: value 30: keys with values are wanted"),
    ],
)  # fmt: skip
def test_one_wrong_value_of_a_target(text, line, tmp_path: Path):
    """Each mistake in the target is one line with the key's path."""
    expected = line.replace("HERE", str(tmp_path.resolve()))
    assert problems(f"target:\n  {text}\n", folder=tmp_path) == [f"s.yaml:2: target.{expected}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("load:\n  closed: {users: 1, sessions: 2, duration_s: 3}",
         ["2: load.closed.duration_s: sessions and duration_s exclude each other; keep one"]),
        ("load:\n  closed: {users: 1, sessions: 2, requests: 3}",
         ["2: load.closed.requests: sessions and requests exclude each other; keep one"]),
        ("load:\n  closed: {users: 1}",
         ["2: load.closed: sessions or duration_s is wanted: when does a level end?"]),
        ("load:\n  closed: {sessions: 1}", ["2: load.closed.users: missing; it has no default"]),
        ("load:\n  closed: {users: 1, sessions: {}}",
         ["2: load.closed.sessions: value {}: a number, or per_user and at_least, is wanted"]),
        ("load:\n  closed: {users: 1, sessions: {per_user: 0}}",
         ["2: load.closed.sessions.per_user: value 0: a whole number from 1 to 10000000 is wanted"]),
        ("load: {closed: {users: 1, requests: 2}}\ntraffic:\n  - {turns: 2}",
         ["1: load.closed.requests: requests is for traffic whose sessions all have one turn; use sessions"]),
        ("load: {closed: {users: 1, requests: 2}}\ntraffic:\n  - {turns: {uniform: [1, 2]}}",
         ["1: load.closed.requests: requests is for traffic whose sessions all have one turn; use sessions"]),
        ("load: {closed: {users: 1, duration_s: 2, warmup_sessions: 1, tail: fill}}",
         ["1: load.closed.tail: tail goes with sessions only",
          "1: load.closed.warmup_sessions: warmup_sessions goes with sessions only"]),
        ("load: {closed: {users: 1, sessions: 2, warmup_s: 1}}",
         ["1: load.closed.warmup_s: warmup_s goes with duration_s only"]),
        ("traffic:\n  - name: a\n  - name: a", ["3: traffic[1].name: another class is named a too; "
                                               "each needs a name of its own"]),
        ("traffic:\n  - prompts: {file: s.yaml}\n    input_tokens: 4\n    turns: 2",
         ["3: traffic[0].input_tokens: prompts from a file keep their own turns and lengths; leave this out",
          "4: traffic[0].turns: prompts from a file keep their own turns and lengths; leave this out"]),
        ("load: {closed: {users: 1, requests: 2}}\ntraffic:\n  - prompts: {file: s.yaml}",
         ["1: load.closed.requests: requests is for traffic whose sessions all have one turn; use sessions"]),
        ("traffic: [{kind: captioning, name: chat}, {}]", ["1: traffic[1].name: another class is named chat too; "
                                                           "each needs a name of its own"]),
        ("traffic: [{kind: captioning}, {kind: chat}, {kind: captioning}]",
         ["1: traffic[2].name: another class is named captioning too; each needs a name of its own"]),
        ("load: {closed: {users: 1, requests: 2}}\ntraffic:\n  - kind: captioning",
         ["1: load.closed.requests: requests is for traffic whose sessions all have one turn; use sessions"]),
        ("load: {closed: {users: 1, requests: 2}}\ntraffic:\n  - kind: agentic",
         ["1: load.closed.requests: requests is for traffic whose sessions all have one turn; use sessions"]),
        ("target: {api: completions}\ntraffic:\n  - kind: captioning",
         ["3: traffic[0].kind: pictures are sent through the chat API; leave target.api out"]),
        ("target: {api: completions}\ntraffic:\n  - kind: agentic",
         ["3: traffic[0].kind: agents speak the chat API; leave target.api out"]),
        ("traffic:\n  - kind: agentic\n    trajectories: s.yaml\n    mode: live",
         ["3: traffic[0].trajectories: recorded jobs are for mode: replay; a live agent follows the model"]),
        ("traffic:\n  - kind: agentic\n    trajectories: s.yaml\n    steps: 4\n    task_tokens: 9",
         ["4: traffic[0].steps: recorded jobs have their own; leave this or trajectories out",
          "5: traffic[0].task_tokens: recorded jobs have their own; leave this or trajectories out"]),
        ("prefix_cache: {}",
         ["1: prefix_cache: needs load.closed: pairs of sessions are compared level by level"]),
        ("prefix_cache: {}\nload: {closed: {users: 1, sessions: 2}}\ntraffic: [{kind: agentic, mode: live}]",
         ["3: traffic[0].mode: prefix_cache compares sessions with the same text; use mode: replay"]),
        ("traffic: [{kind: agentic}]\ntarget:\n  request: {tools: [], tool_choice: none, top_p: 1}",
         ["3: target.request.tool_choice: agents send their own; use tools and tool_choice of the traffic class",
          "3: target.request.tools: agents send their own; use tools and tool_choice of the traffic class"]),
        ("prefix_cache: {}\nload: {closed: {users: 1, sessions: 2}}\ntarget: {request: {cache_salt: a}}",
         ["3: target.request.cache_salt: prefix_cache sends salts of its own; leave this out"]),
        ("prefix_cache: {cold: session}\nload: {closed: {users: 1, sessions: 2, fresh_prompts: false}}",
         ["2: load.closed.fresh_prompts: prefix_cache needs fresh prompts at every level; leave this out"]),
        ("prefix_cache: {}\nload: {closed: {users: 1, sessions: 2}}\ncache_probe: never",
         ["3: cache_probe: prefix_cache rests on what the probe finds; leave this out"]),
        ("prefix_cache: {cold: sesion}\nload: {closed: {users: 1, sessions: 2}}",
         ["1: prefix_cache.cold: value sesion: one of session, request is wanted (did you mean 'session'?)"]),
        ("interference: {}",
         ["1: interference: needs load.closed: its users, and duration_s for a block",
          "1: interference: needs two traffic classes or more: each runs alone, then all together"]),
        ("traffic: [{name: a}, {name: b}]\ninterference: {blocks: 3}\n"
         "load: {closed: {users: [4, 1], sessions: 2, fresh_prompts: false}}",
         ["2: interference.blocks: value 3: an even number is wanted: every other round goes the other way, so that an "
          "even drift cancels",
          "3: load.closed.fresh_prompts: interference needs fresh prompts in every block; leave this out",
          "3: load.closed.sessions: blocks of interference end by time; use duration_s",
          "3: load.closed.users: 1 users for 2 classes: each class needs one of its own"]),
        ("traffic: [{name: a}, {name: b}]\ninterference: {}\nprefix_cache: {}\n"
         "load: {closed: {users: 4, duration_s: 2}}",
         ["3: prefix_cache: interference and prefix_cache exclude each other; keep one"]),
        ("target:\n  url: http://h\n  simulator: demo",
         ["3: target.simulator: url and simulator exclude each other; keep one"]),
        ("objectives:\n  a: {ttft_s: {p59: 1}}", ["2: objectives.a.ttft_s.p59: value 1: "
                                                 "one of mean, p50, p90, p95, p99 is wanted (did you mean 'p99'?)"]),
        ("objectives:\n  a: {ttft_s: {}}", ["2: objectives.a.ttft_s: value {}: at least one is wanted"]),
        ("objectives:\n  a: {faild: 1}", ["2: objectives.a.faild: unknown key (did you mean 'failed'?)"]),
        ("objectives:\n  a: {failed: 1 %}", ["2: objectives.a.failed: value 1 %: a number from 0 to 1 is wanted"]),
        ("seed: -1", ["1: seed: value -1: a whole number from 0 to 9223372036854775807 is wanted"]),
        ("seed:", ["1: seed: value (nothing): a whole number from 0 to 9223372036854775807 is wanted"]),
        ("name: ../x", ["1: name: value ../x: a name of letters, digits, spaces and . _ - is wanted"]),
        ("traffic: []", ["1: traffic: value []: at least one is wanted"]),
        ("traffic: {name: a}", ["1: traffic: value {name}: a list is wanted"]),
        ("traffic:\n  - words", ["2: traffic[0]: value words: keys with values are wanted"]),
        ("wibble: 1", ["1: wibble: unknown key"]),
    ],
)  # fmt: skip
def test_keys_that_do_not_go_together(text, expected, tmp_path: Path):
    """Contradictions and wrong shapes are told at the key that has to change."""
    (tmp_path / "s.yaml").write_text("")
    assert problems(text, folder=tmp_path) == [f"s.yaml:{line}" for line in expected]


NO_OBJECTIVE = "search needs an objective: name one under objectives, and in the traffic class"
RATE = "a number above 0 and at most 100000 is wanted"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("requests_per_s: 0", [f"requests_per_s: value 0: {RATE}"]),
        ("requests_per_s: fast", [f"requests_per_s: value fast: {RATE}"]),
        ("requests_per_s: []", ["requests_per_s: value []: at least one is wanted"]),
        ("requests_per_s: [1, -1]", [f"requests_per_s[1]: value -1: {RATE}"]),
        ("requests_per_s: {ramp: [1]}", ["requests_per_s.ramp[1]: missing; it has no default"]),
        ("requests_per_s: [2, {ramp: [1, 0]}]", [f"requests_per_s[1].ramp[1]: value 0: {RATE}"]),
        ("requests_per_s: {rmp: [1, 2]}", ["requests_per_s: value {rmp}: a rate per second, {ramp: [first, last]} or "
                                           "{steps: [rates]} is wanted"]),
        ("requests_per_s: {ramp: [1, 2], steps: [1, 2]}", ["requests_per_s: value {ramp, steps}: a rate per second, "
                                                           "{ramp: [first, last]} or {steps: [rates]} is wanted"]),
        ("requests_per_s: {steps: [1]}", ["requests_per_s.steps: value [1]: at least 2 are wanted"]),
        ("requests_per_s: {steps: [1, x]}", [f"requests_per_s.steps[1]: value x: {RATE}"]),
        ("arrivals: poisson", [": sessions_per_s or requests_per_s is wanted: how many arrive?"]),
        ("requests_per_s: null", [": sessions_per_s or requests_per_s is wanted: how many arrive?"]),
        ("request_per_s: 1", ["request_per_s: unknown key (did you mean 'requests_per_s'?)"]),
        (f"requests_per_s: [{'1, ' * 1001}]", ["requests_per_s: at most 1000 are wanted, not 1001"]),
        ("requests_per_s: 1, sessions_per_s: 1",
         ["sessions_per_s: requests_per_s and sessions_per_s exclude each other; keep one"]),
        ("sessions_per_s: 1, arrivals: poison",
         ["arrivals: value poison: constant, poisson or {gamma: {burstiness: 0.5}} is wanted"]),
        ("sessions_per_s: 1, arrivals: 3",
         ["arrivals: value 3: constant, poisson or {gamma: {burstiness: 0.5}} is wanted"]),
        ("sessions_per_s: 1, arrivals: {poisson: 1}",
         ["arrivals: value {poisson}: constant, poisson or {gamma: {burstiness: 0.5}} is wanted"]),
        ("sessions_per_s: 1, arrivals: {gama: {burstiness: 1}}",
         ["arrivals.gama: unknown key (did you mean 'gamma'?)"]),
        ("sessions_per_s: 1, arrivals: {gamma: {burstiness: 0}}",
         ["arrivals.gamma.burstiness: value 0: a number from 0.01 to 100 is wanted"]),
        ("sessions_per_s: 1, when_full: drop", ["when_full: value drop: one of refuse, wait is wanted"]),
        ("sessions_per_s: 1, max_users: 0", ["max_users: value 0: a whole number from 1 to 100000 is wanted"]),
        ("sessions_per_s: {search: {start: 1, limit: 2}}", [f"sessions_per_s: {NO_OBJECTIVE}"]),
        ("sessions_per_s: {search: {limit: 2}}", ["sessions_per_s.search.start: missing; it has no default",
                                                  f"sessions_per_s: {NO_OBJECTIVE}"]),
        ("sessions_per_s: {search: {start: 3, limit: 2}}",
         ["sessions_per_s.search.start: value 3: start is at most limit", f"sessions_per_s: {NO_OBJECTIVE}"]),
    ],
)  # fmt: skip
def test_one_wrong_value_of_an_open_loop(text, expected):
    """Rates, arrivals, caps and searches: each mistake is told at its key, and nothing beside it."""
    lines = [f"s.yaml:1: load.open{line if line.startswith(':') else '.' + line}" for line in expected]
    assert problems(f"load: {{open: {{duration_s: 3, {text}}}}}") == lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("speed: 0", ["load.replay.speed: value 0: a number above 0 and at most 10000 is wanted"]),
        ("format: monocake", ["load.replay.format: value monocake: one of auto, tokenswarm, mooncake, burstgpt, azure "
                              "is wanted (did you mean 'mooncake'?)"]),
        ("from_s: 5, to_s: 5", ["load.replay.to_s: value 5: more than from_s (5) is wanted"]),
        ("input_tokens: {min: 5, max: 4}", ["load.replay.input_tokens.min: value 5: min is at most max (4)"]),
        ("output_tokens: 5", ["load.replay.output_tokens: value 5: keys with values are wanted"]),
        ("most_sessions: 0", ["load.replay.most_sessions: value 0: a whole number from 1 to 100000000 is wanted"]),
        ("sped: 2", ["load.replay.sped: unknown key (did you mean 'speed'?)"]),
        ("trace: none.jsonl", ["load.replay.trace: value none.jsonl: there is no file HERE/none.jsonl"]),
    ],
)  # fmt: skip
def test_one_wrong_value_of_a_replay(text, expected, tmp_path: Path):
    """The trace's file, its format, its window and filters: each mistake is told at its key."""
    (tmp_path / "t.jsonl").touch()
    trace = "" if text.startswith("trace") else "trace: t.jsonl, "
    found = problems(f"load: {{replay: {{{trace}{text}}}}}\ntraffic: [{{kind: trace}}]", folder=tmp_path)
    assert found == [f"s.yaml:1: {line.replace('HERE', str(tmp_path.resolve()))}" for line in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("load: {}", ["1: load: closed, open or replay is wanted: how is the load driven?"]),
        ("load: {open: }", ["1: load: closed, open or replay is wanted: how is the load driven?"]),
        ("load: {opn: {}}", ["1: load.opn: unknown key (did you mean 'open'?)"]),
        ("load: {closed: {users: 1, sessions: 1}, open: {requests_per_s: 1, duration_s: 1}}",
         ["1: load.open: closed and open exclude each other; keep one"]),
        ("load: {open: {requests_per_s: 1}}", ["1: load.open.duration_s: missing; it has no default"]),
        ("load: {open: {requests_per_s: 1, durations_s: 1}}",
         ["1: load.open.durations_s: unknown key (did you mean 'duration_s'?)"]),
        ("load: {open: {requests_per_s: 1, duration_s: 1}}\ntraffic: [{turns: 2}]",
         ["1: load.open.requests_per_s: requests_per_s is for traffic whose sessions all have one turn; use "
          "sessions_per_s"]),
        ("load: {open: {sessions_per_s: 1, duration_s: 1}}\nprefix_cache: {}",
         ["2: prefix_cache: needs load.closed: pairs of sessions are compared level by level"]),
        ("load: {replay: {}}\ntraffic: [{kind: trace}]", ["1: load.replay.trace: missing; it has no default"]),
        ("load: {replay: {trace: s.yaml}}", ["1: load.replay: needs traffic of kind: trace"]),
        ("load: {replay: {trace: s.yaml}}\ntraffic: [{kind: trace}, {kind: chat}]",
         ["2: traffic[1].kind: a replayed trace decides the sessions; kind: trace is wanted"]),
        ("traffic: [{kind: trace}]", ["1: traffic[0].kind: kind: trace goes with load.replay only"]),
        ("load: {open: {sessions_per_s: 1, duration_s: 1}}\ntraffic: [{kind: trace}]",
         ["2: traffic[0].kind: kind: trace goes with load.replay only"]),
        ("load: {replay: {trace: s.yaml}}\ntraffic: [{kind: trace, output_tokens: 4}]",
         ["2: traffic[0].output_tokens: a key of another kind; leave it out"]),
        ("load: {closed: {users: {search: {limit: 4}}, sessions: 2}}", [f"1: load.closed.users: {NO_OBJECTIVE}"]),
        ("load: {closed: {users: {search: {start: 8, limit: 4}}, sessions: 2}}\nobjectives: {a: {}}\n"
         "traffic: [{objective: a}]", ["1: load.closed.users.search.start: value 8: start is at most limit (4)"]),
        ("load: {closed: {users: {search: {limit: 4, within: 0}}, sessions: 2}}\nobjectives: {a: {}}\n"
         "traffic: [{objective: a}]",
         ["1: load.closed.users.search.within: value 0: a number from 0.001 to 1 is wanted"]),
        ("load: {closed: {users: {search: {limit: 4}}, sessions: 2}}\nprefix_cache: {}",
         ["1: load.closed.users: search: prefix_cache has levels of its own; list the numbers of users"]),
        ("load: {closed: {users: {search: {limit: 4}}, duration_s: 2}}\ninterference: {}\n"
         "traffic: [{name: a}, {name: b}]",
         ["1: load.closed.users: search: interference has levels of its own; list the numbers of users"]),
    ],
)  # fmt: skip
def test_ways_to_drive_the_load_that_do_not_go_with_the_rest(text, expected, tmp_path: Path):
    """One way of three, and each with what belongs to it."""
    (tmp_path / "s.yaml").touch()
    assert problems(text, folder=tmp_path) == [f"s.yaml:{line}" for line in expected]


def test_every_way_to_drive_the_load_is_accepted(tmp_path: Path):
    """Rates in every form, gamma arrivals, a search with an objective, and a trace with several classes."""
    (tmp_path / "t.jsonl").touch()
    searched = "objectives: {a: {ttft_s: {p95: 1}}}\ntraffic: [{objective: a}]\n"
    for text in (
        "load: {open: {requests_per_s: 2.5, duration_s: 60}}",
        "load: {open: {sessions_per_s: [1, {ramp: [1, 8]}, {steps: [1, 4, 2]}], duration_s: 60, warmup_s: 5}}",
        "load: {open: {requests_per_s: 1, duration_s: 60, arrivals: {gamma: {burstiness: 0.25}}, when_full: wait}}",
        f"{searched}load: {{open: {{sessions_per_s: {{search: {{start: 0.5, limit: 40}}}}, duration_s: 60}}}}",
        f"{searched}load: {{closed: {{users: {{search: {{limit: 64}}}}, duration_s: 60}}}}",
        "load: {replay: {trace: t.jsonl, speed: 2, from_s: 60, to_s: 120, input_tokens: {max: 8000}}}\n"
        "traffic: [{kind: trace, name: chat}, {kind: trace, name: code}]",
    ):
        assert problems(text, folder=tmp_path) == [], text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (TARGET + "load:\n\tclosed: 8\n", "3: a tab stands in the indentation; YAML wants spaces there"),
        ("", "1: the file is empty"),
        ("# only a comment\n", "1: the file is empty"),
        ("- a", "1: keys such as target, traffic and load are wanted here"),
        ("just words", "1: keys such as target, traffic and load are wanted here"),
        ("null", "1: keys such as target, traffic and load are wanted here"),
        ("seed: 1\n---\nseed: 2", "2: a second document begins here (---); one file is one scenario"),
        ("seed: 1\n? [a]\n: 1", "2: a key must be a word, not a list or mapping"),
        ("seed: !!python/name:os.system", "1: seed: the tag tag:yaml.org,2002:python/name:os.system is not supported; "
         "plain values only"),
        ("seed: 1\na\x00b: 1", "2: not YAML: the character 0x00 is not allowed"),
        ("x: &a\n  y: *a", "1: nested deeper than 40 levels, or an alias inside itself"),
        ("[" * 3000, "1: nested deeper than 40 levels"),
    ],
)  # fmt: skip
def test_text_that_is_no_scenario(text, line):
    """Tabs, broken YAML, foreign tags, loops and empty files are one clear line."""
    assert f"s.yaml:{line}" in problems(text)


@pytest.mark.parametrize("text", ["a: [1", "a: 'x", "a: b: c", "a: *nobody", "%x", "a: {b: 1", "  a: 1\n b: 2", "@"])
def test_broken_yaml_is_one_line(text):
    """Whatever is wrong with the syntax, one line names the place."""
    (line,) = problems("seed: 1\n" + text)
    assert re.match(r"s\.yaml:[123]: not YAML: ", line)


def test_every_item_of_a_list_has_its_own_line():
    """In block style the line is that of the wrong item, not that of the list's key."""
    text = "load:\n  closed:\n    sessions: 3\n    users:\n      - 1\n      - 2\n      - ten\n      - 4\n      - 0.5\n"
    assert problems(text) == [
        f"s.yaml:7: load.closed.users[2]: value ten: {USERS}",
        f"s.yaml:9: load.closed.users[4]: value 0.5: {USERS}",
    ]


def test_strange_keys_stay_on_their_line():
    """Keys with brackets, line ends or terminal codes are told like any other, and cannot forge lines of their own."""
    text = '"<x>": 1\n"a\\nb": 1\ntraffic: [{"<file>": 1, turns: {"\\e[31m": 1}}]\n'
    assert [line.rpartition(": ")[0].partition(":")[2] for line in problems(text)] == [
        "1: <x>",
        "2: a\ufffdb",
        "3: traffic[0].<file>",
        "3: traffic[0].turns.\ufffd[31m: value 1",
    ]


def test_merge_keys_are_refused():
    """A merge key would hide which value counts."""
    text = "traffic:\n  - &base {name: a}\n  - <<: *base\n    name: b\n"
    assert problems(text) == ["s.yaml:3: traffic[1].<<: merge keys (<<) are not supported; write the keys out"]


def test_many_aliases_do_not_fill_the_memory():
    """Nine levels of nine aliases would be 387 million values."""
    names = "abcdefghi"
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{n}: &{n} [{', '.join([f'*{m}'] * 9)}]" for m, n in pairwise(names)]
    (line,) = problems("\n".join(lines))
    assert line.endswith("more than 20000 values")


SECRET = "sk-do-not-print-me"


@pytest.mark.parametrize(
    "text",
    [
        f"target: {{api_key: {SECRET}}}",
        f"target: {{api_key: [{SECRET}]}}",
        f"target: {{api_key: {{key: {SECRET}}}}}",
        f"target: {{apikey: {SECRET}}}",
        f"target: {{headers: {{Authorization: Bearer {SECRET}}}}}",
        f"target: {{headers: {{api-key: {SECRET}}}}}",
        f"target: {{headers: {{Cookie: {SECRET}}}}}",
        f"target: {{headers: {SECRET}}}",
        f"target: {{url: 'http://user:{SECRET}@h'}}",
        f"target: {{url: 'http://h/v1?api-key={SECRET}'}}",
        f"target: [{{api_key: {SECRET}}}]",
    ],
)
def test_a_literal_secret_is_refused_and_not_printed(text):
    """A key in the file is refused, and the message does not spread it further."""
    lines = problems(text)
    assert lines
    assert SECRET not in "\n".join(lines)


def test_environment_variables_are_checked_only_when_asked():
    """A master or a schema check can load a scenario without the worker's keys."""
    text = "target: {api_key: '${NO_SUCH_KEY}', headers: {api-key: '${NO_OTHER}'}}"
    assert len(problems(text, environ={})) == 2
    assert problems(text, environ={"NO_SUCH_KEY": "a", "NO_OTHER": "b"}) == []
    assert parse_scenario(text, check_env=False).target.api_key == "${NO_SUCH_KEY}"


def test_all_mistakes_of_a_file_come_together_in_its_order():
    """Syntax-level, type, limit and cross-key mistakes stand in one list, sorted by line."""
    text = """\
target: {api_key: literal, urll: x}
traffic:
  - {name: a, objective: none}
  - {name: a, kind: captioning, images: 4}
  - {weight: 0, turns: {unform: [1, 2]}}
load:
  closed: {users: [1, true, 0], sessions: 2, duration_s: 3s}
seed: 0.5
seed: 2
"""
    lines = problems(text)
    assert [int(line.split(":")[1]) for line in lines] == [1, 1, 3, 4, 4, 5, 5, 7, 7, 7, 7, 8, 9]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"a: \xff", "not UTF-8 text"),
        (b" " * 1_000_001, "larger than"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content, line):
    """A missing, binary or enormous file is one line with its path."""
    file = tmp_path / "x.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(file)
    (problem,) = caught.value.problems
    assert problem.startswith(str(file))
    assert line in problem


def test_the_checker_has_exit_code_2_and_no_traceback(tmp_path: Path):
    """`python -m tokenswarm.scenario FILE` prints the lines and fails."""
    file = tmp_path / "x.yaml"
    file.write_text("sede: 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "tokenswarm.scenario", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"{file}:1: sede: unknown key (did you mean 'seed'?)\n"


WORDS = (
    *("target", "traffic", "load", "closed", "users", "sessions", "turns", "uniform", "normal", "name", "kind", "seed"),
    *("prompts", "file", "headers", "request", "objectives", "api_key", "1", "-1", ".nan", "1e9", "true", "null", "~"),
    *(": ", "\n", "\n  ", "\n    ", "- ", "[", "]", "{", "}", ", ", "'", '"', "&a ", "*a ", "!!map ", "<<", "|", "\t"),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=40).map("".join)))
def test_no_text_makes_a_traceback(text):
    """Any text is either a scenario or refused in lines that begin with file and line."""
    problems(text)


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
KEYS = st.sampled_from([word for word in WORDS if word.isidentifier()])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["target", "traffic", "load", "objectives", "seed", "name"]), TREES, max_size=4))
def test_no_shape_of_data_makes_a_traceback(data):
    """Well-formed YAML of any shape under the right names is a scenario or refused in lines."""
    problems(yaml.safe_dump(data, allow_unicode=True))
