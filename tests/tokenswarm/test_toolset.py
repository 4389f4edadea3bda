"""Tool files are read or told where they are wrong; calls are judged and arguments made up by their schemas."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import validate

from tokenswarm.arguments import make_arguments
from tokenswarm.errors import InputError, ScenarioError
from tokenswarm.toolcalls import ToolCall
from tokenswarm.toolset import Tool, ToolSet, builtin_tools, parsed_arguments, read_tools, sendable_arguments

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "now"}}


def tools(*definitions: dict[str, Any]) -> ToolSet:
    return ToolSet(list(definitions or (WEATHER, CLOCK)), "the test")


def words(count: int) -> str:
    return " ".join(["word"] * count)


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    """The same definitions come out of both, and go into requests as they stand in the file."""
    (tmp_path / "t.json").write_text(json.dumps([WEATHER, CLOCK], indent="\t"))
    (tmp_path / "t.yaml").write_text(
        "- type: function\n  function:\n    name: get_weather\n    description: Weather in a city\n    parameters:\n"
        "      type: object\n      properties: {city: {type: string}, days: {type: integer, minimum: 1}}\n"
        "      required: [city]\n      additionalProperties: false\n"
        "- {type: function, function: {name: now}}\n"
    )
    assert read_tools(tmp_path / "t.json").definitions == [WEATHER, CLOCK]
    assert read_tools(tmp_path / "t.yaml").definitions == [WEATHER, CLOCK]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "1: value []: a list of tools is wanted"),
        ("tools: []\n", '1: value {"tools": []}: a list of tools is wanted'),
        (
            "- name: x\n",
            '1: [0]: value {"name": "x"}: {type: function, function: {name: …, parameters: {…}}} is wanted',
        ),
        ("- {type: function, function: {}}\n", "1: [0].function: a name is wanted"),
        (
            "- type: function\n  function: {name: 'get weather'}\n",
            "2: [0].function.name: value get weather: 1 to 64 letters, digits, _ and - are wanted",
        ),
        (
            "- {type: function, function: {name: a}}\n- {type: function, function: {name: a}}\n",
            "2: [1].function.name: value a: each tool needs a name of its own",
        ),
        (
            "- type: function\n  function:\n    name: a\n    parameters: {type: array}\n",
            '4: [0].function.parameters: value {"type": "array"}: a JSON schema of type object is wanted',
        ),
        (
            "- type: function\n  function:\n    name: a\n    parameters:\n      properties:\n        b: {type: text}\n",
            "6: [0].function.parameters.properties.b.type: no JSON schema: 'text' is not",
        ),
        (
            "- {type: function, function: {name: a, description: 5}}\n",
            "1: [0].function.description: value 5: text is wanted",
        ),
        ("- {type: function\n", "not YAML"),
        ("[" * 100_000, "1: nested deeper than 40 levels"),
        ('[{"type": "function", "function": {"name": "a", "description": "\\ud800"}}]', "1: [0]: half of a character"),
        (
            '[{"type": "function", "function": {"name": "a", "parameters": {"maximum": NaN}}}]',
            "1: [0]: JSON knows neither NaN nor infinity",
        ),
        (
            '[{"type": "function", "function": {"name": "a", "parameters": {"$ref": "#"}}}]',
            "1: [0].function.parameters: nested too deeply, or it refers to itself without end",
        ),
    ],
)
def test_wrong_tool_files_are_told_by_place_value_and_wish(tmp_path: Path, text: str, told: str) -> None:
    """A mistake is one line with file, line, path, value and what is wanted."""
    path = tmp_path / "tools.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        read_tools(path)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"{path}:")
    assert told in caught.value.problems[0]
    assert "\n" not in caught.value.problems[0]


def test_every_wrong_tool_is_told(tmp_path: Path) -> None:
    """Two mistakes are two lines."""
    path = tmp_path / "tools.yaml"
    path.write_text("- 5\n- {type: function, function: {name: ok}}\n- {type: tool}\n")
    with pytest.raises(ScenarioError) as caught:
        read_tools(path)
    assert [line.split(":")[1] for line in caught.value.problems] == ["1", "3"]


def test_unreadable_file_is_one_line(tmp_path: Path) -> None:
    """A folder or bytes that are no text are told as such."""
    path = tmp_path / "tools.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        read_tools(path)


def test_a_file_too_large_to_be_sent_with_every_request_is_one_line(tmp_path: Path) -> None:
    """Ten megabytes are no tools of an agent; they are not even read."""
    path = tmp_path / "tools.json"
    with path.open("wb") as file:
        file.truncate(10_000_000)
    with pytest.raises(InputError, match=r"tools\.json: 10000000 bytes; at most"):
        read_tools(path)


def test_tool_choice_takes_the_form_of_the_api() -> None:
    """Words go as they are, a tool's name as a function object; an unknown one names what is known."""
    both = tools()
    assert [both.choice(word, "a") for word in ("auto", "none", "required")] == ["auto", "none", "required"]
    assert both.choice("now", "a") == {"type": "function", "function": {"name": "now"}}
    with pytest.raises(InputError, match=r"^traffic 'agent': tool_choice: value nou: .*\(get_weather, now\).*'now'\?"):
        both.choice("nou", "agent")


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("get_weather", '{"city": "Oslo"}', None),
        ("get_weather", ' {"days": 2, "city": "Oslo"}', None),
        ("now", "", None),
        ("now", "{}", None),
        ("get_wether", '{"city": "Oslo"}', "there is no tool 'get_wether'. The tools are: get_weather, now."),
        ("get_weather", '{"city": "Os', "are not valid JSON: Unterminated string"),
        ("get_weather", '{"city": "Oslo", "days": NaN}', "NaN is no JSON"),
        ("get_weather", '["Oslo"]', "are a JSON array"),
        ("get_weather", "null", "are a JSON null"),
        ("get_weather", "[" * 100_000, "nested too deeply"),
        ("get_weather", "", "'city' is a required property"),
        ("get_weather", '{"city": 5}', "$.city: 5 is not of type 'string'"),
        ("get_weather", '{"city": "Oslo", "days": 0}', "$.days: 0 is less than the minimum of 1"),
        ("get_weather", '{"city": "Oslo", "unit": "C"}', "'unit' was unexpected"),
    ],
)
def test_calls_are_judged_as_an_agent_framework_does(name: str, arguments: str, problem: str | None) -> None:
    """A good call is run; any other gets a text that names the tool and what is wrong."""
    judged = tools().judge(ToolCall("id", name, arguments))
    if problem is None:
        assert judged.problem is None
        assert judged.arguments == json.loads(arguments or "{}")
    else:
        assert judged.arguments is None
        assert judged.problem is not None
        assert judged.problem.startswith("Error: ")
        assert problem in judged.problem
        assert name in judged.problem


