"""The ``target`` part of a scenario: which server, how to speak to it, and where its key comes from.

No secret is ever part of a scenario: a key is named by its environment variable or its file, and read only by
:meth:`Target.read_key` and :meth:`Target.read_headers`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from tokenswarm.errors import InputError
from tokenswarm.wanted import Model, OneOf, Seconds, Switch, Text, did_you_mean, mistake, mistakes

SIMULATOR_PRESETS = (
    *("cache-inert", "cache-off", "demo", "rtx-pro-6000-captioning"),
    *("spark-qwen3.6-35b-fp8", "spark-qwen3.6-35b-fp8-30ms", "spark-qwen3.6-35b-fp8-mtp1", "two-spark-qwen3.5-122b"),
)

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_NAME = re.compile(
    r"auth|cookie|secret|token|passw|credential|(^|[-_])(key|sig|signature)$|apikey", re.IGNORECASE
)

# Fields of a body that the tool writes itself, and what decides them.
_OWN_FIELDS = {
    "model": "target.model decides this field",
    "messages": "the traffic decides this field",
    "prompt": "the traffic decides this field",
    "stream": "every answer is streamed; leave it out",
    "max_tokens": "output_tokens of the traffic decides this field",
    "max_completion_tokens": "output_tokens of the traffic decides this field",
    "ignore_eos": "ignore_eos of the traffic decides this field",
    "n": "one answer a request is measured; leave it out",
}
# Well-known fields. A name that is almost one of them is a slip, and servers ignore unknown fields silently.
_KNOWN_FIELDS = (
    *_OWN_FIELDS,
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "stop", "best_of", "user", "min_tokens"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty", "length_penalty"),
    *("logprobs", "top_logprobs", "prompt_logprobs", "logit_bias", "response_format", "stream_options"),
    *("tools", "tool_choice", "parallel_tool_calls", "chat_template", "chat_template_kwargs", "reasoning_effort"),
    *("stop_token_ids", "skip_special_tokens", "include_stop_str_in_output", "priority", "cache_prompt", "extra_body"),
)
_FIELD_LIMITS = {"temperature": (0.0, 100.0), "top_p": (0.0, 1.0), "min_p": (0.0, 1.0)}


def _variable_of(text: str) -> str | None:
    found = _VARIABLE.fullmatch(text)
    return found[1] if found else None


def _unset_variable(text: str, environ: Mapping[str, str] | None) -> str | None:
    """What is wrong with ``${NAME}`` in this environment; ``environ=None`` leaves the question for later."""
    name = _variable_of(text)
    if name is None or environ is None or environ.get(name):
        return None
    return f"the environment variable {name} is not set"


def _header_mistake(name: str, value: Any, environ: Mapping[str, str] | None) -> str | None:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
        return "not a header's name"
    if not isinstance(value, str) or not value.isprintable():
        return "one line of text is wanted (put numbers in quotes)"
    if _SECRET_NAME.search(name) and _variable_of(value) is None:
        return "a header that holds a secret is written as ${NAME}, the environment variable that holds it"
    return _unset_variable(value, environ)


def _field_mistake(name: str, value: Any) -> str | None:
    if name in _OWN_FIELDS:
        return _OWN_FIELDS[name]
    if name not in _KNOWN_FIELDS and (hint := did_you_mean(name, _KNOWN_FIELDS, cutoff=0.9)):
        return f"servers ignore a misspelt field without a word{hint}"
    if name in _FIELD_LIMITS:
        low, high = _FIELD_LIMITS[name]
        return None if _is_number(value, low, high) else f"a number from {low:g} to {high:g} is wanted"
    return None if _is_finite(value) else "JSON knows neither NaN nor infinity"


def _is_number(value: Any, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _is_finite(value: Any) -> bool:
    match value:
        case dict():
            return all(_is_finite(item) for item in value.values())
        case list():
            return all(_is_finite(item) for item in value)
        case float():
            return math.isfinite(value)
    return True


def _existing_file(path: str, info: ValidationInfo) -> str:
    """The absolute path; relative ones count from the scenario's folder."""
    folder: Path | None = (info.context or {}).get("folder")
    if folder is None:
        return path
    full = folder / Path(path).expanduser()
    if not full.is_file():
        raise mistake(f"there is no file {full}")
    return str(full.resolve())


ExistingFile = Annotated[str, Text("a path"), AfterValidator(_existing_file)]


class Timeouts(Model):
    """Limits that suit long generations; a request that passes one fails with the limit's name."""

    connect_s: Annotated[float, Seconds(0, 3600, above=True)] = Field(
        default=10, description="Longest time to open a connection, in seconds."
    )
    first_byte_s: Annotated[float, Seconds(0, 86400, above=True)] = Field(
        default=600, description="Longest wait for the first byte of an answer, in seconds."
    )
    idle_s: Annotated[float, Seconds(0, 86400, above=True)] = Field(
        default=300, description="Longest silence inside an answer, in seconds."
    )
    total_s: Annotated[float, Seconds(0, 86400, above=True)] = Field(
        default=3600, description="Longest time for a whole request, in seconds."
    )
    wait_ready_s: Annotated[float, Seconds(0, 86400)] = Field(
        default=0, description="How long to wait before the run until the server answers, in seconds; 0 asks once."
    )


