"""Why more load does not fit: what the engine, the answers and the load generator say of a level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis.engine_concerns import KV_FULL, NEXT_STEP, Concern, What
from analysis.levels import LevelRow
from analysis.reconcile import Closing, ServerView
from tokenswarm.errors import ErrorKind

_FEWEST = 3  # samples that say something about a level
_WAITED_S, _WAITED_SHARE = 0.010, 0.25  # in the queue on average, and of the TTFT: less is no queue


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
        its = [Reason((row.name,), _CAUSES[one.what], _text(one)) for one in view.concerns if one.what in _CAUSES]
        found += its if any(one.cause in (Cause.QUEUE, Cause.KV) for one in its) else [*its, *_of_queue(row, view)]
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


def _of_queue(row: LevelRow, view: ServerView) -> Iterator[Reason]:
    """By the engine's own sum of waiting times, which needs no samples in between."""
    queue, ttft = view.queue_s, view.client_ttft_s
    if queue is None or not ttft or queue < _WAITED_S or queue < _WAITED_SHARE * ttft:
        return
    full = view.kv_usage_max is not None and view.kv_usage_max >= KV_FULL
    text = f"a request waited {queue * 1000:.0f} ms in the engine's queue on average, of a TTFT of {ttft * 1000:.0f} ms"
    next_step = NEXT_STEP[What.KV_LIMITED if full else What.QUEUED]
    yield Reason((row.name,), Cause.KV if full else Cause.QUEUE, f"{text}; {next_step}")


def _text(concern: Concern) -> str:
    return f"{concern.reason}; {concern.next_step}"


def _nothing_waits(row: LevelRow, view: ServerView | None) -> Reason:
    if view is None or (view.queue_s is None and (view.moments < _FEWEST or view.waiting_share is None)):
        samples = "no samples" if view is None else f"only {view.moments} samples"
        text = f"{samples} of the engine tell; sample its /metrics more often, or lay its log beside it (ingest)"
        return Reason((row.name,), Cause.UNKNOWN, text)
    seen = [
        None if view.queue_s is None else f"{view.queue_s * 1000:.0f} ms on average",
        None if view.waiting_share is None else f"in {view.waiting_share:.0%} of {view.moments} samples",
    ]
    kv = "" if view.kv_usage_max is None else f", KV cache at {view.kv_usage_max:.0%} at most"
    waited = ", ".join(text for text in seen if text)
    text = f"requests hardly waited ({waited}){kv}: steps take longer with more streams"
    return Reason((row.name,), Cause.BATCH, text)
