"""Why more load does not fit: what the engine, the answers and the load generator say of a level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis.engine_concerns import Concern, What
from analysis.levels import LevelRow
from analysis.reconcile import Closing, ServerView
from tokenswarm.errors import ErrorKind

_FEWEST = 3  # samples that say something about a level


class Cause(StrEnum):
    """The closed list."""

    GENERATOR = "load generator"
    PREEMPTION = "preemption"
    KV = "KV cache full"
    QUEUE = "queue"
    REFUSED = "refused"
    BATCH = "larger batch"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Reason:
    """``levels``: names of those at which it was seen; ``text``: what was seen and what to do."""

    levels: tuple[str, ...]
    cause: Cause
    text: str


_CAUSES = {What.PREEMPTED: Cause.PREEMPTION, What.KV_LIMITED: Cause.KV, What.QUEUED: Cause.QUEUE}


def merged(reasons: Iterable[Reason]) -> list[Reason]:
    """Those that say the same of several levels as one."""
    levels: dict[tuple[Cause, str], list[str]] = {}
    for reason in reasons:
        levels.setdefault((reason.cause, reason.text), []).extend(reason.levels)
    return [Reason(tuple(names), cause, text) for (cause, text), names in levels.items()]


def reasons_of(row: LevelRow, views: Sequence[ServerView]) -> list[Reason]:
    """Of one level, all classes together; never empty."""
    found = [*_of_generator(row), *_of_answers(row)]
    view = next((one for one in views if one.row.level == row.level), None)
    if view is not None:
        found += [Reason((row.name,), _CAUSES[one.what], _text(one)) for one in view.concerns if one.what in _CAUSES]
        if view.closing is Closing.OTHERS:
            text = "others used the server at the same time, so that the limit is not this load's alone"
            found.append(Reason((row.name,), Cause.UNKNOWN, text))
    return found or [_nothing_waits(row, view)]


def _of_generator(row: LevelRow) -> Iterator[Reason]:
    if row.generator is not None and row.limited:
        yield Reason((row.name,), Cause.GENERATOR, row.generator.line)


def _of_answers(row: LevelRow) -> Iterator[Reason]:
    refused = row.errors.get(ErrorKind.HTTP_429.value, 0)
    if refused:
        text = f"{refused} of {row.requests} requests were answered 429: a limit in the server or before it"
        yield Reason((row.name,), Cause.REFUSED, text)


def _text(concern: Concern) -> str:
    return f"{concern.reason}; {concern.next_step}"


def _nothing_waits(row: LevelRow, view: ServerView | None) -> Reason:
    if view is None or view.moments < _FEWEST or view.waiting_share is None:
        text = "no samples of the engine tell; let the run sample its /metrics, or lay its log beside it (ingest)"
        return Reason((row.name,), Cause.UNKNOWN, text)
    kv = "" if view.kv_usage_max is None else f", KV cache at {view.kv_usage_max:.0%} at most"
    text = (
        f"requests hardly waited ({view.waiting_share:.0%} of the samples){kv}: each step takes longer for more streams"
    )
    return Reason((row.name,), Cause.BATCH, text)
