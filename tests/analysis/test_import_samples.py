"""Results that other tools wrote, against their own files read by hand and against the server's record of the run.

Each tool drove the same paced server with 8 streams, 32 requests of 128 output tokens, first token at 50 ms and 10 ms
between tokens. The tools are late by what their own clients need, so their figures are not the server's; the tests
hold them to it only as close as that lateness, to see that each figure stands under its right name and unit.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.foreign_figures import FOREIGN, foreign_of

SAMPLES = Path(__file__).parents[1] / "data" / "imports"
TOOLS = ("vllm-bench-serve", "guidellm", "aiperf", "inference-perf", "sglang-bench", "genai-bench")
FILE = {
    "vllm-bench-serve": "out.json",
    "guidellm": "out.json",
    "aiperf": "profile_export_aiperf.json",
    "inference-perf": "summary_lifecycle_metrics.json",
    "sglang-bench": "out.jsonl",
    "genai-bench": "D32_128_text-to-text_num_concurrency_8_time_6s.json",
}


def sample(tool: str) -> Any:
    return json.loads((SAMPLES / tool / FILE[tool]).read_text())


@pytest.fixture
def level(table: Any) -> Any:
    """The single level of a sample, as JSON."""

    def read(path: Path | str) -> Any:
        answer = table(SAMPLES / path, "--json")
        assert answer.code == 0, answer.err
        (found,) = answer.json["levels"]
        return found

    return read


def value(level: Any, name: str) -> Any:
    return level["figures"][name]["value"]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("form", ["folder", "file"])
def test_every_sample_loads(table: Any, tool: str, form: str) -> None:
    """Folder or file, in every format: 32 answers of 4096 tokens, at 8 streams where the file tells."""
    path = SAMPLES / tool if form == "folder" else SAMPLES / tool / FILE[tool]
    answer = table(path, "--json")
    assert answer.code == 0
    (level,) = answer.json["levels"]
    assert level["concurrency"] == (None if tool == "inference-perf" else 8)
    assert (level["ok"], value(level, "tokens")) == (32, 4096)
    assert level["failed"] == (None if tool == "sglang-bench" else 0)
    for shown in ("terminal", "markdown", "csv"):
        assert table(path, "--format", shown).code == 0


@pytest.mark.parametrize("tool", TOOLS)
def test_every_foreign_figure_is_explained(table: Any, tool: str) -> None:
    """A figure that is none of ours stands in a table of its own, with a line that says what it means there."""
    document = table(SAMPLES / tool, "--json").json
    names = {foreign_of(name) for name in document["levels"][0]["figures"]} - {""}
    explained = [note["text"] for note in document["notes"] if note["key"] == "meaning"]
    assert len(explained) == len(names) > 0
    shown = table(SAMPLES / tool, "--width", "200").out
    for name in names:
        assert any(text.startswith(FOREIGN[name].title) for text in explained), name
        assert f"{FOREIGN[name].title}: {FOREIGN[name].text}" in shown
    written = next(csv.DictReader(table(SAMPLES / tool, "--format", "csv").out.splitlines()))
    assert all(any(column.startswith(name) for column in written) for name in names)


OURS = {
    "vllm-bench-serve": set(),
    "guidellm": {"ttft", "tpot", "e2e"},
    "aiperf": {"ttft", "tpot", "e2e"},
    "inference-perf": {"ttft", "tpot"},
    "sglang-bench": {"ttft"},
    "genai-bench": {"ttft"},
}


@pytest.mark.parametrize("tool", TOOLS)
def test_our_names_stand_only_where_the_tool_measures_the_same(level: Any, tool: str) -> None:
    """vLLM counts the role chunk; three tools end a request with its stream; genai-bench divides by its whole run."""
    figures = level(tool)["figures"]
    assert {name for name in ("ttft", "tpot", "e2e") if f"{name}_p50_s" in figures} == OURS[tool]
    assert ("output_tok_s" in figures) == (tool != "genai-bench")
    assert ("wall_s" in figures) == (tool != "genai-bench")


# Figure, where the server has it, and by how many milliseconds the tool may be late: what it is known to be at 8
# streams (a busy reader sees chunks late), 30 ms for genai-bench, whose clients share one thread.
TRUTH = [
    ("vllm-bench-serve", "first_chunk", "ttft", 8),
    ("vllm-bench-serve", "last_chunk", "e2e", 8),
    ("guidellm", "ttft", "ttft", 20),
    ("guidellm", "e2e", "e2e", 25),
    ("guidellm", "stream_end", "e2e", 25),
    ("aiperf", "ttft", "ttft", 15),
    ("aiperf", "e2e", "e2e", 35),
    ("inference-perf", "ttft", "ttft", 4),
    ("inference-perf", "stream_end", "e2e", 5),
    ("sglang-bench", "ttft", "ttft", 5),
    ("sglang-bench", "stream_end", "e2e", 5),
    ("genai-bench", "ttft", "ttft", 30),
    ("genai-bench", "stream_end", "e2e", 50),
]


@pytest.mark.parametrize(("tool", "name", "truth", "late_ms"), TRUTH)
def test_times_against_the_servers_record(level: Any, tool: str, name: str, truth: str, late_ms: float) -> None:
    """Never before the server sent, and after it by no more than the tool's client is late."""
    with (SAMPLES / tool / "truth_requests.csv").open(newline="") as file:
        sent = [float(row[f"{truth}_ms"]) for row in csv.DictReader(file) if row["tokens"] == "128"]
    figures = level(tool)
    for label, right in (("p50", np.percentile(sent, 50)), ("p95", np.percentile(sent, 95)), ("mean", np.mean(sent))):
        error = value(figures, f"{name}_{label}_s") * 1000 - right
        assert -0.1 < error < late_ms, label


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("vllm-bench-serve", "chunk_tpot"),
        ("guidellm", "tpot"),
        ("aiperf", "tpot"),
        ("inference-perf", "tpot"),
        ("sglang-bench", "stream_tpot"),
        ("genai-bench", "stream_tpot"),
    ],
)
def test_time_per_token_against_the_servers_record(level: Any, tool: str, name: str) -> None:
    """10 ms within 1.5 %: lateness of first and last token is spread over 127 gaps."""
    right = json.loads((SAMPLES / tool / "truth.json").read_text())["tpot"]["mean"]
    for label in ("p50", "mean"):
        assert value(level(tool), f"{name}_{label}_s") * 1000 == pytest.approx(right, rel=0.015)


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool not in ("genai-bench", "sglang-bench")])
def test_throughput_against_the_servers_record(level: Any, tool: str) -> None:
    """Tokens over the time from the first request that the server got to its last end: within 2 %."""
    right = json.loads((SAMPLES / tool / "truth.json").read_text())
    span_s = right["t_last_end"] - right["t_first_recv"]
    assert value(level(tool), "tokens") == right["tokens"]
    assert value(level(tool), "output_tok_s") == pytest.approx(right["tokens"] / span_s, rel=0.02)
    assert value(level(tool), "requests_per_s") == pytest.approx(right["finished"] / span_s, rel=0.02)


