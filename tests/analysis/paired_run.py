"""A run of a prefix-cache test small enough to work out by hand, written as a run folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenswarm.records import HEADER, Phase, RequestRecord, SessionEnd, to_csv
from tokenswarm.rundir import HEADERS, csv_lines

PROBE = {"state": "on", "line": "on, blocks of 16 tokens, cache_salt isolates", "reports_cached_tokens": True}


def session(arm: str, pair: int, first_ttft_s: float, **changes: Any) -> list[RequestRecord]:
    """Two requests: TTFT ``first_ttft_s`` and 0.05 s, 1 s of decoding each, 2 s of tool time between them.

    A cold session finds 64 tokens of its own first prompt in its second request; a warm one finds 100 more in each.
    """
    start = 100.0 * pair + (50.0 if arm == "warm" else 0.0)
    more = 100 if arm == "warm" else 0
    first = _request(arm, pair, 0, start, first_ttft_s, 120, 0, more)
    second = _request(arm, pair, 1, first.finished_s + 2.0, 0.05, 200, 120, 64 + more)  # type: ignore[operator]
    second.session_end = SessionEnd.DONE
    for request in (first, second):
        for name, value in changes.items():
            setattr(request, name, value)
        request.session = f"{request.level}.measured.{request.ticket}"
    return [first, second]


def _request(
    arm: str, pair: int, turn: int, sent_s: float, ttft_s: float, prompt: int, history: int, cached: int
) -> RequestRecord:
    number = 2 * pair + (arm == "warm")
    return RequestRecord(
        level=0,
        concurrency=1,
        phase=Phase.MEASURED,
        ticket=number,
        worker="local",
        traffic="agents",
        turn=turn,
        arm=arm,
        pair=pair,
        sent_s=sent_s,
        first_token_s=sent_s + ttft_s,
        first_output_s=sent_s + ttft_s,
        last_token_s=sent_s + ttft_s + 1.0,
        finished_s=sent_s + ttft_s + 1.0,
        prompt_tokens=prompt,
        prefix="system",
        prefix_tokens=100,
        history_tokens=history,
        cached_tokens=cached,
        output_tokens=11,
        token_source="usage",
        finish_reason="stop",
    )


def seven_pairs() -> list[list[RequestRecord]]:
    """First TTFT 0.30, 0.31 … 0.36 s cold and 0.10 s warm: a session saves 0.20, 0.21 … 0.26 s in all."""
    return [
        requests
        for pair in range(7)
        for requests in (session("cold", pair, 0.30 + 0.01 * pair), session("warm", pair, 0.10))
    ]


def write_run(
    folder: Path,
    sessions: Iterable[list[RequestRecord]],
    *,
    isolation: dict[str, Any] | None = None,
    probe: dict[str, Any] | None = None,
    arms: tuple[str, ...] = ("paired",),
    **facts: Any,
) -> Path:
    """The files that the analysis needs; level ``i`` has the arms ``arms[i]``."""
    folder.mkdir(exist_ok=True)
    rows = [request for requests in sessions for request in requests]
    (folder / "requests.csv").write_text(HEADER + to_csv(rows), encoding="utf-8")
    run = {
        "format": 1,
        "name": "prefix-cache",
        "run_id": "r1",
        "target": {"url": "http://host", "model": "m", "simulated": False},
        "scenario": {"prefix_cache": {}},
        "levels": [{"level": i, "concurrency": 1, "arms": one, "tail": "drain"} for i, one in enumerate(arms)],
        "isolation": isolation or {"by": "salt", "cold": "session"},
        "cache_probe": probe or PROBE,
        "template_prefix_tokens": 4,
    }
    (folder / "run.json").write_text(json.dumps(run | facts), encoding="utf-8")
    ended = [{"level": i, "concurrency": 1, "state": "complete", "arms": one} for i, one in enumerate(arms)]
    lines = csv_lines([one.get(column) for column in HEADERS["levels"]] for one in ended)
    (folder / "levels.csv").write_text(",".join(HEADERS["levels"]) + "\n" + lines, encoding="utf-8")
    (folder / "end.json").write_text('{"state": "finished"}', encoding="utf-8")
    return folder
