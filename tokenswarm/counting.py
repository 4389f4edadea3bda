"""Who can tell how many tokens a prompt has for this server, and how each is asked.

In order of preference: a tokenizer named in the scenario, the server's own ``/tokenize``, and the
``usage.prompt_tokens`` of tiny requests. Where none answers, words are counted and the run says that it guessed.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tokenswarm.errors import InputError, TargetError

Prompt = str | list[dict[str, Any]]  # text of a completion, or the messages of a chat
Post = Callable[[str, dict[str, Any]], Any]
"""``post(url, body)`` sends JSON and returns the JSON of a 200 answer; raises ``TargetError`` for everything else."""

_TEMPLATE_KEYS = ("chat_template_kwargs", "chat_template", "tools", "documents")  # of a request, seen by its template
_CHARACTERS_A_TOKEN = 4  # of JSON, roughly
_PROBE: Prompt = [{"role": "user", "content": "The"}]


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask. ``root``, ``chat`` and ``completions`` are passed to ``post`` (``root`` with a path behind it)."""

    post: Post
    model: str
    root: str = ""
    chat: str = "/v1/chat/completions"
    completions: str = "/v1/completions"
    request: dict[str, Any] = field(default_factory=dict)  # what the scenario merges into every body

    def template_fields(self) -> dict[str, Any]:
        return {key: self.request[key] for key in _TEMPLATE_KEYS if key in self.request}

    def with_fields(self, fields: dict[str, Any]) -> Server:
        """For requests that have ``fields`` too; the scenario's own come last and win."""
        return replace(self, request={**fields, **self.request})


class Counting(Protocol):
    """One way to count."""

    @property
    def source(self) -> str:
        """``tokenizer``, ``server``, ``calibrated`` or ``approximate``."""

    @property
    def cheap(self) -> bool:
        """True where a count costs no round trip."""

    def count(self, prompt: Prompt) -> int:
        """Tokens of the whole prompt as the server will bill it, chat template included."""

    def prompt_ids(self, prompt: Prompt) -> list[int] | None:
        """Token ids of the whole prompt, or None where they cannot be had."""

    def ids(self, text: str) -> list[int] | None:
        """Token ids of a piece of text alone, or None where they cannot be had."""

    def decode(self, ids: list[int]) -> str | None:
        """Text of token ids, or None where it cannot be had."""

    def vocabulary(self) -> list[int]:
        """All ordinary token ids where they are known, else an empty list."""

    def with_fields(self, fields: dict[str, Any]) -> Counting:
        """The same way of counting for requests that have ``fields`` (``tools``, ``tool_choice``) too."""


class _NoIds:
    """Counts, but shows no ids."""

    cheap = False

    def prompt_ids(self, prompt: Prompt) -> list[int] | None:
        return None

    def ids(self, text: str) -> list[int] | None:
        return None

    def decode(self, ids: list[int]) -> str | None:
        return None

    def vocabulary(self) -> list[int]:
        return []