def test_genai_bench_divides_by_more_than_the_load(level: Any) -> None:
    """661 tok/s over the run of 6.2 s, in which the server sent 4640 tokens in 5.4 s: no output tok/s of ours."""
    found, right = level("genai-bench"), json.loads((SAMPLES / "genai-bench" / "truth.json").read_text())
    assert value(found, "whole_run_s") == pytest.approx(6.196112915000413)
    assert value(found, "whole_run_tok_s") == pytest.approx(4096 / 6.196112915000413)
    assert value(found, "whole_run_requests_per_s") == pytest.approx(32 / 6.196112915000413)
    assert right["tokens"] == 4640
    assert right["aborted"] == 8
    assert value(found, "whole_run_tok_s") < 0.8 * right["tokens"] / (right["t_last_end"] - right["t_first_recv"])


def test_vllm_bench_as_in_its_file(level: Any) -> None:
    """Each figure of the file under the name of what it is; the request latencies give our own quantiles."""
    found, told = level("vllm-bench-serve"), sample("vllm-bench-serve")
    assert value(found, "output_tok_s") == pytest.approx(told["output_throughput"])
    assert value(found, "requests_per_s") == pytest.approx(told["request_throughput"])
    assert value(found, "total_tok_s") == pytest.approx(told["total_token_throughput"])
    assert value(found, "prompt_tok_s") == pytest.approx(1457 / 5.3022807569996075)
    assert value(found, "peak_chunks_s") == 792
    assert value(found, "wall_s") == pytest.approx(5.3022807569996075)
    assert value(found, "first_chunk_p95_s") == pytest.approx(0.0549511951502609)
    assert value(found, "first_chunk_p50_s") == pytest.approx(0.054395481999563344)
    assert value(found, "chunk_tpot_mean_s") == pytest.approx(0.010003103727363067)
    assert value(found, "any_chunk_gap_mean_s") == pytest.approx(0.009848016847869067)
    assert value(found, "last_chunk_p99_s") == pytest.approx(np.percentile(told["latencies"], 99))
    median = found["figures"]["last_chunk_p50_s"]
    assert median["n"] == 32
    assert median["effective_n"] == 6  # four waves of eight that are alike: as few as a median can be bounded with
    assert min(told["latencies"]) < median["low"] < median["value"] < median["high"] < max(told["latencies"])
    assert found["figures"]["first_chunk_p95_s"]["marks"] == ["no bound"]


