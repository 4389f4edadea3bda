"""Rules between keys of a scenario, checked on the data as read so that they speak up beside every other mistake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenswarm.load_rules import load_rules
from tokenswarm.wanted import did_you_mean
from tokenswarm.yaml_source import Path, Problem, YamlSource

_GENERATED_ONLY = ("steps", "task_tokens", "argument_tokens", "tool_result_tokens")
_CHAT_API = {"agentic": "agents speak the chat API", "captioning": "pictures are sent through the chat API"}


def broken_rules(source: YamlSource) -> Iterator[Problem]:
    """One problem for each rule that the data breaks; parts of a wrong type are left to the models."""
    data = _mapping(source.data)
    found: list[tuple[Path, str]] = [
        *_target(_mapping(data.get("target"))),
        *_traffic(_classes(data), _mapping(data.get("objectives"))),
        *_api(_classes(data), _mapping(data.get("target")).get("api")),
        *_agents(_classes(data)),
        *_fields(_mapping(_mapping(data.get("target")).get("request")), data),
        *_prefix_cache(data),
        *_interference(data, _classes(data)),
        *load_rules(data.get("load"), _classes(data), searchable=_searchable(data)),
    ]
    for path, text in found:
        yield Problem(source.line(path), path, text)


def _searchable(data: dict[str, Any]) -> str | None:
    """None where a search for the highest load has something to look for, else what stands in its way."""
    for test in ("prefix_cache", "interference"):
        if data.get(test) is not None:
            return f"search: {test} has levels of its own; list the numbers of users"
    if not any(isinstance(item.get("objective"), str) for item in _classes(data)):
        return "search needs an objective: name one under objectives, and in the traffic class"
    return None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _classes(data: dict[str, Any]) -> list[dict[str, Any]]:
    traffic = data.get("traffic")
    return [_mapping(item) for item in traffic] if isinstance(traffic, list) else []


def _target(target: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    for one, other in (("url", "simulator"), ("api_key", "api_key_file")):
        if target.get(one) is not None and target.get(other) is not None:
            yield ("target", other), f"{one} and {other} exclude each other; keep one"


def _traffic(classes: list[dict[str, Any]], objectives: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    names: set[str] = set()
    for index, item in enumerate(classes):
        name, objective, prompts = item.get("name", _kind(item)), item.get("objective"), item.get("prompts")
        if isinstance(name, str):
            if name in names:
                yield ("traffic", index, "name"), f"another class is named {name} too; each needs a name of its own"
            names.add(name)
        if isinstance(objective, str) and objective not in objectives:
            known = ", ".join(objectives) or "none"
            hint = did_you_mean(objective, objectives)
            text = f"value {objective}: no such objective; defined under objectives: {known}{hint}"
            yield ("traffic", index, "objective"), text
        for key in ("turns", "input_tokens") if isinstance(prompts, dict) else ():
            if key in item:
                yield ("traffic", index, key), "prompts from a file keep their own turns and lengths; leave this out"


def _kind(item: dict[str, Any]) -> str:
    kind = item.get("kind", "chat")
    return kind if isinstance(kind, str) else "chat"


def _api(classes: list[dict[str, Any]], api: Any) -> Iterator[tuple[Path, str]]:
    for index, item in enumerate(classes):
        if api == "completions" and _kind(item) in _CHAT_API:
            yield ("traffic", index, "kind"), f"{_CHAT_API[_kind(item)]}; leave target.api out"


def _agents(classes: list[dict[str, Any]]) -> Iterator[tuple[Path, str]]:
    for index, item in enumerate(classes):
        place: Path = ("traffic", index)
        if _kind(item) != "agentic" or item.get("trajectories") is None:
            continue
        if item.get("mode") == "live":
            yield (*place, "trajectories"), "recorded jobs are for mode: replay; a live agent follows the model"
        for key in _GENERATED_ONLY:
            if item.get(key) is not None:
                yield (*place, key), "recorded jobs have their own; leave this or trajectories out"


def _fields(request: dict[str, Any], data: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Fields of every request that would take the place of what the traffic sends."""
    place: Path = ("target", "request")
    if any(_kind(item) == "agentic" for item in _classes(data)):
        for key in ("tools", "tool_choice"):
            if key in request:
                yield (*place, key), "agents send their own; use tools and tool_choice of the traffic class"
    if "cache_salt" in request and data.get("prefix_cache") is not None:
        yield (*place, "cache_salt"), "prefix_cache sends salts of its own; leave this out"


def _prefix_cache(data: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    if data.get("prefix_cache") is None:
        return
    if not isinstance(_mapping(data.get("load")).get("closed"), dict):
        yield ("prefix_cache",), "needs load.closed: pairs of sessions are compared level by level"
    elif _mapping(data["load"].get("closed")).get("fresh_prompts") is False:
        yield ("load", "closed", "fresh_prompts"), "prefix_cache needs fresh prompts at every level; leave this out"
    for index, item in enumerate(_classes(data)):
        if item.get("kind") == "agentic" and item.get("mode") == "live":
            yield ("traffic", index, "mode"), "prefix_cache compares sessions with the same text; use mode: replay"
    if data.get("cache_probe") == "never":
        yield ("cache_probe",), "prefix_cache rests on what the probe finds; leave this out"


def _interference(data: dict[str, Any], classes: list[dict[str, Any]]) -> Iterator[tuple[Path, str]]:
    if data.get("interference") is None:
        return
    if len(classes) < 2:
        yield ("interference",), "needs two traffic classes or more: each runs alone, then all together"
    if data.get("prefix_cache") is not None:
        yield ("prefix_cache",), "interference and prefix_cache exclude each other; keep one"
    if not isinstance(_mapping(data.get("load")).get("closed"), dict):
        yield ("interference",), "needs load.closed: its users, and duration_s for a block"
    else:
        yield from _blocks(_mapping(data["load"].get("closed")), len(classes))


def _blocks(closed: dict[str, Any], classes: int) -> Iterator[tuple[Path, str]]:
    place: Path = ("load", "closed")
    for amount in ("sessions", "requests"):
        if closed.get(amount) is not None:
            yield (*place, amount), "blocks of interference end by time; use duration_s"
    if closed.get("fresh_prompts") is False:
        yield (*place, "fresh_prompts"), "interference needs fresh prompts in every block; leave this out"
    users = closed.get("users")
    few = [n for n in (users if isinstance(users, list) else [users]) if isinstance(n, int) and n < classes]
    if few:
        yield (*place, "users"), f"{few[0]} users for {classes} classes: each class needs one of its own"
