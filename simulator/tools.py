"""What a request lets the model call: ``tools``, ``tool_choice`` and ``parallel_tool_calls``, checked as vLLM does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from simulator.api_error import ApiError

_USAGE = 'the form is {"type": "function", "function": {"name": "my_function"}}'


class Tool(msgspec.Struct, frozen=True):
    """A function with the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]


class Choice(msgspec.Struct, frozen=True):
    """``named``: ``tools`` is the one function that must be called; ``none``: nothing is called."""

    how: Literal["none", "auto", "required", "named"]
    tools: tuple[Tool, ...] = ()
    parallel: bool = True


def read_choice(tools: Any, tool_choice: Any, parallel: bool | None) -> Choice:
    """The fields of a request as they came, ``None`` where they did not; ``ApiError`` where vLLM answers 400."""
    if tools == []:
        raise ApiError(400, "tools must not be an empty array: leave it out, or name a tool", param="tools")
    known = tuple(_tool(tool, place) for place, tool in enumerate(tools or ()))
    if tool_choice == "none" or (tool_choice is None and not known):
        return Choice("none", known)
    if not known:
        raise ApiError(400, "tool_choice needs tools", param="tool_choice")
    match tool_choice:
        case "auto" | "required":
            return Choice(tool_choice, known, parallel is not False)
        case None:
            return Choice("auto", known, parallel is not False)
        case dict():
            return Choice("named", (_named(tool_choice, known),), False)
        case _:
            message = f"tool_choice must be none, auto, required or a named function, got {tool_choice!r}"
            raise ApiError(400, message, param="tool_choice")


def _tool(tool: Any, place: int) -> Tool:
    at = f"body.tools[{place}]"
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type", "function") != "function":
        raise ApiError(400, "a tool is an object of type function with a function in it", "Bad Request", at)
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name:
        raise ApiError(400, "a function needs a name", "Bad Request", f"{at}.function.name")
    if not isinstance(parameters, dict | None):
        raise ApiError(400, "parameters must be a JSON schema", "Bad Request", f"{at}.function.parameters")
    return Tool(name, parameters or {})


def _named(tool_choice: dict[str, Any], known: tuple[Tool, ...]) -> Tool:
    function = tool_choice.get("function")
    if not isinstance(function, dict):
        raise ApiError(400, f"tool_choice has no function in it; {_USAGE}", param="tool_choice.function")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ApiError(400, f"tool_choice names no function; {_USAGE}", param="tool_choice.function.name")
    for tool in known:
        if tool.name == name:
            return tool
    raise ApiError(400, f"tool_choice names {name!r}, which is not among the tools", param="tool_choice")