def test_vllms_itl_is_no_gap_between_tokens(level: Any) -> None:
    """Two chunks an answer bring no token, so that 129 gaps share the time of 127: named apart from our chunk gap."""
    found = level("vllm-bench-serve")
    assert value(found, "any_chunk_gap_mean_s") * 129 == pytest.approx(
        value(found, "chunk_tpot_mean_s") * 127, rel=1e-6
    )
    assert "chunk_gap_mean_s" not in found["figures"]


def test_sglang_bench_as_in_its_file(level: Any) -> None:
    """TTFT is ours; E2E and TPOT run on to the end of the stream; gaps between chunks with text are chunk gaps."""
    found, told = level("sglang-bench"), sample("sglang-bench")
    assert value(found, "ttft_p50_s") * 1000 == pytest.approx(told["median_ttft_ms"])
    assert value(found, "ttft_p95_s") * 1000 == pytest.approx(told["p95_ttft_ms"])
    assert value(found, "stream_end_p99_s") * 1000 == pytest.approx(told["p99_e2e_latency_ms"])
    assert value(found, "stream_tpot_p90_s") * 1000 == pytest.approx(told["p90_tpot_ms"])
    assert value(found, "chunk_gap_p95_s") * 1000 == pytest.approx(told["p95_itl_ms"])
    assert value(found, "output_tok_s") == pytest.approx(told["output_throughput"])
    assert value(found, "in_flight_mean") == pytest.approx(told["concurrency"])
    assert value(found, "asked_input_tokens_mean") == 32
    assert "prompt_tok_s" not in found["figures"]
    assert (found["requests"], found["failed"], found["failed_share"]) == (None, None, None)


def test_inference_perf_as_in_its_file(level: Any) -> None:
    """Latency is that of the stream; its per-token time with the TTFT in it is named so; lateness is send delay."""
    found, told = level("inference-perf"), sample("inference-perf")
    times = told["successes"]["latency"]
    assert value(found, "ttft_p95_s") == times["time_to_first_token"]["p95"]
    assert value(found, "tpot_p50_s") == times["time_per_output_token"]["median"]
    assert value(found, "stream_end_mean_s") == times["request_latency"]["mean"]
    assert value(found, "stream_end_per_token_p95_s") == times["normalized_time_per_output_token"]["p95"]
    assert value(found, "token_gap_p99_s") == times["inter_token_latency"]["p99"]
    assert value(found, "send_delay_p50_s") == told["load_summary"]["schedule_delay"]["median"]
    assert value(found, "output_tok_s") == pytest.approx(told["successes"]["throughput"]["output_tokens_per_sec"])
    assert value(found, "prompt_tok_s") == pytest.approx(told["successes"]["throughput"]["input_tokens_per_sec"])
    assert value(found, "total_tok_s") == told["successes"]["throughput"]["total_tokens_per_sec"]
    assert "estimated" in found["figures"]["tpot_p50_s"]["marks"]
    assert "ttft_p90_s" not in found["figures"]
    assert "cache_share" not in found["figures"]
    assert found["label"] == "summary"


