"""What a column of a table from anywhere means, read from its title whatever the order of its words and its unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

Meant = TypeVar("Meant", str, float)

FACTS = ("table", "configuration", "concurrency", "requests", "ok", "failed")

# In each table the first pattern that matches counts.
_STATISTICS = {
    r"p ?50|median|med|50 ?(?:%|th)?(?: percentile| pctl)?": "p50",
    r"p ?90|90 ?(?:%|th)?(?: percentile| pctl)?": "p90",
    r"p ?95|95 ?(?:%|th)?(?: percentile| pctl)?": "p95",
    r"p ?99|99 ?(?:%|th)?(?: percentile| pctl)?": "p99",
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
    r"\be2el?\b|\bend to end\b|\blat(?:ency)?\b|\bresponse time\b|\b(?:request|total) (?:time|duration)\b|^total$": (
        "e2e"
    ),
}
_RATES = {
    r"\bpeak\b|\bburst\b|\bbest second\b|\bmax(?:imum)?\b": "peak_tok_s",
    r"(?:\bper |/ ?|\bsingle |\beach |\bone )?\b(?:request|req|user|stream|client|session)\b|\bdecode speed\b": (
        "per_request_tok_s"
    ),
    r"\boutput\b|\bgen(?:eration|erated)?\b|\bdecode\b|\bcompletion\b": "output_tok_s",
    r"\bprompt\b|\binput\b|\bprefill\b": "prompt_tok_s",
    r"\btotal\b|\bcombined\b": "total_tok_s",
}
# Words that may stand beside a metric without making it another one. "scheduled TTFT" is no TTFT.
_BESIDE_TIMES = re.compile(r"time|lat(?:ency)?|to|total|full|request|response|of|the|for|percentile|pctl")
_BESIDE_RATES = re.compile(
    r"throughput|tput|output|out|gen|generation|generated|aggregated?|agg|system|server|overall|sustained|total|mean|avg"
    r"|average|speed|rate|decode|of|the"
)
_WHOLE = {
    r"(?:source |printed )?(?:table|section)|source|sheet|experiment": "table",
    r"(?:model |server |engine )?(?:config|configuration|cfg)(?: name)?|model|variant|quant|quantization|engine|set ?up"
    r"|system|server|deployment|arm|precision|name|version|build": "configuration",
    r"c|cc|conc|(?:max |num |target )?concurren(?:cy|t)(?: level| users| requests| streams| clients)?|user count|vus"
    r"|(?:num |n |# ?|number of |parallel |active )?(?:users|streams|clients|sessions)"
    r"|parallel(?: requests)?|parallelism": "concurrency",
    r"n|samples|sent|request count|(?:num |n |# ?|number of |measured |total )?(?:requests?|reqs?|prompts)": "requests",
    r"(?:num |n |# ?)?(?:ok|success(?:es|ful)?|succeeded|completed|good)(?: requests| reqs| count)?": "ok",
    r"(?:num |n |# ?)?(?:fail(?:ed|ures?|s)?|errors?|errored|err|ko)(?: requests| reqs| count)?": "failed",
    r"wall(?: ?(?:clock|time))*|duration|elapsed(?: time)?|run ?time": "wall_s",
    r"(?:output |generated |completion |total output )?tokens(?: generated| out)?": "tokens",
    r"(?:output |overall |system )?(?:throughput|tput)": "output_tok_s",
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
    if found := _TOKENS_PER_S.search(text):
        rate, beside = _found(_RATES, f"{text[: found.start()]} {text[found.end() :]}")
        return Heading((rate or "output_tok_s") if _only(_BESIDE_RATES, beside) else "")
    if _REQUESTS_PER_S.search(text):
        return Heading("requests_per_s")
    rest, statistic = _taken(text, _STATISTICS)
    rest, scale = _taken(rest, _UNITS)
    metric, beside = _found(_TIMES, rest)
    if metric:
        return _time(metric, statistic, scale) if _only(_BESIDE_TIMES, beside) else Heading("")
    if statistic:
        return Heading(_whole(_MEANS, rest) if statistic == "mean" else "")
    name = _whole(_WHOLE, text) or _whole(_WHOLE, rest)
    return Heading(name, scale or 1.0)


def _plain(title: str) -> str:
    """Lower case, words apart by one space."""
    text = title.strip().lower().replace("µ", "u").replace("μ", "u")
    return re.sub(r"[\s_\-:,@.`*()\[\]]+", " ", text.replace("#", "# ")).strip()


def _found(patterns: dict[str, str], text: str) -> tuple[str, list[str]]:
    """What the first pattern that is in the text stands for, and the words beside it."""
    for pattern, name in patterns.items():
        if found := re.search(pattern, text):
            return name, f"{text[: found.start()]} {text[found.end() :]}".split()
    return "", text.split()


def _only(allowed: re.Pattern[str], words: list[str]) -> bool:
    return all(allowed.fullmatch(word) for word in words)


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