def test_no_reference_of_a_schema_is_fetched() -> None:
    """A schema that refers to another host is unusable, not a request."""
    tool = Tool(
        {"type": "function", "function": {"name": "a", "parameters": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    )
    assert "127.0.0.1" in (tool.complaint({}) or "")


@given(st.text())
def test_arguments_go_back_as_the_json_text_of_an_object(text: str) -> None:
    """Whatever a model wrote, a template that parses the text finds an object, and what was written is not lost."""
    call = ToolCall(None, "a", text)
    sent = json.loads(sendable_arguments(call))
    assert isinstance(sent, dict)
    arguments, _ = parsed_arguments(call)
    assert sent == ({"malformed": text} if arguments is None else arguments)


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": [1, "x"]}}, "required": ["a", "b"]},
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 4}}, "required": ["n"]},
    {"properties": {"n": {"type": "integer", "exclusiveMinimum": 3, "maximum": 4}}, "required": ["n"]},
    {"properties": {"n": {"type": "number", "exclusiveMaximum": -5}}, "required": ["n"]},
    {"properties": {"n": {"type": "number", "multipleOf": 0.5, "minimum": 7.1}}, "required": ["n"]},
    {"properties": {"n": {"type": "integer", "multipleOf": 7, "maximum": 9, "exclusiveMinimum": 0}}, "required": ["n"]},
    {"properties": {"n": {"type": "number", "minimum": 0.001, "maximum": 0.002}}, "required": ["n"]},
    {"properties": {"s": {"type": "string", "minLength": 90}}, "required": ["s"]},
    {"properties": {"s": {"type": "string", "maxLength": 7}}, "required": ["s"]},
    {"properties": {"s": {"type": "string", "pattern": "^a+$", "examples": ["aaa"]}}, "required": ["s"]},
    {"properties": {"s": {"const": None}, "t": {"type": ["null", "boolean"]}}, "required": ["s", "t"]},
    {"properties": {"l": {"type": "array", "items": {"type": "string"}, "minItems": 3}}, "required": ["l"]},
    {"properties": {"l": {"type": "array", "items": {"type": "string"}, "maxItems": 0}}, "required": ["l"]},
    {"properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}, "required": ["x"]},
    {
        "properties": {"x": {"allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["a"]}]}},
        "required": ["x"],
        "$defs": {},
    },
    {
        "$defs": {"p": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}},
        "properties": {"x": {"$ref": "#/$defs/p"}},
        "required": ["x"],
    },
    {
        "$defs": {"tree": {"properties": {"left": {"$ref": "#/$defs/tree"}}, "type": "object"}},
        "properties": {"x": {"$ref": "#/$defs/tree"}},
        "required": ["x"],
    },
    {
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "string"}},
        "required": ["b"],
        "minProperties": 2,
    },
    {
        "properties": {side: {"type": "array", "items": {"$ref": "#"}} for side in ("a", "b", "c", "d")},
        "required": ["a", "b", "c", "d"],
    },
    {"properties": {"s": {"type": "string", "minLength": 9.0, "maxLength": 12.0}}, "required": ["s"]},
    {
        "properties": {"l": {"type": "array", "minItems": 2.0}, "m": {"type": "integer"}},
        "required": ["l"],
        "minProperties": 2.0,
    },
    {"properties": {"n": {"type": "number", "minimum": -1.7e308, "maximum": 1.7e308}}, "required": ["n"]},
    {"type": "object"},
]


