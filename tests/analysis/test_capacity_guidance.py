"""The sentences below a table: the published ones from their rows, what they rest on, when they are withheld."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.capacity_guidance import Sentence, Tier, guidance_of
from analysis.figures import Figure
from analysis.health_verdict import GeneratorState, GeneratorVerdict
from analysis.levels import LevelRow
from analysis.published_table import read_published

SPARK = Path(__file__).parents[1] / "data" / "published" / "spark_qwen3.6_35b.csv"
LIMITED = GeneratorVerdict(GeneratorState.LIMITED, ("late sends",))


def spark() -> list[LevelRow]:
    """The primary sweep with FP8, as published."""
    return read_published(SPARK)[0].levels


def by_key(sentences: list[Sentence]) -> dict[str, Sentence]:
    return {sentence.key: sentence for sentence in sentences}


def test_published_guidance() -> None:
    """1 to 4 snappy, 5 to 8 fine, 9 to 16 for agents and batch, 17 and more batch only; soft ceiling 8, burst to 16."""
    sentences = guidance_of(spark(), spark())
    assert [sentence.text.split(" (TTFT")[0] for sentence in sentences[:3]] == [
        "1 to 4 users: snappy",
        "5 to 8 users: fine",
        "9 to 16 users: for agents and batch",
    ]
    assert sentences[3].text.startswith("17 and more users: batch only")
    assert "soft ceiling 8 requests in flight, burst to 16 before answering 429" in sentences[4].text
    assert not any(sentence.withheld for sentence in sentences)


def test_other_names_and_another_form(tmp_path: Path) -> None:
    """The same rows as a pipe table with titles of another hand, times in seconds, give the same sentences."""
    counts = ["Users", "Total requests", "Errors", "Output tok/s"]
    titles = [*counts, "TTFT median (s)", "TTFT p95 (s)", "TPOT p50 (s)", "TPOT p95 (s)"]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * 8]
    for row in spark():
        times = [row.figure(name).value for name in ("ttft_p50_s", "ttft_p95_s", "tpot_p50_s", "tpot_p95_s")]
        cells = [row.concurrency, row.requests, row.failed, row.figure("output_tok_s").value, *times]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    (tmp_path / "notes.md").write_text("\n".join(lines))
    rows = read_published(tmp_path / "notes.md")[0].levels
    assert [one.text for one in guidance_of(rows, rows)] == [one.text for one in guidance_of(spark(), spark())]


def test_sentences_name_the_rows_they_rest_on() -> None:
    """The last level that keeps the limits and the first that does not, with their figures."""
    snappy = guidance_of(spark(), spark())[0]
    assert snappy.rows == ("c=4", "c=8")
    assert "c=4 has TTFT p95 917 ms ≤ 1000 ms, TPOT p95 76 ms ≤ 100 ms" in snappy.text
    assert "c=8: TTFT p95 12266 ms > 1000 ms" in snappy.text


def test_published_sentences_are_not_proven() -> None:
    """A p95 of 16 requests has no interval, and a table has none at all: each sentence says so."""
    sentences = guidance_of(spark(), spark())
    assert "16 requests have no interval here, 72 or more have" in sentences[0].unproven
    assert all(sentence.unproven for sentence in (*sentences[:3], sentences[4]))


def test_intervals_prove_a_sentence() -> None:
    """Where both upper ends keep the limits the sentence stands without reservation."""
    rows = spark()
    for row in rows:
        row.figures = {name: replace(one, low=one.value, high=one.value, marks=()) for name, one in row.figures.items()}
    assert not any(sentence.unproven for sentence in guidance_of(rows, rows))


def test_a_row_that_does_not_close_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """c=8 of the published table had a stall: the audit's finding stands below the sentences that rest on it."""
    assert main(["capacity", f"{SPARK}#primary sweep/fp8", "--width", "200"]) == 0
    text = capsys.readouterr().out
    assert "1 to 4 users: snappy" in text
    assert "c=8 does not close (throughput against TPOT)" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"generator": LIMITED}, "c=8 left out: limited by the load generator"),
        ({"state": "partial", "reason": "a worker died"}, "c=8 left out: the level is partial: a worker died"),
        ({"ok": 5, "requests": 5}, "c=8 left out: only 5 requests succeeded, wanted 6"),
    ],
)
def test_levels_that_cannot_bear_a_sentence_are_left_out(change: dict[str, Any], said: str) -> None:
    """Fine then ends at 4 users, the level before, and the sentence says why 8 is not among them."""
    rows = [replace(row, **change) if row.concurrency == 8 else row for row in spark()]
    fine = by_key(guidance_of(rows, rows))["fine"]
    assert fine.up_to == 4
    assert said in fine.text


