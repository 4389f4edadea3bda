"""Chats, agents and captions in one run, through a whole Locust: shares by ticket, histories, think times, tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.simulated.conftest import ROOT, Run, Simulator

MIXED = ROOT / "locustfiles" / "mixed.py"
SCENARIO = f"""\
traffic:
  - name: chat
    weight: 5
    turns: 3
    input_tokens: {{uniform: [20, 60]}}
    output_tokens: {{uniform: [4, 12]}}
    think_time_s: {{uniform: [0.05, 0.15]}}
  - {{name: clerks, weight: 1, input_tokens: 400, output_tokens: 4}}
  - name: agents
    kind: agentic
    weight: 3
    tools: {ROOT / "scenarios/material/tools/support.yaml"}
    steps: 3
    output_tokens: 6
    tool_time_s: 0.05
  - name: captions
    kind: captioning
    weight: 1
    output_tokens: 6
    images: {{synthetic: {{pixels: {{uniform: [4000, 40000]}}}}}}
load: {{closed: {{users: [1, 4], sessions: 20, warmup_sessions: 2, tail: drain}}}}
"""
SHARES = {"chat": 10, "clerks": 2, "agents": 6, "captions": 2}  # of 20 sessions
TURNS = {"chat": 3, "clerks": 1, "agents": 3, "captions": 2}


@pytest.fixture
def run(simulator: Callable[..., Simulator], locust: Callable[..., Run]) -> Callable[..., tuple[Run, Simulator]]:
    """The scenario on an engine of its own; first of all, requests ran and none failed."""

    def play(*options: str) -> tuple[Run, Simulator]:
        server = simulator("--speed", "20", "--no-stall")
        played = locust("-H", server.url, *options, scenario=SCENARIO, locustfile=MIXED)
        assert played.good, played.output
        assert played.measured(), played.output
        assert [row["error"] for row in played.rows if row["error_kind"]] == []
        return played, server

    return play


def classes(run: Run) -> dict[tuple[str, str], str]:
    """The class of every measured ticket."""
    return {(row["level"], row["ticket"]): row["traffic"] for row in run.measured()}


def assert_mixed(played: Run, server: Simulator) -> None:
    """Exact shares at 1 and 4 users, every session as long as its class says, answers of the model in the history,
    pauses outside every latency; tables by class, then pooled."""
    found = classes(played)
    assert Counter((level, name) for (level, _), name in found.items()) == {
        (level, name): count for level in "01" for name, count in SHARES.items()
    }
    truth = {row["id"]: row for row in server.truth()}
    sessions = defaultdict(list)
    for row in sorted(played.measured(), key=lambda row: int(row["turn"])):
        sessions[row["session"]].append(row)
    for rows in sessions.values():
        assert len(rows) == TURNS[rows[0]["traffic"]]
        facts = [truth[row["request_id"]] for row in rows]
        for earlier, later in pairwise(facts):
            assert later["prompt_tokens"] > earlier["prompt_tokens"] + earlier["output_tokens"]
        if rows[0]["traffic"] == "chat":
            for before, after in pairwise(rows):
                assert 0.05 <= float(after["sent_s"]) - float(before["finished_s"]) < 0.4
                assert int(after["history_tokens"]) == int(before["prompt_tokens"]) + int(before["output_tokens"])
        assert {fact["images"] or 0 for fact in facts} == ({1} if rows[0]["traffic"] == "captions" else {0})
    table = played.table()
    assert [(row["concurrency"], row["traffic"], row["requests"]) for row in table["classes"]] == [
        (users, name, SHARES[name] * TURNS[name]) for users in (1, 4) for name in sorted(SHARES)
    ]
    pooled = sum(SHARES[name] * TURNS[name] for name in SHARES)
    assert [(row["concurrency"], row["requests"]) for row in table["levels"]] == [(1, pooled), (4, pooled)]
    text = (played.folder / "table.txt").read_text(encoding="utf-8")
    assert text.index("captions") < text.index("All classes together")


@pytest.mark.slow
def test_a_mix_is_the_same_on_one_and_on_three_workers(run: Callable[..., tuple[Run, Simulator]]) -> None:
    """Two classes of chat, agents and captions, alone and with ``--processes 3``: the same class and the same lengths
    for every ticket, and whatever a mix must be."""
    alone, server = run()
    assert_mixed(alone, server)
    shared, server = run("--processes", "3")
    assert_mixed(shared, server)
    assert {row["worker"] for row in shared.measured()} == {"w0", "w1", "w2"}
    assert classes(alone) == classes(shared)
    asked = [
        {(row["level"], row["ticket"], row["turn"]): row["asked_output_tokens"] for row in one.measured()}
        for one in (alone, shared)
    ]
    assert asked[0] == asked[1]
