"""The prefix-cache test through sockets: whole runs of Locust against simulated engines that know the truth."""

from __future__ import annotations

import contextlib
import io
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from analysis.__main__ import main
from tests.locust_process import run_locust
from tests.simulated.conftest import ROOT, Run, Simulator

AGENTIC = ROOT / "locustfiles" / "agentic.py"
KNOWN = str(ROOT / "tests" / "data" / "simulator" / "known-prefill.yaml")
TOKEN_S = 0.0001  # what computing a prompt token takes there, in its own time
FAST, EXACT = 10.0, 4.0  # the slower a server, the less a busy machine matters beside what a cache saves

SCENARIO = """\
seed: {seed}
traffic:
  - kind: agentic
    system_prompt: {{tokens: 1600}}
    steps: 3
    task_tokens: {{uniform: [40, 80]}}
    output_tokens: {{uniform: [8, 16]}}
    tool_time_s: {{uniform: [{tool_s}]}}
    tool_result_tokens: {{uniform: [40, 80]}}
prefix_cache: {{{test}}}
load: {{closed: {{users: {users}, sessions: {sessions}, warmup_sessions: 2}}}}
"""


def scenario(
    seed: int, test: str = "cold: session", users: int = 1, sessions: int = 24, tool_s: str = "0, 0.02"
) -> str:
    return SCENARIO.format(seed=seed, test=test, users=users, sessions=sessions, tool_s=tool_s)


def benefit_of(run: Run) -> dict[str, Any]:
    """What ``python -m analysis prefix-cache RUN --json`` prints. First of all, requests ran and none failed."""
    assert run.good, run.output
    assert run.measured()
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["prefix-cache", str(run.folder), "--json"]) == 0
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def tokens_saved(run: Run, server: Simulator, turns: range = range(3)) -> float:
    """By the server's own record: tokens a request that it took from its cache for the warm session of a pair and not
    for the cold one, in the median."""
    cached = {row["id"]: row["cached_tokens"] for row in server.truth()}
    pairs: dict[str, dict[str, list[int]]] = defaultdict(lambda: {"warm": [], "cold": []})
    for row in run.measured():
        if row["pair"] and int(row["turn"]) in turns:
            pairs[row["pair"]][row["arm"]].append(cached[row["request_id"]])
    assert all(len(arms["warm"]) == len(arms["cold"]) == len(turns) for arms in pairs.values())
    return median((sum(arms["warm"]) - sum(arms["cold"])) / len(turns) for arms in pairs.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "test", "isolated_by"),
    [
        (1, "cold: session", "salt"),
        (2, "cold: session", "salt"),
        (3, "cold: session, isolate: nonce", "nonce"),
        (4, "cold: request", "salt"),
        (5, "cold: request, isolate: nonce", "nonce"),
    ],
)
def test_saving_is_what_the_server_did_not_compute(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], seed: int, test: str, isolated_by: str
) -> None:
    """One user: the median saving of TTFT and the milliseconds for 1,000 cached tokens are within 5 % of the truth."""
    server = simulator("--truth", "ends", "--speed", f"{EXACT:g}", preset=KNOWN)
    run = locust("-H", server.url, scenario=scenario(seed, test), locustfile=AGENTIC)
    document = benefit_of(run)
    (level,) = document["levels"]
    assert document["isolated_by"] == isolated_by
    assert document["cache_probe"]["state"] == "on"
    assert (level["pairs"], level["incomplete_pairs"], level["findings"]) == (12, 0, [])
    assert level["verdict"] == "benefit"
    truth_s = tokens_saved(run, server) * TOKEN_S / EXACT
    assert level["differences"]["ttft"]["saved_median_s"]["value"] == pytest.approx(truth_s, rel=0.05)
    assert level["cached_tokens"]["saved_ms_per_1000"]["value"] == pytest.approx(1e6 * TOKEN_S / EXACT, rel=0.05)


@pytest.mark.slow
def test_four_users_and_whole_levels(simulator: Callable[..., Simulator], locust: Callable[..., Run]) -> None:
    """Pairs show the saving under load, the whole levels in the order cold, warm, warm, cold stand beside it."""
    server = simulator("--truth", "ends", "--speed", f"{FAST:g}", preset=KNOWN)
    text = scenario(6, "cold: session, throughput: true", users=4, sessions=48, tool_s="0.02, 0.06")
    run = locust("-H", server.url, scenario=text, locustfile=AGENTIC)
    document = benefit_of(run)
    (level,) = document["levels"]
    assert (level["concurrency"], level["pairs"], level["findings"]) == (4, 24, [])
    first = level["differences"]["first_ttft"]
    assert first["verdict"] == "benefit"
    truth_s = tokens_saved(run, server, range(1)) * TOKEN_S / FAST
    assert first["saved_median_s"]["value"] == pytest.approx(truth_s, rel=0.1)
    (four,) = document["whole_levels"]
    assert (four["levels"], four["not_complete"]) == ([1, 2, 3, 4], [])
    e2e = four["measures"]["e2e_mean_s"]
    assert (e2e["warm_over_cold"] < 1, e2e["verdict"]) == (True, "benefit")


@pytest.mark.slow
def test_no_benefit_is_claimed_where_nothing_is_cached(simulator: Callable[..., Simulator], tmp_path: Path) -> None:
    """Caching off, and on but inert: where the server tells cached tokens a finding stands in place of the verdict;
    where it does not, the latencies decide, and of two runs at most one may take chance for a benefit."""
    claims = 0
    for seed, (preset, words, tells) in enumerate(
        [
            ("cache-off", "is off", True),
            ("cache-inert", "enabled but inert", True),
            ("cache-off", "", False),
            ("cache-inert", "", False),
        ],
        start=7,
    ):
        silent = [] if tells else ["--set", "report_cached_tokens=false"]
        server = simulator("--speed", f"{FAST:g}", *silent, preset=preset)
        folder = tmp_path / str(seed)
        folder.mkdir()
        run = run_locust(folder, "-H", server.url, scenario=scenario(seed), locustfile=AGENTIC)
        (level,) = benefit_of(run)["levels"]
        assert level["pairs"] == 12
        (finding,) = level["findings"]
        assert finding["key"] == ("nothing cached" if tells else "cached tokens unknown")
        assert words in finding["text"]
        assert tells == (level["verdict"] is None)
        claims += level["verdict"] == "benefit"
    assert claims <= 1
