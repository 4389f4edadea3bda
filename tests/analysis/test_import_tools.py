"""Other tools' results beside the recorded ones: levels, rates, failures, details, and damaged or foreign files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.foreign_figures import FOREIGN, foreign_of, near_of
from analysis.imported import as_number
from analysis.other_tools import holds_results

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "data" / "imports"
VLLM = {
    "backend": "openai-chat",
    "model_id": "m",
    "num_prompts": 4,
    "request_rate": "inf",
    "max_concurrency": 2,
    "duration": 10.0,
    "completed": 4,
    "total_input_tokens": 40,
    "total_output_tokens": 400,
    "request_throughput": 0.4,
    "output_throughput": 40.0,
    "total_token_throughput": 44.0,
    "median_ttft_ms": 100.0,
    "mean_ttft_ms": 110.0,
}
SGLANG = {
    "backend": "sglang-oai-chat",
    "request_rate": "Infinity",
    "max_concurrency": 4,
    "duration": 10.0,
    "completed": 2,
    "total_input_tokens": 64,
    "total_output_tokens": 8,
    "total_output_tokens_retokenized": 8,
    "mean_e2e_latency_ms": 700.0,
    "median_ttft_ms": 200.0,
    "mean_itl_ms": 50.0,
}


def write(path: Path, *documents: Any) -> Path:
    path.write_text("\n".join(json.dumps(one) for one in documents))
    return path


def levels(table: Any, path: Path) -> list[Any]:
    answer = table(path, "--json")
    assert answer.code == 0, answer.err
    return list(answer.json["levels"])


def value(level: Any, name: str) -> Any:
    return level["figures"].get(name, {}).get("value")


def test_vllm_results_of_a_folder_are_levels(table: Any, tmp_path: Path) -> None:
    """One file a concurrency, in the order of users; other files do not matter; a repeat is told apart."""
    for name, users, rate in (("b", 16, 90.0), ("a", 2, 40.0), ("c", 4, 70.0), ("d", 16, 91.0)):
        write(tmp_path / f"{name}.json", VLLM | {"max_concurrency": users, "total_output_tokens": rate * 10})
    write(tmp_path / "truth.json", {"tokens": 1})
    (tmp_path / "notes.txt").write_text("nothing")
    found = levels(table, tmp_path)
    assert [(level["label"], level["concurrency"], value(level, "output_tok_s")) for level in found] == [
        ("c=2", 2, 40.0),
        ("c=4", 4, 70.0),
        ("c=16", 16, 90.0),
        ("c=16 #2", 16, 91.0),
    ]
    scaling = table(tmp_path, "--json").json["scaling"]
    assert [row["throughput_ratio"] for row in scaling] == [1.0, 1.75, 2.25, 2.275]


def test_vllm_results_in_lines(table: Any, tmp_path: Path) -> None:
    """With --append-result the file has a line a run; a last line that was cut is left out and said."""
    path = write(tmp_path / "all.json", VLLM, VLLM | {"max_concurrency": 8})
    path.write_text(path.read_text() + "\n" + json.dumps(VLLM)[:60])
    answer = table(path, "--json").json
    assert [level["concurrency"] for level in answer["levels"]] == [2, 8]
    assert "all.json: the last line is cut off and was left out" in [note["text"] for note in answer["notes"]]


def test_vllm_by_rate_and_without_limit(table: Any, tmp_path: Path) -> None:
    """A finite rate is a level by the clock, also with a limit on users; all at once has neither users nor rate."""
    path = write(
        tmp_path / "r.json",
        VLLM | {"request_rate": 2.5, "max_concurrency": 64},
        VLLM | {"request_rate": 1.0, "max_concurrency": None},
        VLLM | {"max_concurrency": None},
    )
    answer = table(path, "--json").json
    assert [(level["label"], level["concurrency"], level["by_clock"]) for level in answer["levels"]] == [
        ("all at once", None, False),
        ("1/s", None, True),
        ("2.5/s", None, True),
    ]
    assert any("times count from the send" in note["text"] for note in answer["notes"])


def test_requests_in_the_file_give_intervals(table: Any, tmp_path: Path) -> None:
    """Of 32 latencies in no order the median lies between the 10th and the 23rd, by the binomial distribution."""
    mixed = [float(1 + 13 * i % 32) for i in range(32)]
    document = VLLM | {"completed": 32, "num_prompts": 32, "latencies": mixed}
    (found,) = levels(table, write(tmp_path / "i.json", document))
    figure = found["figures"]["last_chunk_p50_s"]
    assert (figure["value"], figure["n"], figure["low"], figure["high"]) == (16.5, 32, 10.0, 23.0)
    assert found["figures"]["last_chunk_p95_s"]["marks"] == ["no bound"]


def test_vllm_failures_and_details(table: Any, tmp_path: Path) -> None:
    """Old files give only how many were asked for and completed; details give first chunks of the successes alone."""
    old = VLLM | {"completed": 3, "num_prompts": 4, "total_output_tokens": 300}
    detailed = old | {
        "ttfts": [0.1, 0.0, 0.2, 0.3],
        "latencies": [1.0, 0.0, 2.0, 4.0],
        "errors": ["", "Traceback (most recent call last):\nConnectionRefusedError: Connection refused", "", ""],
    }
    answer = table(write(tmp_path / "d.json", detailed), "--json").json
    (found,) = answer["levels"]
    assert (found["requests"], found["ok"], found["failed"]) == (4, 3, 1)
    assert value(found, "first_chunk_p50_s") == pytest.approx(0.2)
    assert value(found, "first_chunk_mean_s") == pytest.approx(0.2)
    assert value(found, "last_chunk_p50_s") == pytest.approx(2.0)
    assert [(group["kind"], group["count"]) for group in answer["failures"]] == [("refused", 1)]
    assert found["errors"] == {"refused": 1}
    assert table(tmp_path / "d.json", "--check").code == 1


def test_nothing_succeeded(table: Any, tmp_path: Path) -> None:
    """No throughput and no latency, which is not one of 0, and the run cannot decide."""
    path = write(
        tmp_path / "f.json",
        VLLM | {"completed": 0, "failed": 4, "total_output_tokens": 0, "mean_ttft_ms": 0.0, "median_ttft_ms": 0.0},
    )
    (found,) = levels(table, path)
    assert (found["ok"], found["failed"], found["failed_share"]) == (0, 4, 1.0)
    assert value(found, "output_tok_s") is None
    assert value(found, "first_chunk_p50_s") is None
    answer = table(path, "--check")
    assert answer.code == 3
    assert "no request succeeded" in answer.err


def test_sglang_details_give_our_own_figures(table: Any, tmp_path: Path) -> None:
    """TTFT and gaps tell the last token: E2E 0.3 and 0.8 s, TPOT 0.1 and 0.2 s, by hand; failures are known then."""
    path = tmp_path / "s.jsonl"
    detailed = {"ttfts": [0.1, 0.2, 0.0], "itls": [[0.1, 0.1], [0.2, 0.2, 0.2], []], "output_lens": [3, 4, 0]}
    write(path, SGLANG | detailed | {"errors": ["", "", "HTTP 429: too many"]})
    (found,) = levels(table, path)
    assert (found["requests"], found["ok"], found["failed"], found["errors"]) == (3, 2, 1, {"http_429": 1})
    assert value(found, "ttft_p50_s") == pytest.approx(0.15)
    assert value(found, "e2e_p50_s") == pytest.approx(0.55)
    assert value(found, "tpot_mean_s") == pytest.approx(0.15)
    assert value(found, "per_request_tok_s") == pytest.approx(7 / 0.8)
    assert value(found, "stream_end_mean_s") == pytest.approx(0.7)
    assert "chunk_gap_mean_s" in found["figures"]


def test_sglang_spreads_gaps_of_its_own_server(table: Any, tmp_path: Path) -> None:
    """Against /generate a gap is divided among the tokens of a chunk: no chunk gap of ours."""
    (found,) = levels(table, write(tmp_path / "s.jsonl", SGLANG | {"backend": "sglang"}))
    assert value(found, "spread_gap_mean_s") == pytest.approx(0.05)
    assert "chunk_gap_mean_s" not in found["figures"]


def test_inference_perf_stages(table: Any, tmp_path: Path) -> None:
    """Stages are the levels, by their rate; the summary beside them is not counted again; failures have kinds."""
    told = json.loads((SAMPLES / "inference-perf" / "summary_lifecycle_metrics.json").read_text())
    write(tmp_path / "summary_lifecycle_metrics.json", told)
    for stage, rate in ((0, 8.0), (1, 4.0)):
        part = told | {"load_summary": {"count": 32, "requested_rate": rate}}
        part["failures"] = {"count": 2, "by_label": {"429 - Rate Limit": {"count": 2, "messages": []}}}
        write(tmp_path / f"stage_{stage}_lifecycle_metrics.json", part)
    found = levels(table, tmp_path)
    assert [(level["label"], level["by_clock"], level["ok"], level["failed"]) for level in found] == [
        ("4/s", True, 32, 2),
        ("8/s", True, 32, 2),
    ]
    assert found[0]["errors"] == {"http_429": 2}


def test_genai_bench_experiment(table: Any, tmp_path: Path) -> None:
    """One file a concurrency, times in milliseconds where the file says so, failed requests in no time."""
    good = {"ttft": 100.0, "tpot": 10.0, "e2e_latency": 1090.0, "num_output_tokens": 100, "num_input_tokens": 7}
    bad = {"ttft": None, "error_code": 503, "error_message": "overloaded"}
    for users in (32, 4):
        total = {"num_concurrency": users, "run_duration": 5000.0, "requests_per_second": 0.4, "scenario": "D(7,100)"}
        document = {"aggregated_metrics": total, "individual_request_metrics": [good, bad, good], "_time_unit": "ms"}
        write(tmp_path / f"D_{users}.json", document)
    shutil.copy(SAMPLES / "genai-bench" / "experiment_metadata.json", tmp_path)
    answer = table(tmp_path, "--json").json
    assert [level["concurrency"] for level in answer["levels"]] == [4, 32]
    found = answer["levels"][0]
    assert (found["ok"], found["failed"], found["errors"]) == (2, 1, {"http_5xx": 1})
    assert value(found, "ttft_p50_s") == pytest.approx(0.1)
    assert value(found, "stream_end_mean_s") == pytest.approx(1.09)
    assert value(found, "whole_run_s") == pytest.approx(5.0)
    assert answer["source"]["tool"] == "genai-bench 0.0.5"
    assert answer["source"]["target"] == {"model": "bench"}


def guidellm(**changes: Any) -> Any:
    document = json.loads((SAMPLES / "guidellm" / "out.json").read_text())
    for key, changed in changes.items():
        document["benchmarks"][0][key] = changed
    return document


def test_guidellm_without_its_requests(table: Any, tmp_path: Path) -> None:
    """Only sums are left: ITL that weighs by tokens, TPOT with the TTFT in it and stream ends keep their own names."""
    document = guidellm(requests={"successful": None, "errored": None, "incomplete": None, "total": None})
    answer = table(write(tmp_path / "g.json", document), "--json").json
    (found,) = answer["levels"]
    told = document["benchmarks"][0]["metrics"]
    assert value(found, "ttft_p95_s") == pytest.approx(0.06821799278259277)
    assert value(found, "e2e_per_token_p50_s") == pytest.approx(0.010331554338335991)
    assert value(found, "weighted_tpot_mean_s") == pytest.approx(0.010004912715727889)
    assert value(found, "stream_end_p95_s") == told["request_latency"]["successful"]["percentiles"]["p95"]
    assert value(found, "output_tok_s") == pytest.approx(4096 / 5.405503988265991)
    assert not {"tpot_p50_s", "e2e_p50_s"} & found["figures"].keys()
    assert any("values that occurred, without interpolation" in note["text"] for note in answer["notes"])


def test_guidellm_of_other_layouts(table: Any, tmp_path: Path) -> None:
    """Totals beside the metrics or none at all, settings under another name, requests without times: what is told."""
    document = guidellm()
    benchmark = document["benchmarks"][0]
    benchmark["args"] = {"strategy": benchmark.pop("config")["strategy"]}
    for request in benchmark["requests"]["successful"]:
        del request["info"]
    benchmark["request_totals"] = benchmark["metrics"].pop("request_totals")
    (found,) = levels(table, write(tmp_path / "g.json", document))
    assert (found["concurrency"], found["ok"], found["failed"]) == (8, 32, 0)
    assert value(found, "ttft_p50_s") == pytest.approx(0.05093669891357422)
    assert "tpot_p50_s" not in found["figures"]
    del benchmark["request_totals"]
    (found,) = levels(table, write(tmp_path / "g.json", document))
    assert (found["ok"], found["failed"]) == (32, None)


def test_guidellm_by_rate_with_failures(table: Any, tmp_path: Path) -> None:
    """A constant rate is a level by the clock; errored is failed, incomplete is cut, neither is a success."""
    document = guidellm()
    benchmark = document["benchmarks"][0]
    benchmark["config"]["strategy"] = {"type_": "constant", "rate": 6.0, "max_concurrency": 64}
    benchmark["metrics"]["request_totals"] = {"successful": 32, "errored": 2, "incomplete": 3, "total": 37}
    benchmark["requests"]["errored"] = [{"info": {"error": "ReadTimeout: timed out"}}] * 2
    answer = table(write(tmp_path / "g.json", document), "--json").json
    (found,) = answer["levels"]
    assert (found["label"], found["by_clock"]) == ("6/s", True)
    assert (found["requests"], found["ok"], found["failed"], found["cancelled"]) == (37, 32, 2, 3)
    assert found["errors"] == {"total_timeout": 2, "cancelled": 3}


def test_guidellm_sweep(table: Any, tmp_path: Path) -> None:
    """Several benchmarks of one file are levels; a synchronous one has one user."""
    document = guidellm()
    second = json.loads(json.dumps(document["benchmarks"][0]))
    second["config"]["strategy"] = {"type_": "synchronous"}
    document["benchmarks"].append(second)
    assert [level["label"] for level in levels(table, write(tmp_path / "g.json", document))] == ["c=1", "c=8"]


def test_aiperf_warm_up_failures_and_cuts(table: Any, tmp_path: Path) -> None:
    """Warm-up is left out and said; an error is a failure, a cancelled request is cut."""
    lines = [json.loads(line) for line in (SAMPLES / "aiperf" / "profile_export.jsonl").open()][:5]
    lines[0]["metadata"]["benchmark_phase"] = "warmup"
    lines[1]["error"] = {"code": 429, "type": "HTTPError", "message": "too many requests"}
    lines[2]["metadata"]["was_cancelled"] = True
    answer = table(write(tmp_path / "p.jsonl", *lines), "--json").json
    (found,) = answer["levels"]
    assert (found["requests"], found["ok"], found["failed"], found["cancelled"]) == (4, 2, 1, 1)
    assert found["errors"] == {"http_429": 1, "cancelled": 1}
    assert "not in counts and latencies: 1 warm-up requests" in [note["text"] for note in answer["notes"]]


def test_aiperf_without_usage_is_estimated(table: Any, tmp_path: Path) -> None:
    """Where the server did not count, tokens are the tokenizer's and everything that rests on them is marked."""
    lines = [json.loads(line) for line in (SAMPLES / "aiperf" / "profile_export.jsonl").open()]
    for line in lines:
        del line["metrics"]["usage_completion_tokens"]
    (found,) = levels(table, write(tmp_path / "p.jsonl", *lines))
    for name in ("tokens", "output_tok_s", "tpot_p50_s", "per_request_tok_s"):
        assert "estimated" in found["figures"][name]["marks"], name
    assert "estimated" not in found["figures"]["ttft_p50_s"].get("marks", [])


