"""``python -m analysis compare`` on hand-made runs and on published tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.__main__ import main
from tests.analysis.clocked_run import arrival, clocked_run
from tests.analysis.conftest import CASES, SMALL, Answer, write_run
from tokenswarm.records import Phase, RequestRecord

DATA = Path(__file__).parents[1] / "data"
PUBLISHED, IMPORTS = DATA / "published", DATA / "imports"
SPARK = PUBLISHED / "spark_qwen3.6_35b.csv"
LEVELS = [{"concurrency": 2}]


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """``python -m analysis compare …`` in this process."""

    def call(*arguments: Path | str) -> Answer:
        code = main(["compare", *map(str, arguments)])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


def requests(seed: int, *, factor: float = 1.0, count: int = 200, fail_every: int = 0) -> list[RequestRecord]:
    """Two users in a closed loop: TTFT 100 ms, then 20 tokens of 10 ms, scattered by 5 %, all times ``factor``."""
    rng, free, rows = Random(seed), [0.0, 0.01], []
    for ticket in range(count):
        user = free.index(min(free))
        sent_s = free[user]
        first_s = sent_s + 0.100 * factor * rng.uniform(0.95, 1.05)
        last_s = first_s + 19 * 0.010 * factor * rng.uniform(0.95, 1.05)
        free[user] = last_s + 0.001
        failed = bool(fail_every) and ticket % fail_every == 0
        rows.append(
            RequestRecord(
                level=0,
                concurrency=2,
                phase=Phase.MEASURED,
                ticket=ticket,
                worker="local",
                user=user,
                traffic="chat",
                session=f"{ticket}",
                turn=0,
                scheduled_s=sent_s,
                sent_s=sent_s,
                first_token_s=None if failed else first_s,
                first_output_s=None if failed else first_s,
                last_token_s=None if failed else last_s,
                finished_s=last_s,
                output_tokens=None if failed else 20,
                prompt_tokens=None if failed else 50,
                token_source="usage",
                error_kind="http_5xx" if failed else None,
            )
        )
    return rows


def scenario(**traffic: Any) -> dict[str, Any]:
    chat = {"name": "chat", "kind": "chat", "input_tokens": {"fixed": 50}, "output_tokens": {"fixed": 20}}
    load = {"closed": {"users": [2], "sessions": 200, "tail": "drain"}}
    return {"traffic": [chat | traffic], "load": load, "target": {"api": "chat"}, "seed": 7}


def run(folder: Path, seed: int, *, scenario_: dict[str, Any] | None = None, facts: Any = None, **changes: Any) -> Path:
    told = {"scenario": scenario_ or scenario(), "seed": seed, "provenance": {"tokenswarm": "0.1.0"}} | (facts or {})
    return write_run(folder, requests(seed, **changes), levels=LEVELS, **told)


def cells(answer: Answer) -> dict[str, dict[str, Any]]:
    (one,) = answer.json["comparisons"]
    return {cell["figure"]: cell for cell in one["cells"]}


def test_a_slower_server_is_worse(compare: Callable[..., Answer], tmp_path: Path) -> None:
    """A tenth slower in everything: every figure says so, intervals hold the truth, and the exit code is 1."""
    base, slow = run(tmp_path / "base", 1), run(tmp_path / "slow", 2, factor=1.10)
    answer = compare(base, slow, "--json", "--check")
    assert answer.code == 1
    found = cells(answer)
    assert {name for name, cell in found.items() if cell["verdict"] == "worse"} == set(found)
    assert found["ttft_mean_s"]["ratio_low"] < 1.10 < found["ttft_mean_s"]["ratio_high"]
    assert found["ttft_mean_s"]["difference_low"] < 0.010 < found["ttft_mean_s"]["difference_high"]
    assert found["output_tok_s"]["ratio"] == pytest.approx(1 / 1.10, rel=0.02)
    assert compare(slow, base, "--json", "--check").code == 0


def test_text_names_what_changed_and_the_rules(compare: Callable[..., Answer], tmp_path: Path) -> None:
    """The terminal and Markdown say it in words, with the correction, the floor and what could have been found."""
    base, slow = run(tmp_path / "base", 1), run(tmp_path / "slow", 2, factor=1.10)
    for form in ("terminal", "markdown"):
        text = " ".join(compare(base, slow, "--format", form, "--width", "200").out.split())
        for part in ("c=2 chat: worse: TTFT p50 ms", "Holm", "floor", "detectable", "make ab takes turns"):
            assert part in text
    lines = list(csv.DictReader(compare(base, slow, "--format", "csv").out.splitlines()))
    assert {line["verdict"] for line in lines} == {"worse"}


@pytest.mark.parametrize(
    ("facts", "changed", "name"),
    [
        ({}, scenario(input_tokens={"fixed": 60}), "traffic.chat.input_tokens"),
        ({}, scenario() | {"load": {"closed": {"users": [2], "sessions": 200, "tail": "fill"}}}, "load.tail"),
        ({}, scenario() | {"target": {"api": "completions"}}, "api"),
        ({"provenance": {"tokenswarm": "0.2.0"}}, scenario(), "tokenswarm"),
        ({"input_tokens_source": "words"}, scenario(), "input_tokens_source"),
    ],
)
def test_unlike_runs_are_refused(
    compare: Callable[..., Answer], tmp_path: Path, facts: dict[str, Any], changed: dict[str, Any], name: str
) -> None:
    """The difference is named with both values, nothing is compared; allowed by name, it is told and passes."""
    base = run(tmp_path / "base", 1, facts={"input_tokens_source": "server"})
    other = run(tmp_path / "other", 2, scenario_=changed, facts={"input_tokens_source": "server"} | facts)
    refused = compare(base, other, "--json", "--check")
    assert refused.code == 3
    (one,) = refused.json["comparisons"]
    assert one["refused"]
    assert one["cells"] == []
    assert [difference["name"] for difference in one["differences"] if not difference["allowed"]] == [name]
    assert f"refused: {name}: " in refused.err
    assert f"--allow {name}" in " ".join(compare(base, other).out.split())
    passed = compare(base, other, "--json", "--allow", name)
    assert cells(passed)
    assert f"differs, allowed: {name}" in " ".join(compare(base, other, "--allow", name, "--width", "200").out.split())


def test_model_server_and_seed_may_differ(compare: Callable[..., Answer], tmp_path: Path) -> None:
    """They are what is compared, or decide only the words; they are told all the same."""
    targets = [{"model": name, "url": f"http://{name}:8000"} for name in ("one", "two")]
    base, other = (run(tmp_path / target["model"], i, facts={"target": target}) for i, target in enumerate(targets))
    (one,) = compare(base, other, "--json", "--check").json["comparisons"]
    assert not one["refused"]
    assert {difference["name"] for difference in one["differences"]} == {"model", "url", "seed"}


def test_who_fails_more_does_not_look_better(compare: Callable[..., Answer], tmp_path: Path) -> None:
    """A fifth fails on the faster side: failures are worse, latencies of the rest decide nothing."""
    base, other = run(tmp_path / "base", 1), run(tmp_path / "other", 2, factor=0.8, fail_every=5)
    found = cells(compare(base, other, "--json"))
    assert found["failed_share"]["verdict"] == "worse"
    assert found["failed_share"]["difference"] == pytest.approx(0.2)
    assert found["failed_share"]["difference_low"] < 0.2 < found["failed_share"]["difference_high"]
    assert found["ttft_p50_s"]["verdict"] == "cannot tell"
    assert found["ttft_p50_s"]["reason"] == "20% failed on the side that looks better"


def test_levels_that_are_not_fit_are_left_out(compare: Callable[..., Answer], tmp_path: Path) -> None:
    """An interrupted run decides nothing, and the reason is given."""
    base, slow = run(tmp_path / "base", 1), run(tmp_path / "slow", 2, factor=1.5)
    (slow / "end.json").unlink()
    answer = compare(base, slow, "--json", "--check")
    assert answer.code == 3
    assert {cell["verdict"] for cell in cells(answer).values()} == {"cannot tell"}
    assert "interrupted" in answer.json["comparisons"][0]["doubts"][0]


def test_repeated_runs_set_the_floor(compare: Callable[..., Answer], tmp_path: Path) -> None:
    """Two runs of one configuration that are 20 % apart: a tenth is within that, whatever its interval."""
    base, slow = run(tmp_path / "base", 1), run(tmp_path / "slow", 2, factor=1.10)
    again, apart = run(tmp_path / "again", 3), run(tmp_path / "apart", 4, factor=1.20)
    found = cells(compare(base, slow, "--json", "--floor", again, apart))
    assert found["ttft_mean_s"]["floor"] == pytest.approx(0.20, abs=0.02)
    assert found["ttft_mean_s"]["reason"] == "within the floor"
    assert {cell["verdict"] for cell in found.values()} == {"cannot tell"}


def test_blocks_of_an_alternated_comparison(compare: Callable[..., Answer], tmp_path: Path) -> None:
    """The folder names both sides; eight blocks in turns, B a tenth slower while both get slower and slower."""
    blocks = []
    for i, side in enumerate("ABBAABBA"):
        factor = (1.10 if side == "B" else 1.0) * (1.0 + 0.02 * i)
        run(tmp_path / f"{i}", i, factor=factor, count=80, facts={"created": f"2026-01-01T00:{i:02d}:00+00:00"})
        blocks.append({"side": side, "run": f"{i}"})
    (tmp_path / "alternation.json").write_text(json.dumps({"blocks": blocks}))
    found = cells(compare(tmp_path, "--json"))
    assert found["e2e_mean_s"]["verdict"] == "worse"
    assert found["e2e_mean_s"]["ratio"] == pytest.approx(1.10, abs=0.01)
    assert found["e2e_mean_s"]["floor"] < 0.02


def derived(table: str, quantity: str) -> dict[str, float]:
    """Deltas as printed, by level."""
    with open(PUBLISHED / "spark_qwen3.6_35b_derived.csv", newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["table"] == table and row["quantity"] == quantity]
    return {f"c={row['concurrency']}": float(row["value"]) for row in rows}


def test_the_published_delta_of_quantization(compare: Callable[..., Answer]) -> None:
    """AWQ against FP8: every delta of throughput as printed, to a whole percent; summaries decide nothing."""
    answer = compare(f"{SPARK}#quantization/fp8", f"{SPARK}#awq-int4", "--json")
    found = [cell for cell in answer.json["comparisons"][0]["cells"] if cell["figure"] == "output_tok_s"]
    printed = derived("quantization", "delta_throughput_pct")
    assert len(printed) == 6
    assert {cell["level"]: round(100 * (cell["ratio"] - 1)) for cell in found} == printed
    assert {(cell["verdict"], cell["reason"]) for cell in found} == {
        ("cannot tell", "no interval: only summaries are known")
    }


def test_the_published_delta_of_a_draft_token(compare: Callable[..., Answer]) -> None:
    """One draft token against none: each printed delta of throughput and TPOT, to a whole percent."""
    answer = compare(f"{SPARK}#one draft token/fp8", f"{SPARK}#fp8+mtp1", "--json")
    for figure, quantity in (("output_tok_s", "delta_throughput_pct"), ("tpot_p50_s", "delta_tpot_pct")):
        printed = derived("one draft token", quantity)
        assert printed
        shown = {
            cell["level"]: round(100 * (cell["ratio"] - 1))
            for cell in answer.json["comparisons"][0]["cells"]
            if cell["figure"] == figure and cell["level"] in printed
        }
        assert shown == printed


def test_two_draft_tokens_with_their_failures(compare: Callable[..., Answer]) -> None:
    """17 of 32 requests failed at c=8: the count is told, no throughput, and a blank where the source has none."""
    rows = compare(f"{SPARK}#two draft tokens/fp8", f"{SPARK}#fp8+mtp2", "--format", "markdown").out.splitlines()
    (counts,) = [row for row in rows if row.startswith("| c=8 | 32")]
    assert [cell.strip() for cell in counts.strip("|").split("|")] == ["c=8", "32", "", "32", "17"]
    assert not [row for row in rows if row.startswith("| c=8 | output")]


def test_names_of_another_locustfile(compare: Callable[..., Answer]) -> None:
    """What two Locusts have in common is compared by name: 770 ms against 1,730 ms in the files, and no verdict."""
    answer = compare(CASES / "C01", CASES / "C03", "--json")
    (mean,) = [
        cell
        for cell in answer.json["comparisons"][0]["cells"]
        if cell["level"] == "POST chat" and cell["figure"] == "mean_s"
    ]
    assert mean["ratio"] == pytest.approx(1730 / 770, rel=0.01)
    assert mean["verdict"] == "cannot tell"
    text = compare(CASES / "C01", CASES / "C03", "--width", "200").out
    assert "taken on trust" in text
    assert "POST caption: only in" in text


def test_levels_by_the_clock(compare: Callable[..., Answer], tmp_path: Path) -> None:
    """Their latencies count from the schedule, and there is no throughput to compare; with unfinished sessions, which
    are in the figure and have no end, there is no interval."""
    made = []
    for name, factor, cut in (("one", 1.0, 0), ("other", 1.3, 0), ("cut", 1.3, 20)):
        rng = Random(name)
        rows = [arrival(i, i / 2, i / 2 + 0.001, i / 2 + 0.4 * factor * rng.uniform(0.9, 1.1)) for i in range(200)]
        for row in rows[len(rows) - cut :]:
            row.first_token_s = row.last_token_s = row.output_tokens = row.session_end = None
            row.error_kind = "cancelled"
        levels = [{"label": "2/s", "rate_per_s": 2.0, "duration_s": 100.0}]
        made.append(clocked_run(tmp_path / name, rows, levels))
    found = cells(compare(*made[:2], "--json"))
    assert found["scheduled_e2e_mean_s"]["ratio_low"] < 1.3 < found["scheduled_e2e_mean_s"]["ratio_high"]
    assert found["scheduled_e2e_mean_s"]["verdict"] == "worse"
    assert not {"output_tok_s", "e2e_mean_s"} & set(found)
    unfinished = cells(compare(made[0], made[2], "--json"))
    assert unfinished["scheduled_e2e_p95_s"]["reason"] == "no interval: sessions were unfinished"


def test_results_of_two_tools_are_not_mixed(compare: Callable[..., Answer]) -> None:
    """Their figures have the same names and other definitions: refused by their source, unless that is wanted."""
    one, other = IMPORTS / "vllm-bench-serve" / "out.json", IMPORTS / "guidellm" / "out.json"
    refused = compare(one, other, "--check")
    assert refused.code == 3
    assert "refused: source: " in refused.err
    assert "--allow source" in refused.out


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_published_comparison_as_text(
    compare: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion, form: str
) -> None:
    """The whole output of AWQ against FP8, whose numbers the tests above hold against the printed ones."""
    monkeypatch.chdir(PUBLISHED)
    file = SPARK.name
    assert compare(f"{file}#quantization/fp8", f"{file}#awq-int4", "--format", form, "--width", "110").out == snapshot


def test_mistakes_are_one_line(compare: Callable[..., Answer], tmp_path: Path) -> None:
    """A single run, a run named twice, a table without the configuration, a file that is not there."""
    for arguments in (
        [SMALL],
        [SMALL, SMALL],
        [f"{SPARK}#fp8", f"{SPARK}#awq-int4"],
        [SMALL, tmp_path / "nothing"],
        [SMALL, f"{tmp_path}/nothing#fp8"],
    ):
        answer = compare(*arguments)
        assert answer.code == 2
        assert len(answer.err.splitlines()) == 1
        assert answer.out == ""
