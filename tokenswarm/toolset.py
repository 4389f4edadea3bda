"""The tools that an agent may call: definitions read from a file, and calls judged by them."""

from __future__ import annotations

import json
import math
import re
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from tokenswarm.errors import InputError, ScenarioError
from tokenswarm.toolcalls import ToolCall
from tokenswarm.wanted import did_you_mean
from tokenswarm.yaml_source import Path as Place
from tokenswarm.yaml_source import Problem, YamlSource, read_yaml

CHOICES = ("auto", "none", "required")
_LARGEST_FILE = 2_000_000  # bytes
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DEFINITION = "{type: function, function: {name: …, parameters: {…}}} is wanted"
_JSON_NAMES = {list: "array", str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}
_LONGEST_VALUE = 60  # characters shown of a wrong value
_LONGEST_COMPLAINT = 200  # characters of what a schema's check says


class Tool:
    """One definition, as it is sent, and the check of arguments by its JSON schema (draft 2020-12)."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.definition = definition
        self.name: str = definition["function"]["name"]
        self.schema: dict[str, Any] = definition["function"].get("parameters") or {"type": "object"}

    @cached_property
    def _validator(self) -> Draft202012Validator:
        return Draft202012Validator(self.schema, registry=Registry())  # an empty registry: no reference is fetched

    def complaint(self, arguments: dict[str, Any]) -> str | None:
        """Where and why ``arguments`` do not fit the schema; None where they do."""
        try:
            error: ValidationError | None = best_match(self._validator.iter_errors(arguments))
        except Unresolvable as unresolvable:
            return f"$: {unresolvable}"
        except RecursionError:
            return "$: nested too deeply"
        return None if error is None else f"{error.json_path}: {_short(error.message, _LONGEST_COMPLAINT)}"


class Judged(NamedTuple):
    """``arguments`` are those of a good call; of any other one, ``problem`` is the text that the model gets back."""

    arguments: dict[str, Any] | None
    problem: str | None


class ToolSet:
    """The tools of one agent, in the order of their definitions."""

    def __init__(self, definitions: list[dict[str, Any]], source: str) -> None:
        """``source`` names the place in messages. Raises ``ScenarioError`` with every wrong definition."""
        problems = [f"{source}: {problem}" for problem in map(_spelled, _problems(definitions))]
        if problems:
            raise ScenarioError(problems)
        self.source = source
        self.definitions = definitions
        self.tools = {tool.name: tool for tool in map(Tool, definitions)}

    @cached_property
    def names(self) -> list[str]:
        return list(self.tools)

    def choice(self, wanted: str, owner: str) -> str | dict[str, Any]:
        """``tool_choice`` in the API's form; ``owner`` is the traffic that wants it. Raises ``InputError``."""
        if wanted in CHOICES:
            return wanted
        if wanted not in self.tools:
            hint = did_you_mean(wanted, (*CHOICES, *self.names))
            raise InputError(
                f"traffic {owner!r}: tool_choice: value {wanted}: auto, none, required or the name of a tool of "
                f"{self.source} ({', '.join(self.names)}) is wanted{hint}"
            )
        return {"type": "function", "function": {"name": wanted}}

    def judge(self, call: ToolCall) -> Judged:
        """What an agent framework makes of a call: it runs it, or tells the model what is wrong with it."""
        tool = self.tools.get(call.name)
        if tool is None:
            known = ", ".join(self.names)
            return Judged(None, f"Error: there is no tool {call.name!r}. The tools are: {known}.")
        arguments, problem = parsed_arguments(call)
        if arguments is None:
            return Judged(None, f"Error: the arguments of {call.name} {problem}. Call it again with a JSON object.")
        complaint = tool.complaint(arguments)
        if complaint is not None:
            return Judged(None, f"Error: the arguments of {call.name} do not fit its parameters. {complaint}.")
        return Judged(arguments, None)


def parsed_arguments(call: ToolCall) -> tuple[dict[str, Any] | None, str | None]:
    """The arguments as an object, or what is wrong with their text. No text at all stands for no arguments."""
    if not call.arguments.strip():
        return {}, None
    try:
        arguments = json.loads(call.arguments, parse_constant=_refuse_constant, parse_float=_finite)
    except ValueError as error:
        return None, f"are not valid JSON: {error}"
    except RecursionError:
        return None, "are nested too deeply"
    if not isinstance(arguments, dict):
        return None, f"are a JSON {_JSON_NAMES[type(arguments)]}"
    return arguments, None


def encodable(call: ToolCall) -> ToolCall:
    """The call as UTF-8 can carry it: servers send halves of characters, which would stop the next request."""
    try:
        f"{call.id}{call.name}{call.arguments}".encode()
    except UnicodeEncodeError:
        return ToolCall(None, _whole(call.name), _whole(call.arguments))
    return call


