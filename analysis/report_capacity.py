"""Capacity on a page: the load that fits, why no more does, and the guidance, with links to the rows it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.capacity_report import capacity_parts
from analysis.capacity_set import Asked, CapacitySet, ClassCapacity, capacity_sets
from analysis.outcome import Outcome
from analysis.report_links import rows_links
from analysis.report_results import part_blocks
from analysis.report_sections import Block, Bullets, Fold, Prose, Sentence
from analysis.run_folder import Run
from analysis.source import outcome_of_run

_GUIDANCE = "Guidance"


def sets_of(outcome: Outcome, run: Run | None) -> list[CapacitySet]:
    """Of a run with failures these count as infinitely late, as a summary cannot."""
    failed = run is not None and any(row.failed for row in outcome.levels)
    late = outcome_of_run(run, failures_infinite=True) if failed and run is not None else outcome
    return capacity_sets(late, Asked({}))


def capacity_blocks(outcome: Outcome, sets: Sequence[CapacitySet]) -> list[Block]:
    """Guidance first; what it does not say, and why, is folded."""
    if not sets:
        return [Prose(("No guidance: no level says how many users or arrivals it had.",))]
    blocks: list[Block] = []
    for one in sets:
        if one.name:
            blocks.append(Prose((f"Of levels of the kind {one.name}:",)))
        said = [*_guidance(outcome, one), *map(Sentence, one.closing)]
        blocks += [Bullets(tuple(said))] if said else []
        withheld = tuple(_withheld(one))
        blocks += [Fold("What cannot be said, and why", (Bullets(withheld),))] if withheld else []
    parts = [part for one in sets for part in capacity_parts(one) if not part.title.startswith(_GUIDANCE)]
    return [*blocks, Fold("What fits, the knee, and why not more", tuple(part_blocks(parts)))]


def knee_sentences(outcome: Outcome, sets: Sequence[CapacitySet]) -> Iterator[Sentence]:
    """Of each kind of levels, unless it has too few of them."""
    for one in sets:
        if one.knee is not None and one.knee.steps:
            levels = [one.knee.steps[0].before.name, *(step.after.name for step in one.knee.steps)]
            kind = f" ({one.name})" if one.name else ""
            yield Sentence(f"Knee of the throughput{kind}: {one.knee.text}.", rows_links(outcome, levels, None))


def _guidance(outcome: Outcome, one: CapacitySet) -> Iterator[Sentence]:
    for item in one.classes:
        for sentence in item.guidance:
            if not sentence.withheld:
                links = rows_links(outcome, sentence.rows, item.traffic)
                yield Sentence(f"{_of(one, item)}{sentence.line}", links)


def _withheld(one: CapacitySet) -> Iterator[Sentence]:
    for item in one.classes:
        yield from (Sentence(f"{_of(one, item)}{sentence.line}") for sentence in item.guidance if sentence.withheld)


def _of(one: CapacitySet, item: ClassCapacity) -> str:
    return f"{item.traffic}: " if len(one.classes) > 1 else ""
