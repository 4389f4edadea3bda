"""How a run was measured, in words that need no other page, each term with a place that tables can link to."""

from __future__ import annotations

from typing import Any

from analysis.figures import LEGEND, SYMBOL, Mark
from analysis.limits import mapping
from analysis.notes import BASIS_TEXT
from analysis.outcome import Outcome
from analysis.report_sections import Block, Definitions, Fold, Prose

# Terms as they begin the head of a column, with the anchor and the meaning.
TERMS: tuple[tuple[str, str, str], ...] = (
    (
        "TTFT",
        "def-ttft",
        "time to first token: first token event - send. A chunk without text is none. Waiting in a queue and "
        "computing the prompt are in it",
    ),
    (
        "TPOT",
        "def-tpot",
        "time per output token after the first: (last token - first token) / (output tokens - 1), one value a request",
    ),
    (
        "E2E",
        "def-e2e",
        "time of a whole answer: last token - send. A usage chunk after the last token does not move it",
    ),
    (
        "scheduled",
        "def-scheduled",
        "scheduled TTFT and E2E count from the time at which a request was due: with the time that it waited "
        "to be sent, as a user feels it",
    ),
    (
        "output tok/s",
        "def-output-tok-s",
        "output tokens a second of all users of a level together; the basis above says which tokens and which time",
    ),
    (
        "steady tok/s",
        "def-steady-tok-s",
        "the same over the time in which all users were at work, without the rising and the falling end",
    ),
    (
        "peak tok/s",
        "def-peak-tok-s",
        "tokens in the best whole second of the level",
    ),
    (
        "tok/s per request",
        "def-per-request",
        "decode speed as one user sees it: output tokens / time between first and last token, over all successes",
    ),
    (
        "p50, p95, p99",
        "def-quantile",
        "the time that so many percent of the requests did not exceed, by linear interpolation between order "
        "statistics. Few requests cannot have a firm p99",
    ),
    (
        "95 % interval",
        "def-interval",
        "of a quantile from order statistics of the requests, whatever their distribution; of a mean "
        "Student's. Requests that depend on each other count as fewer",
    ),
    (
        "requests",
        "def-requests",
        "measured requests = ok + failed + those cut by the end of the run. Latencies are over the ok ones",
    ),
    (
        "failed",
        "def-failed",
        "every measured request with an error of its own, never one that the end of the run cut",
    ),
    (
        "efficiency",
        "def-efficiency",
        "throughput relative to the first level, divided by the users relative to it: 100 % is users who do "
        "not notice each other",
    ),
)


def anchor_of(title: str) -> str | None:
    """Where the head of a column is explained; ``None`` for one that explains itself."""
    if title.startswith("scheduled "):
        return "def-scheduled" if title.startswith(("scheduled TTFT", "scheduled E2E")) else None
    whole = next((anchor for term, anchor, _ in TERMS if title == term), None)
    return whole or next((anchor for term, anchor, _ in TERMS[:3] if title.startswith(f"{term} ")), None)


def method_blocks(outcome: Outcome) -> list[Block]:
    """What was sent and when, which requests count, the clock, the definitions, the marks."""
    lines = [*_load_lines(outcome), *_counting_lines(outcome), *_clock_lines(outcome)]
    terms = tuple((term, anchor, text) for term, anchor, text in TERMS)
    marks = tuple((SYMBOL[mark], f"mark-{mark.name.lower().replace('_', '-')}", LEGEND[mark]) for mark in Mark)
    return [Prose(tuple(lines)), Definitions(terms), Fold("Marks beside numbers", (Definitions(marks),))]


def _load_lines(outcome: Outcome) -> list[str]:
    """What keeps the server busy."""
    load = mapping(outcome.scenario.get("load"))
    if any(row.by_clock for row in outcome.levels):
        return [
            "Open loop: sessions arrive by the clock, whether the server keeps up or not. A server that is "
            "too slow shows as latency and as sessions that wait, not as fewer requests."
        ]
    if not load.get("closed"):
        return ["How the load was kept up is not told by this source."]
    closed = mapping(load.get("closed"))
    return [
        "Closed loop: each user sends the next request when the last one is answered. A slow server therefore "
        "gets fewer requests: look at latency and throughput together, and do not read the throughput as a "
        "rate of arrivals.",
        *_tail(closed),
        *_warmup(closed),
    ]


def _tail(closed: dict[str, Any]) -> list[str]:
    match closed.get("tail"):
        case "fill":
            return [
                "Tail: fill. While the last measured requests are under way, further ones keep the "
                "concurrency up; they are in no count and no latency, but their tokens are in the throughput."
            ]
        case "drain":
            return [
                "Tail: drain. At the end of a level fewer and fewer users are at work; throughput has this "
                "falling end in it, as with other tools."
            ]
        case _:
            return []


def _warmup(closed: dict[str, Any]) -> list[str]:
    sessions, seconds = closed.get("warmup_sessions"), closed.get("warmup_s")
    if sessions:
        return [f"Warm-up: {sessions} sessions of each level come first and are in none of its figures."]
    if seconds:
        return [f"Warm-up: the first {seconds:g} s of each level are in none of its figures."]
    return ["No warm-up: the first requests of a level are measured like all others."]


def _counting_lines(outcome: Outcome) -> list[str]:
    bases = sorted({row.basis for row in outcome.levels if row.basis})
    return [f"Basis of {BASIS_TEXT[basis]}." for basis in bases]


def _clock_lines(outcome: Outcome) -> list[str]:
    texts = [note.text for note in outcome.notes if note.key == "clock"]
    return [f"{text[0].upper()}{text[1:]}." for text in texts]
