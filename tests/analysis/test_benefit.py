"""The prefix-cache test of a run folder whose every figure can be worked out by hand."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paired_run import PROBE, session, seven_pairs, write_run

from analysis import arm_check
from analysis.__main__ import main
from analysis.benefit import FLOOR_S, FLOOR_SHARE, SMALLEST_SAMPLE, Answer
from analysis.pairs import MEASURES
from tokenswarm.records import Phase

Report = Callable[..., str]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """``python -m analysis prefix-cache RUN …``, what it prints."""

    def call(run: Path, *options: str) -> str:
        assert main(["prefix-cache", str(run), *options]) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture
def level(report: Report) -> Callable[[Path], dict[str, Any]]:
    """The only paired level of a run, as JSON."""

    def read(run: Path) -> dict[str, Any]:
        (found,) = json.loads(report(run, "--json"))["levels"]
        return dict(found)

    return read


def test_median_difference_and_its_interval(level: Any, tmp_path: Path) -> None:
    """Seven pairs save 0.20 to 0.26 s in their first request: the interval is from the first to the last of them."""
    found = level(write_run(tmp_path / "run", seven_pairs()))
    saved = {name: one["saved_median_s"] for name, one in found["differences"].items()}
    for name, value, low, high in (
        ("first_ttft", 0.23, 0.20, 0.26),
        ("ttft", 0.115, 0.10, 0.13),  # the mean of two requests, of which one saves
        ("e2e", 0.115, 0.10, 0.13),
        ("job", 0.23, 0.20, 0.26),  # tool time is the same in both arms
    ):
        got = [saved[name][key] for key in ("value", "low", "high")]
        assert got == pytest.approx([value, low, high], abs=1e-5), name
        assert saved[name]["n"] == 7
    assert (found["pairs"], found["incomplete_pairs"], found["verdict"]) == (7, 0, "benefit")


def test_arms_and_mean_beside_the_median(level: Any, tmp_path: Path) -> None:
    """Cold median (0.33 + 0.05) / 2, mean saving 0.115 s with Student's interval: t(6) = 2.447, deviation 0.0108."""
    ttft = level(write_run(tmp_path / "run", seven_pairs()))["differences"]["ttft"]
    assert ttft["cold_median_s"] == pytest.approx(0.19, abs=1e-5)
    assert ttft["warm_median_s"] == pytest.approx(0.075, abs=1e-5)
    assert ttft["saved_share"] == pytest.approx(0.115 / 0.19, abs=1e-4)
    half = 2.447 * 0.010801 / 7**0.5
    mean = ttft["saved_mean_s"]
    assert [mean[key] for key in ("value", "low", "high")] == pytest.approx(
        [0.115, 0.115 - half, 0.115 + half], abs=2e-5
    )
    assert ttft["floor_s"] == pytest.approx(0.0038)


def test_cached_tokens_and_what_they_save(level: Any, tmp_path: Path) -> None:
    """32 of 160 prompt tokens a request cold, 132 warm; 0.23 s for 200 tokens more are 1150 ms for 1,000."""
    cached = level(write_run(tmp_path / "run", seven_pairs()))["cached_tokens"]
    assert (cached["cold_a_request"], cached["warm_a_request"], cached["prompt_tokens_a_request"]) == (32, 132, 160)
    assert cached["saved_ms_per_1000"]["value"] == pytest.approx(1150, abs=0.1)
    assert cached["saved_ms_per_1000"]["low"] == pytest.approx(1000, abs=0.1)
    assert cached["saved_ms_per_1000_overall"]["value"] == pytest.approx(1150, abs=0.1)