ALL = [
    path for path in sorted(SAMPLES.glob("*/*.json*")) if path.name not in ("truth.json", "experiment_metadata.json")
]


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}/{path.name}")
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.99])
def test_cut_off_files(table: Any, tmp_path: Path, path: Path, share: float) -> None:
    """One line that names the file; of a file with a line a request, the whole lines are read."""
    text = path.read_text()
    cut = tmp_path / path.name
    cut.write_text(text[: int(len(text) * share)])
    answer = table(cut)
    if path.name == "profile_export.jsonl" and share > 0.1:
        assert answer.code == 0
        assert "the last line is cut off and was left out" in answer.out
        return
    assert (answer.code, answer.out) == (2, "")
    assert len(answer.err.splitlines()) == 1
    assert str(cut) in answer.err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1}', "it has the keys a"),
        (b"{}", "(none)"),
        (b'{"metadata": 1, "benchmarks": []}', "it is none of these"),
        (b'{"metadata": {}, "metrics": []}', "it is none of these"),
        (b'{"a": 1}\nnonsense\n{"b": 2}', "line 2 is no JSON"),
        (b'{"a": 1}\n[1, 2]\n', "it holds list, not an object"),
        (b'{"a": "\xff\xfe"}', "it is no text"),
        (b'{"a": ', "cut off or no JSON"),
    ],
)
def test_foreign_json(table: Any, tmp_path: Path, content: bytes, reason: str) -> None:
    """What is no tool's result gets one line, with what was wanted."""
    (tmp_path / "x.json").write_bytes(content)
    answer = table(tmp_path / "x.json")
    assert (answer.code, answer.out) == (2, "")
    assert len(answer.err.splitlines()) == 1
    assert "vllm bench serve" in answer.err
    assert reason in answer.err


