"""Published tables: columns known by meaning whatever they are called, every figure set kept, unknown stays blank."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.published_table import read_published
from analysis.table_header import heading_of
from tokenswarm.errors import RunFolderError

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
SPARK = PUBLISHED / "spark_qwen3.6_35b.csv"


@pytest.mark.parametrize(
    ("title", "name", "scale"),
    [
        ("concurrency", "concurrency", 1.0),
        ("C", "concurrency", 1.0),
        ("Users", "concurrency", 1.0),
        ("Concurrent requests", "concurrency", 1.0),
        ("requests", "requests", 1.0),
        ("Failed", "failed", 1.0),
        ("ok", "ok", 1.0),
        ("output_tok_s", "output_tok_s", 1.0),
        ("Output tokens/s", "output_tok_s", 1.0),
        ("Throughput (tok/s)", "output_tok_s", 1.0),
        ("aggregate tps", "output_tok_s", 1.0),
        ("peak_tok_s", "peak_tok_s", 1.0),
        ("Peak tok/s", "peak_tok_s", 1.0),
        ("per_request_tok_s", "per_request_tok_s", 1.0),
        ("tok/s/user", "per_request_tok_s", 1.0),
        ("total tok/s", "total_tok_s", 1.0),
        ("Total output tok/s", "output_tok_s", 1.0),
        ("prompt tok/s", "prompt_tok_s", 1.0),
        ("req/s", "requests_per_s", 1.0),
        ("ttft_p50_ms", "ttft_p50_s", 0.001),
        ("TTFT median (s)", "ttft_p50_s", 1.0),
        ("TTFT (p95, ms)", "ttft_p95_s", 0.001),
        ("Time to first token, 95th percentile [ms]", "ttft_p95_s", 0.001),
        ("mean TTFT s", "ttft_mean_s", 1.0),
        ("tpot_p95_ms", "tpot_p95_s", 0.001),
        ("Time per output token p50 (ms)", "tpot_p50_s", 0.001),
        ("p50 ms/token", "tpot_p50_s", 0.001),
        ("ITL p50 ms", "itl_p50_s", 0.001),
        ("e2e_p95_s", "e2e_p95_s", 1.0),
        ("Latency p50 (s)", "e2e_p50_s", 1.0),
        ("wall_s", "wall_s", 1.0),
        ("Duration (ms)", "wall_s", 0.001),
        ("tokens", "tokens", 1.0),
        ("Model", "configuration", 1.0),
        ("TTFT p50", "ttft_p50_s", None),
        ("lat_p95_s", "e2e_p95_s", 1.0),
        ("user_tok_s", "per_request_tok_s", 1.0),
        ("gen_tps", "output_tok_s", 1.0),
        ("#users", "concurrency", 1.0),
        ("request_count", "requests", 1.0),
        ("n_ok", "ok", 1.0),
        ("model_config", "configuration", 1.0),
        ("scheduled TTFT p50 ms", "", 1.0),
        ("1st TTFT p95 ms", "", 1.0),
        ("ttft_p95_ms_low", "", 1.0),
        ("steady tok/s", "", 1.0),
        ("accepted draft tok/s", "", 1.0),
        ("TTFT (ms)", "", 1.0),
        ("Δ", "", 1.0),
        ("GPU memory GB", "", 1.0),
        ("error rate %", "", 1.0),
    ],
)
def test_titles_are_known_by_meaning(title: str, name: str, scale: float | None) -> None:
    """Words in any order, units in brackets or after underscores; what is no figure of ours stays unknown."""
    heading = heading_of(title)
    assert (heading.name, heading.scale) == (name, scale)


def values(levels: list[Any]) -> list[tuple[int | None, dict[str, float | None]]]:
    return [(row.concurrency, {name: figure.value for name, figure in row.figures.items()}) for row in levels]


def test_every_figure_set_is_kept() -> None:
    """Seven sets: fp8 stands in four tables, with two different figures at one user; counts not given stay unknown."""
    sets = read_published(SPARK)
    named = {(one.facts["table"], one.facts["configuration"]): one for one in sets}
    assert len(named) == len(sets) == 7
    first = named["primary sweep", "fp8"].levels
    assert [row.concurrency for row in first] == [1, 2, 4, 8, 16, 32]
    assert [(row.requests, row.ok, row.failed) for row in first[:4]] == [(8, 8, 0), (8, 8, 0), (16, 16, 0), (32, 32, 0)]
    figures = first[3].figures
    assert figures["ttft_p95_s"].value == pytest.approx(12.266)
    assert figures["tpot_p95_s"].value == pytest.approx(0.101)
    assert (figures["e2e_p95_s"].value, figures["peak_tok_s"].value) == (37.9, 96.0)
    assert figures["e2e_p95_s"].marks == ("no bound",)
    assert first[5].figures["e2e_p95_s"].marks == ()
    at_one = [row.figure("output_tok_s").value for one in sets for row in one.levels if row.concurrency == 1]
    assert at_one == [21.0, 23.9, 21.0, 26.1, 28.7, 28.4, 28.7]
    drafts = named["two draft tokens", "fp8+mtp2"].levels[2]
    assert (drafts.count("requests"), drafts.count("failed"), drafts.count("ok")) == (32, 17, 15)
    assert drafts.figures == {}
    unsaid = named["quantization", "awq-int4"].levels[0]
    assert (unsaid.count("requests"), unsaid.count("failed"), unsaid.count("ok")) == (8, None, None)
    assert unsaid.failed_share is None
    assert unsaid.figure("ttft_p50_s").value is None


def test_renamed_and_reordered_table_reads_the_same(tmp_path: Path) -> None:
    """Other titles, other units, semicolons, another order and columns of no concern change no value."""
    with SPARK.open(newline="") as file:
        rows = list(csv.DictReader(file))
    titles = {
        "E2E latency p95 (ms)": lambda row: row["e2e_p95_s"] and str(float(row["e2e_p95_s"]) * 1000),
        "Δ": lambda row: "+3 %",
        "Setup": lambda row: row["configuration"],
        "users": lambda row: row["concurrency"],
        "Throughput, tokens/s": lambda row: row["output_tok_s"],
        "best second tok/s": lambda row: row["peak_tok_s"],
        "median TTFT": lambda row: row["ttft_p50_ms"] and f"{row['ttft_p50_ms']} ms",
        "95% time to first token [s]": lambda row: row["ttft_p95_ms"] and str(float(row["ttft_p95_ms"]) / 1000),
        "TPOT p50": lambda row: row["tpot_p50_ms"],
        "time per output token (p95, ms)": lambda row: row["tpot_p95_ms"],
        "E2E latency median (s)": lambda row: row["e2e_p50_s"],
        "errors": lambda row: row["failed"],
        "n": lambda row: row["requests"],
        "Section": lambda row: row["table"],
    }
    with (tmp_path / "other.csv").open("w", newline="") as file:
        write = csv.writer(file, delimiter=";").writerow
        write(titles)
        for row in rows:
            write([make(row) or "n/a" for make in titles.values()])
    ours, theirs = read_published(SPARK), read_published(tmp_path / "other.csv")
    assert [one.facts for one in theirs] == [one.facts for one in ours]
    for one, other in zip(ours, theirs, strict=True):
        for left, right in zip(one.levels, other.levels, strict=True):
            assert [left.count(name) for name in ("requests", "ok", "failed")] == [
                right.count(name) for name in ("requests", "ok", "failed")
            ]
            assert right.concurrency == left.concurrency
            assert set(right.figures) == set(left.figures)
            for name, figure in left.figures.items():
                assert right.figures[name].value == pytest.approx(figure.value), name
    texts = [note.text for note in theirs[0].notes]
    assert "columns that were not read: Δ" in texts
    assert any("'TPOT p50' names no unit: read as ms" in text for text in texts)


def test_markdown_table(tmp_path: Path) -> None:
    """Pipes, a line of dashes, units in the cells and text around the table."""
    (tmp_path / "post.md").write_text(
        "# Results\n\nWe measured:\n\n| c | tok/s | TTFT p50 | E2E p50 |\n|---:|---|:-:|---|\n"
        "| 1 | 26.1 | 480 ms | 1.5 s |\n| 1,024 | ~1,440.5* | – | 90 s |\n\nThe end.\n"
    )
    (only,) = read_published(tmp_path / "post.md")
    assert values(only.levels) == [
        (1, {"output_tok_s": 26.1, "ttft_p50_s": pytest.approx(0.48), "e2e_p50_s": 1.5}),
        (1024, {"output_tok_s": 1440.5, "e2e_p50_s": 90.0}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "We measured:\n\n| c | tok/s | TTFT p50 (ms) |\n|---|---|---|\n| 1 | 20 | 50 |\n| 2 | 30 | 60 |\n",
        "c;tok/s;TTFT p50 (ms)\n1;20;50\n2;30;60\n",
        "c\ttok/s\tTTFT p50 (ms)\n1\t20\t50\n2\t30\t60\n",
    ],
    ids=["markdown", "semicolons", "tabs"],
)
def test_every_command_reads_what_parts_columns(table: Any, tmp_path: Path, text: str) -> None:
    """A table is found by its heading whether pipes, semicolons or tabs part its columns, not only by the audit."""
    (tmp_path / "post.md").write_text(text)
    levels = table(tmp_path / "post.md", "--json").json["levels"]
    assert [level["figures"]["output_tok_s"]["value"] for level in levels] == [20.0, 30.0]
    assert main(["capacity", str(tmp_path / "post.md"), "--limit", "ttft_p50_s=2"]) == 0
    (tmp_path / "other.md").write_text(text)
    assert main(["compare", str(tmp_path / "post.md"), str(tmp_path / "other.md")]) == 0


def test_numbers_beyond_measure_are_no_numbers(table: Any, tmp_path: Path) -> None:
    """An endless concurrency is one line about its row, not a traceback."""
    (tmp_path / "t.csv").write_text("concurrency,output tok/s\n1,20\n1e400,30\n")
    answer = table(tmp_path / "t.csv")
    assert answer.code == 2
    assert len(answer.err.splitlines()) == 1


def test_our_own_table_is_one_too(table: Any, tmp_path: Path) -> None:
    """The CSV of a run, read again, gives its figures and counts; columns that mean more are not mistaken."""
    run = Path(__file__).parent / "runs" / "small"
    (tmp_path / "old.csv").write_text(table(run, "--format", "csv").out)
    first, again = (table(path, "--json").json["levels"] for path in (run, tmp_path / "old.csv"))
    for one, other in zip(first, again, strict=True):
        for name in ("concurrency", "requests", "ok", "failed"):
            assert one[name] == other[name]
        assert {"output_tok_s", "ttft_p50_s", "tpot_p95_s", "e2e_p99_s", "tokens", "wall_s"} < other["figures"].keys()
        for name, figure in other["figures"].items():
            assert figure["value"] == pytest.approx(one["figures"][name]["value"], abs=1e-6), name


def test_what_cannot_be_read_is_left_blank_and_said(tmp_path: Path) -> None:
    """A cell that is no number, a time whose unit cannot be told, a figure without its statistic."""
    (tmp_path / "t.csv").write_text("c,tok/s,TTFT p50,E2E (s),ok\n1,fast,40,3.1,4\n2,30,60,3.5,4\n")
    (only,) = read_published(tmp_path / "t.csv")
    assert values(only.levels) == [(1, {}), (2, {"output_tok_s": 30.0})]
    texts = " / ".join(note.text for note in only.notes)
    assert "'tok/s' has 'fast' in row 1, which is no number: left blank" in texts
    assert "'TTFT p50' names no unit and its values could be ms or s: left out" in texts
    assert "'E2E (s)' names no statistic of E2E" in texts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "but it is empty"),
        ("c,tok/s\n", "holds no row, only the header"),
        ("when,what\n1,2\n", "its columns are when, what"),
        ("c,requests\n1,2\n", "its columns are c, requests"),
        ("c,tok/s\n1,20\n,30\n", "row 2 names no concurrency"),
        ("c,tok/s\nmany,30\n", "row 1 names no concurrency"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    """The line names the file and what was wanted."""
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(RunFolderError, match=said) as caught:
        read_published(tmp_path / "t.csv")
    assert str(tmp_path / "t.csv") in str(caught.value)
    assert "\n" not in str(caught.value)
