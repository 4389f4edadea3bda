"""Rules on what was asked and what came: lengths, answers that stopped early, and who failed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.audit_concern import Concern, Kind
from analysis.audit_set import FigureSet, name_of
from analysis.levels import LevelRow, levels_of
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Phase

# A chat template adds tokens to a prompt; this much more or less is another workload.
LENGTH = 0.10
TEMPLATE_TOKENS = 64
# Of the rank test, for one length of one level: rare enough for a run of many levels.
BIAS_P = 0.001
_PROMPTS = ["level", "prompt_tokens", "asked_input_tokens", "history_tokens"]
_ASKED = ["level", "error_kind", "asked_input_tokens", "asked_output_tokens"]
LEAST_FAILED = 5  # fewer failures can hardly be told from chance


def answers_as_asked(one: FigureSet) -> list[Concern]:
    """Answers may be shorter than a limit: only early stops tell of those that had to be as long as asked."""
    got, asked = one.span("output_tokens_mean"), one.span("asked_output_tokens_mean")
    if got is None or asked is None or not asked.below(got, LENGTH):
        return []
    return [_lengths(one.names, "answers", got.value, asked.value)]


def prompts_as_asked(one: FigureSet) -> list[Concern]:
    """Of a table whose requests cannot be seen, so that all of them count as first ones."""
    got, asked = one.span("prompt_tokens_mean"), one.span("asked_input_tokens_mean")
    if got is None or asked is None or _near(got.value, asked.value):
        return []
    return [_lengths(one.names, "prompts", got.value, asked.value)]


def prompt_lengths(requests: pd.DataFrame, rows: list[LevelRow]) -> list[Concern]:
    """Means of a level, over successes; what the session had sent and received before was asked for too."""
    good = requests.loc[(requests["phase"] == Phase.MEASURED) & requests["error_kind"].isna(), _PROMPTS]
    by_level = {row.level: row for row in rows}
    found = []
    for level, of_level in levels_of(good.dropna(subset=["prompt_tokens", "asked_input_tokens"])):
        got = float(of_level["prompt_tokens"].mean())
        asked = float((of_level["asked_input_tokens"] + of_level["history_tokens"].fillna(0.0)).mean())
        if level in by_level and not _near(got, asked):
            found.append(_lengths((name_of(by_level[level]),), "prompts", got, asked))
    return found


def _near(got: float, asked: float) -> bool:
    return (1.0 - LENGTH) * asked <= got <= (1.0 + LENGTH) * asked + TEMPLATE_TOKENS


def _lengths(rows: tuple[str, ...], what: str, got: float, asked: float) -> Concern:
    text = f"{what} have {got:.1f} tokens on average, {asked:.1f} were asked for"
    cause = "another tokenizer than the server's, a limit that the server does not know, or prompts that were cut"
    step = "count with the server's tokenizer; name the lengths that were there with every figure"
    return Concern(Kind.LENGTHS, rows, text, cause, step, got, asked, "tokens")


def early_stops(one: FigureSet) -> list[Concern]:
    """Answers shorter than an exact length that was asked for."""
    row = one.row
    if not row.early_stopped:
        return []
    text = f"{row.early_stopped} of {row.ok} answers are shorter than requested"
    cause = "the server does not honour ignore_eos"
    step = "ask for what this server honours (min_tokens, a logit bias), or name the lengths that were there"
    got, asked = one.value("output_tokens_mean"), one.value("asked_output_tokens_mean")
    return [Concern(Kind.EARLY, one.names, text, cause, step, got, asked, "tokens")]


def inert_cache(one: FigureSet) -> list[Concern]:
    """Prompts repeat, and nothing of them comes from the cache. Where the run judged it itself, its verdict stands."""
    implied, measured = one.value("cache_share_implied"), one.value("cache_share")
    if one.row.cache is not None or implied is None or measured is None or implied < 0.05 or measured >= 0.01:
        return []
    return [cache_concern(one.names, implied, measured)]


def cache_concern(rows: tuple[str, ...], implied: float, measured: float) -> Concern:
    """``implied``: share of the prompts that repeats what was sent before; ``measured``: share found in the cache."""
    text = f"{measured:.1%} from the prefix cache, although {implied:.0%} repeat what was sent before"
    cause = (
        "a cache that is on but unused: its blocks are longer than what repeats, the model's kind cannot share them, "
    )
    step = "probe the cache with one prompt sent twice, and read the engine's log for why it is not used"
    return Concern(Kind.CACHE, rows, text, cause + "or the repeated part differs", step, measured, implied, "share")


@dataclass(frozen=True)
class RankTest:
    """``above``: share of all pairs in which the first group's value is the larger one; ``p``: two-sided."""

    above: float
    p: float


def rank_test(first: np.ndarray, second: np.ndarray) -> RankTest | None:
    """Mann and Whitney's test with ties, by the normal approximation with continuity correction; ``None`` where a group
    is empty or all values are equal."""
    n, m = len(first), len(second)
    if not n or not m:
        return None
    ranks = pd.Series(np.concatenate([first, second])).rank()
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    ties = ranks.value_counts().to_numpy(dtype="float64")
    total = n + m
    variance = n * m / 12.0 * (total + 1 - float((ties**3 - ties).sum()) / (total * (total - 1)))
    if variance <= 0:
        return None
    distance = max(0.0, abs(u - n * m / 2.0) - 0.5) / math.sqrt(variance)
    return RankTest(u / (n * m), math.erfc(distance / math.sqrt(2.0)))


def success_bias(requests: pd.DataFrame, rows: list[LevelRow]) -> list[Concern]:
    """Levels whose failures lie among the longer prompts, or among the longer answers asked for."""
    by_level = {row.level: row for row in rows}
    found = []
    for level, of_level in levels_of(requests.loc[requests["phase"] == Phase.MEASURED, _ASKED]):
        told = of_level[of_level["error_kind"].ne(ErrorKind.CANCELLED.value) | of_level["error_kind"].isna()]
        if level in by_level:
            found += _bias_of(by_level[level], told)
    return found


def _bias_of(row: LevelRow, requests: pd.DataFrame) -> list[Concern]:
    found = []
    for what, name in (("prompts", "asked_input_tokens"), ("answers", "asked_output_tokens")):
        known = requests[requests[name].notna()]
        failed = known["error_kind"].notna()
        bad, good = (known[name][side].to_numpy(dtype="float64") for side in (failed, ~failed))
        test = rank_test(bad, good) if len(bad) >= LEAST_FAILED and len(good) else None
        if test is None or test.p >= BIAS_P or test.above <= 0.5:
            continue
        middle, usual = float(np.median(bad)), float(np.median(good))
        text = (
            f"failures lie among the longer {what}: median {middle:.0f} tokens asked for against {usual:.0f} "
            f"(a failed request is the longer one of {test.above:.0%} of all pairs)"
        )
        cause = "a limit of the context, of memory or of time that only long requests meet"
        step = "read latencies with --failures-infinite, or compare only lengths at which nothing fails"
        found.append(Concern(Kind.BIAS, (name_of(row),), text, cause, step, middle, usual, "tokens"))
    return found
