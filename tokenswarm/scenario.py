"""Scenario files: what to send, how hard, at whom, and what is good enough.

``load_scenario`` turns one YAML file into a frozen :class:`Scenario` or raises one ``ScenarioError`` that lists every
mistake with its line. ``docs/scenarios.md`` is the reference for users; ``python -m tokenswarm.scenario --schema``
prints the JSON Schema for editors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from tokenswarm.distributions import Distribution, Shape
from tokenswarm.errors import ScenarioError
from tokenswarm.mistakes import problems_of
from tokenswarm.scenario_rules import broken_rules
from tokenswarm.target_settings import SIMULATOR_PRESETS, Target, Timeouts, Tls
from tokenswarm.traffic_settings import (
    AgenticTraffic,
    AnyTraffic,
    CaptioningTraffic,
    ChatTraffic,
    Name,
    PromptFile,
    SystemPrompt,
    TraceTraffic,
    Traffic,
)
from tokenswarm.wanted import Model, OneOf, Text, Whole
from tokenswarm.workload import Closed, Interference, Load, Objective, PrefixCacheTest, Sessions
from tokenswarm.yaml_source import Problem, YamlSource, read_yaml

__all__ = [
    "SIMULATOR_PRESETS",
    "AgenticTraffic",
    "AnyTraffic",
    "CaptioningTraffic",
    "ChatTraffic",
    "Closed",
    "Distribution",
    "Interference",
    "Load",
    "Objective",
    "PrefixCacheTest",
    "PromptFile",
    "Scenario",
    "Sessions",
    "Shape",
    "SystemPrompt",
    "Target",
    "Timeouts",
    "Tls",
    "TraceTraffic",
    "default_scenario",
    "json_schema",
    "load_scenario",
    "parse_scenario",
]

_LARGEST_FILE = 1_000_000  # bytes
_FILES = (
    ("target", "api_key_file"),
    ("target", "tokenizer"),
    ("target", "tls", "ca_file"),
    ("load", "replay", "trace"),
)


class Scenario(Model):
    """One scenario file, checked."""

    name: Annotated[str, Text("a name of letters, digits, spaces and . _ -", pattern=r"\w[\w .-]*", longest=64)] = (
        Field(
            default="scenario",
            description="Name of the run folder and title of reports; the file's name when left out.",
        )
    )
    target: Target = Field(default=Target(), description="The server under load.")
    traffic: Annotated[tuple[Traffic, ...], Field(min_length=1, max_length=1000)] = Field(
        default=(ChatTraffic(),), description="Classes of sessions; the weights say how they mix."
    )
    load: Load | None = Field(
        default=None, description="How hard; when left out, Locust's own options (-u, -r, -t) or its page decide."
    )
    prefix_cache: PrefixCacheTest | None = Field(
        default=None, description="Measure what the server's prefix cache buys, with pairs of sessions."
    )
    interference: Interference | None = Field(
        default=None, description="Measure what the traffic classes do to each other, in blocks alone and together."
    )
    cache_probe: Annotated[Literal["auto", "always", "never"], OneOf()] = Field(
        default="auto",
        description="Find out before the load what the server's prefix cache does; auto: where the scenario needs it.",
    )
    objectives: dict[Name, Objective] = Field(
        default={}, description="Named limits that traffic classes refer to with objective."
    )
    seed: Annotated[int, Whole(0, 2**63 - 1)] = Field(
        default=7,
        description="The same seed gives the same lengths, pauses and mix; the words differ from run to run.",
    )

    _text: str = PrivateAttr(default="")
    _source: str = PrivateAttr(default="<default>")
    _folder: Path | None = PrivateAttr(default=None)

    @property
    def text(self) -> str:
        """The YAML as read; empty for the default scenario."""
        return self._text

    @property
    def source(self) -> str:
        """The file's path as given, or the name given instead."""
        return self._source

    def with_target(self, url: str | None = None, model: str | None = None) -> Scenario:
        """A copy aimed elsewhere; a URL takes the place of a simulator. None leaves a value as it is."""
        changes: dict[str, Any] = {}
        if url is not None:
            changes |= {"url": url, "simulator": None}
        if model is not None:
            changes |= {"model": model}
        try:
            target = Target.model_validate(self.target.model_dump(exclude_none=True) | changes)
        except ValidationError as error:
            raise ScenarioError([f"target.{detail['loc'][-1]}: {detail['msg']}" for detail in error.errors()]) from None
        return self.model_copy(update={"target": target})

    def to_dict(self) -> dict[str, Any]:
        """All keys with their values, as a scenario file would have them; never a secret, files relative to it."""
        content = self.model_dump(mode="json", exclude_none=True)
        _name_no_columns(content["traffic"])
        if self._folder is not None:
            _make_relative(content, self._folder)
        return content

    @property
    def digest(self) -> str:
        """SHA-256 of ``to_dict`` without the target's URL: the same for the same content, however it was written."""
        content = self.to_dict()
        content["target"].pop("url", None)
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()