def test_pairs_that_are_not_whole_are_left_out_and_counted(level: Any, tmp_path: Path) -> None:
    """A failure, a cut session and a fill session take no part; sessions are counted by arm."""
    sessions = seven_pairs()
    refused = session("cold", 7, 9.0)[:1]
    refused[0].error_kind = "http_5xx"
    late = session("warm", 8, 9.0)
    late[1].phase = Phase.DRAIN
    sessions += [refused, session("warm", 7, 0.1), session("cold", 8, 9.0), late]
    sessions += [session("cold", 9, 9.0, phase=Phase.FILL), session("warm", 9, 0.1, phase=Phase.WARMUP)]
    found = level(write_run(tmp_path / "run", sessions))
    assert (found["pairs"], found["incomplete_pairs"]) == (7, 2)
    assert found["sessions"]["cold"] == {"started": 9, "failed": 1, "cut": 0}
    assert found["sessions"]["warm"] == {"started": 9, "failed": 0, "cut": 1}
    assert found["differences"]["first_ttft"]["saved_median_s"]["value"] == pytest.approx(0.23, abs=1e-5)


def test_what_stands_twice_is_left_out(level: Any, tmp_path: Path) -> None:
    """Rows of two runs in one file have each pair twice, and a damaged file a turn: no pair is made of halves."""
    again = seven_pairs()
    for requests in again[:4]:
        for request in requests:
            request.ticket += 1000
            request.session = f"again {request.session}"
    found = level(write_run(tmp_path / "two", seven_pairs() + again[:4]))
    assert (found["pairs"], found["incomplete_pairs"]) == (5, 2)
    assert found["sessions"]["cold"]["started"] == 9
    sessions = seven_pairs()
    sessions[0].append(sessions[0][1])
    assert level(write_run(tmp_path / "turn", sessions))["pairs"] == 6


def test_a_run_without_numbers_of_turns_compares_what_it_can(level: Any, tmp_path: Path) -> None:
    """Without turns nobody knows the first request: whole sessions are compared, and nothing stops."""
    sessions = seven_pairs()
    for requests in sessions:
        for request in requests:
            request.turn = 5
        del requests[0]
    found = level(write_run(tmp_path / "run", sessions))
    assert found["pairs"] == 7
    assert found["differences"]["first_ttft"]["saved_median_s"]["value"] is None
    assert found["differences"]["job"]["saved_median_s"]["value"] is not None


def test_failures_of_one_arm_are_told(level: Any, tmp_path: Path) -> None:
    """Six failures in one arm and none in the other are no chance (2 in 64); five could be."""
    for failures, keys in ((5, []), (6, ["failures differ"])):
        sessions = seven_pairs()
        for pair in range(7, 7 + failures):
            sessions += [session("cold", pair, 0.3, error_kind="http_5xx"), session("warm", pair, 0.1)]
        found = level(write_run(tmp_path / f"run{failures}", sessions))
        assert [finding["key"] for finding in found["findings"]] == keys
        assert found["verdict"] == "benefit"


def test_a_run_that_broke_off_says_so(report: Report, tmp_path: Path) -> None:
    """Without end.json the level is not complete; its pairs are shown with the mark and the reason."""
    run = write_run(tmp_path / "run", seven_pairs())
    (run / "end.json").unlink()
    (run / "levels.csv").unlink()
    text = report(run)
    assert "INTERRUPTED" in text
    assert "c=1 paired: the level is interrupted: the run ended inside this level" in text
    assert re.search(r"^ *1! +first TTFT +330 ms +100 ms +230 ms +200 to 260 ms +70 % +benefit$", text, re.MULTILINE)


def test_a_level_that_found_what_nobody_shares_is_marked(report: Report, tmp_path: Path) -> None:
    """Warm sessions with cached tokens that the workload does not imply: the mark of the level table, and why."""
    sessions = [
        session(arm, pair, 0.3, prefix=None, prefix_tokens=None) for pair in range(7) for arm in ("cold", "warm")
    ]
    text = report(write_run(tmp_path / "run", sessions))
    assert re.search(r"^ *1† +first TTFT", text, re.MULTILINE)
    assert "c=1 paired: contaminated: " in text


