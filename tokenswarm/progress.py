"""What a long headless run tells while it goes: level, done of total, tok/s, TTFT so far, time left."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from tokenswarm.controller import Controller
from tokenswarm.levelfacts import LevelFacts
from tokenswarm.quantiles import quantile
from tokenswarm.schedule import Level


def clock(seconds: float) -> str:
    """``75`` gives ``1:15``, ``3700`` gives ``1:01:40``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def time_left_s(level: Level, later: Sequence[Level], done: int, elapsed_s: float) -> float | None:
    """A guess from the pace of the current level: each user needs as long for a session as it has so far.

    ``None`` while nothing has ended. Later levels are slower a session on a busy server, so it is a lower bound.
    """
    if level.duration_s is not None:
        rest_s = max(0.0, level.duration_s - elapsed_s)
        return rest_s + sum((other.duration_s or 0.0) + other.warmup_s for other in later)
    if not done or level.sessions is None:
        return None
    session_s = elapsed_s * level.concurrency / done
    rest_s = session_s * (level.sessions - done) / level.concurrency
    return rest_s + sum(
        session_s * ((other.sessions or 0) / other.concurrency + (other.warmup_sessions > 0)) for other in later
    )


def line(controller: Controller, planned: Sequence[Level]) -> str:
    """One line on the state of a run. ``planned``: its levels, as far as they are known."""
    level = controller.level
    of = f" of {len(planned)}" if len(planned) > level.index else ""
    head = f"level {level.index + 1}{of} ({level.label})"
    started_s = controller.account.measured_started_s
    if controller.stage in ("spawn", "begin", "warmup") or started_s is None:
        return f"{head}: {'starting users' if controller.stage in ('spawn', 'begin') else 'warm-up'}"
    elapsed_s = perf_counter() - started_s
    done, parts = _done(controller, elapsed_s)
    facts = controller.account.facts
    if facts.failed_requests:
        parts.append(f"{facts.failed_requests} failed")
    if sum(facts.tokens) and elapsed_s > 0:
        parts.append(f"{sum(facts.tokens) / elapsed_s:.1f} tok/s")
    ttft_s = quantile(facts.ttfts_s, 0.5)
    if ttft_s is not None:
        parts.append(f"TTFT p50 {ttft_s * 1e3:.0f} ms")
    left_s = time_left_s(level, planned[level.index + 1 :], done, elapsed_s)
    if left_s is not None:
        parts.append(f"about {clock(left_s)} left")
    return f"{head}: " + ", ".join(parts)


def _done(controller: Controller, elapsed_s: float) -> tuple[int, list[str]]:
    """What of the level is done, as a number and in words."""
    level, account = controller.level, controller.account
    facts, clockwork = account.facts, account.clockwork
    if clockwork is not None:
        refused = account.not_admitted
        parts = [f"{facts.measured_requests} requests, {clockwork.timetable.under_way(clockwork.now_s)} in flight"]
        return facts.measured_requests, [*parts, *([f"{refused} not admitted"] if refused else [])]
    if level.duration_s is None:
        return account.ledger.done, [f"{account.ledger.done}/{level.sessions} sessions"]
    return facts.measured_requests, [
        f"{facts.measured_requests} requests, {clock(elapsed_s)} of {clock(level.duration_s)}"
    ]


def level_line(level: Level, facts: LevelFacts, state: str) -> str:
    """One line on a level that has ended."""
    wall_s = facts.wall_s
    rate = f", {facts.window_tokens(level.tail) / wall_s:.1f} tok/s" if wall_s else ""
    failed = f", {facts.failed_requests} failed" if facts.failed_requests else ""
    return f"{level.label} {state}: {facts.measured_requests} requests{failed} in {clock(wall_s)}{rate}"
