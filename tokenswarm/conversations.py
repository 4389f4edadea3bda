"""A recorded conversation in the OpenAI chat format, checked and cut into jobs."""

from __future__ import annotations

from typing import Any

import msgspec

from tokenswarm.toolcalls import ToolCall

_ROLES = "system, developer, user, assistant or tool is wanted"
_IMPORT = "python -m tokenswarm.trajectories import"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One model call and what followed it.

    ``results``: one for each call, in the order of the calls. ``tool_time_s``: from the answer to the last result, in
    seconds. ``output_tokens``: length of the answer as recorded. None where the recording does not tell.
    """

    text: str = ""
    calls: list[ToolCall] = []
    results: list[str] = []
    tool_time_s: float | None = None
    output_tokens: int | None = None


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded job, at least one step long.

    The last step has no calls, but where the recording broke off before they were run: then it has no ``results``.
    Every earlier one has calls. ``history``: messages between the system prompt and ``task``, in the OpenAI format, of
    earlier jobs in the same conversation. ``tools``: definitions in the OpenAI format; None where none were recorded.
    """

    name: str
    system: str | None
    history: list[dict[str, Any]] = []
    task: str
    tools: list[dict[str, Any]] | None = None
    steps: list[Step]

    @property
    def context_characters(self) -> int:
        """Characters of all messages, and of recorded tools, that the last model call is sent."""
        sent = [self.system or "", self.task, *(_json(message) for message in self.history)]
        sent += [] if self.tools is None else [_json(self.tools)]
        for step in self.steps[:-1]:
            sent += [step.text, *step.results, *(call.name + call.arguments for call in step.calls)]
        return sum(map(len, sent))


class Misfit(Exception):
    """A place in a conversation that cannot be used; its text is ``place: value …: what is wanted``."""

    def __init__(self, place: str, wanted: str, *value: Any) -> None:
        shown = f" value {_shown(value[0])}:" if value else ""
        super().__init__(f"{place}:{shown} {wanted}")


def jobs_of(entry: Any, name: str) -> list[Trajectory]:
    """The jobs of one conversation: each message of the user that follows an answer begins the next one.

    ``name`` is for a conversation that has none. Raises ``Misfit`` at the first mistake.
    """
    if not isinstance(entry, dict):
        raise Misfit("line", 'an object with "messages" is wanted', entry)
    messages = entry.get("messages")
    if not isinstance(messages, list) or not messages:
        advice = "" if "messages" in entry else f"; {_IMPORT} makes one from logs of API calls"
        raise Misfit("messages", f"a list of messages in the OpenAI format is wanted{advice}", messages)
    if not isinstance(entry.get("name", ""), str):
        raise Misfit("name", "text is wanted", entry["name"])
    conversation = _Conversation(entry.get("name") or name, _tools(entry.get("tools")))
    for index, message in enumerate(messages):
        conversation.add(message, f"messages[{index}]")
    return conversation.finished()


