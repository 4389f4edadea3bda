"""Did the experiment work? Whether the arms were kept apart, anything was cached, and who failed."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any

import pandas as pd

from analysis.figures import ratio
from analysis.pairs import Pairs
from tokenswarm.arms import COLD, WARM

# A smaller share of the prompt tokens changes no latency that could be told from noise.
LEAK_SHARE = 0.01
_FEW_TOKENS = 32  # of a chat template without tools
_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Finding:
    """``key`` is stable for programs, ``text`` for people. A ``void`` one stands in place of the verdict."""

    key: str
    text: str
    void: bool = False


@dataclass(frozen=True)
class ArmRules:
    """What the arms of a run were meant to be, and what the probe said of the cache before the load."""

    cold: str | None  # for how long a cold key is used: "session" or "request"
    by: str | None  # what keeps the arms apart: "salt" or "nonce"
    template_tokens: int  # of the chat template, before the nonce, which all prompts share
    probe: dict[str, Any]

    @property
    def before_nonce(self) -> int:
        """Tokens that the chat template puts before a nonce, where they are worth a word: tools for example."""
        return self.template_tokens if self.by == "nonce" and self.template_tokens > _FEW_TOKENS else 0

    def allowed(self, requests: pd.DataFrame) -> pd.Series[float]:
        """Tokens that each cold request may find: its own session's, and the template's before a nonce."""
        own: pd.Series[float] = requests["history_tokens"]
        if self.cold != "session":
            own = pd.Series(0.0, index=requests.index)
        return own.clip(lower=float(self.template_tokens) if self.by == "nonce" else 0.0)


def findings_of(pairs: Pairs, rules: ArmRules) -> list[Finding]:
    """What a reader must know before the figures; those that leave nothing to conclude first."""
    found = [_kept_apart(pairs, rules), _anything_cached(pairs, rules), _failures(pairs), _uneven(pairs)]
    return sorted((finding for finding in found if finding is not None), key=lambda finding: not finding.void)


def _kept_apart(pairs: Pairs, rules: ArmRules) -> Finding | None:
    cold = pairs.cold_requests
    excess = (cold["cached_tokens"] - rules.allowed(cold)).clip(lower=0.0)
    share = ratio(float(excess.sum()), float(cold["prompt_tokens"].where(excess.notna()).sum()))
    if share is None or share <= LEAK_SHARE:
        return None
    text = (
        f"the arms were not kept apart: {100 * share:.0f} % of the cold prompts came from the cache although the "
        f"{rules.by or 'key'} of a cold {rules.cold or 'session'} belongs to it alone"
    )
    return Finding("not kept apart", text, void=True)


def _anything_cached(pairs: Pairs, rules: ArmRules) -> Finding | None:
    warm, cold = pairs.warm_requests["cached_tokens"], pairs.cold_requests["cached_tokens"]
    if not len(warm):
        return None
    if warm.notna().sum() == 0:
        return _silent(rules.probe)
    if warm.sum() == 0.0:
        return Finding("nothing cached", _why_nothing(rules.probe), void=True)
    gained, prompts = float(warm.sum() - cold.sum()), float(pairs.warm_requests["prompt_tokens"].sum())
    if (ratio(gained, prompts) or 0.0) > LEAK_SHARE:
        return None
    text = (
        "warm requests found no more in the cache than cold ones: the sessions share no text, "
        "or the cache was too small to keep it until the next use"
    )
    return Finding("nothing shared", f"{text}, or all of it stands before the nonce" if rules.before_nonce else text)


def _silent(probe: dict[str, Any]) -> Finding:
    flag = probe.get("flag")
    advice = f"; start the server with {flag}" if flag else ""
    text = f"the server does not tell cached tokens{advice}: whether the arms were kept apart is unknown"
    return Finding("cached tokens unknown", text)


def _why_nothing(probe: dict[str, Any]) -> str:
    match probe.get("state"):
        case "inert":
            return "nothing was cached: the prefix cache is enabled but inert, for this model it finds nothing"
        case "off":
            return "nothing was cached: the prefix cache is off"
        case "on":
            return (
                "nothing was cached, although the probe found that the cache works: the sessions share no text as long "
                "as a block, or the cache was too small to keep it until the next use"
            )
        case _:
            return "nothing was cached: no warm request found a single token"


def _failures(pairs: Pairs) -> Finding | None:
    """Failures that one arm has more often than chance explains: the pairs left are then no random choice."""
    cold, warm = pairs.failed_apart
    if sign_test(cold, warm) >= _SIGNIFICANT:
        return None
    text = (
        f"the arms fail differently: {pairs.sessions[COLD].failed} cold and {pairs.sessions[WARM].failed} warm "
        "sessions failed, and the differences are those of the pairs in which neither did"
    )
    return Finding("failures differ", text)


def _uneven(pairs: Pairs) -> Finding | None:
    if not pairs.uneven:
        return None
    text = (
        f"{pairs.uneven} of {len(pairs)} pairs took different courses: TTFT and E2E compare the requests that both "
        "sessions have, job time the whole of both"
    )
    return Finding("different courses", text)


def sign_test(first: int, second: int) -> float:
    """Two-sided probability of a split at least as uneven by fair coins; 1 where there is nothing to split."""
    n = first + second
    as_uneven = sum(comb(n, k) for k in range(max(first, second), n + 1))
    return min(1.0, 2.0 * float(as_uneven) / float(2**n))
