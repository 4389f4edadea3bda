"""What the figures of a run say, in sentences that rules make. Each links to the rows that it rests on, and is
withheld, with the reason, where its rule does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from analysis.audit import concerns_of
from analysis.capacity_set import CapacitySet
from analysis.columns import BY_CLOCK, NAMES, SHOWN, number_text
from analysis.figures import Mark
from analysis.level_names import listed
from analysis.level_verdicts import SATURATED
from analysis.levels import LevelRow
from analysis.objective_block import block_of
from analysis.objectives import Verdict
from analysis.outcome import Outcome
from analysis.report_capacity import knee_sentences
from analysis.report_curves import doubted_levels, load_of
from analysis.report_links import MOST_LINKS, level_links
from analysis.report_sections import Link, Sentence, row_anchor
from analysis.scaling import scaling_levels, scaling_rows
from analysis.search_block import answer
from tokenswarm.errors import ErrorKind

FLAT_GAIN = 0.05  # from the last level but one to the last: less is no more throughput
_SHOWN_MARKS = tuple(mark for mark in Mark if mark is not Mark.EDGES)  # a peak is nothing to decide from


@dataclass(frozen=True)
class Findings:
    """``warnings`` come before what is said, ``advice`` on what would be surer after it; ``withheld``: what cannot be
    said, and why."""

    warnings: tuple[Sentence, ...]
    said: tuple[Sentence, ...]
    advice: tuple[Sentence, ...]
    withheld: tuple[Sentence, ...]


@dataclass(frozen=True)
class Withheld:
    """A rule that does not hold."""

    what: str
    why: str

    @property
    def sentence(self) -> Sentence:
        return Sentence(f"{self.what}: {self.why}")


def findings(outcome: Outcome, verdict: Verdict, sets: Sequence[CapacitySet]) -> Findings:
    """Sentences of all rules, in reading order. ``sets``: the capacity of each kind of levels."""
    if outcome.names:
        return Findings(tuple(_failed_names(outcome)), tuple(_slowest_name(outcome)), tuple(_coarse_names(outcome)), ())
    rows = _curve(outcome)
    made: list[Sentence | Withheld] = [_objectives(outcome, verdict)]
    if verdict.search is not None and verdict.search.steps:
        made.append(Sentence(f"Search: {answer(verdict.search)}.", (Link("its levels", "search"),)))
    if any(row.by_clock for row in outcome.levels):  # their throughput is what was asked for
        made += [_keeps_up(outcome), *_growth(outcome, rows)]
    else:
        made += [_most_throughput(outcome, rows), *knee_sentences(outcome, sets)]
        made += [*_growth(outcome, rows), _sharing(outcome)]
    said = tuple(one for one in made if isinstance(one, Sentence))
    withheld = tuple(one.sentence for one in made if isinstance(one, Withheld))
    return Findings(tuple(_warnings(outcome, verdict)), said, tuple(_marks(outcome)), withheld)


def _curve(outcome: Outcome) -> list[LevelRow]:
    """Credible levels of one kind that have a load and a throughput, in the order of their load."""
    doubted = doubted_levels(outcome)
    rows = [row for row in outcome.levels if row.level not in doubted and load_of(row) and _rate(row)]
    kinds = {row.load for row in rows}
    several = len(kinds) > 1 or len({load_of(row) for row in rows}) < len(rows)
    return [] if several else sorted(rows, key=lambda row: load_of(row) or 0.0)


def _rate(row: LevelRow) -> float:
    return row.figure("output_tok_s").value or 0.0


# -- what can be said ------------------------------------------------------------------------------------------------


def _objectives(outcome: Outcome, verdict: Verdict) -> Sentence | Withheld:
    block = block_of(verdict)
    if block is None or block.table is None:
        return Withheld("Up to which load the service is good enough", "the scenario names no objective")
    judged = list(dict.fromkeys((one.level, one.label) for one in verdict.classes))  # in the order of the table
    links = [
        Link(f"objectives at {label}" if label else "objectives", row_anchor("objectives", i))
        for i, (_, label) in enumerate(judged)
    ]
    missed = {one.level for one in verdict.classes if not one.met or not one.proves}
    met = [link for link, (level, _) in zip(links, judged, strict=True) if level not in missed]
    summary = next(line for line in block.lines if line.startswith(("all objectives", "objectives")))
    return Sentence(f"{summary[0].upper()}{summary[1:]}.", tuple(met[-1:] or links[:1]))


def _most_throughput(outcome: Outcome, rows: Sequence[LevelRow]) -> Sentence | Withheld:
    what = "At which load the throughput is highest"
    if len(rows) < 2:
        return Withheld(what, "it takes two credible levels of one kind with different loads")
    most = max(rows, key=_rate)
    first, told = rows[0], number_text(_rate(most), 0)
    text = f"Throughput is highest at {most.name}: {told} output tok/s"
    times = "" if most is first else f", {number_text(_rate(most) / _rate(first), 1)} times that of {first.name}"
    alike = [row for row in rows if row is most or _overlap(row, most)]
    if len(alike) == len(rows):
        return Withheld(what, "the intervals of all levels overlap")
    if len(alike) > 1:
        names = f"Throughput is highest at {listed(row.name for row in alike)}, which their intervals do not tell apart"
        return Sentence(f"{names}: {told} output tok/s at {most.name}{times}.", level_links(outcome, [first, *alike]))
    if most is not rows[-1]:
        return Sentence(f"{text}{times}; beyond it nothing is gained.", level_links(outcome, [first, most]))
    gain = _rate(most) / _rate(rows[-2]) - 1.0
    if gain > FLAT_GAIN:
        rest = f"it still rose by {gain:.0%} from the level before, so the most that this server can do was not reached"
    else:
        rest = f"from the level before it rose by {gain:.1%} only"
    return Sentence(f"{text}{times}; {rest}.", level_links(outcome, [first, *rows[1:][-2:]]))


def _overlap(one: LevelRow, other: LevelRow) -> bool:
    """False where an interval is unknown: then only the values tell."""
    a, b = one.figure("output_tok_s"), other.figure("output_tok_s")
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.low <= b.high and b.low <= a.high


def _keeps_up(outcome: Outcome) -> Sentence | Withheld:
    """The highest rate at which as many sessions were done as were scheduled, and all below it likewise."""
    what = "Up to which rate the server keeps up"
    rates = [
        (row, row.figure("scheduled_per_s").value, row.figure("done_per_s").value)
        for row in sorted(outcome.levels, key=lambda row: load_of(row) or 0.0)
        if (row.complete or row.state == SATURATED) and not row.limited
    ]
    known = [(row, done / asked if row.complete else 0.0) for row, asked, done in rates if asked and done is not None]
    if not known:
        return Withheld(what, "no credible level tells how many sessions were scheduled and done")
    good = list(takewhile(lambda one: one[1] >= 1.0 - FLAT_GAIN, known))
    if len(good) == len(known):
        text = (
            f"The server keeps up with every rate that was tried, up to {known[-1][0].name}; the "
            "most that it can do was not reached"
        )
        return Sentence(f"{text}.", level_links(outcome, [known[-1][0]]))
    late, share = known[len(good)]
    text = f"At {late.name} only {share:.0%} of the sessions that arrive in a second are done in one"
    if not late.complete:
        text = f"At {late.name} the queue grew until the level was stopped (saturated)"
    before = f"; up to {good[-1][0].name} the server keeps up" if good else ""
    return Sentence(f"{text}{before}.", level_links(outcome, [*(one[0] for one in good[-1:]), late]))


def _felt(row: LevelRow, name: str) -> str:
    return f"scheduled_{name}" if row.by_clock and not name.startswith("tpot") else name


def _growth(outcome: Outcome, rows: Sequence[LevelRow]) -> Iterator[Sentence | Withheld]:
    """Whether more load costs waiting or speed: only where the intervals of the two ends are apart."""
    if len(rows) < 2:
        return
    ends = rows[0], rows[-1]
    for name, said in (
        ("ttft_p50_s", "The wait for the first token (TTFT p50)"),
        ("tpot_p50_s", "The time per token (TPOT p50)"),
    ):
        low, high = (row.figure(_felt(row, name)) for row in ends)
        if not low.value or high.value is None:
            continue
        if low.high is None or high.low is None:
            yield Withheld(
                f"How {said[0].lower()}{said[1:]} grows",
                "too few requests for an interval at the first or the last level",
            )
        elif high.low <= low.high:
            yield Withheld(
                f"How {said[0].lower()}{said[1:]} grows",
                (f"the intervals of {ends[0].name} and {ends[1].name} overlap"),
            )
        else:
            values = (
                f"{number_text(low.value * 1000, 0)} ms at {ends[0].name} to {number_text(high.value * 1000, 0)} "
                f"ms at {ends[1].name}"
            )
            yield Sentence(
                f"{said} grows {number_text(high.value / low.value, 1)} times, from {values}.",
                level_links(outcome, ends),
            )


def _sharing(outcome: Outcome) -> Sentence | Withheld:
    """The last level at which users have at least half of the speed of the first."""
    doubted = doubted_levels(outcome)
    names = {row.name: i for i, row in enumerate(scaling_levels(outcome.levels)) if row.level not in doubted}
    known = [
        row for row in scaling_rows(outcome.levels) if row.label in names and row.efficiency and not row.across_epochs
    ]
    below = [row for row in known if (row.efficiency or 1.0) < 0.5]
    if len({row.base for row in known}) != 1 or not below:
        return Withheld(
            ("From which load on a user has less than half of the first level's throughput"), "no level has"
        )
    first = below[0]
    link = Link(f"scaling at {first.label}", row_anchor("scaling", names[first.label]))
    text = f"From {first.label} on, a user gets less than half of the throughput that one has at {first.base}"
    return Sentence(f"{text} ({first.efficiency:.0%}).", (link,))


# -- what must be known before ---------------------------------------------------------------------------------------


def _warnings(outcome: Outcome, verdict: Verdict) -> Iterator[Sentence]:
    rows = {f"{row.name}:": row for row in outcome.levels}
    for doubt in verdict.doubts:
        place = next((row for name, row in rows.items() if doubt.startswith(name)), None)
        yield Sentence(f"Not credible: {doubt}.", () if place is None else level_links(outcome, [place]))
    failed = [row for row in outcome.levels if row.failed]
    if failed:
        total, all_of = sum(row.failed for row in failed), sum(row.ok + row.failed for row in outcome.levels)
        kinds = ", ".join(
            f"{group.count} x {group.kind}" for group in outcome.failures if group.kind != ErrorKind.CANCELLED
        )
        text = (
            f"{total} of {all_of} measured requests failed{f' ({kinds})' if kinds else ''}; latencies are of the others"
        )
        yield Sentence(f"{text}.", level_links(outcome, failed))
    yield from _audit(outcome)


def _audit(outcome: Outcome) -> Iterator[Sentence]:
    """What does not close."""
    noted = {note.text for note in outcome.notes if note.key == "audit"}
    for concern in concerns_of(outcome):
        text = f"does not close: {concern.line}"
        if text in noted:
            rows = [row for row in outcome.levels if row.name in concern.rows]
            yield Sentence(f"{text[0].upper()}{text[1:]}.", level_links(outcome, rows))


def _marks(outcome: Outcome) -> Iterator[Sentence]:
    """Each mark once, with the levels that carry it and what to do."""
    rows = outcome.classes if outcome.several_classes else outcome.levels
    figures = list(dict.fromkeys(column.figure for column in (*SHOWN, *BY_CLOCK) if "_p99_" not in column.key))
    for mark in _SHOWN_MARKS:
        marked = [row for row in rows if any(mark in row.figure(name).marks for name in figures)]
        if marked:
            names = list(dict.fromkeys(row.name for row in marked))
            levels = listed(names) if len(names) <= MOST_LINKS else f"{len(names)} of {len(outcome.levels)} levels"
            yield Sentence(f"At {levels}: {_MARK_WORDS[mark]}.", level_links(outcome, marked))


_MARK_WORDS: dict[Mark, str] = {
    Mark.NO_BOUND: (
        "too few requests for the interval of a quantile up to p95; make these levels longer "
        "(p95 needs 72 requests of a class, more where they depend on each other)"
    ),
    Mark.COARSE: (
        "times are as coarse as Locust wrote them; run with tokenswarm's own records (requests.csv) for exact ones"
    ),
    Mark.ESTIMATED: "token counts are estimates; have the server report usage",
    Mark.WAITED: (
        "streams waited for pictures, so that the generator held the load back; give the "
        "images fewer pixels or more time"
    ),
    Mark.CENSORED: (
        "sessions were unfinished at the end, and times that rest on them are lower bounds; make the level longer"
    ),
    Mark.SURVIVAL: "requests were unfinished at the end and are counted as having gone on; make the level longer",
    Mark.EDGES: "no whole second held more than the mean; make the level longer to see a peak",
}


# -- statistics by name ----------------------------------------------------------------------------------------------


def _slowest_name(outcome: Outcome) -> Iterator[Sentence]:
    known = [(row.figure("p95_s").value, i, row) for i, row in enumerate(outcome.names) if not row.is_total]
    times = [(value, i, row) for value, i, row in known if value is not None]
    if len(times) > 1:
        value, i, row = max(times, key=lambda one: one[0])
        text = f"Slowest at p95 is {row.kind} {row.name}: {number_text(value * 1000, 0)} ms".replace("  ", " ")
        yield Sentence(f"{text}.", (Link("its row", row_anchor("names", i)),))


def _failed_names(outcome: Outcome) -> Iterator[Sentence]:
    failed = [(i, row) for i, row in enumerate(outcome.names) if row.failed and not row.is_total]
    links = tuple(Link(row.name or "its row", row_anchor("names", i)) for i, row in failed)[:MOST_LINKS]
    if failed:
        yield Sentence(f"{sum(row.failed for _, row in failed)} requests failed.", links)


def _coarse_names(outcome: Outcome) -> Iterator[Sentence]:
    coarse = any(Mark.COARSE in row.figure(column.figure).marks for row in outcome.names for column in NAMES)
    if coarse:
        yield Sentence(f"In all rows: {_MARK_WORDS[Mark.COARSE]}.")
