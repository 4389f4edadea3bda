"""What is audited: one figure set, with the bounds of its rounding and the facts that its neighbours add."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from analysis.audit_span import Span, exact, rounding
from analysis.levels import LevelRow


@dataclass(frozen=True)
class Document:
    """What all rows of one source tell together. ``lone_ttft_s``: time to first token at its lowest concurrency;
    ``ttft_s``: median over the rows of each concurrency; ``output_tokens``: of a request, as E2E, TTFT and TPOT of each
    row imply it; ``told_tokens``: as its rows tell it."""

    lone_ttft_s: float | None = None
    ttft_s: dict[int, float] = field(default_factory=dict)
    output_tokens: tuple[float, ...] = ()
    told_tokens: tuple[float, ...] = ()

    @property
    def usual_tokens(self) -> float | None:
        """Of a row that neither tells nor implies its own."""
        known = self.told_tokens or self.output_tokens
        return statistics.median(known) if known else None


@dataclass(frozen=True)
class FigureSet:
    """Rows that hold the same figures of one configuration at one level; usually one row.

    ``spans``: figures by name, as in :class:`LevelRow`, seconds and tok/s.
    """

    rows: tuple[LevelRow, ...]
    spans: dict[str, Span]
    document: Document = field(default_factory=Document)

    @property
    def row(self) -> LevelRow:
        return self.rows[0]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name_of(row) for row in self.rows)

    def span(self, name: str) -> Span | None:
        return self.spans.get(name)

    def value(self, name: str) -> float | None:
        span = self.spans.get(name)
        return None if span is None else span.value

    def count(self, name: str) -> int | None:
        """The largest known count of the rows: tables that leave it out do not make it 0."""
        return max((count for row in self.rows if (count := row.count(name)) is not None), default=None)

    def central(self, latency: str) -> tuple[Span, str] | None:
        """Mean of a latency (``ttft``) where it is told, else its median; with which of the two it is."""
        for statistic in ("mean", "p50"):
            if (span := self.span(f"{latency}_{statistic}_s")) is not None:
                return span, statistic
        return None

    @property
    def told_tokens(self) -> Span | None:
        """Mean output tokens of a request as the source tells them, not as its times imply."""
        if (mean := self.span("output_tokens_mean")) is not None:
            return mean
        tokens, ok = self.span("tokens"), self.count("ok")
        return tokens / exact(ok) if tokens is not None and ok else None

    @property
    def implied_tokens(self) -> float | None:
        """Output tokens that E2E, TTFT and TPOT leave for a request, all by the same statistic."""
        for statistic in ("mean", "p50"):
            ttft, tpot, e2e = (self.value(f"{name}_{statistic}_s") for name in ("ttft", "tpot", "e2e"))
            if ttft is not None and tpot and e2e is not None and e2e > ttft:
                return (e2e - ttft) / tpot + 1.0
        return None


def name_of(row: LevelRow) -> str:
    """A row as people find it again: configuration, level, class, table."""
    parts = [row.configuration, row.name if row.configuration == "" else f"c={row.concurrency}", row.traffic or ""]
    named = " ".join(part for part in parts if part)
    return f"{named} ({row.table})" if row.table else named


def figure_sets(rows: Sequence[LevelRow], *, published: bool) -> list[FigureSet]:
    """Rows of one source in order. ``published``: rows of one configuration at one level that agree are one set."""
    halves = rounding(rows)
    sets: list[FigureSet] = []
    for row in rows:
        spans = {
            name: Span(figure.value, figure.value - halves[name], figure.value + halves[name])
            for name, figure in row.figures.items()
            if figure.value is not None and figure.value != float("inf")
        }
        alone = FigureSet((row,), spans)
        same = next((i for i, other in enumerate(sets) if published and _one(other, alone)), None)
        if same is None:
            sets.append(alone)
        else:
            sets[same] = FigureSet((*sets[same].rows, row), spans | sets[same].spans)
    document = document_of(sets)
    return [replace(one, document=document) for one in sets]


def same_place(a: LevelRow, b: LevelRow) -> bool:
    """The same configuration at the same load."""
    return (a.configuration, a.concurrency, a.traffic) == (b.configuration, b.concurrency, b.traffic)


def differing(a: FigureSet, b: FigureSet) -> list[str]:
    """Figures that both have and that cannot be one number."""
    return [name for name, span in a.spans.items() if name in b.spans and not span.agrees(b.spans[name])]


def document_of(sets: Iterable[FigureSet]) -> Document:
    by_users: dict[int, list[float]] = {}
    sets = list(sets)
    for one in sets:
        users, ttft = one.row.concurrency, one.central("ttft")
        if users is not None and ttft is not None and not one.row.by_clock:
            by_users.setdefault(users, []).append(ttft[0].value)
    lone = max(by_users[min(by_users)]) if by_users else None
    usual = {users: statistics.median(found) for users, found in by_users.items()}
    implied = tuple(tokens for one in sets if (tokens := one.implied_tokens) is not None)
    told = tuple(mean.value for one in sets if (mean := one.told_tokens) is not None)
    return Document(lone, usual, implied, told)


def _one(a: FigureSet, b: FigureSet) -> bool:
    return same_place(a.row, b.row) and not differing(a, b)
