"""Arguments of a tool call, made up so that they fit the function's JSON schema.

Understood are ``type`` (one or several), ``enum``, ``const``, ``properties``, ``required``, ``items``, ``anyOf``,
``oneOf``, ``allOf``, ``$ref`` within the schema, and the bounds ``minimum``, ``maximum``, ``minItems``, ``maxItems``,
``minLength``, ``maxLength``. Strings are words of the simulator's vocabulary, whatever ``pattern`` or ``format`` say.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from typing import Any

from simulator.vocabulary import WORDS

_DEEPEST = 6  # beyond that optional properties and items are left out, so that a schema that contains itself ends
_HOPELESS = 40
_OPTIONAL_SHARE = 0.5  # of optional properties that are given
_WORDS = (1, 6)  # in a string
_SPAN = 1000  # of a number without bounds


def arguments_text(schema: Mapping[str, Any], rng: random.Random) -> str:
    """JSON of an object that fits ``schema``; an object of nothing where the schema describes none."""
    value = _Filler(schema, rng).fill(schema, 0)
    return json.dumps(value if isinstance(value, dict) else {})


class _Filler:
    """Fills one schema; ``root`` is what a ``$ref`` starts from."""

    def __init__(self, root: Mapping[str, Any], rng: random.Random) -> None:
        self._root = root
        self._rng = rng

    def fill(self, schema: Any, depth: int) -> Any:
        """A value for ``schema``, ``None`` where it cannot be understood."""
        if not isinstance(schema, Mapping) or depth > _HOPELESS:
            return None
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._rng.choice(schema["enum"])
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                return self.fill(self._rng.choice(schema[key]), depth + 1)
        return self._of_type(_type_of(schema), schema, depth)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """``schema`` with its reference followed and the parts of ``allOf`` laid over one another."""
        parts = [*schema.get("allOf", ())]
        if isinstance(schema.get("$ref"), str):
            parts.append(self._at(schema["$ref"]))
        for part in parts:
            if isinstance(part, Mapping):
                properties = {**schema.get("properties", {}), **part.get("properties", {})}
                required = [*schema.get("required", ()), *part.get("required", ())]
                schema = {**schema, **part, "properties": properties, "required": required}
        return schema

    def _at(self, reference: str) -> Any:
        """What ``#/$defs/name`` points to."""
        found: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            found = found.get(step) if isinstance(found, Mapping) and step else found
        return {key: value for key, value in found.items() if key != "$ref"} if isinstance(found, Mapping) else {}

    def _of_type(self, kind: str, schema: Mapping[str, Any], depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer":
                return self._integer(schema)
            case "number":
                low, high = _bounds(schema)
                return round(self._rng.uniform(low, high), 2)
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
            case _:
                return self._string(schema)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        filled = {}
        for name, part in schema.get("properties", {}).items():
            wanted = name in required or (depth < _DEEPEST and self._rng.random() < _OPTIONAL_SHARE)
            if wanted:
                filled[name] = self.fill(part, depth + 1)
        return filled

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        least = schema.get("minItems", 0 if depth >= _DEEPEST else 1)
        most = schema.get("maxItems", least if depth >= _DEEPEST else least + 2)
        count = self._rng.randint(min(least, most), most)
        return [self.fill(schema.get("items", {}), depth + 1) for _ in range(count)]

    def _integer(self, schema: Mapping[str, Any]) -> int:
        low, high = _bounds(schema)
        return self._rng.randint(math.ceil(low), max(math.ceil(low), math.floor(high)))

    def _string(self, schema: Mapping[str, Any]) -> str:
        text = " ".join(self._rng.choices(WORDS, k=self._rng.randint(*_WORDS)))
        while len(text) < schema.get("minLength", 0):
            text += " " + self._rng.choice(WORDS)
        return text[: schema.get("maxLength")]


def _type_of(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if isinstance(kind, str):
        return kind
    if schema.get("properties"):
        return "object"
    return "array" if "items" in schema else "string"


def _bounds(schema: Mapping[str, Any]) -> tuple[float, float]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        low = 0 if high is None else min(0, high)
    return low, low + _SPAN if high is None else high
