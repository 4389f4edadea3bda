"""How many users fit: intervals from levels proven good and bad, the isotonic fit, the knee, the reasons."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.cache_share import CacheState, LevelCache
from analysis.capacity import capacity_of, of_all
from analysis.capacity_fit import Reading, crossing_of, isotonic
from analysis.capacity_level import needed
from analysis.capacity_reason import Cause, reasons_of
from analysis.capacity_set import next_steps
from analysis.engine_concerns import log_concerns
from analysis.engine_window import Counting, EngineWindow
from analysis.figures import Figure, Mark, quantile_figure
from analysis.health_verdict import GeneratorState, GeneratorVerdict
from analysis.knee import knee_of
from analysis.levels import LevelRow
from analysis.reconcile import Both, Closing, ServerView
from tests.analysis.conftest import write_run
from tokenswarm.records import Phase, RequestRecord

DATA = Path(__file__).parents[1] / "data"
LIMITS = {"failed": 0.01, "ttft_p95_s": 2.0}
FITS, MISSES, OPEN = Figure(1.0, 200, 0.8, 1.5), Figure(3.0, 200, 2.5, 4.0), Figure(1.9, 200, 1.5, 2.4)


def level(users: int, figure: Figure, **facts: Any) -> LevelRow:
    given: dict[str, Any] = {"state": "complete", "requests": 200, "ok": 200, "traffic": "chat", "label": f"c={users}"}
    return LevelRow(users, users, **given | facts, figures={"ttft_p95_s": figure})


def answer(*rows: LevelRow) -> str:
    return capacity_of(rows, LIMITS, rows).answer


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({8: FITS, 11: FITS, 13: OPEN, 15: MISSES}, "11 to 14 users"),
        ({8: FITS, 9: MISSES}, "8 users"),
        ({1: FITS, 2: MISSES}, "1 user"),
        ({16: FITS, 32: FITS}, "at least 32 users"),
        ({16: FITS, 32: OPEN}, "at least 16 users"),
        ({1: OPEN, 4: MISSES}, "fewer than 4 users"),
        ({1: MISSES, 4: MISSES}, "not even 1 user"),
        ({8: OPEN, 16: OPEN}, "cannot tell"),
        ({8: Figure(None)}, "cannot tell"),
    ],
)
def test_answers(levels: dict[int, Figure], expected: str) -> None:
    """From the highest level proven to keep the limit to the one below the lowest proven not to."""
    assert answer(*(level(users, figure) for users, figure in levels.items())) == expected


def test_all_classes_at_once() -> None:
    """What fits both is the smaller; where one cannot tell, only what one of them misses is known."""
    chat = capacity_of([level(8, FITS), level(16, MISSES)], LIMITS, [])
    agents = capacity_of([level(8, FITS), level(16, FITS)], LIMITS, [])
    unsure = capacity_of([level(8, OPEN), level(16, OPEN)], LIMITS, [])
    assert of_all([chat, agents])[0] == "8 to 15 users"
    assert of_all([agents, agents])[0] == "at least 16 users"
    assert of_all([chat, unsure])[0] == "fewer than 16 users"
    assert of_all([agents, unsure])[0] == "cannot tell"


def test_rates_have_no_whole_steps() -> None:
    """Levels by the clock: from the rate that fits to the one that does not; waiting counts from the schedule."""
    rows = [level(0, Figure(None), clocked=True, label=f"{rate}/s") for rate in (2, 3)]
    for row, figure in zip(rows, (FITS, MISSES), strict=True):
        row.figures = {"ttft_p95_s": FITS, "scheduled_ttft_p95_s": figure}
    assert answer(*rows) == "2 to 3/s"


def test_without_an_interval_nothing_is_proven() -> None:
    """64 requests bound no p95: the values alone say 4 to 7 users, and the next step names the 72 that it takes."""
    few = {"n": 64, "marks": (Mark.NO_BOUND,)}
    capacity = capacity_of([level(4, Figure(1.0, **few)), level(8, Figure(3.0, **few))], LIMITS, [])
    assert (capacity.answer, capacity.answer_by_value, capacity.decided) == ("cannot tell", "4 to 7 users", False)
    assert "64 requests have no interval here, 72 or more have" in next(next_steps(capacity))


def test_correlated_requests_need_more() -> None:
    """100 requests worth 50 independent ones: twice the 72 that independent ones take."""
    capacity = capacity_of([level(4, Figure(1.0, 100, marks=(Mark.NO_BOUND,), effective_n=50.0))], LIMITS, [])
    assert "about 144 would" in next(next_steps(capacity))


@pytest.mark.parametrize(("q", "n"), [(0.5, 6), (0.95, 72), (0.99, 368)])
def test_sample_sizes_that_an_interval_takes(q: float, n: int) -> None:
    """As the legend of the marks says."""
    assert needed(q) == n


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "partial", "reason": "a worker died"}, "the level is partial: a worker died"),
        ({"generator": GeneratorVerdict(GeneratorState.LIMITED, ("late sends",))}, "limited by the load generator"),
        ({"errors": {"client_limit": 1}}, "inside the load generator"),
        ({"cache": LevelCache(CacheState.CONTAMINATED, measured=0.5, implied=0.0)}, "contaminated"),
    ],
)
def test_levels_that_prove_nothing(facts: dict[str, Any], why: str) -> None:
    """Neither as good nor as bad, and the reason stands among the next steps."""
    good = capacity_of([level(4, FITS), level(8, FITS, **facts)], LIMITS, [])
    assert good.answer == "at least 4 users"
    assert any(why in step for step in next_steps(good))
    assert answer(level(4, FITS), level(8, MISSES, **facts)) == "at least 4 users"


def test_a_saturated_level_misses() -> None:
    """It was stopped because its queue grew, whatever its figures."""
    assert answer(level(4, FITS), level(8, FITS, state="saturated")) == "4 to 7 users"


def test_a_lower_level_that_misses_counts() -> None:
    """A level that misses below one that fits leaves only what lies below it, and both are to be repeated."""
    capacity = capacity_of([level(4, FITS), level(8, MISSES), level(16, FITS)], LIMITS, [])
    assert capacity.answer == "4 to 7 users"
    assert "c=16 fits although c=8 misses: repeat both" in next_steps(capacity)


def test_failures() -> None:
    """5 of 100 are more than 1 % for sure; 3 of 200 are, but the interval does not say so."""
    assert answer(level(4, FITS), level(8, FITS, ok=95, failed=5)) == "4 to 7 users"
    assert answer(level(4, FITS), level(8, FITS, ok=197, failed=3)) == "at least 4 users"


def test_a_lower_bound_proves_no_level_good() -> None:
    """Unfinished sessions: what they had taken by the end says that a limit is missed, never that it is kept."""
    lower = Figure(1.0, 200, 0.8, 1.5, marks=(Mark.CENSORED,))
    assert answer(level(4, FITS), level(8, lower)) == "at least 4 users"


def test_isotonic_fit_by_hand() -> None:
    """1, 4, 2, 8: the two in the wrong order become their geometric mean, the root of 8."""
    fitted = isotonic([Reading(i, value) for i, value in enumerate((1.0, 4.0, 2.0, 8.0))])
    assert fitted == pytest.approx([1.0, 8**0.5, 8**0.5, 8.0])


def test_isotonic_fit_weighs_by_certainty() -> None:
    """An interval half as wide in logarithms weighs four times: (4 ln 4 + ln 2) / 5."""
    readings = [Reading(1, 4.0, 4.0 / 1.1, 4.0 * 1.1), Reading(2, 2.0, 2.0 / 1.21, 2.0 * 1.21)]
    assert isotonic(readings) == pytest.approx([np.exp((4 * np.log(4) + np.log(2)) / 5)] * 2)


def test_crossing_by_hand() -> None:
    """0.5 s at 8 and 1.5 s at 16 reach 1 s at 12; upper bounds of 0.75 and 2.0 at 9.6, lower ones of 0.25 and 1.25 at
    14."""
    crossing = crossing_of([Reading(16, 1.5, 1.25, 2.0), Reading(8, 0.5, 0.25, 0.75)], 1.0)
    assert (crossing.at, crossing.low, crossing.high) == pytest.approx((12.0, 9.6, 14.0))


@pytest.mark.parametrize("limit", [0.2, 3.0])
def test_no_crossing_outside_of_what_was_measured(limit: float) -> None:
    """Missed from the first level on, or never: nothing is made up."""
    assert crossing_of([Reading(8, 0.5), Reading(16, 1.5)], limit).at is None


def test_intervals_hold_the_truth() -> None:
    """TTFT is exponential with a p95 of 0.1 s x users, so that 20 users fit 2 s exactly: in 300 runs of 250 requests a
    level the interval in users holds 20 in at least 95 %, and so do the crossings of the bounds."""
    random = np.random.default_rng(7)
    held = shown = crossed = 0
    for _ in range(300):
        rows = []
        for users in (12, 14, 16, 18, 20, 22, 24, 28, 32):
            values = np.sort(random.exponential(0.1 * users / np.log(20), 250))
            rows.append(level(users, quantile_figure(values, 0.95)))
        capacity = capacity_of(rows, LIMITS, [])
        proven, crossing = capacity.proven, capacity.crossings["ttft_p95_s"]
        shown += proven.fits is not None and proven.misses is not None
        low = proven.fits.load if proven.fits else 0
        high = proven.misses.load - 1 if proven.misses else np.inf
        held += low <= 20 <= high
        crossed += (crossing.low or 0.0) <= 20 <= (crossing.high or np.inf)
    assert held >= 285
    assert crossed >= 285
    assert shown >= 290


def rate(users: int, value: float, error: float = 0.0) -> LevelRow:
    """``error``: half of the 95 % interval as a factor."""
    ends = {"low": value / error, "high": value * error} if error else {}
    return LevelRow(users, users, label=f"c={users}", figures={"output_tok_s": Figure(value, 30, **ends)})


def test_knee_by_hand() -> None:
    """100, 180, 300, 330, 340: the doublings buy 80, 67, 10 and 3 %: the knee is at 4 users."""
    knee = knee_of([rate(users, value) for users, value in {1: 100, 2: 180, 4: 300, 8: 330, 16: 340}.items()])
    assert [step.gain.value for step in knee.steps] == pytest.approx([0.8, 2 / 3, 0.1, 340 / 330 - 1])
    assert (knee.at, knee.low, knee.high) == (4, None, None)
    assert "values alone" in knee.text


def test_knee_with_intervals() -> None:
    """Within 1 % the steps of 67 % and 10 % are told apart; within 27 % only that 2 users are not beyond it."""
    rates = {1: 100, 2: 180, 4: 300, 8: 330, 16: 340}
    sure = knee_of([rate(users, value, 1.01) for users, value in rates.items()])
    assert (sure.at, sure.low, sure.high) == (4, 4, 4)
    unsure = knee_of([rate(users, value, 1.27) for users, value in rates.items()])
    assert (unsure.at, unsure.low, unsure.high) == (4, 2, None)


def test_steps_of_any_size_count_as_doublings() -> None:
    """From 4 to 16 users throughput doubles: two doublings of the load, of which each buys the root of 2."""
    knee = knee_of([rate(4, 100), rate(16, 200)])
    assert knee.steps[0].gain.value == pytest.approx(2**0.5 - 1)
    assert knee.at is None


def test_no_knee_without_two_levels() -> None:
    """One level tells nothing of it."""
    assert "cannot tell" in knee_of([rate(4, 100)]).text


def view(
    row: LevelRow, *, queue_s: float | None = None, client_ttft_s: float | None = None, **changes: Any
) -> ServerView:
    known: dict[str, Any] = {
        "counting": Counting.WHOLE, "seconds": 60.0, "totals": {}, "means": {}, "counts": {}, "samples": 30,
        "running_mean": 8.0, "waiting_mean": 0.0, "waiting_max": 0.0, "waiting_share": 0.0, "kv_usage_max": 0.3,
    }  # fmt: skip
    nothing = Both(None, None, None)
    one = ServerView(row, EngineWindow(**known | changes), Closing.UNKNOWN, "", nothing, nothing, nothing)
    return replace(one, concerns=list(log_concerns(one)), queue_s=queue_s, client_ttft_s=client_ttft_s)


@pytest.mark.parametrize(
    ("facts", "samples", "cause"),
    [
        ({}, {"waiting_share": 0.8, "waiting_max": 5.0}, Cause.QUEUE),
        ({}, {"waiting_share": 0.8, "waiting_max": 5.0, "kv_usage_max": 0.98}, Cause.KV),
        ({}, {"totals": {"preemptions": 7.0}}, Cause.PREEMPTION),
        ({}, {}, Cause.BATCH),
        ({"errors": {"http_429": 12}}, None, Cause.REFUSED),
        ({"generator": GeneratorVerdict(GeneratorState.LIMITED, ("late sends",))}, None, Cause.GENERATOR),
        ({}, None, Cause.UNKNOWN),
        ({}, {"samples": 0, "waiting_share": None, "waiting_max": None}, Cause.UNKNOWN),
        ({}, {"samples": 1, "queue_s": 0.3, "client_ttft_s": 0.4}, Cause.QUEUE),
        ({}, {"samples": 1, "queue_s": 0.3, "client_ttft_s": 0.4, "kv_usage_max": 0.95}, Cause.KV),
        ({}, {"samples": 1, "queue_s": 0.001, "client_ttft_s": 0.4}, Cause.BATCH),
    ],
)
def test_reasons(facts: dict[str, Any], samples: dict[str, Any] | None, cause: Cause) -> None:
    """Requests that wait, a full KV cache, preemptions, 429, the generator; where nothing tells, unknown."""
    row = level(8, MISSES, **facts)
    views = [] if samples is None else [view(row, **samples)]
    assert [reason.cause for reason in reasons_of(row, views)] == [cause]


def record(users: int, i: int, ttft_s: float, **changes: Any) -> RequestRecord:
    """One after the other, 10 tokens in 0.09 s."""
    sent = 1000.0 * users + i
    given: dict[str, Any] = {
        "level": {2: 0, 4: 1}[users], "concurrency": users, "phase": Phase.MEASURED, "ticket": i, "traffic": "chat",
        "session": f"{users}.{i}", "sent_s": sent, "first_token_s": sent + ttft_s, "last_token_s": sent + ttft_s + 0.09,
        "finished_s": sent + ttft_s + 0.09, "output_tokens": 10, "token_source": "usage", "finish_reason": "stop",
    }  # fmt: skip
    return RequestRecord(**given | changes)


def run_of(folder: Path, *, failing: bool = False) -> Path:
    """120 requests at 2 users with a TTFT of 0.10 to 0.15 s, at 4 users one of 0.40 to 0.45 s.

    ``failing``: at 2 users every sixth request is refused."""
    records = [
        record(users, i, start + (i * 7 % 50) / 1000)
        for users, start in ((2, 0.10), (4, 0.40))
        for i in range(120)
    ]  # fmt: skip
    refused = {"error_kind": "http_429", "first_token_s": None, "last_token_s": None, "output_tokens": None}
    for i in range(0, 120, 6) if failing else ():
        records[i] = record(2, i, 0.1, **refused)
    scenario = {"traffic": [{"name": "chat", "objective": "fast"}], "objectives": {"fast": {"ttft_s": {"p95": 0.3}}}}
    return write_run(folder / "run", records, levels=[{"concurrency": 2}, {"concurrency": 4}], scenario=scenario)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["capacity", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_run_by_its_own_objective(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TTFT p95 ≤ 0.3 s: 2 users fit for sure, 4 do not: 2 to 3 users."""
    document = call(capsys, str(run_of(tmp_path)))
    (one,) = document["sets"][0]["classes"]
    assert (one["traffic"], one["objective"], one["capacity"]["answer"]) == ("chat", "fast", "2 to 3 users")
    assert one["capacity"]["proven"]["fits"] == {"level": "c=2", "load": 2}
    assert one["next_steps"] == ["a level between c=2 and c=4 narrows it"]
    snappy = one["guidance"][0]
    assert (snappy["up_to"], snappy["open_ended"], snappy["unproven"]) == (4, True, None)