def test_five_pairs_cannot_tell(level: Any, report: Report, tmp_path: Path) -> None:
    """Below six pairs the median has no interval."""
    run = write_run(tmp_path / "run", seven_pairs()[:10])
    found = level(run)
    assert found["verdict"] == "cannot tell"
    assert found["differences"]["ttft"]["saved_median_s"]["low"] is None
    assert "c=1 paired: cannot tell: 5 pairs are too few for an interval, 6 are needed" in report(run)
    assert "*  fewer than 6 pairs: no interval" in report(run)


def test_cold_sessions_that_found_others_prompts(level: Any, report: Report, tmp_path: Path) -> None:
    """A cold first request with cached tokens means that the arms mixed: a finding stands in place of the verdict."""
    sessions = seven_pairs()
    for requests in sessions[::2]:
        requests[0].cached_tokens = 16
    run = write_run(tmp_path / "run", sessions)
    found = level(run)
    assert found["verdict"] is None
    assert [finding["key"] for finding in found["findings"]] == ["not kept apart"]
    assert "no verdict: the arms were not kept apart: 5 % of the cold prompts" in report(run)  # 16 of 320 tokens


@pytest.mark.parametrize(
    ("by", "cold", "first", "second", "leaks"),
    [
        ("salt", "session", 0, 120, False),  # all of its own first prompt
        ("salt", "session", 0, 128, True),
        ("salt", "request", 0, 16, True),
        ("nonce", "request", 4, 4, False),  # the chat template, which stands before the nonce
        ("nonce", "request", 16, 4, True),
    ],
)
def test_what_a_cold_request_may_find(
    level: Any, tmp_path: Path, by: str, cold: str, first: int, second: int, leaks: bool
) -> None:
    """Its own session's prompt where the key lasts a session, and the template's tokens before a nonce."""
    sessions = seven_pairs()
    for requests in sessions[::2]:
        requests[0].cached_tokens, requests[1].cached_tokens = first, second
    found = level(write_run(tmp_path / "run", sessions, isolation={"by": by, "cold": cold}))
    assert [finding["key"] for finding in found["findings"]] == (["not kept apart"] if leaks else [])


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("inert", "the prefix cache is enabled but inert"),
        ("off", "the prefix cache is off"),
        ("on", "although the probe found that the cache works"),
        ("unknown", "no warm request found a single token"),
    ],
)
def test_nothing_cached_is_a_finding(level: Any, tmp_path: Path, state: str, words: str) -> None:
    """Warm requests without a cached token leave nothing to compare, and the probe says why."""
    sessions = seven_pairs()
    for requests in sessions:
        for request in requests:
            request.cached_tokens = 0
    found = level(write_run(tmp_path / "run", sessions, probe=PROBE | {"state": state}))
    assert found["verdict"] is None
    (finding,) = found["findings"]
    assert (finding["key"], finding["void"]) == ("nothing cached", True)
    assert words in finding["text"]


def test_warm_sessions_that_found_only_their_own(level: Any, tmp_path: Path) -> None:
    """As many cached tokens in both arms: the workload shares nothing, which is told beside the verdict."""
    sessions = [session(arm, pair, 0.3) for pair in range(7) for arm in ("cold", "warm")]
    for requests in sessions:
        requests[0].cached_tokens, requests[1].cached_tokens = 0, 64
    found = level(write_run(tmp_path / "run", sessions))
    assert [finding["key"] for finding in found["findings"]] == ["nothing shared"]
    assert found["verdict"] == "no benefit"


def test_a_server_that_does_not_tell_cached_tokens(level: Any, tmp_path: Path) -> None:
    """The latencies decide, the check is said to be missing, and the flag to set is named."""
    sessions = seven_pairs()
    for requests in sessions:
        for request in requests:
            request.cached_tokens = None
    probe = {"state": "on", "reports_cached_tokens": False, "flag": "--enable-prompt-tokens-details"}
    found = level(write_run(tmp_path / "run", sessions, probe=probe))
    assert found["verdict"] == "benefit"
    (finding,) = found["findings"]
    assert finding["key"] == "cached tokens unknown"
    assert "--enable-prompt-tokens-details" in finding["text"]
    assert found["cached_tokens"]["warm_a_request"] is None
    assert found["cached_tokens"]["saved_ms_per_1000"]["value"] is None


