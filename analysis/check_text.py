"""One limit of an objective in words, with the units of the tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from analysis.columns import number_text

if TYPE_CHECKING:
    from analysis.objectives import Check

_DUE = "scheduled_"  # of a latency that counts from the time at which a request was due


def comparison(check: Check) -> str:
    """``TTFT p95 60 ms > 50 ms``, with as many decimals as it takes to see that a limit is missed."""
    name, unit, limit = _name(check), _unit(check), check.limit * _scale(check)
    if check.value is None:
        return f"{name} unknown, limit {_shown_limit(check)} {unit}"
    value = check.value * _scale(check)
    text = number_text(value, 1 if unit == "%" else 0)
    decimals = 0
    while not check.met and not math.isinf(value) and float(text) <= limit and decimals < 12:
        decimals += 1
        text = f"{value:.{decimals}f}"
    return f"{name} {text} {unit} {'≤' if check.met else '>'} {_shown_limit(check)} {unit}"


def limit_text(check: Check) -> str:
    """``TTFT p95 ≤ 50 ms``."""
    return f"{_name(check)} ≤ {_shown_limit(check)} {_unit(check)}"


def _shown_limit(check: Check) -> str:
    return f"{check.limit * _scale(check):.10g}"


def _name(check: Check) -> str:
    """``ttft_p95_s`` as TTFT p95."""
    metric = check.metric.removesuffix("_s")
    latency, _, statistic = metric.removeprefix(_DUE).partition("_")
    if latency == "job":
        return f"job time {statistic}"
    if metric.startswith(_DUE):
        return f"scheduled {latency.upper()} {statistic}"
    return f"{latency.upper()} {statistic}" if statistic else latency


def _unit(check: Check) -> str:
    """As in the tables: TTFT and TPOT in milliseconds, E2E and job times in seconds."""
    if check.metric == "failed":
        return "%"
    return "s" if check.metric.removeprefix(_DUE).startswith(("e2e", "job")) else "ms"


def _scale(check: Check) -> float:
    return {"%": 100.0, "ms": 1000.0, "s": 1.0}[_unit(check)]