@pytest.mark.parametrize(
    "document",
    [
        VLLM | {"duration": None, "completed": "many", "max_concurrency": "x", "errors": 3, "latencies": {"a": 1}},
        SGLANG | {"ttfts": 1, "itls": None, "errors": [None], "output_lens": ["x"], "mean_itl_ms": "x"},
        {"load_summary": [], "successes": 3, "failures": None},
        {"aggregated_metrics": [], "individual_request_metrics": [1, None, {"ttft": "x"}]},
        {"benchmarks": [{"metrics": 1, "requests": 2}, 3]},
        {"benchmarks": [{"metrics": {}, "requests": {"successful": [1]}, "config": [], "warnings": [1]}]},
        {"aiperf_version": 3, "input_config": [], "request_latency": 1},
        {"metadata": {"request_start_ns": None}, "metrics": {"request_latency": 5}},
    ],
)
def test_contradictory_documents_do_not_break(table: Any, tmp_path: Path, document: Any) -> None:
    """Whatever stands where a number or an object should: blanks or one line, never a traceback or NaN."""
    answer = table(write(tmp_path / "x.json", document), "--json")
    assert answer.code in (0, 2)
    assert len(answer.err.splitlines()) == (1 if answer.code else 0)
    if answer.code == 0:
        assert [level["level"] for level in answer.json["levels"]] == list(range(len(answer.json["levels"])))


