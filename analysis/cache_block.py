"""The verdicts on both caches as people read them: tables where they have something to say, else one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analysis.cache_share import CacheSource, CacheState, LevelCache
from analysis.columns import number_text
from analysis.level_names import listed
from analysis.levels import LevelRow
from analysis.outcome import Note, Outcome
from analysis.part import Part
from analysis.tables import TextTable, level_cell, load_title

TOO_GOOD = (
    "more of the prompts or images came from the server's caches than this load implies: TTFT and throughput are too "
    "good. Leave the level out of capacity and comparisons, and run it again with fresh prompts or an emptied cache"
)
NOTEWORTHY = 0.005  # a smaller share of the prompt tokens is not worth a table
_SOURCES = {None: "", CacheSource.USAGE: "answers", CacheSource.COUNTERS: "engine counters"}
_HINT = "vLLM tells them with --enable-prompt-tokens-details, SGLang with --enable-cache-report"
_Judged = list[tuple[LevelRow, LevelCache]]


@dataclass(frozen=True)
class _Kind:
    """One of the caches. ``what``: it is asked for."""

    key: str
    title: str
    what: str
    pick: Callable[[LevelRow], LevelCache | None]

    def judged(self, outcome: Outcome) -> _Judged:
        return [(row, cache) for row in outcome.levels if (cache := self.pick(row)) is not None]


_PREFIX = _Kind("cache", "Prefix cache", "prompt tokens", lambda row: row.cache)
_IMAGES = _Kind("image cache", "Multimodal cache", "image look-ups", lambda row: row.image_cache)


def cache_blocks(outcome: Outcome) -> list[Part]:
    """The prefix cache unless a table would only say that nothing was to come from it, and nothing came; the
    multimodal cache where there were images."""
    probe = outcome.facts.get("cache_probe")
    told = str(probe.get("line") or "") if isinstance(probe, dict) else ""
    prompts, images = _PREFIX.judged(outcome), _IMAGES.judged(outcome)
    blocks = []
    if any(_worth_a_table(cache, outcome) for _, cache in prompts):
        blocks.append(_block(_PREFIX, prompts, [f"probe: {told}"] if told else []))
    if images:
        blocks.append(_block(_IMAGES, images, []))
    return blocks


def _block(kind: _Kind, judged: _Judged, lines: list[str]) -> Part:
    body = [
        [
            level_cell(row),
            "" if cache.looked_up is None else f"{cache.looked_up:.0f}",
            _percent(cache.measured),
            _percent(cache.implied),
            _SOURCES[cache.source],
            cache.verdict,
        ]
        for row, cache in judged
    ]
    header = [load_title(row for row, _ in judged), kind.what, "measured", "implied", "source", "verdict"]
    table = TextTable(kind.key, kind.title, header, body, left=frozenset({4, 5}))
    return Part(kind.title, table, lines + _reasons(judged))


def cache_notes(outcome: Outcome) -> list[Note]:
    """One line on the prefix cache where there is no table."""
    judged = _PREFIX.judged(outcome)
    if not judged or any(_worth_a_table(cache, outcome) for _, cache in judged):
        return []
    shares = [cache.measured for _, cache in judged if cache.measured is not None]
    implied = max((cache.implied or 0.0 for _, cache in judged), default=0.0)
    if not shares:
        text = f"what came from it is unknown, the workload implies up to {implied:.0%}; {_HINT}"
        return [Note("prefix cache", f"prefix cache: {text}")] if implied > NOTEWORTHY else []
    if max(shares) < NOTEWORTHY:
        text = "nothing came from it at any level, as the workload implies"
    else:
        text = f"at most {max(shares):.1%} of a level's prompt tokens came from it, the head that all prompts have"
    return [Note("prefix cache", f"prefix cache: {text}")]


def _worth_a_table(cache: LevelCache, outcome: Outcome) -> bool:
    match cache.state:
        case CacheState.CONTAMINATED | CacheState.BELOW:
            return True
        case CacheState.UNKNOWN:
            return cache.measured is not None or _asks_for_it(outcome)
        case CacheState.CONFIRMED:
            return (cache.implied or 0.0) > NOTEWORTHY or bool(cache.reason) or _asks_for_it(outcome)


def _asks_for_it(outcome: Outcome) -> bool:
    """Whether the scenario is about the prefix cache: a test of it, or agents."""
    return "agentic" in outcome.kinds.values() or bool(outcome.scenario.get("prefix_cache"))


def _reasons(judged: _Judged) -> list[str]:
    """A line for each reason, with the levels that have it."""
    levels: dict[tuple[str, str], list[str]] = {}
    for row, cache in judged:
        if cache.reason:
            levels.setdefault((cache.state, cache.reason), []).append(row.name)
    leveled = judged[0][0].level is not None
    return [
        f"{listed(names) if leveled else 'the whole run'}: {state}: {reason}"
        for (state, reason), names in levels.items()
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{number_text(100 * share, 1)} %" if share else "0 %"