class _Growing:
    """A step whose results are still to come."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: dict[str, ToolCall] = {}
        self.results: dict[str, str] = {}
        self.times_s: list[float] = []
        self.output_tokens: list[int | None] = []

    def finished(self) -> Step:
        tokens = [count for count in self.output_tokens if count is not None]
        return Step(
            text=self.text,
            calls=list(self.calls.values()),
            results=[self.results[id_] for id_ in self.calls if id_ in self.results],
            tool_time_s=max(self.times_s, default=None),
            output_tokens=sum(tokens) if tokens and len(tokens) == len(self.output_tokens) else None,
        )


class _Conversation:
    """Takes one message after the other."""

    def __init__(self, name: str, tools: list[dict[str, Any]] | None) -> None:
        self._name = name
        self._tools = tools
        self._jobs: list[Trajectory] = []
        self._systems: list[str] = []
        self._sent: list[dict[str, Any]] = []  # every message after the system prompt
        self._history = 0  # how many of them the job that is being read begins with
        self._task = ""
        self._steps: list[_Growing] = []

    def add(self, message: Any, place: str) -> None:
        """Raises ``Misfit``."""
        if not isinstance(message, dict):
            raise Misfit(place, "an object with role and content is wanted", message)
        match message.get("role"):
            case "system" | "developer" if not self._sent:
                self._systems.append(_text(message, place))
            case "user" | "system" | "developer":
                self._add_user(_text(message, place), place)
            case "assistant":
                self._add_answer(message, place)
            case "tool":
                self._add_result(message, place)
            case "function":
                raise Misfit(f"{place}.role", f"{_ROLES} ({_IMPORT} converts function messages)", "function")
            case role:
                raise Misfit(f"{place}.role", _ROLES, role)

    def _add_user(self, text: str, place: str) -> None:
        """The task, more of it, a word between two steps, or the task of the next job."""
        last = self._steps[-1] if self._steps else None
        self._all_results(place)
        if last is not None and last.calls:
            id_ = next(reversed(last.calls))
            last.results[id_] = _joined(last.results[id_], text)
        elif last is not None:
            self._end_job()
            self._task = text
        else:
            self._task = _joined(self._task, text)
        self._sent.append({"role": "user", "content": text})

    def _add_answer(self, message: dict[str, Any], place: str) -> None:
        text = _text(message, place, optional=True)
        calls = _calls(message.get("tool_calls"), f"{place}.tool_calls")
        sent: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            sent["tool_calls"] = [_api_form(call) for call in calls.values()]
        self._all_results(place)
        if not self._task.strip() and calls:
            raise Misfit(place, "a message of the user is wanted before the first tool call")
        if self._task.strip():
            step = self._open_step()
            step.text = _joined(step.text, text)
            step.calls |= calls
            step.output_tokens.append(_whole(message, "output_tokens", place))
        else:
            self._history += 1  # a greeting
        self._sent.append(sent)

    def _open_step(self) -> _Growing:
        """A new step, or the last one where it has no calls: two answers in a row are one."""
        if not self._steps or self._steps[-1].calls:
            self._steps.append(_Growing())
        return self._steps[-1]

    def _add_result(self, message: dict[str, Any], place: str) -> None:
        text = _text(message, place)
        id_ = message.get("tool_call_id")
        step = self._steps[-1] if self._steps else _Growing()
        if not isinstance(id_, str) or id_ not in step.calls:
            raise Misfit(
                f"{place}.tool_call_id", "the id of a call in the assistant's message before it is wanted", id_
            )
        if id_ in step.results:
            raise Misfit(f"{place}.tool_call_id", "a second result for one call; one is wanted", id_)
        step.results[id_] = text
        time_s = _seconds(message, "tool_time_s", place)
        step.times_s += [] if time_s is None else [time_s]
        self._sent.append({"role": "tool", "tool_call_id": id_, "content": text})

    def _all_results(self, place: str) -> None:
        if self._steps:
            missing = [id_ for id_ in self._steps[-1].calls if id_ not in self._steps[-1].results]
            if missing:
                raise Misfit(place, "a tool message with the result of this call is wanted before it", missing[0])

    def finished(self) -> list[Trajectory]:
        """The jobs; raises ``Misfit`` where there is none or the last one lacks some of its results."""
        if not self._task.strip():
            raise Misfit("messages", "at least one message of the user is wanted")
        last = self._steps[-1] if self._steps else None
        if last is not None and last.results:
            self._all_results("messages: the end")
        if last is None or last.results:
            self._steps.append(_Growing())  # the answer that was not recorded
        self._end_job()
        return self._jobs

    def _end_job(self) -> None:
        number = len(self._jobs) + 1
        job = Trajectory(
            name=self._name if number == 1 else f"{self._name} ({number})",
            system="\n\n".join(self._systems) if self._systems else None,
            history=self._sent[: self._history],
            task=self._task,
            tools=self._tools,
            steps=[step.finished() for step in self._steps],
        )
        self._jobs.append(job)
        self._history, self._task, self._steps = len(self._sent), "", []


def _text(message: dict[str, Any], place: str, *, optional: bool = False) -> str:
    """The content; parts are joined by line ends. None is allowed where the content is ``optional``."""
    content = message.get("content")
    match content:
        case str():
            return content
        case None if optional:
            return ""
        case list():
            return "\n".join(_part(part, f"{place}.content[{index}]") for index, part in enumerate(content))
    raise Misfit(f"{place}.content", "text, or a list of parts with text, is wanted", content)


def _part(part: Any, place: str) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    raise Misfit(place, "a part with text is wanted; pictures and sound cannot be replayed", part)


def _calls(value: Any, place: str) -> dict[str, ToolCall]:
    """Calls by id, in their order; a call with arguments as an object gets them as JSON text."""
    if not isinstance(value, list | None):
        raise Misfit(place, "a list of tool calls is wanted", value)
    calls: dict[str, ToolCall] = {}
    for index, item in enumerate(value or []):
        call = _call(item, f"{place}[{index}]")
        if call.id in calls:
            raise Misfit(f"{place}[{index}].id", "an id of its own for every call of a message is wanted", call.id)
        calls[str(call.id)] = call
    return calls


def _call(item: Any, place: str) -> ToolCall:
    function = item.get("function") if isinstance(item, dict) else None
    if not isinstance(function, dict):
        raise Misfit(f"{place}.function", "an object with name and arguments is wanted", function)
    if not isinstance(item.get("id"), str) or not item["id"]:
        raise Misfit(f"{place}.id", f"text is wanted ({_IMPORT} gives ids to calls without one)", item.get("id"))
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        raise Misfit(f"{place}.function.name", "the name of a tool is wanted", name)
    if not isinstance(arguments, str | dict):
        raise Misfit(f"{place}.function.arguments", "JSON text, or an object, is wanted", arguments)
    return ToolCall(item["id"], name, arguments if isinstance(arguments, str) else _json(arguments))


def _api_form(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tools(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list | None):
        raise Misfit("tools", "a list of tool definitions in the OpenAI format is wanted", value)
    for index, tool in enumerate(value or []):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            wanted = '{"type": "function", "function": {"name": …}} is wanted'
            raise Misfit(f"tools[{index}]", wanted, tool)
    return value or None


def _whole(message: dict[str, Any], key: str, place: str) -> int | None:
    value = message.get(key)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= 10_000_000:
        raise Misfit(f"{place}.{key}", "a whole number of tokens, at least 1, is wanted", value)
    return value


def _seconds(message: dict[str, Any], key: str, place: str) -> float | None:
    value = message.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= 86_400:
        raise Misfit(f"{place}.{key}", "seconds from 0 to 86400 are wanted", value)
    return float(value)


def _joined(first: str, second: str) -> str:
    return f"{first}\n\n{second}" if first and second else first or second


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _shown(value: Any) -> str:
    """A value in the space that one line has for it."""
    text = value if isinstance(value, str) else _json(value)
    text = " ".join(text.split()) or '""'
    return text if len(text) <= 60 else text[:59] + "…"
