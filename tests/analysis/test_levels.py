"""The level table of a run folder small enough to work out by hand (tests/analysis/runs/small)."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest


def figures(level: dict[str, Any]) -> dict[str, float | None]:
    return {name: figure["value"] for name, figure in level["figures"].items()}


@pytest.fixture
def levels(table: Any, small: Path) -> list[dict[str, Any]]:
    """Both levels of the run as JSON."""
    document = table(small, "--json").json
    assert [level["concurrency"] for level in document["levels"]] == [1, 2]
    found: list[dict[str, Any]] = document["levels"]
    return found


def test_counts_keep_failures_apart(levels: list[dict[str, Any]]) -> None:
    """Only measured requests are counted; the refusal is a failure with its kind, the short answer an early stop."""
    first, second = levels
    assert (first["requests"], first["ok"], first["failed"]) == (2, 2, 0)
    assert (second["requests"], second["ok"], second["failed"]) == (4, 3, 1)
    assert second["errors"] == {"http_429": 1}
    assert second["failed_share"] == 0.25
    assert (first["early_stopped"], second["early_stopped"]) == (0, 1)


def test_latencies_of_successes(levels: list[dict[str, Any]]) -> None:
    """Quantiles interpolate linearly between the successful measured requests; warm-up and fill stay out."""
    first, second = map(figures, levels)
    # TTFT 0.5 and 1.0 s, E2E 2.5 and 3.0 s, TPOT 2 s / 20.
    assert first["ttft_p50_s"] == pytest.approx(0.75)
    assert first["ttft_p95_s"] == pytest.approx(0.975)
    assert first["e2e_p50_s"] == pytest.approx(2.75)
    assert first["tpot_p50_s"] == pytest.approx(0.1)
    # E2E 3, 5 and 3 s: p95 lies at 1.9 of 2 ranks.
    assert second["e2e_p50_s"] == pytest.approx(3.0)
    assert second["e2e_p95_s"] == pytest.approx(4.8)
    assert second["ttft_mean_s"] == pytest.approx(1.0)
    assert second["tpot_p95_s"] == pytest.approx(0.2)


def test_throughput_with_fill_is_what_arrived_in_the_window(levels: list[dict[str, Any]]) -> None:
    """43 measured tokens and 3.5 of the fill request arrive between 200 and 206 s."""
    first, second = map(figures, levels)
    assert [level["basis"] for level in levels] == ["window", "window"]
    assert first["output_tok_s"] == pytest.approx(42 / 5.5)
    assert second["window_tokens"] == pytest.approx(46.5)
    assert second["wall_s"] == pytest.approx(6.0)
    assert second["output_tok_s"] == pytest.approx(7.75)
    assert second["tokens"] == 43


def test_steady_rate_counts_only_the_time_at_the_target(levels: list[dict[str, Any]]) -> None:
    """User 1 is idle from 205.1 to 205.6 s: 44 tokens arrive in the other 5.5 s."""
    first, second = map(figures, levels)
    assert first["steady_tok_s"] == pytest.approx(42 / 5.5)
    assert second["steady_s"] == pytest.approx(5.5)
    assert second["steady_tok_s"] == pytest.approx(8.0)


def test_mean_in_flight(levels: list[dict[str, Any]]) -> None:
    """3 + 5 + 3 + 0.1 + 0.4 request-seconds in 6 s."""
    assert figures(levels[1])["in_flight_mean"] == pytest.approx(11.5 / 6)


def test_per_request_speed(levels: list[dict[str, Any]]) -> None:
    """43 tokens in 2 + 4 + 2 s of decoding."""
    assert figures(levels[1])["per_request_tok_s"] == pytest.approx(43 / 8)


def test_peak_is_the_best_whole_second_of_the_window(levels: list[dict[str, Any]]) -> None:
    """Rows of one second add up over workers and phases; the second in which the window ends does not count."""
    first, second = map(figures, levels)
    assert first["peak_tok_s"] == 10  # not the 35 of the second that is half outside
    assert second["peak_tok_s"] == 14


def test_chunk_gaps_are_pooled_over_increments(levels: list[dict[str, Any]]) -> None:
    """40 measured gaps in the bucket of 0.2 s; those of the fill request stay out."""
    gap = levels[1]["figures"]["chunk_gap_p50_s"]
    assert gap["n"] == 40
    assert gap["value"] == pytest.approx(0.2, rel=0.01)


def test_small_samples_say_that_they_have_no_bound(levels: list[dict[str, Any]]) -> None:
    """Three requests bound no quantile: the value stands with n and the mark."""
    p95 = levels[1]["figures"]["ttft_p95_s"]
    assert p95["n"] == 3
    assert p95["low"] is None
    assert p95["marks"] == ["no bound"]


def test_scaling_is_relative_to_the_first_level(table: Any, small: Path) -> None:
    """7.75 tok/s over 7.636 tok/s at twice the users."""
    rows = table(small, "--json").json["scaling"]
    assert rows[0]["efficiency"] == 1.0
    assert rows[1]["throughput_ratio"] == pytest.approx(7.75 / (42 / 5.5))
    assert rows[1]["efficiency"] == pytest.approx(7.75 / (42 / 5.5) / 2)


def test_scaling_begins_at_the_first_level_with_a_throughput(table: Any, small: Path) -> None:
    """Where nothing succeeded at c=1, throughput, ratio and efficiency are blank, and c=2 is the base, named so."""
    rows = (small / "requests.csv").read_text().splitlines()
    header = rows[0].split(",")
    for i in (2, 3):
        cells = rows[i].split(",")
        for name in ("first_token_s", "first_output_s", "last_token_s", "output_tokens", "finish_reason"):
            cells[header.index(name)] = ""
        cells[header.index("error_kind")] = "refused"
        rows[i] = ",".join(cells)
    (small / "requests.csv").write_text("\n".join(rows) + "\n")
    document = table(small, "--json").json
    dead, _ = document["levels"]
    assert (dead["ok"], dead["failed"]) == (0, 2)
    for name in ("output_tok_s", "steady_tok_s", "peak_tok_s", "per_request_tok_s"):
        assert dead["figures"][name]["value"] is None, name
    assert document["scaling"][0] == {
        "concurrency": 1, "label": "c=1", "base": "c=2",
        "output_tok_s": None, "throughput_ratio": None, "efficiency": None, "across_epochs": False,
    }  # fmt: skip
    assert (document["scaling"][1]["throughput_ratio"], document["scaling"][1]["efficiency"]) == (1.0, 1.0)
    shown = table(small, "--width", "160").out
    assert "Scaling (relative to c=2)" in shown
    assert "0.00x" not in shown


def test_scaling_of_a_published_sweep() -> None:
    """The published throughputs of 21.0 to 155.6 tok/s give the published efficiencies within a point."""
    from analysis.figures import Figure
    from analysis.levels import LevelRow
    from analysis.scaling import scaling_rows

    throughput = {1: 21.0, 2: 31.5, 4: 51.5, 8: 70.2, 16: 115.8, 32: 155.6}
    published = {2: 75, 4: 62, 8: 42, 16: 34, 32: 23}
    rows = [LevelRow(None, c, figures={"output_tok_s": Figure(rate)}) for c, rate in throughput.items()]
    for row in scaling_rows(rows)[1:]:
        assert row.concurrency is not None
        assert row.efficiency is not None
        assert 100 * row.efficiency == pytest.approx(published[row.concurrency], abs=1.0)


def test_plain_drain_counts_successes_over_the_wall_time(table: Any, small: Path) -> None:
    """With tail drain the same rows give 43 tokens in 6 s, and the table says which definition it used."""
    facts = json.loads((small / "run.json").read_text())
    for level in facts["levels"]:
        level["tail"] = "drain"
    (small / "run.json").write_text(json.dumps(facts))
    document = table(small, "--json").json
    assert document["levels"][1]["basis"] == "drain"
    assert figures(document["levels"][1])["output_tok_s"] == pytest.approx(43 / 6)
    notes = [note["text"] for note in document["notes"] if note["key"] == "definition"]
    assert any("plain drain" in text for text in notes)
    assert not any("(window)" in text for text in notes)


def test_peak_never_falls_below_the_mean(table: Any, small: Path) -> None:
    """Where every whole second holds less than the mean of the window, the mean stands there with a mark."""
    (small / "timeline.csv").write_text(
        "worker,level,traffic,phase,second,tokens,started,finished,failed,in_flight_s\n"
        "w0,1,chat,measured,1000000202,5,0,0,0,1.0\n"
    )
    first, second = (level["figures"]["peak_tok_s"] for level in table(small, "--json").json["levels"])
    assert first["value"] is None
    assert second["value"] == pytest.approx(7.75)
    assert second["marks"] == ["edges"]


def test_failures_as_infinitely_late(table: Any, small: Path) -> None:
    """One failure of four leaves the median finite and makes p95 infinite, in every format without NaN."""
    document = table(small, "--json", "--failures-infinite").json
    second = document["levels"][1]["figures"]
    assert second["ttft_p50_s"]["value"] == pytest.approx(1.0)
    assert second["ttft_p50_s"]["n"] == 4
    assert second["ttft_p95_s"]["value"] is None
    assert second["ttft_p95_s"]["infinite"] is True
    rows = list(csv.DictReader(io.StringIO(table(small, "--format", "csv", "--failures-infinite").out)))
    assert rows[1]["ttft_p95_ms"] == "inf"
    assert rows[0]["ttft_p95_ms"] == "975"
    assert "∞" in table(small, "--failures-infinite", "--width", "160").out


def test_estimated_token_counts_are_marked(table: Any, small: Path) -> None:
    """Counts taken from chunks mark throughput and TPOT, and a mixture is called partly estimated."""
    text = (small / "requests.csv").read_text()
    (small / "requests.csv").write_text(
        text.replace("21,usage,kernel,21,0,0.000100,length", "21,chunks,kernel,21,0,0.000100,length")
    )
    document = table(small, "--json").json
    second = document["levels"][1]
    assert second["estimated_tokens"] == 1
    assert "estimated" in second["figures"]["output_tok_s"]["marks"]
    assert "estimated" in second["figures"]["tpot_p50_s"]["marks"]
    assert "marks" not in document["levels"][0]["figures"]["output_tok_s"]
    assert any("partly estimated" in note["text"] for note in document["notes"])
    assert "7.75≈" in table(small, "--width", "160").out


def test_unknown_token_counts_stay_blank(table: Any, small: Path) -> None:
    """Without a single token count, tokens, tok/s and TPOT are blank and never 0."""
    text = (small / "requests.csv").read_text()
    for count in ("11", "21"):
        text = text.replace(f",{count},usage,", ",,,")
    (small / "requests.csv").write_text(text)
    level = table(small, "--json").json["levels"][1]
    known = figures(level)
    assert level["unknown_tokens"] == 3
    assert known["tokens"] is None
    assert known["output_tok_s"] is None
    assert known["tpot_p50_s"] is None
    assert known["ttft_p50_s"] == pytest.approx(1.0)


def test_cancelled_requests_are_neither_successes_nor_failures(table: Any, small: Path) -> None:
    """A request cut by the end of the run is counted apart and does not enter the share of failures."""
    text = (small / "requests.csv").read_text().replace('429,http_429,"busy, come back later"', ",cancelled,")
    (small / "requests.csv").write_text(text)
    level = table(small, "--json").json["levels"][1]
    assert (level["requests"], level["ok"], level["failed"], level["cancelled"]) == (4, 3, 0, 1)
    assert level["failed_share"] == 0.0


def test_workers_are_laid_on_one_axis(table: Any, small: Path) -> None:
    """A worker whose clock runs 1000 s behind gives the same window once its offset is known."""
    before = table(small, "--json").json["levels"][1]["figures"]
    lines = (small / "requests.csv").read_text().splitlines()
    header = lines[0].split(",")
    clocks = [header.index(name) for name in header if name.endswith("_s") and name != "lag_max_s"]
    for i, line in enumerate(lines):
        if ",l1-m1," in line:
            cells = line.split(",")
            cells[header.index("worker")] = "w1"
            for at in clocks:
                cells[at] = f"{float(cells[at]) - 1000:.6f}"
            lines[i] = ",".join(cells)
    (small / "requests.csv").write_text("\n".join(lines) + "\n")
    with (small / "workers.csv").open("a") as file:
        file.write("w1,1000000000.25,-999.75,1000\n")
    after = table(small, "--json").json["levels"][1]["figures"]
    for name in ("wall_s", "output_tok_s", "e2e_p95_s", "in_flight_mean", "peak_tok_s"):
        assert after[name]["value"] == pytest.approx(before[name]["value"]), name


def test_classes_have_rows_of_their_own(table: Any, small: Path) -> None:
    """Percentiles of two classes stand apart and are never averaged; the level's throughput is their sum."""
    text = (small / "requests.csv").read_text().replace(",chat,l1-m1,", ",agent,l1-m1,")
    (small / "requests.csv").write_text(text)
    document = table(small, "--json").json
    agent, chat = (row for row in document["classes"] if row["concurrency"] == 2)
    assert (agent["traffic"], agent["requests"], chat["traffic"], chat["requests"]) == ("agent", 1, "chat", 3)
    assert figures(agent)["e2e_p95_s"] == pytest.approx(5.0)
    assert figures(chat)["e2e_p95_s"] == pytest.approx(3.0)
    whole = figures(document["levels"][1])["output_tok_s"]
    assert whole == pytest.approx((figures(agent)["output_tok_s"] or 0) + (figures(chat)["output_tok_s"] or 0))
    shown = table(small, "--by-class", "--width", "160").out
    assert "agent" in shown