def test_folder_with_results_of_two_tools(table: Any, tmp_path: Path) -> None:
    """They are named, not mixed."""
    write(tmp_path / "a.json", VLLM)
    write(tmp_path / "b.jsonl", SGLANG)
    answer = table(tmp_path)
    assert answer.code == 2
    assert "holds results of SGLang bench_serving and vllm bench serve" in answer.err


def test_folder_with_one_damaged_result(table: Any, tmp_path: Path) -> None:
    """The others are shown and the damaged one is named; alone, it is the error."""
    write(tmp_path / "a.json", VLLM)
    (tmp_path / "b.json").write_text(json.dumps(VLLM)[:80])
    answer = table(tmp_path, "--json").json
    assert len(answer["levels"]) == 1
    assert any("b.json" in note["text"] and "cut off" in note["text"] for note in answer["notes"])
    (tmp_path / "a.json").unlink()
    assert "b.json: wanted" in table(tmp_path).err
    assert holds_results(tmp_path)
    assert holds_results(SAMPLES / "aiperf")
    assert not holds_results(SAMPLES)


def test_published_table_is_read_as_a_run(table: Any) -> None:
    """Configuration and table name the level, unknown counts are null and blank, each kind scales by itself."""
    answer = table(ROOT / "tests" / "data" / "published" / "spark_qwen3.6_35b.csv", "--json").json
    assert len(answer["levels"]) == 30
    row = next(level for level in answer["levels"] if level["table"] == "quantization" and level["concurrency"] == 8)
    assert (row["configuration"], row["label"]) == ("awq-int4", "c=8 awq-int4 · quantization")
    assert (row["requests"], row["ok"], row["failed"]) == (32, None, None)
    assert value(row, "output_tok_s") == 92.2
    scaled = {one["label"]: one for one in answer["scaling"]}
    assert scaled["c=32 fp8 · primary sweep"]["efficiency"] == pytest.approx(155.6 / 21.0 / 32)
    shown = table(ROOT / "tests" / "data" / "published" / "spark_qwen3.6_35b.csv", "--format", "csv").out.splitlines()
    assert shown[7].startswith("1,8,,23.9,,,,41,,")


def test_foreign_figures_are_a_closed_list_of_other_names() -> None:
    """Each has its unit or statistic, none is called like one of ours, and each is in the documentation."""
    page = (ROOT / "docs" / "imports.md").read_text()
    for name, foreign in FOREIGN.items():
        figure = f"{name}_p95_s" if foreign.times else name
        assert foreign_of(figure) == name
        assert near_of(figure) == ("" if not foreign.near else foreign.near + ("_p95_s" if foreign.times else ""))
        assert f"`{name}`" in page, name
    for ours in ("ttft_p95_s", "e2e_mean_s", "output_tok_s", "chunk_gap_p50_s", "job_p50_s", "wall_s"):
        assert (foreign_of(ours), near_of(ours)) == ("", "")


@pytest.mark.parametrize("value", [10**400, 1e300, float("nan")])
def test_numbers_beyond_measure_are_unknown(value: float) -> None:
    """A whole number of any length, and what no clock or counter shows, count as not told."""
    assert as_number(value) is None
