"""Many cells, few false verdicts: Holm's correction.

A reader acts on a comparison when *any* of its cells says worse, so what must be kept small is the chance of one false
verdict among all of them. Holm's method does that whatever the cells have to do with each other; TTFT, TPOT, E2E and
throughput of one level move together, and so do neighbouring levels. It is never weaker than Bonferroni's. That of
Benjamini and Hochberg keeps the share of false ones among the verdicts small: with ten true ones it allows a false one.
"""

from __future__ import annotations

from collections.abc import Sequence

METHOD = "Holm"


def adjusted(chances: Sequence[float]) -> list[float]:
    """Of each p-value the smallest error rate over all of them together at which its cell counts; at most 1."""
    order = sorted(range(len(chances)), key=lambda i: chances[i])
    found, so_far = [1.0] * len(chances), 0.0
    for passed, i in enumerate(order):
        so_far = max(so_far, min(1.0, (len(chances) - passed) * chances[i]))
        found[i] = so_far
    return found
