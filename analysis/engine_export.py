"""The engine's own figures for programs: times in seconds, shares 0 to 1, unknown as None."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from analysis.engine_concerns import Concern
from analysis.engine_log import EngineLog
from analysis.log_alignment import Alignment
from analysis.log_levels import LogLevel
from analysis.reconcile import ServerView


def server_object(view: ServerView) -> dict[str, Any]:
    """One level by the engine's counters."""
    window = view.window
    return {
        "level": view.row.level,
        "label": view.row.name,
        "counts": view.closing,
        "why": view.why,
        "counting": window.counting,
        "window_s": window.seconds,
        "requests": asdict(view.requests),
        "generation_tokens": asdict(view.generation_tokens),
        "prompt_tokens": asdict(view.prompt_tokens),
        "ttft_mean_s": {
            "client": view.client_ttft_s,
            "server": view.server_ttft_s,
            "queue": view.queue_s,
            "prefill": view.prefill_s,
            "unexplained": view.unexplained_s,
            "frontend": view.frontend_s,
            "beyond": view.beyond_s,
            "client_lag": view.client_lag_s,
        },
        "e2e_mean_s": {"client": view.client_e2e_s, "server": window.means.get("e2e")},
        "finding": view.finding,
        "means_s": window.means,
        "mean_counts": window.counts,
        "totals": window.totals,
        "samples": window.samples,
        "running_mean": window.running_mean,
        "waiting_mean": window.waiting_mean,
        "waiting_max": window.waiting_max,
        "waiting_share": window.waiting_share,
        "kv_usage_max": window.kv_usage_max,
        "accept_rate": view.accept_rate,
        "concerns": [_concern(one) for one in view.concerns],
    }


def log_object(log: EngineLog) -> dict[str, Any]:
    """The log by itself."""
    found = log.found
    return {
        "path": str(log.path),
        "engine": log.engine,
        "lines": log.lines,
        "unknown_lines": log.unknown,
        "notes": log.notes,
        "boots": [asdict(boot) for boot in found.boots],
        "samples": [asdict(sample) | {"cached_share": sample.cached_share} for sample in found.samples],
        "drafting": [asdict(one) for one in found.drafting],
        "preempted": [asdict(one) for one in found.preempted],
    }


def aligned_object(log: EngineLog, aligned: Alignment | None, levels: list[LogLevel]) -> dict[str, Any]:
    """The log beside a run."""
    return {
        "log": {
            key: value for key, value in log_object(log).items() if key not in ("samples", "drafting", "preempted")
        },
        "alignment": None if aligned is None else asdict(aligned),
        "levels": [_log_level(level) for level in levels],
    }


def _log_level(level: LogLevel) -> dict[str, Any]:
    known = {name: value for name, value in vars(level).items() if name not in ("row", "concerns", "moments")}
    head = {"level": level.row.level, "label": level.row.name, "lines": level.moments}
    return head | known | {"concerns": [_concern(one) for one in level.concerns]}


def _concern(one: Concern) -> dict[str, str]:
    return {"what": one.what, "reason": one.reason, "next_step": one.next_step}
