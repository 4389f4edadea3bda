"""The verdicts on the prefix cache as people read them: a table where it has something to say, else one line."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.cache_verdict import CacheSource, CacheState, LevelCache
from analysis.columns import number_text
from analysis.levels import LevelRow
from analysis.outcome import Note, Outcome
from analysis.tables import TextTable, level_cell

TITLE = "Prefix cache"
TOO_GOOD = (
    "more of the prompts came from the server's prefix cache than this load implies: TTFT and throughput are too good. "
    "Leave the level out of capacity and comparisons, and run it again with fresh prompts or an emptied cache"
)
NOTEWORTHY = 0.005  # a smaller share of the prompt tokens is not worth a table
_SOURCES = {None: "", CacheSource.USAGE: "answers", CacheSource.COUNTERS: "engine counters"}
_HINT = "vLLM tells them with --enable-prompt-tokens-details, SGLang with --enable-cache-report"


@dataclass(frozen=True)
class CacheBlock:
    table: TextTable
    lines: list[str]


def cache_block_of(outcome: Outcome) -> CacheBlock | None:
    """``None`` where a table would only say that nothing was to come from the cache, and nothing came."""
    judged = _judged(outcome)
    if not any(_worth_a_table(cache, outcome) for _, cache in judged):
        return None
    body = [
        [
            level_cell(row),
            "" if cache.prompt_tokens is None else f"{cache.prompt_tokens:.0f}",
            _percent(cache.measured),
            _percent(cache.implied),
            _SOURCES[cache.source],
            cache.state,
        ]
        for row, cache in judged
    ]
    header = ["c", "prompt tokens", "measured", "implied", "source", "verdict"]
    probe = outcome.facts.get("cache_probe")
    told = str(probe.get("line") or "") if isinstance(probe, dict) else ""
    lines = [f"probe: {told}"] if told else []
    return CacheBlock(TextTable("cache", TITLE, header, body, left=frozenset({4, 5})), lines + _reasons(judged))


def cache_notes(outcome: Outcome) -> list[Note]:
    """One line where there is no table."""
    judged = _judged(outcome)
    if not judged or cache_block_of(outcome) is not None:
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


def _judged(outcome: Outcome) -> list[tuple[LevelRow, LevelCache]]:
    return [(row, row.cache) for row in outcome.levels if row.cache is not None]


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


def _reasons(judged: list[tuple[LevelRow, LevelCache]]) -> list[str]:
    """A line for each reason, with the levels that have it."""
    levels: dict[tuple[str, str], list[str]] = {}
    for row, cache in judged:
        if cache.reason:
            levels.setdefault((cache.state, cache.reason), []).append(row.short_name)
    leveled = judged[0][0].level is not None
    return [
        f"{f'c={text}' if leveled else 'the whole run'}: {state}: {reason}"
        for (state, reason), names in levels.items()
        for text in [", ".join(names)]
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{number_text(100 * share, 1)} %" if share else "0 %"
