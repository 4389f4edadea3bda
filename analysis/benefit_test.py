"""The prefix-cache test of a run: every paired level, and the whole levels beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.arm_check import ArmRules, Finding, findings_of
from analysis.benefit import Answer, CachedTokens, Difference, cached_tokens_of, differences_of
from analysis.levels import LevelRow
from analysis.pairs import Pairs, pairs_of
from analysis.run_folder import Run
from analysis.whole_levels import WholeLevels, whole_levels_of
from tokenswarm.schedule import Arms


@dataclass(frozen=True)
class PairedLevel:
    """What one level of paired sessions says. ``headline``: the measure whose answer is that of the level."""

    row: LevelRow
    pairs: Pairs
    headline: str
    differences: dict[str, Difference]
    cached: CachedTokens
    findings: list[Finding]

    @property
    def answer(self) -> Answer | None:
        """``None`` where a finding leaves nothing to conclude."""
        if any(finding.void for finding in self.findings):
            return None
        return self.differences[self.headline].answer


@dataclass(frozen=True)
class BenefitTest:
    """``rules`` say which question was asked, ``nonce_tokens`` how long a nonce is, where one was used."""

    rules: ArmRules
    nonce_tokens: int | None
    levels: list[PairedLevel]
    whole: list[WholeLevels]


def benefit_test_of(run: Run, rows: list[LevelRow]) -> BenefitTest | None:
    """From a run and its level rows; ``None`` where no level has arms."""
    paired = [row for row in rows if row.arms == Arms.PAIRED]
    whole = whole_levels_of(rows)
    if not paired and not whole:
        return None
    rules = _rules(run)
    nonce = run.isolation.get("nonce_tokens")
    return BenefitTest(
        rules=rules,
        nonce_tokens=nonce if isinstance(nonce, int) else None,
        levels=[_paired_level(run, row, rules) for row in paired],
        whole=whole,
    )


def _paired_level(run: Run, row: LevelRow, rules: ArmRules) -> PairedLevel:
    rows = run.requests[run.requests["level"] == row.level]
    pairs = pairs_of(rows, silent_is_zero=rules.probe.get("reports_cached_tokens") is True)
    differences = differences_of(pairs, row.concurrency or 1)
    ttft = differences["ttft"]
    cached = cached_tokens_of(pairs, ttft.effective / ttft.pairs if ttft.pairs else 1.0)
    return PairedLevel(row, pairs, _headline(pairs, rules), differences, cached, findings_of(pairs, rules))


def _headline(pairs: Pairs, rules: ArmRules) -> str:
    """Where a cold session keeps its own prompts, only its first request goes without what others have left."""
    return "first_ttft" if rules.cold == "session" and pairs.several_requests else "ttft"


def _rules(run: Run) -> ArmRules:
    isolation: dict[str, Any] = run.isolation
    template = run.facts.get("template_prefix_tokens")
    return ArmRules(
        cold=_word(isolation.get("cold")),
        by=_word(isolation.get("by")),
        template_tokens=template if isinstance(template, int) else 0,
        probe=run.cache_probe,
    )


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None
