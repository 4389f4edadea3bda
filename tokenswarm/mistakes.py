"""What pydantic found wrong, as one line for each mistake with its line in the file and the way to put it right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tokenswarm.wanted import did_you_mean, nearest, plain
from tokenswarm.yaml_source import Path, Problem, YamlSource

_LONGEST_VALUE = 60  # characters shown of a wrong value
_LONGEST_NUMBER = 1e15  # beyond it digits say nothing to a reader
_FORMS = {
    "model_type": "keys with values are wanted",
    "dict_type": "keys with values are wanted",
    "tuple_type": "a list is wanted",
    "list_type": "a list is wanted",
}
_SECRETS = (("target", "api_key"), ("target", "headers"))
_PASSWORD = re.compile(r"//[^/@]*@|\?.*")
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


def problems_of(error: ValidationError, source: YamlSource, schema: dict[str, Any]) -> Iterator[Problem]:
    """Every mistake in ``error``; ``schema`` is the JSON Schema that knows the keys of each place."""
    details = error.errors(include_url=False, include_input=False)
    ruled = {problem.path for problem in source.problems}
    unknown = {path_of(detail, source) for detail in details if detail["type"] == "extra_forbidden"}
    meant = {(*path[:-1], nearest(str(path[-1]), keys_at(schema, path[:-1]))) for path in unknown}
    for detail in details:
        path = path_of(detail, source)
        match detail["type"]:
            case "too_short" if any(_inside(other, detail) for other in details):
                continue  # short only because items of it are wrong, which is told already
            case "missing" if path in meant:
                continue  # told as the unknown key that it was meant to be
            case "extra_forbidden" if path in ruled:
                continue  # the second of two words for one key, told by a rule
        yield Problem(source.line(path), *_told(detail, path, source, schema))


def path_of(detail: ErrorDetails, source: YamlSource) -> Path:
    """pydantic's ``loc`` without the names of union members (``<uniform>``), with the custom error's ``at``.

    Where a lone value stands for a list of one, it is no item of the file.
    """
    path: Path = ()
    for step in detail["loc"]:
        alone = step == 0 and not isinstance(source.value(path), list | None)
        if not alone and (not str(step).startswith("<") or (*path, step) in source.lines):
            path = (*path, step)
    at: Path = detail.get("ctx", {}).get("at", ())
    return path + at


def _inside(detail: ErrorDetails, outer: ErrorDetails) -> bool:
    """Whether ``detail`` is about something within what ``outer`` is about."""
    return detail["loc"] != outer["loc"] and detail["loc"][: len(outer["loc"])] == outer["loc"]


def _told(detail: ErrorDetails, path: Path, source: YamlSource, schema: dict[str, Any]) -> tuple[Path, str]:
    match detail["type"]:
        case "missing":
            return path, "missing; it has no default"
        case "extra_forbidden" if path[-1] in keys_at(schema, path[:-1]):
            return path, "a key of another kind; leave it out"
        case "extra_forbidden":
            return path, f"unknown key{did_you_mean(str(path[-1]), keys_at(schema, path[:-1]))}"
        case "too_short":
            least = detail.get("ctx", {}).get("min_length", 1)
            path = source.existing(path)
            return path, f"value {shown(source, path)}: at least {'one is' if least == 1 else f'{least} are'} wanted"
        case "too_long":
            return path, f"at most {detail['ctx']['max_length']} are wanted, not {detail['ctx']['actual_length']}"
        case kind:
            path = source.existing(path)
            text = _FORMS.get(kind, detail["msg"])
            return path, f"value {shown(source, path)}: {text}{_as_number(source, path)}"


def _as_number(source: YamlSource, path: Path) -> str:
    """A hint where YAML 1.1 takes a number for text."""
    text = source.value(path)
    if not isinstance(text, str) or source.texts.get(path) != text:
        return ""
    if not _EXPONENT.fullmatch(text) or abs(float(text)) > _LONGEST_NUMBER:
        return ""
    return f" (YAML takes {text} for text; write {plain(float(text))})"


def shown(source: YamlSource, path: Path) -> str:
    """The value at ``path`` as written, on one line and shortened; secrets and nested values are not shown."""
    if path[:2] in _SECRETS:
        return "(not shown)"
    value = source.value(path)
    if path in source.texts:
        text = _PASSWORD.sub("//…@", source.texts[path])
    elif isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        text = json.dumps(value, ensure_ascii=False, default=str)
    else:
        text = "(a list)" if isinstance(value, list) else "{" + ", ".join(value or ()) + "}"
    text = " ".join(text.split()) or "(nothing)"
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def keys_at(schema: dict[str, Any], path: Path) -> set[str]:
    """Keys that a mapping at ``path`` may have, of all forms that the place can take."""
    nodes = _forms(schema, schema)
    for step in path:
        nodes = [form for node in nodes for below in _below(node, step) for form in _forms(below, schema)]
    return {key for node in nodes for key in node.get("properties", {})}


def _below(node: dict[str, Any], step: str | int) -> list[dict[str, Any]]:
    if isinstance(step, int):
        return [node["items"]] if isinstance(node.get("items"), dict) else []
    places = [node.get("properties", {}).get(step), node.get("additionalProperties")]
    return [place for place in places if isinstance(place, dict)][:1]


def _forms(node: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The node with its reference followed, or all members of its ``anyOf``."""
    if "$ref" in node:
        return _forms(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    members = [*node.get("anyOf", []), *node.get("oneOf", [])]
    return [form for member in members for form in _forms(member, schema)] if members else [node]
