"""Failures grouped by kind, so that a thousand different texts stay a few lines."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

import pandas as pd

from analysis.outcome import FailureGroup
from tokenswarm.errors import ErrorKind

MOST_SAMPLES = 3
_LONGEST_SAMPLE = 120
_KINDS = frozenset(kind.value for kind in ErrorKind)

# What people's own locustfiles and HTTP libraries write, most specific first.
_TEXTS: tuple[tuple[re.Pattern[str], ErrorKind], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"\b(?:429\b|too many requests)", ErrorKind.HTTP_429),
        (
            r"\b(?:http|status|code|error)\D{0,12}40[13]\b|\b40[13] (?:client|unauthorized|forbidden)",
            ErrorKind.HTTP_401,
        ),
        (r"\b(?:http|status|code|error)\D{0,12}5\d\d\b|\b5\d\d server error", ErrorKind.HTTP_5XX),
        (r"\b(?:http|status|code|error)\D{0,12}4\d\d\b|\b4\d\d client error", ErrorKind.HTTP_4XX),
        (r"\b(?:http|status|code|error)\D{0,12}3\d\d\b", ErrorKind.HTTP_3XX),
        (r"connect timeout|connecttimeout", ErrorKind.CONNECT_TIMEOUT),
        (r"timed?[ -]?out", ErrorKind.TOTAL_TIMEOUT),
        (r"too many open files|errno 24\b|errno 99\b", ErrorKind.CLIENT_LIMIT),
        (r"refused", ErrorKind.REFUSED),
        (r"name or service not known|name resolution|getaddrinfo|nodename nor servname", ErrorKind.DNS),
        (r"certificate|ssl|tls", ErrorKind.TLS),
        (r"connection ?reset|reset by peer|broken ?pipe", ErrorKind.RESET),
        (r"incomplete|prematurely|remotedisconnected|closed connection", ErrorKind.TRUNCATED),
    )
)


def kind_of_text(text: str) -> str:
    """The error kind that a failure text is, starts with or describes; ``other`` where none fits."""
    if (words := text.strip().replace(" ", "_")) in _KINDS:
        return words
    first = re.split(r"[\s:,(]", text.strip(), maxsplit=1)[0]
    if first in _KINDS:
        return first
    for pattern, kind in _TEXTS:
        if pattern.search(text):
            return kind.value
    return "other"


def groups_of_rows(failed: pd.DataFrame) -> list[FailureGroup]:
    """Groups of the failed rows of ``requests.csv``, most frequent first."""
    texts = failed.groupby(["error_kind", "error"], observed=True, dropna=False).size().reset_index(name="count")
    return _grouped(
        (str(kind), "" if pd.isna(text) else str(text), int(count))
        for kind, text, count in texts.itertuples(index=False, name=None)
    )


def groups_of_texts(texts: Iterable[tuple[str, int]]) -> list[FailureGroup]:
    """Groups of failure texts with their number of occurrences, most frequent first."""
    return _grouped((kind_of_text(text), text, count) for text, count in texts)


def _grouped(entries: Iterable[tuple[str, str, int]]) -> list[FailureGroup]:
    counts: dict[str, int] = defaultdict(int)
    samples: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for kind, text, count in entries:
        counts[kind] += count
        if text:
            samples[kind].append((count, short_text(text)))
    return [
        FailureGroup(kind, count, _distinct(samples[kind]))
        for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _distinct(samples: list[tuple[int, str]]) -> tuple[str, ...]:
    ordered = dict.fromkeys(text for _, text in sorted(samples, key=lambda sample: (-sample[0], sample[1])))
    return tuple(ordered)[:MOST_SAMPLES]


def short_text(text: str) -> str:
    """One line of printable characters, cut to a readable length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _LONGEST_SAMPLE else line[: _LONGEST_SAMPLE - 1] + "…"