def test_no_level_bears_it() -> None:
    """All limited by the generator: every sentence is withheld with the reason, and so are the gateway's limits."""
    rows = [replace(row, generator=LIMITED) for row in spark()]
    sentences = by_key(guidance_of(rows, rows))
    assert "limited by the load generator" in sentences["snappy"].withheld
    assert sentences["gateway"].withheld
    assert not sentences["gateway"].text


def test_figures_that_are_not_told_withhold() -> None:
    """A table with throughput and TPOT alone says nothing of TTFT."""
    rows = read_published(SPARK)[2].levels
    snappy = guidance_of(rows, rows)[0]
    assert "unknown" in snappy.withheld


def test_a_miss_above_levels_that_do_not_tell_withholds() -> None:
    """What fits below a level that misses is not known where the lower ones lack the figure."""
    rows = spark()
    for row in rows[:5]:
        row.figures.pop("ttft_p50_s")
    agents = by_key(guidance_of(rows, rows))["for agents and batch"]
    assert "below it no level bears it (c=1: TTFT p50 unknown" in agents.withheld


def test_not_even_the_lowest_level() -> None:
    """Where the first level misses already no number of users is named."""
    sentences = guidance_of(spark(), spark(), [Tier("instant", {"ttft_p50_s": 0.1})])
    assert sentences[0].up_to is None
    assert "at no level that was measured, c=1: TTFT p50 363 ms > 100 ms" in sentences[0].text


def test_more_was_not_tried() -> None:
    """A tier that the highest level keeps is open-ended, and nothing is said of what lies beyond."""
    sentences = by_key(guidance_of(spark()[:3], spark()[:3]))
    assert sentences["snappy"].text.startswith("1 to 4 users or more: snappy")
    assert sentences["gateway"].text.endswith("burst to 4 (more was not tried) before answering 429.")
    assert "batch only" not in sentences


def test_a_level_that_keeps_to_it_again() -> None:
    """A miss between two levels that keep the limits is to be repeated; what counts is below it."""
    rows = spark()
    rows[2].figures["ttft_p50_s"] = Figure(5.0)
    fine = by_key(guidance_of(rows, rows))["fine"]
    assert fine.up_to == 2
    assert "c=8 keeps to it again: repeat c=4" in fine.text


def test_rates_have_no_gateway_limits() -> None:
    """Levels by the clock tell sessions a second, not requests in flight."""
    rows = [replace(row, clocked=True, label=f"{row.concurrency}/s") for row in spark()]
    sentences = by_key(guidance_of(rows, rows))
    assert sentences["snappy"].text.startswith("up to 4/s: snappy")
    assert "rates" in sentences["gateway"].withheld


def test_own_tiers(capsys: pytest.CaptureFixture[str]) -> None:
    """--tier replaces all of them: TPOT p50 up to 80 ms holds to 4 users, up to 200 ms to 32."""
    asked = ["--tier", "chat:tpot_p50_s=0.08", "--tier", "bulk:tpot_p50_s=0.2"]
    assert main(["capacity", f"{SPARK}#primary sweep/fp8", "--width", "200", *asked]) == 0
    text = capsys.readouterr().out
    assert "1 to 4 users: chat" in text
    assert "5 to 32 users or more: bulk" in text
    assert "soft ceiling 4 requests in flight, burst to 32 (more was not tried)" in text
    assert "snappy" not in text
