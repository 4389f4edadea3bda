"""Run folders of levels by the clock, made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.analysis.conftest import write_run
from tokenswarm.records import RequestRecord
from tokenswarm.rundir import HEADERS


def arrival(ticket: int, due_s: float, sent_s: float | None, end_s: float | None, **facts: Any) -> RequestRecord:
    """One session of one request with a single token, that came at its end; without ``sent_s`` it was not admitted."""
    given: dict[str, Any] = {
        "level": 0, "phase": "measured", "ticket": ticket, "worker": "w0", "traffic": "chat",
        "session": f"{facts.get('level', 0)}.{facts.get('phase', 'measured')}.{ticket}", "session_end": "done",
        "scheduled_s": due_s, "sent_s": sent_s, "first_token_s": end_s, "last_token_s": end_s, "finished_s": end_s,
        "output_tokens": 1, "token_source": "usage", "asked_output_tokens": 1, "finish_reason": "length",
    }  # fmt: skip
    if sent_s is None or facts.get("error_kind"):
        given |= {"session_end": None, "output_tokens": None, "token_source": None, "finish_reason": None}
        given |= {"first_token_s": None, "last_token_s": None, "error_kind": "not_admitted"}
    return RequestRecord(**given | facts)


def write_levels(folder: Path, rows: Iterable[dict[str, Any]]) -> None:
    """``levels.csv`` with every column that is written today."""
    lines = [",".join(HEADERS["levels"])]
    lines += [
        ",".join("" if row.get(name) is None else str(row[name]) for name in HEADERS["levels"])
        for row in ({"level": i, "state": "complete"} | row for i, row in enumerate(rows))
    ]
    (folder / "levels.csv").write_text("\n".join(lines) + "\n")


def clocked_run(folder: Path, records: Iterable[RequestRecord], levels: Iterable[dict[str, Any]], **facts: Any) -> Path:
    """A run whose ``levels`` (label, rate_per_s, duration_s, and what ``levels.csv`` says) arrive by the clock."""
    levels = list(levels)
    planned = [
        {"arrivals": "constant", "concurrency": None, "max_users": 8, "when_full": "refuse", "replayed": False}
        | {key: level[key] for key in ("label", "rate_per_s", "duration_s", "arrivals", "replayed") if key in level}
        for level in levels
    ]
    write_run(folder, records, levels=planned, **facts)
    write_levels(folder, levels)
    return folder