def test_a_server_that_leaves_out_a_count_of_zero(level: Any, tmp_path: Path) -> None:
    """Where the probe saw cached tokens told, a missing number is none of them."""
    sessions = seven_pairs()
    for requests in sessions[::2]:
        requests[0].cached_tokens = None
    cached = level(write_run(tmp_path / "run", sessions))["cached_tokens"]
    assert cached["cold_a_request"] == 32
    unknown = level(write_run(tmp_path / "other", sessions, probe=PROBE | {"reports_cached_tokens": None}))
    assert unknown["cached_tokens"]["cold_a_request"] == 64


def test_sessions_of_different_length_compare_what_both_have(level: Any, tmp_path: Path) -> None:
    """A live warm session that ended after one request: first requests are compared, and the course is told."""
    sessions = seven_pairs()
    short = sessions[1]
    short[0].session_end = short.pop().session_end
    found = level(write_run(tmp_path / "run", sessions))
    assert found["pairs_of_different_courses"] == 1
    assert [finding["key"] for finding in found["findings"]] == ["different courses"]
    # Pair 0 now saves 0.20 s in the mean of its one common request; the others 0.105, 0.11 … 0.13 s.
    assert found["differences"]["ttft"]["saved_median_s"]["value"] == pytest.approx(0.12, abs=1e-5)


@pytest.mark.parametrize(
    ("isolation", "words"),
    [
        (
            {"by": "salt", "cold": "session"},
            [
                "A cold session reuses only its own earlier requests",
                "by cache_salt",
                "c=1 paired: benefit: a session saves 230 ms of TTFT in its first request (median of 7 pairs, 95 %: "
                "200 to 260 ms), 70 % of it",  # 0.23 of 0.33 s
            ],
        ),
        (
            {"by": "nonce", "cold": "request", "nonce_tokens": 13},
            [
                "A cold request reuses nothing",
                "a nonce of 13 tokens at",
                "c=1 paired: benefit: a session saves 115 ms of TTFT a request (median of 7 pairs, 95 %: "
                "100 to 130 ms), 61 % of it",  # 0.115 of 0.19 s
            ],
        ),
    ],
)
def test_the_report_says_what_was_asked_and_its_limit(
    report: Report, tmp_path: Path, isolation: dict[str, Any], words: list[str]
) -> None:
    """Question, isolation, probe and limit stand below the tables, in every format for people."""
    sessions = seven_pairs()
    for requests in sessions[::2]:
        requests[0].cached_tokens = requests[1].cached_tokens = 0
    run = write_run(tmp_path / "run", sessions, isolation=isolation)
    for form in ("terminal", "markdown"):
        text = " ".join(report(run, "--format", form, "--width", "100").replace("\\", "").split())
        for wanted in (*words, "cache_salt isolates", "share one server and its KV memory", "prefix_cache.throughput"):
            assert wanted in text, form


def test_what_stands_before_a_nonce_is_told_and_is_no_leak(report: Report, tmp_path: Path) -> None:
    """Tools that a chat template puts first: both arms find their 90 tokens, the arms are kept apart all the same, and
    the report says that this part of the saving is not in the result."""
    sessions = seven_pairs()
    for requests in sessions:
        for request in requests:
            request.cached_tokens = 90
    nonce = {"by": "nonce", "cold": "request", "nonce_tokens": 13}
    run = write_run(tmp_path / "run", sessions, isolation=nonce, template_prefix_tokens=90)
    text = " ".join(report(run, "--width", "100").split())
    assert "not kept apart" not in text
    assert (
        "at the head of every prompt, in both arms; 90 tokens stand before it, and cold sessions find them too" in text
    )
    assert "the cache was too small to keep it until the next use, or all of it stands before the nonce" in text
    few = write_run(tmp_path / "few", sessions, isolation=nonce, template_prefix_tokens=4)
    assert "not kept apart" in " ".join(report(few, "--width", "100").split())


