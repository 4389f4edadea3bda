"""What of a run may be shown to anybody: no key, no header's value, no password or query of a URL."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

HIDDEN = "***"
_Any = TypeVar("_Any")
# Values that are the name of an environment variable or of a file, not the secret itself.
_NAMES_ONLY = re.compile(r"(_env|_file)$")
_VARIABLE = re.compile(r"\$\{\w+\}")
_SECRET_KEY = re.compile(
    r"auth|cookie|secret|passw|credential|bearer|api[-_]?key|(^|[-_])(key|sig|signature|token)$", re.IGNORECASE
)
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s\"'<>]+")
_SECRET_WORD = re.compile(
    r"\b(?:sk|pk|hf|ghp|xox[bp])[-_][\w-]{6,}|\b(?:bearer|basic)\s+[\w.~+/=-]{6,}"
    r"|(?<=[\s\"'])(?:--[\w-]*(?:key|token|secret|passw\w*|auth)(?:=|\s+))(?!-)\S+",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    r"\b((?:proxy-)?authorization|(?:x-)?api[-_]?key|password|passwd|secret|access[-_]token)"
    r"([\"']?\s*[:=]\s*[\"']?)(\$\{\w+\}|(?:(?:bearer|basic)\s+)?[^\s\"',}]+)",
    re.IGNORECASE,
)
_COOKIES = re.compile(r"\b((?:set-)?cookie[\"']?\s*[:=]\s*[\"']?)(?!\$\{\w+\})[^\"'\n}]+", re.IGNORECASE)


def shown(text: str) -> str:
    """The text without what looks like a secret in it."""
    text = _URL.sub(lambda found: url_without_secrets(found.group()), text)
    text = _COOKIES.sub(lambda found: found.group(1) + HIDDEN, text)
    text = _SECRET_WORD.sub(_hidden_word, text)
    return _ASSIGNED.sub(lambda found: found.group(1) + found.group(2) + _unless_variable(found.group(3)), text)


def cleared(document: _Any) -> _Any:
    """The same lists, tuples, texts and dataclasses with every text as it may be shown; drawings (``svg``) hold names
    that were cleared when they were drawn."""
    match document:
        case str():
            return shown(document)  # type: ignore[return-value]
        case list() | tuple():
            return type(document)(cleared(one) for one in document)
    if is_dataclass(document) and not isinstance(document, type):
        changed = {one.name: cleared(getattr(document, one.name)) for one in fields(document) if one.name != "svg"}
        return replace(document, **changed)
    return document


def url_without_secrets(url: str) -> str:
    """Without user, password, query and fragment; ``***`` where it is none at all."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, HIDDEN if parts.query else "", ""))


def without_secrets(value: Any, key: str = "") -> Any:
    """The same JSON or YAML with every secret's value replaced; headers keep their names."""
    if isinstance(value, dict):
        if key == "headers":
            return {shown(str(name)): _unless_variable(str(one)) for name, one in value.items()}
        return {shown(str(name)): without_secrets(one, str(name)) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(one, key) for one in value]
    if value not in (None, "") and _is_secret(key):
        return _unless_variable(str(value))
    return shown(value) if isinstance(value, str) else value


def _is_secret(key: str) -> bool:
    return bool(_SECRET_KEY.search(key)) and not _NAMES_ONLY.search(key)


def _unless_variable(value: str) -> str:
    """``${NAME}`` says where a secret is, and is none."""
    return value if _VARIABLE.fullmatch(value.strip()) else HIDDEN


def _hidden_word(found: re.Match[str]) -> str:
    """An option keeps its name."""
    word = found.group()
    option = re.match(r"--[\w-]+(?:=|\s+)", word)
    if option is None:
        return HIDDEN
    name = option.group()
    return word if name.rstrip("= \t").endswith("-file") else name + HIDDEN
