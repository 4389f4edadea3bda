"""Single values quoted beside tables (``quantity``, ``value``): ratios derived from rows, lines of a log."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.audit_concern import Concern, Kind
from analysis.audit_lengths import cache_concern
from analysis.audit_set import FigureSet
from analysis.audit_span import Span, exact
from analysis.csv_file import header_of
from tokenswarm.errors import RunFolderError

_QUANTITY, _VALUE = "quantity", "value"
# Percent from ratios that were rounded before: one point more than the printed digits.
_POINT = 1.0


@dataclass(frozen=True)
class Quote:
    """``against``: the configuration that a ratio is relative to; ``printed``: the value as it stands."""

    quantity: str
    printed: str
    span: Span
    configuration: str = ""
    against: str = ""
    concurrency: int | None = None

    @property
    def subject(self) -> tuple[str, str, str, int | None]:
        return self.quantity, self.configuration, self.against, self.concurrency

    @property
    def where(self) -> str:
        parts = [self.configuration, "" if self.concurrency is None else f"c={self.concurrency}", self.quantity]
        return " ".join(part for part in parts if part)


def is_quoted(path: Path) -> bool:
    """Whether a CSV file has one quantity a line."""
    return {_QUANTITY, _VALUE} <= {name.strip().lower() for name in header_of(path)}


def read_quoted(path: Path) -> list[Quote]:
    """Raises ``RunFolderError`` with one line that names the line of a value that is no number."""
    quotes = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for line, cells in enumerate(csv.DictReader(file), start=2):
            row = {str(name).strip().lower(): (text or "").strip() for name, text in cells.items() if name}
            if row.get(_VALUE):
                quotes.append(_quote(f"{path}: line {line}", row))
    return quotes


def _quote(place: str, row: dict[str, str]) -> Quote:
    printed, users = row[_VALUE], row.get("concurrency", "")
    number = printed.rstrip("x%").replace(",", "")
    try:
        value, concurrency = float(number), int(float(users)) if users else None
    except ValueError:
        raise RunFolderError(
            f"{place}: wanted numbers for value and concurrency, found {printed!r} and {users!r}"
        ) from None
    half = 0.5 * 10.0 ** -len(number.partition(".")[2])
    span = Span(value, value - half, value + half)
    return Quote(row[_QUANTITY], printed, span, row.get("configuration", ""), row.get("against", ""), concurrency)


def derived_values(quotes: Sequence[Quote], sets: Sequence[FigureSet]) -> list[Concern]:
    """Ratios and differences against the rows that they follow from; any of several figure sets will do."""
    found = []
    for quote in quotes:
        wanted = _derived(quote, sets)
        if not wanted or any(quote.span.agrees(one) for one in wanted):
            continue
        text = f"{quote.quantity} is {quote.printed}, but its rows give {wanted[0].value:.3g}"
        cause = "figures of another run, or a ratio taken the other way round"
        step = "compute it again from the rows that are shown"
        found.append(Concern(Kind.DERIVED, (quote.where,), text, cause, step, quote.span.value, wanted[0].value))
    return found


def inert_caches(quotes: Sequence[Quote]) -> list[Concern]:
    """A cache that is on, a load that repeats prompts, and a share of hits of nothing."""
    found = []
    for place in dict.fromkeys((quote.configuration, quote.concurrency) for quote in quotes):
        told = {q.quantity: q.span.value for q in quotes if (q.configuration, q.concurrency) == place}
        hits, repeated = told.get("prefix_cache_hit_pct"), told.get("repeating_requests_pct")
        on = told.get("prefix_cache_enabled", 1.0)
        if on and hits is not None and repeated and hits < 1.0 <= repeated:
            where = " ".join(str(part) for part in place if part)
            found.append(cache_concern((where,), repeated / 100.0, hits / 100.0))
    return found


def _derived(quote: Quote, sets: Sequence[FigureSet]) -> list[Span]:
    """What a quoted quantity should be, for every pair of figure sets that it may be of."""
    match quote.quantity:
        case "throughput_ratio":
            return [above / below for above, below in _scaled(quote, sets)]
        case "efficiency_pct":
            users = quote.concurrency or 1
            base = min((one.row.concurrency or 1 for one in _of(quote.configuration, sets)), default=1)
            share = exact(100.0 * base / users)
            return [_wider(above / below * share, _POINT) for above, below in _scaled(quote, sets)]
        case "delta_throughput_pct":
            return _deltas(quote, sets, "output_tok_s")
        case "delta_tpot_pct":
            return _deltas(quote, sets, "tpot_p50_s") or _deltas(quote, sets, "tpot_mean_s")
        case "delta_ttft_pct":
            return _deltas(quote, sets, "ttft_p50_s") or _deltas(quote, sets, "ttft_mean_s")
        case _:
            return []


def _of(configuration: str, sets: Sequence[FigureSet], users: int | None = None) -> list[FigureSet]:
    return [
        one
        for one in sets
        if one.row.configuration == configuration and (users is None or one.row.concurrency == users)
    ]


def _scaled(quote: Quote, sets: Sequence[FigureSet]) -> list[tuple[Span, Span]]:
    """Throughput at the level and at the lowest one of the configuration."""
    mine = _of(quote.configuration, sets)
    base = min((one.row.concurrency or 0 for one in mine), default=0)
    return [
        (above, below)
        for one in _of(quote.configuration, sets, quote.concurrency)
        for other in _of(quote.configuration, sets, base)
        if (above := one.span("output_tok_s")) is not None
        if (below := other.span("output_tok_s")) is not None
    ]


def _deltas(quote: Quote, sets: Sequence[FigureSet], name: str) -> list[Span]:
    """Percent by which a figure is above that of the configuration it is compared with."""
    return [
        _percent(mine / theirs)
        for one in _of(quote.configuration, sets, quote.concurrency)
        for other in _of(quote.against, sets, quote.concurrency)
        if (mine := one.span(name)) is not None
        if (theirs := other.span(name)) is not None
    ]


def _percent(ratio: Span) -> Span:
    return Span(*(100.0 * (end - 1.0) for end in (ratio.value, ratio.low, ratio.high)))


def _wider(span: Span, by: float) -> Span:
    return Span(span.value, span.low - by, span.high + by)