@pytest.mark.parametrize("odd", [None, [], {}, "x", -5, 1.5, [{}]])
def test_facts_of_a_strange_kind_are_unknown(report: Report, tmp_path: Path, odd: Any) -> None:
    """Whatever a damaged ``run.json`` says of the test and the probe, the pairs are compared."""
    isolation = {"by": odd, "cold": odd, "nonce_tokens": odd}
    probe = {"state": odd, "block_tokens": odd, "line": odd, "flag": odd, "reports_cached_tokens": odd}
    run = write_run(tmp_path / "run", seven_pairs(), isolation=isolation, probe=probe, template_prefix_tokens=odd)
    assert "how the arms were kept apart is unknown" in report(run)
    assert json.loads(report(run, "--json"))["levels"][0]["pairs"] == 7


def test_whole_levels_beside_the_pairs(report: Report, tmp_path: Path) -> None:
    """Two sessions a level: E2E 1.175 s cold and 1.075 s warm, which is more than the least floor of 2 %; the
    throughput hardly differs, because tools take most of the time."""
    arms = ("cold", "warm", "warm", "cold")
    sessions = [
        session(arm, number, 0.3 if arm == "cold" else 0.1, level=level)
        for level, arm in enumerate(arms)
        for number in range(2)
    ]
    run = write_run(tmp_path / "run", sessions, arms=arms)
    document = json.loads(report(run, "--json"))
    assert document["levels"] == []
    (four,) = document["whole_levels"]
    assert (four["concurrency"], four["levels"]) == (1, [0, 1, 2, 3])
    cold_s, warm_s = 104.35, 104.15  # from the first send to the last finish
    for name, cold, warm, verdict in (
        ("e2e_mean_s", 1.175, 1.075, "benefit"),
        ("jobs_per_h", 7200 / cold_s, 7200 / warm_s, "cannot tell"),
        ("output_tok_s", 44 / cold_s, 44 / warm_s, "cannot tell"),
    ):
        one = four["measures"][name]
        assert one["cold_warm_warm_cold"] == pytest.approx([cold, warm, warm, cold], rel=1e-4), name
        assert one["warm_over_cold"] == pytest.approx(warm / cold, rel=1e-4)
        assert (one["floor"], one["verdict"]) == (0.02, verdict)
    assert "Throughput of whole levels" in report(run)


def test_csv_has_a_line_a_measure(report: Report, tmp_path: Path) -> None:
    """One line for each level and measure, blank for unknown."""
    lines = list(csv.DictReader(io.StringIO(report(write_run(tmp_path / "run", seven_pairs()), "--format", "csv"))))
    assert [line["measure"] for line in lines] == ["ttft", "first_ttft", "e2e", "job"]
    assert float(lines[1]["saved_median_s"]) == pytest.approx(0.23, abs=1e-5)
    assert {line["verdict"] for line in lines} == {"benefit"}


def test_a_run_without_the_test_is_refused_in_one_line(
    tmp_path: Path, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line that names the run."""
    assert main(["prefix-cache", str(small)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert str(small) in line
    assert "prefix_cache" in line
    assert main(["prefix-cache", str(tmp_path / "nothing")]) == 2
    assert "wanted a run folder" in capsys.readouterr().err


def test_the_page_names_every_finding_measure_and_limit() -> None:
    """docs/prefix-cache.md says what the code does: measures, findings, verdicts, floor and sample size."""
    page = (Path(__file__).parents[2] / "docs" / "prefix-cache.md").read_text(encoding="utf-8")
    source = Path(arm_check.__file__).read_text(encoding="utf-8")
    findings = re.findall(r'Finding\("([a-z ]+)"', source)
    assert len(findings) == 6
    for name in (*findings, *MEASURES, *Answer):
        assert f"`{name}`" in page, name
    assert f"{100 * FLOOR_SHARE:g} % of the cold median and at least {1000 * FLOOR_S:g} ms" in page
    assert f"exists from {SMALLEST_SAMPLE} pairs" in page
    assert f"more than {100 * arm_check.LEAK_SHARE:g} % of the cold prompts" in page
