"""What it takes to count a prompt's tokens, and the ways that need no server: a local tokenizer, and a guess."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tokenswarm.errors import InputError

Prompt = str | list[dict[str, Any]]  # text of a completion, or the messages of a chat
Post = Callable[[str, dict[str, Any]], Any]
"""``post(url, body)`` sends JSON and returns the JSON of a 200 answer; raises ``TargetError`` for everything else."""

_TEMPLATE_KEYS = ("chat_template_kwargs", "chat_template", "tools", "documents")  # of a request, seen by its template
_CHARACTERS_A_TOKEN = 4  # of JSON, roughly


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


class NoIds:
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


class Approximate(NoIds):
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