def load_scenario(path: str | Path, *, check_env: bool = True) -> Scenario:
    """The scenario in a YAML file; ``check_env=False`` leaves unset ``${NAME}`` variables for later.

    Raises ``ScenarioError`` with every mistake in ``problems``, one line each: ``FILE:LINE: path.to.key: …``.
    """
    file = Path(path)
    try:
        raw = file.read_bytes() if file.stat().st_size <= _LARGEST_FILE else None
    except OSError as error:
        raise ScenarioError([f"{path}: cannot be read: {error.strerror}"]) from None
    if raw is None:
        raise ScenarioError([f"{path}: larger than {_LARGEST_FILE} bytes; this is no scenario file"])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ScenarioError([f"{path}:{line}: not UTF-8 text"]) from None
    return parse_scenario(text, str(path), folder=file.parent, check_env=check_env)


def parse_scenario(
    text: str,
    source: str = "<scenario>",
    *,
    folder: str | Path = ".",
    check_env: bool = True,
    environ: Mapping[str, str] = os.environ,
) -> Scenario:
    """The scenario in a YAML text; files that it names are looked for in ``folder``.

    Raises ``ScenarioError`` as ``load_scenario`` does, with ``source`` as the file's name.
    """
    yaml_source = read_yaml(text)
    home = Path(folder).resolve()
    context = {"folder": home, "environ": environ if check_env else None}
    scenario = _validated(yaml_source, context)
    if scenario is None or yaml_source.problems:
        unique = sorted(set(yaml_source.problems), key=lambda problem: (problem.line, str(problem)))
        raise ScenarioError([f"{source}:{problem}" for problem in unique])
    if "name" not in scenario.model_fields_set:
        stem = re.sub(r"[^\w .-]+", "-", Path(source).stem).strip("-. ")[:64]
        scenario = scenario.model_copy(update={"name": stem or "scenario"})
    scenario._text, scenario._source, scenario._folder = text, source, home
    return scenario


def _validated(source: YamlSource, context: dict[str, Any]) -> Scenario | None:
    """The scenario, or None with what is wrong added to ``source.problems``."""
    if not isinstance(source.data, dict):
        if source.problems:
            return None
        source.problems.append(Problem(1, (), "keys such as target, traffic and load are wanted here"))
        return None
    source.problems += broken_rules(source)
    try:
        return Scenario.model_validate(source.data, context=context)
    except ValidationError as error:
        source.problems += problems_of(error, source, json_schema())
        return None


def default_scenario(kind: str = "chat") -> Scenario:
    """What runs without a scenario file, with seed 7: chats of one turn with 512 tokens in and 128 out, replayed jobs
    with a shared system prompt of 2,000 tokens, or two questions about a made-up picture."""
    traffic: dict[str, AnyTraffic] = {
        "chat": ChatTraffic(),
        "agentic": AgenticTraffic(kind="agentic", system_prompt=SystemPrompt(tokens=2000)),
        "captioning": CaptioningTraffic(kind="captioning"),
    }
    return Scenario(name=kind, traffic=(traffic[kind],))


@cache
def json_schema() -> dict[str, Any]:
    """JSON Schema of a scenario file."""
    return Scenario.model_json_schema() | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tokenswarm scenario",
    }


def _name_no_columns(traffic: list[dict[str, Any]]) -> None:
    """``text_column: null`` is a choice, unlike other nulls: left out, it would stand for the default column."""
    for item in traffic:
        images = item.get("images", {})
        for columns in (images.get("parquet"), images.get("hub")):
            if columns is not None:
                columns.setdefault("text_column", None)


def _make_relative(content: dict[str, Any], folder: Path) -> None:
    places: list[tuple[dict[str, Any], tuple[str, ...]]] = [(content, path) for path in _FILES]
    for item in content["traffic"]:
        places += [(item, ("tools",)), (item, ("trajectories",))]
        places += [(item, ("images", "folder")), (item, ("images", "parquet", "file"))]
        if isinstance(item.get("prompts"), dict):
            places.append((item["prompts"], ("file",)))
    for place, path in places:
        for step in path[:-1]:
            place = place.get(step, {})
        value = place.get(path[-1])
        if value is not None and Path(value).is_absolute():
            place[path[-1]] = os.path.relpath(value, folder)


def main() -> int:
    """``--schema`` prints the JSON Schema; otherwise checks the named files, with 2 as exit code where one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tokenswarm.scenario", description="Check scenario files.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="scenario files to check")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of scenario files")
    options = parser.parse_args()
    if options.schema:
        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    elif not options.files:
        parser.error("name a scenario file, or --schema")
    code = 0
    for path in options.files:
        try:
            scenario = load_scenario(path, check_env=False)
            count = len(scenario.traffic)
            print(f"{path}: good ({count} traffic class{'' if count == 1 else 'es'})")
        except ScenarioError as error:
            print(error, file=sys.stderr)
            code = 2
    return code


if __name__ == "__main__":
    raise SystemExit(main())
