"""The prefix-cache test for programs: one JSON object, or one CSV line a level and measure. Times in seconds."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

from analysis.benefit import FLOOR_S, FLOOR_SHARE, Difference
from analysis.benefit_block import LIMIT
from analysis.benefit_test import BenefitTest, PairedLevel
from analysis.figures import Figure
from analysis.whole_levels import Comparison, WholeLevels

_CSV = (
    *("level", "concurrency", "label", "state", "measure", "pairs", "effective_pairs", "cold_s", "warm_s"),
    *("saved_median_s", "saved_median_low_s", "saved_median_high_s"),
    *("saved_mean_s", "saved_mean_low_s", "saved_mean_high_s", "saved_share", "floor_s", "verdict", "level_verdict"),
)


def benefit_object(test: BenefitTest) -> dict[str, Any]:
    """Unknown is null; ``verdict`` of a level is null where a finding stands in its place."""
    return {
        "cold": test.rules.cold,
        "isolated_by": test.rules.by,
        "nonce_tokens": test.nonce_tokens,
        "cache_probe": test.rules.probe or None,
        "floor": {"share_of_cold_median": FLOOR_SHARE, "s": FLOOR_S},
        "limit": LIMIT,
        "levels": [_level(level) for level in test.levels],
        "whole_levels": [_whole(four) for four in test.whole],
    }


def benefit_csv(test: BenefitTest) -> str:
    """Paired levels only; blank for unknown."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(_CSV)
    for level in test.levels:
        row = level.row
        for one in level.differences.values():
            figures = [end for figure in (one.median, one.mean) for end in (figure.value, figure.low, figure.high)]
            counts = [one.measure, one.pairs, one.effective, one.cold, one.warm]
            rest = [one.relative, one.floor_s, one.answer, level.answer]
            write([row.level, row.concurrency, row.label, row.state, *counts, *figures, *rest])
    return out.getvalue()


def _level(level: PairedLevel) -> dict[str, Any]:
    cached = level.cached
    return {
        "level": level.row.level,
        "concurrency": level.row.concurrency,
        "label": level.row.label,
        "state": level.row.state,
        "verdict": level.answer,
        "verdict_of": level.headline,
        "findings": [asdict(finding) for finding in level.findings],
        "pairs": len(level.pairs),
        "incomplete_pairs": level.pairs.incomplete,
        "pairs_of_different_courses": level.pairs.uneven,
        "sessions": {arm: asdict(one) for arm, one in level.pairs.sessions.items()},
        "differences": {measure: _difference(one) for measure, one in level.differences.items()},
        "cached_tokens": {
            "cold_a_request": cached.cold,
            "warm_a_request": cached.warm,
            "prompt_tokens_a_request": cached.prompt,
            "saved_ms_per_1000": _figure(cached.saved_s_per_token, 1e6),
            "saved_ms_per_1000_overall": _figure(cached.overall_s_per_token, 1e6),
        },
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "pairs": difference.pairs,
        "effective_pairs": difference.effective,
        "cold_median_s": difference.cold,
        "warm_median_s": difference.warm,
        "saved_median_s": _figure(difference.median),
        "saved_mean_s": _figure(difference.mean),
        "saved_share": difference.relative,
        "floor_s": difference.floor_s,
        "verdict": difference.answer,
    }


def _whole(four: WholeLevels) -> dict[str, Any]:
    return {
        "concurrency": four.users,
        "levels": list(four.levels),
        "not_complete": list(four.partial),
        "measures": {one.measure.name: _comparison(one) for one in four.comparisons},
    }


def _comparison(one: Comparison) -> dict[str, Any]:
    return {
        "cold_warm_warm_cold": list(one.values),
        "halves": None if one.halves is None else list(one.halves),
        "warm_over_cold": one.ratio,
        "floor": one.floor,
        "verdict": one.answer,
    }


def _figure(figure: Figure, scale: float = 1.0) -> dict[str, Any]:
    value, low, high = (None if end is None else end * scale for end in (figure.value, figure.low, figure.high))
    return {"value": value, "n": figure.n, "low": low, "high": high}
