"""YAML with the line of every key and value, and nothing lost without a word.

Reads PyYAML's node tree instead of its finished data: equal keys in one mapping, tags, merge keys, and numbers that
YAML 1.1 reads otherwise than a person (``010`` is 8, ``1:30`` is 90) are told instead of taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

Path = tuple[str | int, ...]

_MOST_NODES = 20_000  # aliases of aliases can make millions of values from a few lines
_DEEPEST = 40
_READ_OTHERWISE = re.compile(r"[-+]?(?:0[0-7_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)")
_TAG = "the tag {} is not supported; plain values only"
_PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Problem:
    """One mistake: where it stands and what is wrong, without the file's name."""

    line: int
    path: Path
    text: str

    def __str__(self) -> str:
        place = dotted(self.path)
        line = f"{self.line}: {place}: {self.text}" if place else f"{self.line}: {self.text}"
        return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)


@dataclass
class YamlSource:
    """What a YAML text says (``data``), and for each path in it the line and, of scalars, the text as written."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def existing(self, path: Path) -> Path:
        """The longest beginning of ``path`` that stands in the text."""
        while path and path not in self.lines:
            path = path[:-1]
        return path

    def value(self, path: Path) -> Any:
        """What stands at ``path``, or None."""
        value = self.data
        for step in path:
            try:
                value = value[step]
            except (LookupError, TypeError):
                return None
        return value

    def line(self, path: Path) -> int:
        return self.lines.get(self.existing(path), 1)


def dotted(path: Path) -> str:
    """``traffic[0].turns`` for ``("traffic", 0, "turns")``."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(parts).removeprefix(".")


def read_yaml(text: str) -> YamlSource:
    """All of one YAML document; ``data`` is None where the text cannot be read at all."""
    source = YamlSource()
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        source.problems.append(_syntax_problem(error, text))
        return source
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        source.problems.append(Problem(line, (), f"not YAML: the character {error.character:#04x} is not allowed"))
        return source
    except RecursionError:
        source.problems.append(Problem(1, (), f"nested deeper than {_DEEPEST} levels"))
        return source
    if root is None:
        source.problems.append(Problem(1, (), "the file is empty"))
        return source
    try:
        source.data = _Builder(source).value(root, ())
    except _TooMuch as too_much:
        source.problems = [too_much.problem]
    return source


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    written = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
    if "\t" in written[: len(written) - len(written.lstrip())] or "'\\t'" in (error.problem or ""):
        return Problem(line, (), "a tab stands in the indentation; YAML wants spaces there")
    if "expected a single document" in (error.context or ""):
        return Problem(line, (), "a second document begins here (---); one file is one scenario")
    context = f" {error.context}" if error.context else ""
    return Problem(line, (), f"not YAML:{context}{',' if context else ''} {error.problem}")


class _TooMuch(Exception):
    """Stops reading a text that only a mistake or malice can have written."""

    def __init__(self, node: Node, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(node.start_mark.line + 1, (), text)


class _Builder:
    """Turns nodes into plain data and notes lines, texts and problems on the way."""

    def __init__(self, source: YamlSource) -> None:
        self._source = source
        self._nodes = 0
        self._open: list[Node] = []  # the mappings and lists around the current value

    def value(self, node: Node, path: Path) -> Any:
        self._source.lines.setdefault(path, node.start_mark.line + 1)
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise _TooMuch(node, f"more than {_MOST_NODES} values")
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if len(path) > _DEEPEST or node in self._open:
            raise _TooMuch(node, f"nested deeper than {_DEEPEST} levels, or an alias inside itself")
        if node.tag not in (f"{_PREFIX}map", f"{_PREFIX}seq"):
            self._tell(node, path, _TAG.format(node.tag))
            return None
        self._open.append(node)
        if isinstance(node, MappingNode):
            value: Any = dict(self._entries(node, path))
        else:
            value = [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        self._open.pop()
        return value

    def _entries(self, node: MappingNode, path: Path) -> Iterator[tuple[str, Any]]:
        first_line: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._tell(key_node, path, "a key must be a word, not a list or mapping")
                continue
            key = key_node.value
            if key in first_line:
                self._tell(key_node, (*path, key), f"key stands twice, on lines {first_line[key]} and {line}")
                continue
            first_line[key] = line
            if key_node.tag == f"{_PREFIX}merge":
                self._tell(key_node, (*path, key), "merge keys (<<) are not supported; write the keys out")
                continue
            self._source.lines[(*path, key)] = line
            yield key, self.value(value_node, (*path, key))

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        quoted = node.style in ("'", '"')
        self._source.texts[path] = f"{node.style}{node.value}{node.style}" if quoted else node.value
        kind = node.tag.removeprefix(_PREFIX)
        try:
            return self._read(kind, node, path)
        except ValueError:
            self._tell(node, path, f"value {node.value}: cannot be read as {kind}")
            return None

    def _read(self, kind: str, node: ScalarNode, path: Path) -> Any:
        text = node.value
        match kind:
            case "str" | "timestamp" | "value":
                return text
            case "null":
                return None
            case "bool":
                return yaml.constructor.SafeConstructor().construct_yaml_bool(node)
            case "int" | "float" if _READ_OTHERWISE.fullmatch(text):
                read = yaml.safe_load(text)
                self._tell(node, path, f"value {text}: YAML reads this as {read}; write {read}, or quote it as text")
                return read
            case "int":
                return yaml.constructor.SafeConstructor().construct_yaml_int(node)
            case "float":
                return yaml.constructor.SafeConstructor().construct_yaml_float(node)
        self._tell(node, path, _TAG.format(node.tag))
        return None

    def _tell(self, node: Node, path: Path, text: str) -> None:
        self._source.problems.append(Problem(node.start_mark.line + 1, path, text))
