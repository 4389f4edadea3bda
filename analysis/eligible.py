"""How many prompt tokens of each request an ideal prefix cache could have served, from what the run itself has sent.

Three figures a request, because no client knows this to the token:

* *eligible*: what the workload implies. The longer of what its own session had sent before (``history_tokens``) and of
  a text that it shares on purpose (``prefix_tokens``), where an earlier request with that text and the same cache key
  had its first token before this one was sent; tools and written system texts of agents went out before the load.
  Of a replayed trace it is as much of the shared text as earlier requests had (``prefix_paths``).
  Of an answer that called tools or thought, nothing is in it: templates write calls anew and leave thoughts out.
  Whole blocks where the size of a block is known, and never the whole prompt: engines compute at least the last token.
* *least*: what a cache serves at the very least when it works. The last token of an answer is not in it, and blocks of
  unknown size may be as large as ``LARGEST_BLOCK``.
* *most*: what it may serve without any prompt of an earlier load. The head of the chat template is common to all
  prompts, two texts may begin with the same word, the template puts the same words behind equal texts
  (``CHANCE_TOKENS``), and a shared text may be found while its first request is still under way.

A *cold* request of a prefix-cache test finds only what its own session has sent, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.prefix_paths import has_path, sent_by_others
from analysis.run_folder import Run
from tokenswarm.arms import COLD

CHANCE_TOKENS = 16
UNKNOWN_HEAD_TOKENS = 32  # of the chat template, where nobody counted them
UNKNOWN_NONCE_TOKENS = 32  # at the head of all warm prompts, likewise
LARGEST_BLOCK = 128
_WRITTEN = r"(system|tools)( \d+)?$"  # names of shared texts that nobody generated

Floats = npt.NDArray[np.floating[Any]]
ELIGIBLE = ("eligible_tokens", "eligible_least", "eligible_most")


@dataclass(frozen=True)
class _Rules:
    """What of the run decides who finds what. Tokens; ``cold`` is how long a cold key is used."""

    by: str
    cold: str
    head: int
    block: int | None

    @classmethod
    def of(cls, run: Run) -> _Rules:
        by = str(run.isolation.get("by") or "salt")
        head = _number(run.facts.get("template_prefix_tokens"), UNKNOWN_HEAD_TOKENS)
        if by == "nonce":
            head += _number(run.isolation.get("nonce_tokens"), UNKNOWN_NONCE_TOKENS)
        block = _number(run.cache_probe.get("block_tokens"), 0)
        return cls(by, str(run.isolation.get("cold") or "session"), head, block if block > 0 else None)


def eligible_tokens(run: Run) -> pd.DataFrame:
    """One row a request of ``run.requests`` with the columns ``ELIGIBLE``; blank where it cannot be told."""
    rows, rules = run.requests, _Rules.of(run)
    cold = (rows["arm"] == COLD).to_numpy()
    history = history_tokens(rows).to_numpy(dtype="float64")
    sent, retold = _sent_before(rows, history)
    if rules.cold == "request":
        history, sent = np.where(cold, 0.0, history), np.where(cold, 0.0, sent)
    shared = np.where(cold, 0.0, rows["prefix_tokens"].fillna(0.0).to_numpy(dtype="float64"))
    whole = rows["prompt_tokens"].to_numpy(dtype="float64") - 1
    replayed = has_path(rows)
    found = np.where(replayed, _known(rows, "first_token_s", shared), np.where(_seen_before(run), shared, 0.0))
    eligible = np.minimum(np.maximum(np.where(retold, sent, history), found), whole)
    head = np.where(cold & (rules.by == "salt"), 0.0, float(rules.head + CHANCE_TOKENS))
    own = np.where(history > 0, history + CHANCE_TOKENS, history)
    others = np.where(replayed, np.maximum(_known(rows, "sent_s", shared) + CHANCE_TOKENS, head), shared + head)
    most = np.minimum(np.maximum(own, others), whole)
    slack = 1 if rules.block else LARGEST_BLOCK
    figures = (eligible, np.maximum(eligible - slack, 0.0), most)
    blocks = dict(zip(ELIGIBLE, (_whole_blocks(values, rules.block) for values in figures), strict=True))
    return pd.DataFrame(blocks, index=rows.index)


def _known(rows: pd.DataFrame, since: str, shared: Floats) -> Floats:
    """What of each replayed prompt others had sent, when ``since`` is the time from which theirs are known."""
    tokens: Floats = np.minimum(sent_by_others(rows, rows[since]), shared)
    return tokens


def _sent_before(rows: pd.DataFrame, history: Floats) -> tuple[Floats, np.ndarray]:
    """Of each prompt the tokens that were in the session's prompt before it, and whether the answer to that one comes
    back in other words than the model's."""
    ordered = rows.sort_values(["turn", "sent_s"])
    sessions = ordered["session"].astype("string").fillna("")
    before = ordered.groupby(sessions)[["prompt_tokens", "tool_calls", "reasoning_tokens"]].shift(1).reindex(rows.index)
    sent = before["prompt_tokens"].to_numpy(dtype="float64")
    known = ~np.isnan(sent) & (history > 0)
    retold = (before["tool_calls"].fillna(0) > 0) | (before["reasoning_tokens"].fillna(0) > 0)
    return np.where(known, np.fmin(sent, history), history), retold.to_numpy(dtype=bool)


def history_tokens(rows: pd.DataFrame) -> pd.Series[float]:
    """Tokens of each prompt that its session has sent or received before. Runs that did not write them down are chats,
    whose prompt and answer both stand in the next prompt."""
    if rows["history_tokens"].notna().any() or rows["session"].isna().any():
        return rows["history_tokens"].where(rows["turn"].fillna(0) > 0, 0.0)
    ordered = rows.sort_values(["turn", "sent_s"])
    said = ordered["prompt_tokens"] + ordered["output_tokens"]
    before = said.groupby(ordered["session"], observed=True).shift(1)
    return before.reindex(rows.index).where(rows["turn"].fillna(0) > 0, 0.0)


def _seen_before(run: Run) -> pd.Series[bool]:
    """Whether the first token of an earlier request with the same shared text had come when this one was sent."""
    rows = run.requests
    named = rows[rows["prefix"].notna() & (rows["arm"] != COLD)]
    if named.empty:
        return pd.Series(False, index=rows.index)
    written = {name: item.get("system_prompt") for name, item in run.traffic_classes.items()}
    texts = {name: text for name, text in written.items() if isinstance(text, str)}
    keys = [
        f"{texts.get(str(traffic), f'{traffic} {prefix}')} {arm}"  # prefixes are named within their class
        for prefix, traffic, arm in zip(named["prefix"], named["traffic"], named["arm"], strict=True)
    ]
    first = named["first_token_s"].groupby(np.array(keys)).transform("min")
    return (first <= named["sent_s"]).reindex(rows.index, fill_value=False) | _sent_before_the_load(run)


def _sent_before_the_load(run: Run) -> pd.Series[bool]:
    """Whether the shared text was in the requests that measured what an agent's first prompts cost; generated texts
    were not, and those requests had no cache key."""
    rows = run.requests
    agents = [name for name, item in run.traffic_classes.items() if item.get("kind") == "agentic"]
    written = rows["prefix"].astype("string").str.match(_WRITTEN).fillna(False).astype(bool)
    return written & rows["traffic"].isin(agents) & rows["arm"].isna()


def _whole_blocks(tokens: np.ndarray, block: int | None) -> np.ndarray:
    return tokens if block is None else np.floor(tokens / block) * block


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise
