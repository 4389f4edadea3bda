"""A run that measures interference, small enough to work out by hand, written as a run folder.

Two rounds of blocks of 10 s: chat (2 users) alone, documents (1 user) alone, both together, and back again. A block
begins at 100 s x its number, after a warm-up of 2 s. Every request decodes for 0.2 s: 11 tokens, of which the first
comes with the TTFT, so that TPOT is 20 ms and E2E is TTFT + 0.2 s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenswarm.records import HEADER, Phase, RequestRecord, to_csv
from tokenswarm.rundir import HEADERS, csv_lines

USERS = {"chat": 2, "documents": 1}
BLOCK_S, WARMUP_S = 10.0, 2.0
BLOCKS = ("chat", "documents", "together", "together", "documents", "chat")  # by number
# In this order each half of a block has as many values above and below the median as the other.
TENTHS = (0.00, 0.09, 0.01, 0.08, 0.02, 0.05, 0.04, 0.07, 0.03, 0.06)
CHAT_ALONE_S, CHAT_TOGETHER_S, DOCUMENTS_S = 0.10, 0.50, 1.00  # the smallest of ten TTFTs


def request(
    level: int, traffic: str, at_s: float, ttft_s: float, user: int = 0, phase: Phase = Phase.MEASURED, **changes: Any
) -> RequestRecord:
    """Sent ``at_s`` after the measured time of the block has begun."""
    sent = 100.0 * level + WARMUP_S + at_s
    record = RequestRecord(
        level=level,
        concurrency=sum(users_of(level).values()),
        phase=phase,
        ticket=int(100 * (at_s + WARMUP_S)) + user,
        worker="local",
        user=user,
        traffic=traffic,
        session=f"{level}.{traffic}.{user}.{at_s}",
        scheduled_s=sent,
        sent_s=sent,
        first_token_s=sent + ttft_s,
        first_output_s=sent + ttft_s,
        last_token_s=sent + ttft_s + 0.2,
        finished_s=sent + ttft_s + 0.2,
        prompt_tokens=300,
        output_tokens=11,
        token_source="usage",
    )
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def users_of(level: int) -> dict[str, int]:
    return {name: users for name, users in USERS.items() if BLOCKS[level] in (name, "together")}


def ten(level: int, traffic: str, least_s: float, **changes: Any) -> list[RequestRecord]:
    """Ten requests, one a second, from the class' users in turn."""
    users = USERS[traffic]
    return [request(level, traffic, float(i), least_s + more, i % users, **changes) for i, more in enumerate(TENTHS)]


def whole_run() -> list[RequestRecord]:
    rows: list[RequestRecord] = []
    for level, company in enumerate(BLOCKS):
        if company != "documents":
            rows += ten(level, "chat", CHAT_TOGETHER_S if company == "together" else CHAT_ALONE_S)
        if company != "chat":
            rows += ten(level, "documents", DOCUMENTS_S)
    return rows


def write_blocks(folder: Path, rows: Iterable[RequestRecord], states: dict[int, str] | None = None) -> Path:
    """``states`` by block, where they are not complete; a block whose state is empty has no row in levels.csv."""
    folder.mkdir(parents=True)
    levels, planned = [], []
    for level, company in enumerate(BLOCKS):
        users = users_of(level)
        label = f"c={sum(users.values())} {company}{'' if company == 'together' else ' alone'}"
        planned.append(
            {
                "level": level,
                "concurrency": sum(users.values()),
                "label": label + (" #2" if level > 2 else ""),
                "arms": "",
                "duration_s": BLOCK_S,
                "tail": "fill",
                "round": level // 3,
                "users_by_class": users,
            }
        )
        row = {
            "level": level,
            "concurrency": sum(users.values()),
            "state": (states or {}).get(level, "complete"),
            "reason": "",
            "measured_started_s": 100.0 * level + WARMUP_S,
        }
        if row["state"]:
            levels.append([row.get(name) for name in HEADERS["levels"]])
    traffic = [{"name": name, "weight": users} for name, users in USERS.items()]
    run = {"format": 1, "name": "company", "scenario": {"traffic": traffic}, "target": {}, "levels": planned}
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    (folder / "requests.csv").write_text(HEADER + to_csv(rows), encoding="utf-8")
    (folder / "levels.csv").write_text(",".join(HEADERS["levels"]) + "\n" + csv_lines(levels), encoding="utf-8")
    (folder / "end.json").write_text('{"state": "finished"}', encoding="utf-8")
    return folder
