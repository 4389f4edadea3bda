"""Interference through sockets: whole runs of Locust against engines whose contention is known."""

from __future__ import annotations

import contextlib
import io
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from tests.simulated.conftest import ROOT, Run, Simulator

MIXED = ROOT / "locustfiles" / "mixed.py"
# A step takes 5 ms and 0.1 ms for each prompt token computed in it: a document of 3,000 tokens holds up all others for
# 0.3 s, at twice the speed for 0.15 s.
KNOWN = str(ROOT / "tests" / "data" / "simulator" / "known-prefill.yaml")
STEADY = """\
# Every step takes 10 ms, whatever the batch; prefill costs nothing beside it: nobody is late because of others.
model: steady
max_model_len: 8192
decode_step_s: {0: 0.01, 128: 0.01}
prefill_token_s: 0
prefill_step_tokens: 100000
prefill_request_tokens: 100000
max_num_seqs: 128
kv_blocks: 10000
"""
SCENARIO = """\
traffic:
  - {{name: chat, weight: 6, input_tokens: {{uniform: [40, 80]}}, output_tokens: {{uniform: [8, 16]}}}}
  - {{name: documents, weight: 2, input_tokens: {{uniform: [2500, 3500]}}, output_tokens: {{uniform: [8, 16]}}}}
load: {{closed: {{users: 8, duration_s: 1, warmup_s: 0.2, drain_limit_s: 3}}}}
interference: {{blocks: {blocks}}}
"""


def interference_of(run: Run) -> dict[str, Any]:
    """What ``python -m analysis interference RUN --json`` prints. First of all, requests ran and none failed."""
    assert run.good, run.output
    assert run.measured()
    assert [row["error"] for row in run.rows if row["error_kind"] not in ("", "cancelled")] == []
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["interference", str(run.folder), "--json"]) == 0
    (group,) = json.loads(out.getvalue())["groups"]
    return dict(group)


def users_by_class(run: Run) -> dict[str, dict[str, int]]:
    """Users that sent anything, by block and class."""
    seen: dict[str, dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    for row in run.rows:
        seen[row["level"]][row["traffic"]].add((row["worker"], row["user"]))
    return {level: {name: len(users) for name, users in classes.items()} for level, classes in seen.items()}


def most_at_once(run: Run, level: str, traffic: str) -> int:
    """The largest number of requests of a class that were under way at the same moment."""
    rows = [row for row in run.rows if row["level"] == level and row["traffic"] == traffic]
    edges = [(float(row["sent_s"]), 1) for row in rows] + [(float(row["finished_s"]), -1) for row in rows]
    under_way = most = 0
    for _, change in sorted(edges):
        under_way += change
        most = max(most, under_way)
    return most


def true_ttft_s(run: Run, server: Simulator, levels: list[str]) -> float:
    """The 95 % quantile over the chats that were sent in the measured time of these blocks: to the moment at which the
    server wrote the first token, on the same clock."""
    first = {row["id"]: row["first_token_s"] for row in server.truth()}
    begun = {row["level"]: float(row["measured_started_s"]) for row in run.file("levels.csv")}
    times = [
        first[row["request_id"]] - float(row["sent_s"])
        for row in run.rows
        if row["traffic"] == "chat" and row["level"] in levels and 0 <= float(row["sent_s"]) - begun[row["level"]] <= 1
    ]
    assert len(times) > 50
    return float(np.quantile(times, 0.95))


@pytest.mark.slow
def test_documents_hold_up_chats(simulator: Callable[..., Simulator], locust: Callable[..., Run]) -> None:
    """Two load processes, four rounds: six chats and two documents in every block they belong to, no more of them at
    once, their work the same alone and together; what is said of the chats is what the server saw."""
    server = simulator("--truth", "ends", "--speed", "2", preset=KNOWN)
    run = locust("-H", server.url, "--processes", "2", scenario=SCENARIO.format(blocks=4), locustfile=MIXED)
    group = interference_of(run)
    assert [row["state"] for row in run.file("levels.csv")] == ["complete"] * 12
    quotas = {str(block["level"]): block["users"] for block in group["blocks"]}
    assert users_by_class(run).keys() == quotas.keys()
    for level, users in quotas.items():
        found = users_by_class(run)[level]
        assert found.keys() == users.keys()
        for name, count in users.items():
            assert most_at_once(run, level, name) == count
            assert found[name] >= count
    assert {row["worker"] for row in run.rows} == {"w0", "w1"}
    sides = [
        {row["session"].split(".", 1)[1]: row["asked_input_tokens"] for row in run.rows if row["level"] == level}
        for level in ("0", "2")  # the chats of the first round, alone and together
    ]
    chats = {row["ticket"] for row in run.rows if row["traffic"] == "chat"}
    both = [key for key in sides[0].keys() & sides[1].keys() if key.split(".")[1] in chats]
    assert len(both) >= 6
    assert all(sides[0][key] == sides[1][key] for key in both)

    chat, documents = group["classes"]
    assert (chat["users"], chat["beside"], documents["users"]) == (6, {"documents": 2}, 2)
    cell = chat["figures"]["ttft_p95"]
    assert cell["verdict"] in ("worse", "cannot tell")  # a noisy machine may leave the 95 % quantile without a bound
    alone = true_ttft_s(run, server, [level for level, users in quotas.items() if "documents" not in users])
    together = true_ttft_s(run, server, [level for level, users in quotas.items() if len(users) == 2])
    assert together > 5 * alone
    assert cell["alone"]["value"] == pytest.approx(alone, abs=0.003)
    assert cell["together"]["value"] == pytest.approx(together, abs=0.01)
    assert (chat["figures"]["e2e_p50"]["verdict"], chat["figures"]["tok_s"]["verdict"]) == ("worse", "worse")
    assert {documents["figures"][key]["verdict"] for key in ("ttft_p50", "e2e_p50")} <= {"cannot tell", "no effect"}
    told = (run.folder / "interference.txt").read_text(encoding="utf-8")
    assert "chat (6 users): worse: " in told
    assert told in run.output


@pytest.mark.slow
def test_nobody_is_blamed_where_nobody_is_late(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], tmp_path: Path
) -> None:
    """An engine whose steps take as long with both classes as with one: no chat is said to suffer. A single cell may be
    wrong by chance."""
    preset = tmp_path / "steady.yaml"
    preset.write_text(STEADY, encoding="utf-8")
    server = simulator(preset=str(preset))
    run = locust("-H", server.url, scenario=SCENARIO.format(blocks=2), locustfile=MIXED)
    chat, documents = interference_of(run)["classes"]
    assert chat["figures"]["tpot_p50"]["verdict"] == "no effect"
    assert chat["figures"]["tpot_p50"]["together"]["value"] == pytest.approx(0.01, rel=0.1)
    verdicts = [figure["verdict"] for result in (chat, documents) for figure in result["figures"].values()]
    assert verdicts.count("worse") <= 1, verdicts
