"""The audit on runs whose requests are known: what closes on a good run, and what is found in a bad one."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.audit_concern import REASONS, Kind
from analysis.audit_counts import least_requests
from analysis.audit_identities import littles_law
from analysis.audit_lengths import rank_test
from analysis.audit_set import figure_sets
from analysis.figures import Figure
from analysis.levels import LevelRow
from tests.analysis.conftest import write_run
from tokenswarm.records import RequestRecord

CASES = Path(__file__).parent / "cases"
IMPORTS = Path(__file__).parents[1] / "data" / "imports"
USERS = 4


def request(number: int, **facts: Any) -> RequestRecord:
    """In a closed loop of four users: a TTFT of 0.5 s, then 20 tokens at 0.1 s each, 2.4 s in all."""
    sent = 2.4 * (number // USERS)
    given: dict[str, Any] = {
        "level": 0, "concurrency": USERS, "phase": "measured", "ticket": number, "worker": "w0",
        "user": number % USERS, "traffic": "chat", "session": f"s{number}", "sent_s": sent,
        "first_token_s": sent + 0.5, "last_token_s": sent + 2.4, "finished_s": sent + 2.4, "output_tokens": 20,
        "asked_output_tokens": 20, "prompt_tokens": 300, "asked_input_tokens": 300, "token_source": "usage",
        "finish_reason": "length",
    }  # fmt: skip
    return RequestRecord(**given | facts)


def failed(number: int, **facts: Any) -> RequestRecord:
    """Refused by the server at once."""
    sent = 2.4 * (number // USERS)
    unknown = dict.fromkeys(("first_token_s", "last_token_s", "output_tokens", "token_source", "finish_reason"))
    return request(number, finished_s=sent + 2.4, error_kind="http_400", **unknown | facts)


def level(users: int) -> list[dict[str, Any]]:
    return [{"concurrency": users, "label": f"c={users}"}]


@pytest.fixture
def concerns(capsys: pytest.CaptureFixture[str]) -> Any:
    """Those of one run as JSON has them, by kind; those about small samples are left out."""

    def call(run: Path) -> dict[str, dict[str, Any]]:
        assert main(["audit", str(run), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["concerns"]
        return {one["kind"]: one for one in found if one["kind"] != Kind.SMALL}

    return call


def test_a_good_run_closes(concerns: Any, tmp_path: Path) -> None:
    """Four users, 80 requests of the same length without a pause: no rule has anything to say."""
    run = write_run(tmp_path / "run", [request(i) for i in range(80)], levels=level(USERS))
    assert concerns(run) == {}


def test_a_level_that_never_held_its_load(concerns: Any, table: Any, tmp_path: Path) -> None:
    """Two requests in flight at a level named 8 (case B27): found, and said below the table of the run too."""
    rows = (CASES / "B27" / "requests.csv").read_text().replace("\n0,1,measured", "\n0,8,measured")
    (tmp_path / "requests.csv").write_text(rows)
    found = concerns(tmp_path / "requests.csv")["concurrency not reached"]
    assert (found["told"], found["wanted"]) == (2.0, 8.0)
    assert found["rows"] == ["c=8"]
    assert "does not close: concurrency not reached: c=8: 2 requests in flight" in " ".join(
        table(tmp_path / "requests.csv").out.split()
    )


def test_failures_among_long_prompts(concerns: Any, tmp_path: Path) -> None:
    """Twenty of eighty fail, all with the longest prompts: the successes are an easier workload, and it is said."""
    rows = [request(i, asked_input_tokens=300 + i, prompt_tokens=300 + i) for i in range(60)]
    rows += [failed(i, asked_input_tokens=4000 + i, prompt_tokens=None) for i in range(60, 80)]
    found = concerns(write_run(tmp_path / "run", rows, levels=level(USERS)))
    assert set(found) == {"success bias"}
    assert found["success bias"]["told"] == 4069.5  # median of 4060 to 4079
    assert found["success bias"]["wanted"] == 329.5
    assert "100% of all pairs" in found["success bias"]["text"]


def test_failures_spread_over_all_lengths(concerns: Any, tmp_path: Path) -> None:
    """As many failures, every fourth request whatever its length: no bias is seen."""
    rows = [
        failed(i, asked_input_tokens=300 + i, prompt_tokens=None)
        if i % 4 == 0
        else request(i, asked_input_tokens=300 + i, prompt_tokens=300 + i)
        for i in range(80)
    ]
    assert "success bias" not in concerns(write_run(tmp_path / "run", rows, levels=level(USERS)))


def test_false_alarms_of_the_rank_test() -> None:
    """Where who fails has nothing to do with length, a p below 0.01 comes in about one of a hundred levels."""
    rng = np.random.default_rng(5)
    called = 0
    for _ in range(2000):
        lengths = rng.integers(100, 4000, 60).astype(float)
        test = rank_test(lengths[:12], lengths[12:])
        called += test is not None and test.p < 0.01
    assert 5 <= called <= 40  # 20 expected


def test_rank_test_by_hand() -> None:
    """Of 12 pairs of (1, 4, 5) and (2, 3, 6, 7) the first is larger in 4; ties count half."""
    first, second = np.array([1.0, 4.0, 5.0]), np.array([2.0, 3.0, 6.0, 7.0])
    test = rank_test(first, second)
    assert test is not None
    assert test.above == pytest.approx(sum(a > b for a, b in product(first, second)) / 12) == pytest.approx(4 / 12)
    # U = 4, mean 6, variance 3 * 4 * 8 / 12 = 8: z = (2 - 0.5) / 2.828 = 0.530, two-sided 0.596.
    assert test.p == pytest.approx(0.596, abs=0.001)
    assert rank_test(np.array([2.0]), np.array([2.0, 2.0])) is None
    tied = rank_test(np.array([1.0, 2.0]), np.array([2.0, 3.0]))
    assert tied is not None
    assert tied.above == pytest.approx(0.5 / 4)


def test_prompts_of_another_length(concerns: Any, tmp_path: Path) -> None:
    """300 tokens were asked for and the server counts 200; what a session has sent before was asked for as well."""
    rows = [request(i, prompt_tokens=200) for i in range(40)]
    found = concerns(write_run(tmp_path / "short", rows, levels=level(USERS)))["lengths not as asked"]
    assert (found["told"], found["wanted"]) == (200.0, 300.0)
    later = [request(i, prompt_tokens=900, asked_input_tokens=100, history_tokens=800) for i in range(40)]
    assert concerns(write_run(tmp_path / "later", later, levels=level(USERS))) == {}


def test_short_answers(concerns: Any) -> None:
    """Three of five answers stopped before the length that was asked for (case B21)."""
    found = concerns(CASES / "B21" / "requests.csv")["early stops"]
    assert (found["told"], found["wanted"]) == (80.0, 128.0)
    assert "3 of 5" in found["text"]


@pytest.mark.parametrize(
    ("sample", "known"),
    [
        ("vllm-bench-serve/out.json", set()),
        ("guidellm/out.json", set()),
        ("aiperf/profile_export.jsonl", {"lengths not as asked"}),
        ("inference-perf/summary_lifecycle_metrics.json", set()),
        ("sglang-bench/out.jsonl", set()),
        ("genai-bench/D32_128_text-to-text_num_concurrency_8_time_6s.json", set()),
    ],
)
def test_results_of_other_tools_close(concerns: Any, sample: str, known: set[str]) -> None:
    """All were measured on a server of exact pace. AIPerf asked for 32 tokens a prompt, and the server counted 11.4."""
    assert set(concerns(IMPORTS / sample)) == known


@pytest.mark.parametrize(
    ("window_tokens", "closes"),
    [
        (800.0, False),  # all tokens are of the measured requests: 1.6 in flight are not 2.0
        (1000.0, True),  # a fifth is of others: 0.25 x 0.2 + 0.5 x sqrt(0.2) = 27 % may be theirs
    ],
)
def test_littles_law_where_other_requests_share_the_window(window_tokens: float, closes: bool) -> None:
    """10 tok/s of requests of 10 tokens and 1.6 s; their mean is known to a half, and 2.0 were in flight."""
    row = LevelRow(0, 2, label="c=2", requests=80, ok=80)
    row.figures = {
        "output_tok_s": Figure(10.0),
        "output_tokens_mean": Figure(10.0, n=80),
        "e2e_mean_s": Figure(1.6, n=80, low=0.8, high=2.4),
        "in_flight_mean": Figure(2.0),
        "tokens": Figure(800.0),
        "window_tokens": Figure(window_tokens),
    }
    (one,) = figure_sets([row], published=False)
    assert (littles_law(one) == []) is closes


@pytest.mark.parametrize(("q", "n"), [(0.95, 59), (0.99, 299), (0.50, 5)])
def test_least_requests(q: float, n: int) -> None:
    """The known sample sizes for a one-sided 95 % bound of a quantile by the largest value."""
    assert least_requests(q) == n


def test_every_kind_has_its_reason() -> None:
    """The list of concerns is closed, and each says why it matters and stands in docs/audit.md."""
    assert set(REASONS) == set(Kind)
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    assert [kind for kind in Kind if f"| {kind} |" not in page] == []