def _whole(text: str) -> str:
    """Halves that belong together become one character; single ones become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _refuse_constant(name: str) -> None:
    """Python reads NaN and Infinity, servers do not."""
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    """Nor do they read what is larger than any number they know."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{_short(text, _LONGEST_VALUE)} is too large a number")
    return number


def sendable_arguments(call: ToolCall) -> str:
    """The arguments in a form that every server takes back in the history: the JSON text of an object.

    Chat templates that write calls key by key parse the text, and servers refuse the request where that fails; so a
    text that is no object goes back as the value of one.
    """
    arguments, _ = parsed_arguments(call)
    if arguments is None:
        return json.dumps({"malformed": call.arguments})
    return call.arguments if call.arguments.strip() else "{}"


def read_tools(path: str | Path) -> ToolSet:
    """Tool definitions of a YAML or JSON file: a list in the OpenAI format.

    Raises ``InputError`` where the file cannot be read, ``ScenarioError`` with a line for every mistake.
    """
    try:
        size = Path(path).stat().st_size
        text = Path(path).read_text("utf-8-sig") if size <= _LARGEST_FILE else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    if size > _LARGEST_FILE:
        raise InputError(
            f"{path}: {size} bytes; at most {_LARGEST_FILE} are wanted, since every request carries all tools"
        )
    source = _source(text)
    problems = source.problems or [Problem(source.line(place), place, wrong) for place, wrong in _problems(source.data)]
    if problems:
        raise ScenarioError([f"{path}:{problem}" for problem in problems])
    return ToolSet(source.data, str(path))


@cache
def builtin_tools() -> ToolSet:
    """The tools of an agent whose scenario names none."""
    text = (files("tokenswarm") / "material" / "tools.yaml").read_text("utf-8")
    return ToolSet(read_yaml(text).data, "the built-in tools")


def _source(text: str) -> YamlSource:
    """JSON is read as such, since YAML takes no tabs; anything else as YAML, with the lines of its values."""
    try:
        return YamlSource(data=json.loads(text))
    except (ValueError, RecursionError):
        return read_yaml(text)


def _problems(definitions: Any) -> list[tuple[Place, str]]:
    """Every mistake with its place in the list."""
    if not isinstance(definitions, list) or not definitions:
        return [((), f"value {_shown(definitions)}: a list of tools is wanted; of each, {_DEFINITION}")]
    found: list[tuple[Place, str]] = []
    names: set[str] = set()
    for index, definition in enumerate(definitions):
        wrong = _unsendable(definition) or _problem(definition)
        if wrong is None:
            name = definition["function"]["name"]
            wrong = (
                (("function", "name"), f"value {name}: each tool needs a name of its own") if name in names else None
            )
            names.add(name)
        if wrong is not None:
            found.append(((index, *wrong[0]), wrong[1]))
    return found


def _unsendable(definition: Any) -> tuple[Place, str] | None:
    """What JSON cannot say, or half characters, which no request can carry."""
    try:
        json.dumps(definition, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        return (), "nested too deeply"
    except UnicodeEncodeError:
        return (), "half of a character (\\ud800 to \\udfff alone) stands in it; whole ones are wanted"
    except ValueError:
        return (), "JSON knows neither NaN nor infinity"
    return None


def _problem(definition: Any) -> tuple[Place, str] | None:
    """The first mistake in one definition."""
    match definition:
        case {"type": "function", "function": {"name": str(name), **function}}:
            if not _NAME.fullmatch(name):
                return ("function", "name"), f"value {_shown(name)}: 1 to 64 letters, digits, _ and - are wanted"
            return _function_problem(function)
        case {"type": "function", "function": dict()}:
            return ("function",), "a name is wanted"
        case _:
            return (), f"value {_shown(definition)}: {_DEFINITION}"


def _function_problem(function: dict[Any, Any]) -> tuple[Place, str] | None:
    parameters = function.get("parameters")
    if not isinstance(function.get("description", ""), str):
        return ("function", "description"), f"value {_shown(function['description'])}: text is wanted"
    if parameters is None:
        return None
    place = ("function", "parameters")
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        return place, f"value {_shown(parameters)}: a JSON schema of type object is wanted"
    try:
        Draft202012Validator.check_schema(parameters)
        Draft202012Validator(parameters, registry=Registry()).is_valid({})
    except SchemaError as error:
        return (*place, *error.absolute_path), f"no JSON schema: {_short(error.message, _LONGEST_COMPLAINT)}"
    except RecursionError:
        return place, "nested too deeply, or it refers to itself without end"
    except Unresolvable:
        return None  # told with the first call
    return None


def _spelled(problem: tuple[Place, str]) -> str:
    return str(Problem(1, *problem)).removeprefix("1: ")


def _shown(value: Any) -> str:
    return _short(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), _LONGEST_VALUE
    )


def _short(text: str, longest: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"