def test_genai_bench_as_in_its_file(level: Any) -> None:
    """Quantiles from the requests agree with those that the tool worked out; means likewise."""
    found, told = level("genai-bench"), sample("genai-bench")["aggregated_metrics"]["stats"]
    for ours, theirs in (("ttft", "ttft"), ("stream_end", "e2e_latency"), ("stream_tpot", "tpot")):
        for label in ("p50", "p90", "p95", "p99", "mean"):
            assert value(found, f"{ours}_{label}_s") == pytest.approx(told[theirs][label]), (ours, label)
    assert value(found, "mean_request_tok_s") == pytest.approx(told["output_inference_speed"]["mean"])
    assert value(found, "prompt_tokens_mean") == 26.375


def test_guidellm_from_the_times_of_its_requests(level: Any) -> None:
    """First and last token are in the file, so the figures are ours; the tool's own quantiles do not interpolate."""
    benchmark = sample("guidellm")["benchmarks"][0]
    rows = benchmark["requests"]["successful"]
    times = [row["info"]["timings"] for row in rows]
    sent, first, last, end = (
        np.array([one[key] for one in times])
        for key in ("request_start", "first_token_iteration", "last_token_iteration", "request_end")
    )
    found = level("guidellm")
    for label, q in (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99)):
        assert value(found, f"ttft_{label}_s") == pytest.approx(np.percentile(first - sent, q))
        assert value(found, f"tpot_{label}_s") == pytest.approx(np.percentile((last - first) / 127, q))
        assert value(found, f"e2e_{label}_s") == pytest.approx(np.percentile(last - sent, q))
        assert value(found, f"stream_end_{label}_s") == pytest.approx(np.percentile(end - sent, q))
    assert value(found, "wall_s") == pytest.approx(max(end) - min(sent))
    assert value(found, "output_tok_s") == pytest.approx(4096 / (max(end) - min(sent)))
    assert value(found, "output_tok_s") == pytest.approx(
        benchmark["metrics"]["output_tokens_per_second"]["successful"]["mean"]
    )
    assert value(found, "per_request_tok_s") == pytest.approx(4096 / sum(last - first))
    assert value(found, "in_flight_mean") == pytest.approx(
        benchmark["metrics"]["request_concurrency"]["successful"]["mean"], rel=1e-4
    )
    assert value(found, "prompt_tokens_mean") == 9.6875
    # GuideLLM's p95 is a value that occurred; ours lies between two
    assert (
        value(found, "ttft_p95_s")
        < benchmark["metrics"]["time_to_first_token_ms"]["successful"]["percentiles"]["p95"] / 1000
    )


def test_guidellms_own_warning_is_passed_on(table: Any) -> None:
    """The tool itself said that it was short of data."""
    assert "GuideLLM warns: mean generation delay was 3% of mean time to first token" in table(SAMPLES / "guidellm").out