@pytest.mark.parametrize("text", ['{"n": 1e999}', '{"n": NaN}', "[" * 50_000, '{"n": ' + "[" * 50_000])
def test_what_no_number_or_depth_can_hold_is_malformed(text: str) -> None:
    """Python reads it, or stops in the middle of it; a server would refuse it in the history."""
    parameters = {"type": "object", "properties": {"n": {"type": "number", "multipleOf": 0.5}}}
    checked = tools({"type": "function", "function": {"name": "set", "parameters": parameters}})
    judged = checked.judge(ToolCall("a", "set", text))
    assert judged.arguments is None
    assert judged.problem is not None
    assert len(judged.problem) < 300
    assert json.loads(sendable_arguments(ToolCall("a", "set", text))) == {"malformed": text}


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "string", "minLength": 10**9},
        {"type": "array", "minItems": 10**9, "items": {"type": "array", "minItems": 10**9}},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 3},
        {"allOf": [{"$ref": "#/properties/a"}] * 9},
        {"type": "number", "minimum": -1.7e308, "maximum": 1.7e308, "multipleOf": 5e-324},
    ],
)
def test_schemas_that_ask_for_endless_much_get_a_bounded_try(wanted: dict[str, Any]) -> None:
    """A call is made up within a second, and is no longer than a large one; whether it fits is told by its check."""
    schema = {"type": "object", "properties": {"a": wanted, "b": {"$ref": "#"}}, "required": ["a", "b"]}
    started = time.process_time()
    assert len(json.dumps(make_arguments(schema, words, 5, Random(1)), allow_nan=False)) < 5_000_000
    assert time.process_time() - started < 5


@pytest.mark.parametrize("schema", SCHEMAS)
def test_made_up_arguments_fit_the_schema(schema: dict[str, Any]) -> None:
    """By the jsonschema library, for twenty draws of each."""
    for seed in range(20):
        validate(make_arguments(schema, words, 5, Random(seed)), schema)


def test_words_are_shared_out() -> None:
    """Twenty words go to the two required texts, ten each; a date and a choice get none."""
    schema = {
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "object", "properties": {"c": {"type": "string"}}, "required": ["c"]},
            "d": {"type": "string", "format": "date"},
            "e": {"type": "string", "enum": ["x"]},
        },
        "required": ["a", "b", "d", "e"],
    }
    made = make_arguments(schema, words, 20, Random(1))
    assert [len(text.split()) for text in (made["a"], made["b"]["c"])] == [10, 10]
    assert made["e"] == "x"
    assert made["d"].count("-") == 2


def test_an_optional_text_takes_the_words_where_none_is_required() -> None:
    """A call is not empty only because its tool requires nothing."""
    schema = {"properties": {"n": {"type": "integer"}, "q": {"type": "string"}, "r": {"type": "string"}}}
    assert make_arguments(schema, words, 3, Random(1)) == {"q": "word word word"}


def test_a_schema_that_only_refers_to_itself_comes_to_an_end() -> None:
    """Circles in references give nothing, not an endless loop."""
    schema = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"]}
    assert isinstance(make_arguments(schema, words, 3, Random(1)), dict)


def test_builtin_tools_can_be_called() -> None:
    """The tools of a scenario without any are good ones, and made-up calls of them would be run."""
    toolset = builtin_tools()
    assert len(toolset.names) == 4
    for tool in toolset.tools.values():
        call = ToolCall(None, tool.name, json.dumps(make_arguments(tool.schema, words, 9, Random(3))))
        assert toolset.judge(call).problem is None