def test_failures_count_as_infinitely_late(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With 20 of 120 refused at 2 users the p95 is infinite for sure although every success was fast."""
    document = call(capsys, str(run_of(tmp_path, failing=True)), "--limit", "failed=0.5")
    capacity = document["sets"][0]["classes"][0]["capacity"]
    assert capacity["answer"] == "fewer than 2 users"
    assert (capacity["levels"][0]["metric"], capacity["levels"][0]["infinite"]) == ("ttft_p95_s", True)
    assert document["sets"][0]["reasons"][0]["cause"] == "refused"


def test_all_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Terminal, Markdown and CSV say the same."""
    run = str(run_of(tmp_path))
    assert main(["capacity", run, "--width", "160"]) == 0
    assert "2 to 3 users" in capsys.readouterr().out
    assert main(["capacity", run, "--format", "markdown"]) == 0
    assert "| chat | 2 to 3 users |" in capsys.readouterr().out
    assert main(["capacity", run, "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[2:6] for line in lines[1:]] == [
        ["c=2", "2", "fits", "fits"],
        ["c=4", "4", "misses", "misses"],
    ]


def test_no_limit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A published table without --limit gets the knee and the guidance, and is told how to name a limit."""
    table = f"{DATA / 'published' / 'spark_qwen3.6_35b.csv'}#primary sweep/fp8"
    assert main(["capacity", table]) == 0
    text = capsys.readouterr().out
    assert "--limit ttft_p95_s=2" in text
    assert "Guidance" in text


@pytest.mark.parametrize("tool", ["guidellm", "aiperf", "genai-bench", "sglang-bench", "vllm-bench-serve"])
def test_results_of_other_tools(capsys: pytest.CaptureFixture[str], tool: str) -> None:
    """One level of 8 users each: its figures give an answer or say that they cannot."""
    document = call(capsys, str(DATA / "imports" / tool), "--limit", "e2e_p95_s=60")
    (one,) = document["sets"][0]["classes"]
    assert one["capacity"]["answer"] in ("cannot tell", "at least 8 users")
    assert one["capacity"]["levels"][0]["load"] == 8
    assert one["guidance"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--limit", "ttft=1"], "--limit ttft=1"),
        (["--limit", "ttft_p95_s=soon"], "--limit ttft_p95_s=soon"),
        (["--limit", "ttft_p95_s=-1"], "--limit ttft_p95_s=-1"),
        (["--tier", "snappy"], "--tier snappy"),
        (["--tier", "snappy:ttft_p95_s"], "--tier ttft_p95_s"),
        (["--knee-gain", "0"], "--knee-gain 0"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], named: str
) -> None:
    """Exit code 2, naming the option and what was wanted."""
    assert main(["capacity", str(run_of(tmp_path)), *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert named in lines[0]
