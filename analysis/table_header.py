"""What a column of a table from anywhere means, read from its title whatever the order of its words and its unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

Meant = TypeVar("Meant", str, float)

FACTS = ("table", "configuration", "concurrency", "requests", "ok", "failed")

# In each table the first pattern that matches counts.
_STATISTICS = {
    r"p ?50|median|med|50 ?(?:%|th)(?: percentile| pctl)?": "p50",
    r"p ?90|90 ?(?:%|th)(?: percentile| pctl)?": "p90",
    r"p ?95|95 ?(?:%|th)(?: percentile| pctl)?": "p95",
    r"p ?99|99 ?(?:%|th)(?: percentile| pctl)?": "p99",
    r"mean|avg|average": "mean",
    r"min|minimum|max|maximum|std|stddev|stdev|sd|p ?\d+": "other",
}
_UNITS = {
    r"ms|msecs?|millis|milliseconds?": 0.001,
    r"s|secs?|seconds?": 1.0,
    r"us|usecs?|microseconds?": 1e-6,
}
_TIMES = {
    r"\bttft\b|\bfirst token\b": "ttft",
    r"\bitl\b|\binter token\b|\btbt\b|\btime between tokens\b": "itl",
    r"\btpot\b|\bper (?:output |generated )?token\b|/ ?tok(?:en)?\b": "tpot",
    r"\be2el?\b|\bend to end\b|\blatency\b|\bresponse time\b|\brequest time\b|\btotal time\b": "e2e",
}
_RATES = {
    r"\bpeak\b|\bburst\b|\bbest second\b|\bmax(?:imum)?\b": "peak_tok_s",
    r"(?:\bper|/|\bsingle|\beach|\bone) ?(?:request|req|user|stream|client|session)\b|\bdecode speed\b": (
        "per_request_tok_s"
    ),
    r"\boutput\b|\bgen(?:eration|erated)?\b|\bdecode\b|\bcompletion\b": "output_tok_s",
    r"\bprompt\b|\binput\b|\bprefill\b": "prompt_tok_s",
    r"\btotal\b|\bcombined\b": "total_tok_s",
}
_WHOLE = {
    r"table|section|source|sheet|experiment": "table",
    r"config|configuration|model|variant|quant|quantization|engine|set ?up|system|server|deployment|arm|precision|name"
    r"|version|build": "configuration",
    r"c|cc|conc|(?:max |num |target )?concurren(?:cy|t)(?: users| requests| streams| clients)?"
    r"|(?:num |n |number of |parallel |active )?(?:users|streams|clients|sessions)|parallel|parallelism": "concurrency",
    r"n|samples|sent|(?:num |n |number of |measured |total )?(?:requests?|reqs?|prompts)": "requests",
    r"ok|(?:num |n )?(?:success(?:es|ful)?|succeeded|completed|good)(?: requests| reqs)?": "ok",
    r"(?:num |n )?(?:fail(?:ed|ures?|s)?|errors?|errored|ko)(?: requests| reqs)?": "failed",
    r"wall(?: ?(?:clock|time))*|duration|elapsed(?: time)?|run ?time": "wall_s",
    r"(?:output |generated |completion |total output )?tokens(?: generated| out)?": "tokens",
    r"(?:output |overall |system )?throughput": "output_tok_s",
}
_MEANS = {
    r"(?:output|generated|completion) (?:tokens|length|len)": "output_tokens_mean",
    r"(?:prompt|input) (?:tokens|length|len)": "prompt_tokens_mean",
}
_PER_S = r" ?(?:/|\bper\b) ?(?:s|sec|secs|second|seconds)\b"
_TOKENS_PER_S = re.compile(rf"\b(?:toks?|tokens?|t){_PER_S}|\btps\b|\b(?:toks?|tokens) s\b")
_REQUESTS_PER_S = re.compile(rf"\b(?:reqs?|requests?){_PER_S}|\b(?:rps|qps)\b|\b(?:reqs?|requests) s\b")


@dataclass(frozen=True)
class Heading:
    """``name``: one of :data:`FACTS` or a figure as levels have it, empty where nothing usable is recognised.

    ``scale`` leads to seconds and tok/s; ``None`` where a time names no unit. ``problem`` says why a column is no use.
    """

    name: str
    scale: float | None = 1.0
    problem: str = ""


def heading_of(title: str) -> Heading:
    """Of a title such as ``ttft_p95_ms``, ``TTFT (median, s)``, ``Output tokens/s`` or ``Users``."""
    text = _plain(title)
    if _TOKENS_PER_S.search(text):
        return Heading(_found(_RATES, text) or "output_tok_s")
    if _REQUESTS_PER_S.search(text):
        return Heading("requests_per_s")
    rest, statistic = _taken(text, _STATISTICS)
    rest, scale = _taken(rest, _UNITS)
    if metric := _found(_TIMES, rest):
        return _time(metric, statistic, scale)
    if statistic:
        return Heading(_whole(_MEANS, rest) if statistic == "mean" else "")
    name = _whole(_WHOLE, text) or _whole(_WHOLE, rest)
    return Heading(name, scale or 1.0)


def _plain(title: str) -> str:
    """Lower case, words apart by one space."""
    text = title.strip().lower().replace("µ", "u").replace("μ", "u")
    return re.sub(r"[\s_\-:,@.`*()\[\]]+", " ", text).strip()


def _found(patterns: dict[str, str], text: str) -> str:
    return next((name for pattern, name in patterns.items() if re.search(pattern, text)), "")


def _whole(patterns: dict[str, str], text: str) -> str:
    return next((name for pattern, name in patterns.items() if re.fullmatch(pattern, text)), "")


def _taken(text: str, patterns: dict[str, Meant]) -> tuple[str, Meant | None]:
    """The text without the word that fits a pattern, and what that word stands for."""
    for pattern, meaning in patterns.items():
        if found := re.search(rf"(?:^|(?<= ))(?:{pattern})(?= |/|$)", text):
            return re.sub(" +", " ", f"{text[: found.start()]} {text[found.end() :]}").strip(), meaning
    return text, None


def _time(metric: str, statistic: str | None, scale: float | None) -> Heading:
    if statistic is None:
        return Heading("", problem=f"names no statistic of {metric.upper()} (p50, p95, mean)")
    if statistic == "other":
        return Heading("", problem="is a statistic that no level has")
    return Heading(f"{metric}_{statistic}_s", scale)