def test_aiperf_from_its_requests(level: Any) -> None:
    """Latency ends with the last text and ITL is time per token, so both are ours; tokens are those of the server."""
    rows = [json.loads(line)["metrics"] for line in (SAMPLES / "aiperf" / "profile_export.jsonl").open()]
    ttft, e2e, itl = (
        np.array([row[key]["value"] for row in rows]) / 1000
        for key in ("time_to_first_token", "request_latency", "inter_token_latency")
    )
    found, told = level("aiperf"), sample("aiperf")
    for label, q in (("p50", 50), ("p95", 95), ("p99", 99)):
        assert value(found, f"ttft_{label}_s") == pytest.approx(np.percentile(ttft, q))
        assert value(found, f"e2e_{label}_s") == pytest.approx(np.percentile(e2e, q))
        assert value(found, f"tpot_{label}_s") == pytest.approx(np.percentile(itl, q))
    assert value(found, "wall_s") == pytest.approx(told["benchmark_duration"]["avg"], rel=1e-6)
    assert value(found, "output_tok_s") == pytest.approx(4096 / told["benchmark_duration"]["avg"], rel=1e-6)
    assert value(found, "whole_run_tok_s") == told["output_token_throughput"]["avg"] == pytest.approx(748.0152)
    assert value(found, "chunk_gap_p99_s") * 1000 == pytest.approx(told["inter_chunk_latency"]["p99"])
    assert value(found, "send_delay_p95_s") * 1000 == pytest.approx(told["credit_to_start_latency"]["p95"], abs=0.01)
    assert value(found, "prompt_tokens_mean") == pytest.approx(365 / 32)
    assert value(found, "asked_input_tokens_mean") == 32
    assert value(found, "mean_request_tok_s") == pytest.approx(told["output_token_throughput_per_user"]["avg"])
    assert "marks" not in found["figures"]["tokens"]


@pytest.mark.parametrize("name", ["profile_export_aiperf.json", "profile_export_aiperf.csv"])
def test_aiperf_summary_alone(table: Any, tmp_path: Path, name: str) -> None:
    """Without the requests the tool's own figures stand, and tokens are marked as its tokenizer's count."""
    shutil.copy(SAMPLES / "aiperf" / name, tmp_path / name)
    document = table(tmp_path / name, "--json").json
    (found,) = document["levels"]
    told = sample("aiperf")
    assert (found["ok"], found["failed"]) == (32, 0)
    assert found["concurrency"] == (8 if name.endswith(".json") else None)
    for ours, theirs in (("ttft", "time_to_first_token"), ("e2e", "request_latency"), ("tpot", "inter_token_latency")):
        for label in ("p50", "p95"):
            assert value(found, f"{ours}_{label}_s") * 1000 == pytest.approx(told[theirs][label], abs=0.006), ours
    assert value(found, "output_tok_s") == pytest.approx(4096 / 5.465839872, rel=1e-3)
    assert value(found, "in_flight_mean") == pytest.approx(7.79, abs=0.01)
    assert found["figures"]["tokens"]["marks"] == ["estimated"]
    assert "estimated" in found["figures"]["tpot_p50_s"]["marks"]
    assert "per_request_tok_s" not in found["figures"]


def test_aiperf_requests_alone(table: Any, tmp_path: Path) -> None:
    """Without the summary the number of users is unknown, and everything else is the same."""
    shutil.copy(SAMPLES / "aiperf" / "profile_export.jsonl", tmp_path / "profile_export.jsonl")
    (alone,) = table(tmp_path, "--json").json["levels"]
    (whole,) = table(SAMPLES / "aiperf" / "profile_export.jsonl", "--json").json["levels"]
    assert (alone["concurrency"], whole["concurrency"]) == (None, 8)
    same = {name: figure for name, figure in whole["figures"].items() if not name.startswith("whole_run")}
    assert alone["figures"] == same


@pytest.mark.parametrize("tool", TOOLS)
def test_audit_runs_on_every_sample(capsys: pytest.CaptureFixture[str], tool: str) -> None:
    """Nothing of these runs contradicts itself; what the audit has to say is of sample sizes and prompt lengths."""
    assert main(["audit", str(SAMPLES / tool / FILE[tool]), "--format", "json"]) in (0, 1)
    concerns = json.loads(capsys.readouterr().out)["concerns"]
    allowed = {"small sample"} | ({"lengths not as asked"} if tool == "aiperf" else set())
    assert {concern["kind"].lower() for concern in concerns} <= allowed
