"""Where the steady part of a level tells something else than the whole of it."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.figures import Figure
from analysis.levels import LevelRow


@dataclass(frozen=True)
class _Pair:
    """Two figures of one thing. ``scale`` leads to ``unit``."""

    steady: str
    whole: str
    name: str
    unit: str
    scale: float = 1.0


_PAIRS = (
    _Pair("steady_tok_s", "output_tok_s", "output", "tok/s"),
    _Pair("steady_ttft_p50_s", "ttft_p50_s", "TTFT p50", "ms", 1000.0),
    _Pair("steady_ttft_p95_s", "ttft_p95_s", "TTFT p95", "ms", 1000.0),
)


def steady_lines(rows: list[LevelRow]) -> list[str]:
    """One for each level where a figure of the steady part and that of the whole level differ by more than their
    intervals leave open."""
    lines = []
    for row in rows:
        told = [
            f"{pair.name} {_text(steady, pair)} against {_text(whole, pair)} {pair.unit}"
            for pair in _PAIRS
            if _apart(steady := row.figure(pair.steady), whole := row.figure(pair.whole))
        ]
        if told:
            text = "while all its users were active the level was another than as a whole (steady against whole)"
            lines.append(f"{row.name}: {text}: {'; '.join(told)}")
    return lines


def _apart(one: Figure, other: Figure) -> bool:
    """Both intervals are known and have nothing in common."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.high < other.low or other.high < one.low


def _text(figure: Figure, pair: _Pair) -> str:
    known = (0.0 if value is None else value * pair.scale for value in (figure.value, figure.low, figure.high))
    value, low, high = (f"{number:.4g}" for number in known)
    return f"{value} [{low}..{high}]"