class Tls(Model):
    """Certificates."""

    verify: Annotated[bool, Switch()] = Field(
        default=True, description="Check the server's certificate; false accepts a self-signed one."
    )
    ca_file: ExistingFile | None = Field(
        default=None, description="PEM file with the certificates to trust instead of the system's."
    )


class Target(Model):
    """Which server, how to speak to it, and with which key."""

    url: Annotated[str, Text("a URL", longest=2000)] | None = Field(
        default=None, description="Base URL of the server, with or without /v1; Locust's --host takes precedence."
    )
    simulator: str | None = Field(
        default=None,
        description="Preset of the built-in simulated engine, used instead of a URL; marks every output SIMULATED.",
        json_schema_extra={"enum": [*SIMULATOR_PRESETS, None]},
    )
    model: Annotated[str, Text("a model's name")] = Field(
        default="auto", description="Model name to send; auto takes the only base model that the server lists."
    )
    api: Annotated[Literal["chat", "completions"], OneOf()] = Field(
        default="chat", description="chat calls /v1/chat/completions, completions calls /v1/completions."
    )
    api_key: str | None = Field(
        default=None,
        description="Bearer key as ${NAME}: the environment variable that holds it. Never the key itself.",
        json_schema_extra={"pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$"},
    )
    api_key_file: ExistingFile | None = Field(default=None, description="File whose first line is the bearer key.")
    tls: Tls = Field(default=Tls(), description="How far an https server is trusted.")
    headers: dict[str, str] = Field(
        default={}, description="Further request headers; those that hold secrets as ${NAME} only."
    )
    request: dict[str, Any] = Field(
        default={}, description="Fields merged into every request body, for example temperature."
    )
    tokenizer: Annotated[str, Text("a tokenizer's folder or name")] | None = Field(
        default=None,
        description="Tokenizer folder or name for exact prompt lengths; the server is asked when left out.",
    )
    timeouts: Timeouts = Field(default=Timeouts(), description="Time limits of a request.")

    @field_validator("url")
    @classmethod
    def _usable_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url.strip())
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise mistake(f"not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not host:
            hint = f" (did you mean 'http://{url.strip()}'?)" if "//" not in url else ""
            raise mistake(f"a URL that begins with http:// or https:// is wanted{hint}")
        if "@" in parts.netloc or any(_SECRET_NAME.search(name) for name, _ in parse_qsl(parts.query)):
            raise mistake("keys and passwords do not belong in a URL; use api_key or headers")
        return url

    @field_validator("simulator", mode="before")
    @classmethod
    def _known_preset(cls, name: Any) -> Any:
        if name is not None and name not in SIMULATOR_PRESETS:
            hint = did_you_mean(name, SIMULATOR_PRESETS, cutoff=0.4) if isinstance(name, str) else ""
            raise mistake(f"one of the presets {', '.join(SIMULATOR_PRESETS)} is wanted{hint}")
        return name

    @field_validator("api_key", mode="before")
    @classmethod
    def _only_named_key(cls, key: Any, info: ValidationInfo) -> Any:
        if key is None:
            return None
        if not isinstance(key, str) or _variable_of(key) is None:
            raise mistake("only ${NAME} is accepted, the environment variable that holds the key; or use api_key_file")
        if text := _unset_variable(key, (info.context or {}).get("environ")):
            raise mistake(text)
        return key

    @field_validator("headers", mode="before")
    @classmethod
    def _named_secrets(cls, headers: Any, info: ValidationInfo) -> Any:
        if isinstance(headers, dict):
            environ = (info.context or {}).get("environ")
            mistakes((name, text) for name, value in headers.items() if (text := _header_mistake(name, value, environ)))
        return headers

    @field_validator("request")
    @classmethod
    def _free_fields(cls, request: dict[str, Any]) -> dict[str, Any]:
        mistakes((name, text) for name, value in request.items() if (text := _field_mistake(name, value)))
        return request

    @field_validator("tokenizer")
    @classmethod
    def _tokenizer_folder(cls, tokenizer: str | None, info: ValidationInfo) -> str | None:
        folder: Path | None = (info.context or {}).get("folder")
        if tokenizer is None or folder is None:
            return tokenizer
        full = folder / Path(tokenizer).expanduser()
        if full.exists():
            return str(full.resolve())
        if tokenizer.startswith((".", "/", "~")):
            raise mistake(f"there is no folder {full}")
        return tokenizer

    def read_key(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """The bearer key itself, for the Authorization header and nothing else; None where none is asked for."""
        if self.api_key is not None:
            return _read_variable(self.api_key, environ)
        if self.api_key_file is None:
            return None
        try:
            lines = Path(self.api_key_file).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"target.api_key_file: {self.api_key_file} cannot be read: {error}") from None
        if len(lines) != 1:
            raise InputError(f"target.api_key_file: {self.api_key_file} must hold one key and nothing else")
        return lines[0]

    def read_headers(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """``headers`` with each ``${NAME}`` replaced by the variable's value."""
        return {name: _read_variable(value, environ) for name, value in self.headers.items()}


def _read_variable(text: str, environ: Mapping[str, str]) -> str:
    name = _variable_of(text)
    if name is None:
        return text
    if not environ.get(name):
        raise InputError(f"the environment variable {name}, named in the scenario, is not set")
    return environ[name]
