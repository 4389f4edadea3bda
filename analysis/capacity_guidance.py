"""The sentences that people write below a table: up to how many users it is snappy, fine, good for agents; the limits
that a gateway should keep. Each rests on rows, and is withheld where they do not bear it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.capacity import Capacity, Limits, LoadPoint, amount, capacity_of
from analysis.capacity_level import FAILED, Evidence, Point, metric_at
from analysis.check_text import comparison, limit_text
from analysis.levels import LevelRow
from analysis.objectives import DEFAULT_FAILED_LIMIT, Check

FEWEST = 6  # successes of a level below which nothing is said by it: not even its median has an interval
BEYOND = "batch only"


@dataclass(frozen=True)
class Tier:
    """What a kind of use asks for; ``limits`` as those of an objective."""

    name: str
    limits: Limits


# Snappy: the slow requests too answer within a second and go on at 100 ms a token. Fine: the usual request does.
TIERS: tuple[Tier, ...] = (
    Tier("snappy", {"ttft_p95_s": 1.0, "tpot_p95_s": 0.1}),
    Tier("fine", {"ttft_p50_s": 1.0, "tpot_p50_s": 0.1}),
    Tier("for agents and batch", {"ttft_p50_s": 2.0, "tpot_p50_s": 0.15}),
)


@dataclass(frozen=True)
class Sentence:
    """``rows``: names of the levels it rests on; ``up_to``: the load it names, ``open_ended`` where more was not tried.

    ``withheld`` says why there is no sentence; ``unproven`` why it is what was measured and not what is proven.
    """

    key: str
    text: str
    rows: tuple[str, ...] = ()
    up_to: float | None = None
    open_ended: bool = False
    withheld: str = ""
    unproven: str = ""

    @property
    def line(self) -> str:
        """As people read it."""
        if self.withheld:
            return f"{self.key}: withheld, {self.withheld}"
        return self.text + (f" As measured, not proven: {self.unproven}." if self.unproven else "")


def guidance_of(
    rows: Sequence[LevelRow], pooled: Sequence[LevelRow], tiers: Sequence[Tier] = TIERS, fewest: int = FEWEST
) -> list[Sentence]:
    """``rows``: one class at levels of one kind. One sentence a tier, one for what lies beyond, one for a gateway."""
    if not tiers or not rows:
        return []
    found: list[tuple[Tier, Capacity]] = [
        (tier, capacity_of(rows, {FAILED: DEFAULT_FAILED_LIMIT} | tier.limits, pooled)) for tier in tiers
    ]
    sentences: list[Sentence] = []
    reached = 0.0
    for tier, capacity in found:
        sentence = _tier(tier, capacity, reached, fewest)
        sentences.append(sentence)
        reached = max(reached, sentence.up_to or 0.0)
    return [*sentences, *_beyond(sentences, found[-1][1]), _gateway(sentences, found[-1][1].of_users)]


def _tier(tier: Tier, capacity: Capacity, reached: float, fewest: int) -> Sentence:
    usable = [point for point in capacity.points if not _unusable(point, fewest)]
    passed = [point for point in capacity.points if _unusable(point, fewest)]
    if not usable:
        return Sentence(tier.name, "", withheld=_why_none(passed, fewest))
    misses = next((point for point in usable if not point.by_value), None)
    good = [point for point in usable if misses is None or point.load < misses.load]
    beside = "".join(f" {point.row.name} left out: {_unusable(point, fewest)}." for point in passed)
    beside += _again(usable, misses)
    if not good and misses is not None:
        return _none(tier, misses, [point for point in passed if point.load < misses.load], fewest, beside)
    last = good[-1]
    names, open_ended = _names(last, misses), misses is None
    unproven = "" if last.evidence is Evidence.FITS else _unproven(last)
    if last.load <= reached:
        text = f"{tier.name} ({_limits(tier)}): to {amount(last.load, capacity.of_users)} too, {_ends(misses)}.{beside}"
        return Sentence(tier.name, text, names, last.load, open_ended, unproven=unproven)
    span = _span(reached, last.load, capacity.of_users) + (" or more" if open_ended else "")
    shown = ", ".join(comparison(one) for one in _shown(tier, last.row))
    text = f"{span}: {tier.name} ({_limits(tier)}). {last.row.name} has {shown}; {_ends(misses)}.{beside}"
    return Sentence(tier.name, text, names, last.load, open_ended, unproven=unproven)


def _none(tier: Tier, misses: LoadPoint, below: Sequence[LoadPoint], fewest: int, beside: str) -> Sentence:
    """The lowest level that tells misses; lower ones that do not tell leave it open what would fit."""
    if below:
        withheld = f"{misses.text}, and below it {_why_none(below, fewest)}"
        return Sentence(tier.name, "", (misses.row.name,), withheld=withheld)
    text = f"{tier.name} ({_limits(tier)}): at no level that was measured, {misses.text}.{beside}"
    return Sentence(tier.name, text, (misses.row.name,))


def _again(usable: Sequence[LoadPoint], misses: LoadPoint | None) -> str:
    """More load is to make nothing better; where it seems to, one of the levels is not what it should be."""
    later = [point for point in usable if misses is not None and point.load > misses.load and point.by_value]
    if misses is None or not later:
        return ""
    return f" {later[0].row.name} keeps to it again: repeat {misses.row.name}."


def _unusable(point: LoadPoint, fewest: int) -> str:
    """Why a level says nothing to a tier."""
    if point.deciding.barred:
        return point.deciding.barred
    if point.by_value is None:
        return f"{_name(point.deciding)} unknown"
    ok = point.row.count("ok")
    return f"only {ok} requests succeeded, wanted {fewest}" if ok is not None and ok < fewest else ""


def _why_none(passed: Sequence[LoadPoint], fewest: int) -> str:
    reasons = [f"{point.row.name}: {_unusable(point, fewest)}" for point in passed]
    return (
        f"no level bears it ({'; '.join(reasons[:4])}{'; ...' if len(reasons) > 4 else ''})" if reasons else "no level"
    )


def _unproven(last: LoadPoint) -> str:
    return f"{_name(last.deciding)} at {last.row.name}, {last.deciding.why or 'its interval does not say so'}"


def _name(point: Point) -> str:
    return comparison(Check(point.check.metric, point.check.limit, None)).split(" unknown")[0]


def _shown(tier: Tier, row: LevelRow) -> list[Check]:
    metrics = {metric_at(row, metric): limit for metric, limit in tier.limits.items()}
    return [Check(metric, limit, row.figure(metric).value) for metric, limit in metrics.items()]


def _limits(tier: Tier) -> str:
    return ", ".join(limit_text(Check(metric, limit, None)) for metric, limit in tier.limits.items())


def _ends(misses: LoadPoint | None) -> str:
    return "more was not tried" if misses is None else f"{misses.text}"


def _names(last: LoadPoint, misses: LoadPoint | None) -> tuple[str, ...]:
    return (last.row.name, *([] if misses is None else [misses.row.name]))


def _span(reached: float, end: float, of_users: bool) -> str:
    if not of_users:
        return f"{reached:g} to {end:g}/s" if reached else f"up to {end:g}/s"
    first = reached + 1
    return amount(end, True) if first == end else f"{first:g} to {end:g} users"


def _beyond(sentences: Sequence[Sentence], last: Capacity) -> Iterator[Sentence]:
    """Only where a level was measured beyond the last tier."""
    final = sentences[-1]
    if final.up_to is None or final.open_ended:
        return
    further = [point for point in last.points if point.load > final.up_to and not point.deciding.barred]
    if further:
        start = f"{final.up_to + 1:g} and more users" if last.of_users else f"above {final.up_to:g}/s"
        names = tuple(point.row.name for point in further)
        yield Sentence(BEYOND, f"{start}: {BEYOND} ({', '.join(names)} measured).", names)


def _gateway(sentences: Sequence[Sentence], of_users: bool) -> Sentence:
    """The soft ceiling is the load of the last tier but one, the burst that of the last."""
    key = "gateway"
    if not of_users:
        return Sentence(key, "", withheld="its limits are requests in flight, and these levels are rates")
    soft, burst = sentences[-2] if len(sentences) > 1 else sentences[-1], sentences[-1]
    missing = next((one for one in (soft, burst) if one.up_to is None), None)
    if missing is not None:
        return Sentence(key, "", withheld=f"there is no answer to {missing.key!r}")
    more = " (more was not tried)" if burst.open_ended else ""
    text = (
        f"Gateway (such as LiteLLM): soft ceiling {soft.up_to:g} requests in flight, burst to {burst.up_to:g}{more} "
        "before answering 429."
    )
    unproven = "; ".join(one.unproven for one in (soft, burst) if one.unproven)
    return Sentence(key, text, tuple(dict.fromkeys((*soft.rows, *burst.rows))), burst.up_to, unproven=unproven)