class LocalTokenizer:
    """A tokenizer that ``transformers`` can load: a folder, or a name in its cache."""

    source = "tokenizer"
    cheap = True

    def __init__(self, name: str, template_fields: dict[str, Any] | None = None) -> None:
        """Raises ``InputError`` naming ``target.tokenizer`` and the cause."""
        self._tokenizer = _load_tokenizer(name)
        fields = dict(template_fields or {})
        self._template = {**fields.pop("chat_template_kwargs", {}), **fields}

    def count(self, prompt: Prompt) -> int:
        return len(self.prompt_ids(prompt))

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return list(self._tokenizer(prompt)["input_ids"])
        try:
            ids = self._tokenizer.apply_chat_template(
                prompt, tokenize=True, add_generation_prompt=True, return_dict=False, **self._template
            )
        except ValueError as error:  # no chat template in the folder
            raise InputError(f"target.tokenizer: {error}".splitlines()[0]) from error
        return list(ids)

    def ids(self, text: str) -> list[int] | None:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: list[int]) -> str | None:
        return str(self._tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def vocabulary(self) -> list[int]:
        special = set(self._tokenizer.all_special_ids) | set(self._tokenizer.added_tokens_decoder)
        return sorted(set(self._tokenizer.get_vocab().values()) - special)

    def with_fields(self, fields: dict[str, Any]) -> LocalTokenizer:
        other = copy.copy(self)
        other._template = {key: fields[key] for key in _TEMPLATE_KEYS if key in fields} | self._template
        return other


def _load_tokenizer(name: str) -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads and Locust's --processes do not mix
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    path = Path(name).expanduser()
    try:
        if (path / "tokenizer.json").is_file() and not (path / "tokenizer_config.json").is_file():
            return PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"))
        if path.is_dir():
            return AutoTokenizer.from_pretrained(str(path), local_files_only=True)
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        cause = str(error).strip().splitlines()[0]
        raise InputError(
            f"target.tokenizer: {name!r} cannot be loaded; a folder with tokenizer.json, or a name that transformers "
            f"has in its cache, is wanted ({cause})"
        ) from error


class UsageCounting(_NoIds):
    """Reads ``usage.prompt_tokens`` of requests that ask for one token: works with every server that sends usage."""

    source = "calibrated"

    def __init__(self, server: Server) -> None:
        self._server = server
        streaming = ("stream", "stream_options", "n")
        self._extra = {key: value for key, value in server.request.items() if key not in streaming}

    def count(self, prompt: Prompt) -> int:
        tokens = self.told(prompt)
        if tokens is None:
            url = self._server.completions if isinstance(prompt, str) else self._server.chat
            raise TargetError(f"{url}: the answer has no usage.prompt_tokens")
        return tokens

    def told(self, prompt: Prompt) -> int | None:
        """What the usage of a request for one token says; None where it says nothing.

        Raises ``TargetError`` where the server does not take the request.
        """
        url, content = self._server.chat, "messages"
        if isinstance(prompt, str):
            url, content = self._server.completions, "prompt"
        body = {"model": self._server.model, content: prompt, "max_tokens": 1, "stream": False}
        answer = self._server.post(url, {**body, **self._extra})
        usage = answer.get("usage") if isinstance(answer, dict) else None
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    def with_fields(self, fields: dict[str, Any]) -> UsageCounting:
        return UsageCounting(self._server.with_fields(fields))


class VllmTokenize:
    """``/tokenize`` that renders chats itself: vLLM."""

    source = "server"
    cheap = False

    def __init__(self, server: Server) -> None:
        self._server = server

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        url = self._server.root + "/tokenize"
        answer = self._server.post(url, {"model": self._server.model, **body})
        if not isinstance(answer, dict) or not isinstance(answer.get("count"), int):
            raise TargetError(f"{url}: the answer has no count")
        return answer

    def _ask_whole(self, prompt: Prompt) -> dict[str, Any]:
        if isinstance(prompt, str):
            return self._ask({"prompt": prompt})
        return self._ask({"messages": prompt, "add_generation_prompt": True, **self._server.template_fields()})

    def count(self, prompt: Prompt) -> int:
        return int(self._ask_whole(prompt)["count"])

    def prompt_ids(self, prompt: Prompt) -> list[int] | None:
        return _id_list(self._ask_whole(prompt))

    def ids(self, text: str) -> list[int] | None:
        return _id_list(self._ask({"prompt": text, "add_special_tokens": False}))

    def decode(self, ids: list[int]) -> str | None:
        return _detokenized(self._server, {"model": self._server.model, "tokens": ids})

    def vocabulary(self) -> list[int]:
        return []

    def with_fields(self, fields: dict[str, Any]) -> VllmTokenize:
        return type(self)(self._server.with_fields(fields))


class SglangTokenize(VllmTokenize):
    """``/tokenize`` for text alone; what its chat template adds is read from the usage of tiny requests."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._chats = UsageCounting(server)

    def count(self, prompt: Prompt) -> int:
        return super().count(prompt) if isinstance(prompt, str) else self._chats.count(prompt)

    def prompt_ids(self, prompt: Prompt) -> list[int] | None:
        return super().prompt_ids(prompt) if isinstance(prompt, str) else None


class LlamaCppTokenize:
    """llama.cpp: ``/apply-template`` renders a chat, ``/tokenize`` counts it."""

    source = "server"
    cheap = False

    def __init__(self, server: Server) -> None:
        self._server = server

    def _tokens(self, text: str, add_special: bool) -> list[int]:
        url = self._server.root + "/tokenize"
        answer = self._server.post(url, {"content": text, "add_special": add_special, "parse_special": True})
        ids = _id_list(answer)
        if not ids:
            raise TargetError(f"{url}: the answer has no tokens")
        return ids

    def count(self, prompt: Prompt) -> int:
        return len(self.prompt_ids(prompt))

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        return self._tokens(prompt if isinstance(prompt, str) else self._rendered(prompt), add_special=True)

    def _rendered(self, messages: list[dict[str, Any]]) -> str:
        url = self._server.root + "/apply-template"
        request = self._server.request
        choice = {"tool_choice": request["tool_choice"]} if "tool_choice" in request else {}  # none leaves tools out
        answer = self._server.post(url, {"messages": messages, **self._server.template_fields(), **choice})
        if not isinstance(answer, dict) or not isinstance(answer.get("prompt"), str):
            raise TargetError(f"{url}: the answer has no prompt")
        return str(answer["prompt"])

    def ids(self, text: str) -> list[int] | None:
        return self._tokens(text, add_special=False)

    def decode(self, ids: list[int]) -> str | None:
        return _detokenized(self._server, {"tokens": ids})

    def vocabulary(self) -> list[int]:
        return []

    def with_fields(self, fields: dict[str, Any]) -> LlamaCppTokenize:
        return LlamaCppTokenize(self._server.with_fields(fields))


class Approximate(_NoIds):
    """No server to ask: a plain English word is about one token, a chat message about four more."""

    source = "approximate"
    cheap = True

    def __init__(self, tools_tokens: int = 0) -> None:
        self._tools_tokens = tools_tokens

    def count(self, prompt: Prompt) -> int:
        if isinstance(prompt, str):
            return len(prompt.split())
        return 3 + self._tools_tokens + sum(4 + len(message["content"].split()) for message in prompt)

    def with_fields(self, fields: dict[str, Any]) -> Approximate:
        tools = fields.get("tools")
        return Approximate(len(json.dumps(tools)) // _CHARACTERS_A_TOKEN if tools else 0)


def _id_list(answer: Any) -> list[int] | None:
    tokens = answer.get("tokens") if isinstance(answer, dict) else None
    if isinstance(tokens, list) and all(isinstance(token, int) for token in tokens):
        return tokens
    return None


def _detokenized(server: Server, body: dict[str, Any]) -> str | None:
    try:
        answer = server.post(server.root + "/detokenize", body)
    except TargetError:
        return None
    texts = [answer.get(key) for key in ("prompt", "content", "text")] if isinstance(answer, dict) else []
    return next((text for text in texts if isinstance(text, str)), None)  # vLLM, llama.cpp, SGLang


def find_counting(server: Server, api: str, tokenizer: str | None) -> tuple[Counting, str]:
    """The best way to count for this server, and why it is no better one (empty when it is the best).

    Each way is tried with one short prompt. Raises ``InputError`` where a tokenizer is named and unusable.
    """
    probe: Prompt = "The" if api == "completions" else _PROBE
    if tokenizer is not None:
        local = LocalTokenizer(tokenizer, server.template_fields())
        local.count(probe)
        return local, ""
    reasons = []
    for way in (VllmTokenize, LlamaCppTokenize, SglangTokenize, UsageCounting):
        counting: Counting = way(server)
        try:
            counting.count("The") if way is SglangTokenize else None
            counting.count(probe)
        except TargetError as error:
            reasons.append(str(error))
        else:
            return counting, ""
    return Approximate(), "; ".join(dict.fromkeys(reasons))