def test_free_running_load_is_one_row(table: Any, small: Path) -> None:
    """Without levels the whole run is one row at the largest number of users, and says so."""
    lines = (small / "requests.csv").read_text().splitlines()
    (small / "requests.csv").write_text(
        "\n".join([lines[0], *("," + line.split(",", 1)[1] for line in lines[4:])]) + "\n"
    )
    facts = json.loads((small / "run.json").read_text())
    facts["levels"], facts["scenario"]["load"] = [], None
    (small / "run.json").write_text(json.dumps(facts))
    (small / "levels.csv").write_text((small / "levels.csv").read_text().splitlines()[0] + "\n")
    document = table(small, "--json").json
    (row,) = document["levels"]
    assert (row["level"], row["concurrency"], row["state"], row["requests"]) == (None, 2, "free-running", 4)
    assert any("free-running" in note["text"] for note in document["notes"])
    assert "for p95 run longer (-t), until there are 72 requests" in table(small, "--width", "200").out
    assert "c: users" not in table(small).out  # here c is the largest number of users, as the note says


def test_cold_start_is_a_result_of_its_own(table: Any, small: Path) -> None:
    """The first request took 12 s to its first token; it is shown, and no level contains it."""
    document = table(small, "--json").json
    assert document["cold_start"]["ttft_s"] == pytest.approx(12.0)
    assert document["cold_start"]["phase"] == "warmup"
    assert document["cold_start"]["later_ttft_s"]["value"] == pytest.approx(0.75)
    (warmup,) = document["warmup"]
    assert (warmup["requests"], warmup["ttft_max_s"]) == (1, pytest.approx(12.0))
    assert "TTFT 12000 ms; median of its level's measured requests 750 ms" in table(small, "--width", "160").out
