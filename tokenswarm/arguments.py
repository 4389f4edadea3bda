"""Arguments made up for a tool call: an object that fits the tool's JSON schema, with words as its free text."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

_FORMATS = {
    "date": "2026-03-14",
    "date-time": "2026-03-14T09:26:53Z",
    "time": "09:26:53Z",
    "email": "someone@example.org",
    "hostname": "www.example.org",
    "ipv4": "192.0.2.7",
    "ipv6": "2001:db8::7",
    "uri": "https://www.example.org/",
    "uuid": "6f1c1a0e-5f1c-4b6e-9a53-0d3f2f6c2d10",
}
_DEEPEST = 12  # levels of a schema that refers to itself
_BRANCHING = 3  # levels below which lists that may be empty are
_MOST_VALUES = 5_000  # of one call
_LONGEST = 100_000  # items or characters, whatever a schema asks for
_LETTERS = 12  # of a word, at most
_LARGEST = 1e300  # multiples of a number
_SPREAD = 100  # between the limits of a number that has only one, or none

Words = Callable[[int], str]
"""``words(n)`` gives text of ``n`` words."""


def make_arguments(schema: dict[str, Any], words: Words, count: int, rng: Random) -> dict[str, Any]:
    """What ``schema`` requires, with ``count`` words shared out to the texts that it leaves free.

    Where it requires no such text the first optional one is given. Numbers and choices come from ``rng``. Schemas with
    conditions between keys, or with patterns but no examples, may be beyond this; then the result does not fit.
    """
    maker = _Maker(schema, rng)
    value = maker.value(schema, 0)
    value = value if isinstance(value, dict) else {}
    if not maker.free:
        maker.add_optional_text(schema, value)
    maker.fill(words, count)
    return value


class _Maker:
    def __init__(self, root: dict[str, Any], rng: Random) -> None:
        self._root = root
        self._rng = rng
        self._made = 0
        self._followed = 0
        self.free: list[tuple[Any, Any, dict[str, Any]]] = []  # container, key, schema: texts to be filled with words

    def value(self, schema: Any, depth: int) -> Any:
        """A value that fits; empty text where words are to be filled in. Nothing once there are too many of them."""
        self._made += 1
        if self._made > _MOST_VALUES:
            return None
        schema = self._plain(schema)
        choices = _choices(schema)
        if choices:
            return self._rng.choice(choices)
        match _type(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer" | "number" as kind:
                return _number(schema, self._rng, whole=kind == "integer")
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
        return _FORMATS.get(schema.get("format", ""), "")

    def add_optional_text(self, schema: dict[str, Any], value: dict[str, Any]) -> None:
        """The first optional text of the object, as a place for words."""
        for key, below in self._plain(schema).get("properties", {}).items():
            if key not in value and _is_free(self._plain(below)):
                self._put(value, key, below, 1)
                return

    def fill(self, words: Words, count: int) -> None:
        """Share the words out evenly, at least one to each text."""
        for index, (container, key, schema) in enumerate(self.free):
            share = max(1, (count + index) // len(self.free))
            text = words(share)
            least = _length(schema, "minLength")
            while len(text) < least:
                text += f" {words(max(share, (least - len(text)) // _LETTERS))}"
            container[key] = text[: _length(schema, "maxLength", len(text))]

    def _put(self, container: Any, key: Any, schema: Any, depth: int) -> None:
        container[key] = self.value(schema, depth)
        plain = self._plain(schema)
        if _is_free(plain):
            self.free.append((container, key, plain))

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        properties = schema.get("properties", {})
        required = dict.fromkeys(schema.get("required", []))
        optional = [key for key in properties if key not in required]
        wanted = [*required, *optional[: max(0, _length(schema, "minProperties") - len(required))]]
        for key in wanted if depth < _DEEPEST else []:
            self._put(found, key, properties.get(key, {}), depth + 1)
        return found

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        count = max(_length(schema, "minItems"), min(depth < _BRANCHING, _length(schema, "maxItems", 1)))
        found: list[Any] = [None] * (count if depth < _DEEPEST else 0)
        for index in range(len(found)):
            self._put(found, index, schema.get("items", {}), depth + 1)
        return found

    def _plain(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """The schema with its reference followed, the first of its alternatives taken and its parts put together."""
        self._followed += 1
        if not isinstance(schema, dict) or depth > _DEEPEST or self._followed > 4 * _MOST_VALUES:
            return {}
        keys = [key for key in ("anyOf", "oneOf", "allOf", "$ref") if schema.get(key)]
        if not keys:
            return schema
        parts: list[Any]
        match keys[0]:
            case "$ref":
                parts = [self._found(schema["$ref"])]
            case "allOf":
                parts = schema["allOf"]
            case key:
                parts = schema[key][:1]
        merged = {key: value for key, value in schema.items() if key != keys[0]}
        for part in parts:
            merged = _merged(merged, self._plain(part, depth + 1))
        return self._plain(merged, depth + 1)

    def _found(self, reference: str) -> Any:
        """What a reference within the schema points to; nothing for one to elsewhere."""
        place: Any = self._root if reference.startswith("#") else {}
        for step in reference.removeprefix("#").split("/")[1:]:
            place = place.get(step) if isinstance(place, dict) else None
        return place


def _length(schema: dict[str, Any], key: str, otherwise: int = 0) -> int:
    """A number of things, which JSON may write as ``2.0``, in bounds."""
    return int(min(schema.get(key, otherwise), _LONGEST))


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = one | other
    if "properties" in one and "properties" in other:
        both["properties"] = one["properties"] | other["properties"]
    if "required" in one and "required" in other:
        both["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    return both


def _choices(schema: dict[str, Any]) -> list[Any]:
    """The values to choose from where a schema tells them; examples count only where a pattern leaves no choice."""
    if "const" in schema:
        return [schema["const"]]
    if "pattern" in schema and not schema.get("enum"):
        return [*schema.get("examples", []), *([schema["default"]] if "default" in schema else [])]
    return list(schema.get("enum", []))


def _is_free(plain: dict[str, Any]) -> bool:
    """Whether any words will do."""
    return _type(plain) == "string" and plain.get("format") not in _FORMATS and not _choices(plain)


def _type(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _number(schema: dict[str, Any], rng: Random, *, whole: bool) -> float:
    """A number between the limits, which may be excluded, and of the right multiple."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        low = 0 if high is None or high > 0 else high - _SPREAD
    if high is None:
        high = low + _SPREAD
    step = schema.get("multipleOf", 1 if whole else None)
    if step is None:
        part = rng.uniform(0.1, 0.9)
        value = float(low * (1.0 - part) + high * part)  # the difference of both may be no number
        return round(value, 2) if low < round(value, 2) < high else value
    if max(abs(low), abs(high)) / step > _LARGEST:
        return int(low) if whole else float(low)
    first, last = math.ceil(low / step), math.floor(high / step)
    first += first * step == schema.get("exclusiveMinimum")
    last -= last * step == schema.get("exclusiveMaximum")
    multiple = rng.randint(first, max(first, last)) * step
    return int(multiple) if whole else multiple
