"""Is a class alone and together comparable? Who was missing, what failed or was cut, whether the requests were alike,
and whether the load generator itself was late."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from analysis.arm_check import Finding
from analysis.blocks import Side
from analysis.columns import number_text
from analysis.health_verdict import MERGED_LIMIT

FAILED_SHARE = 0.01  # of the requests
ALIKE_SHARE = 0.10  # by which mean lengths may differ, or by as much as chance explains
LATE_SHARE, LATE_S = 0.10, 0.005  # of the median TTFT, and seconds: send delay or late reading below both is nothing


def findings_of(alone: Side, together: Side) -> list[Finding]:
    """What one must know before the figures of a class are compared."""
    sides = (alone, together)
    return [*_users(sides), *_failures(sides), *_alike(*sides), *_late(sides)]


def _users(sides: Sequence[Side]) -> Iterator[Finding]:
    for side in sides:
        short = [block for block in side.blocks if block.senders < block.users]
        if short:
            least = min(block.senders for block in short)
            where = f"{side.name}: in {len(short)} of {len(side.blocks)} blocks"
            text = f"{where} not all {short[0].users} users sent a request (in one of them {least})"
            yield Finding("users missing", text)


def _failures(sides: Sequence[Side]) -> Iterator[Finding]:
    for side in sides:
        if side.failed > FAILED_SHARE * side.requests:
            text = (
                f"{side.name}: {side.failed} of {side.requests} requests failed; the latencies are those of the others"
            )
            yield Finding("failures", text)
        if side.cut > FAILED_SHARE * side.requests:
            text = (
                f"{side.name}: {side.cut} of {side.requests} requests were cut at the end of their block and count as "
                "later than all others; a longer load.closed.drain_limit_s lets them end"
            )
            yield Finding("cut", text)


def _alike(alone: Side, together: Side) -> Iterator[Finding]:
    for column in ("prompt_tokens", "output_tokens"):
        first, second = (side.good[column].dropna() for side in (alone, together))
        if min(len(first), len(second)) < 2 or min(first.mean(), second.mean()) <= 0:
            continue
        by_chance = _BY_CHANCE * math.sqrt(first.var() / len(first) + second.var() / len(second))
        apart = abs(first.mean() - second.mean())
        if apart > max(by_chance, ALIKE_SHARE * min(first.mean(), second.mean())):
            text = (
                f"the requests were not alike: {first.mean():,.0f} {column.replace('_', ' ')} on average alone, "
                f"{second.mean():,.0f} together, which changes latencies too; longer blocks make them alike"
            )
            yield Finding("not alike", text)


def _late(sides: Sequence[Side]) -> Iterator[Finding]:
    for side in sides:
        rows = side.good
        if rows.empty:
            continue
        limit = max(LATE_S, LATE_SHARE * float(rows["ttft_s"].median()))
        read = rows.loc[rows["clock"] == "watcher", "lag_max_s"]
        for what, values in (("sent its requests late", rows["send_delay_s"]), ("read the answers late", read)):
            late = float(values.quantile(0.95)) if values.notna().any() else 0.0
            if late > limit:
                text = f"{side.name}: the load generator {what} (p95 {number_text(late * 1000, 0)} ms); {_ADVICE}"
                yield Finding("generator late", text)
        reads = float(rows["reads"].sum())
        if reads and float(rows["merged_reads"].sum()) / reads > MERGED_LIMIT:
            share = float(rows["merged_reads"].sum()) / reads
            text = f"{side.name}: {share:.0%} of the reads carried several token events, which blurs TPOT; {_ADVICE}"
            yield Finding("merged reads", text)


_BY_CHANCE = 2.576  # standard errors that two means are apart by chance in 1 of 100 cases
_ADVICE = "use more load processes (--processes)"
