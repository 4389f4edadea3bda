"""Logs of engines into samples: the cases, recorded logs, and files that are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.engine_log import EngineLog, read_log
from analysis.log_entries import Kind, LogEngine
from tokenswarm.errors import InputError

DATA = Path(__file__).parents[1] / "data"
CASES, LOGS = DATA / "cases", DATA / "logs"
LOAD = (
    "Avg prompt throughput: 1301.2 tokens/s, Avg generation throughput: 1924.3 tokens/s, Running: 30 reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 4.8%, Prefix cache hit rate: 0.0%"
)
FIRST = f"(APIServer pid=1) INFO 06-13 11:03:35 [loggers.py:271] Engine 000: {LOAD}\n"


def expected(case: str) -> Any:
    return json.loads((CASES / case / "expected.json").read_text())


def values(log: EngineLog, name: str, times: float = 1.0) -> list[float | None]:
    found = (getattr(sample, name) for sample in log.found.samples)
    return [None if value is None else round(value * times, 6) for value in found]


@pytest.fixture
def log_of(tmp_path: Path) -> Callable[..., EngineLog]:
    """Reads a log with this text."""

    def read(text: str | bytes, near_s: float | None = None) -> EngineLog:
        path = tmp_path / "server.log"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_log(path, near_s)

    return read


@pytest.mark.parametrize(("case", "unknown"), [("C19", 1), ("C20", 1)])
def test_cases_of_vllm(case: str, unknown: int) -> None:
    """C19, C20: every value of the V0 and the V1 lines; access log and added request are counted as unknown."""
    log, right = read_log(CASES / case / "vllm.log"), expected(case)
    assert (log.engine, log.unknown) == (LogEngine.VLLM, unknown)
    fields = {
        "prompt_tps": ("prompt_tok_s", 1), "gen_tps": ("generation_tok_s", 1), "running": ("running", 1),
        "waiting": ("waiting", 1), "swapped": ("swapped", 1), "kv_percent": ("kv_usage", 100),
        "prefix_hit_percent": ("prefix_hit_rate", 100), "external_hit_percent": ("external_hit_rate", 100),
    }  # fmt: skip
    wanted = [key for key in right if key != "case"]
    assert len(wanted) == 7
    for key in wanted:
        assert values(log, *fields[key]) == right[key], key


def test_case_of_sglang() -> None:
    """C23: parts in any order and under any of their names, with tags, a prefix, and a comma at the end."""
    log, right = read_log(CASES / "C23" / "sglang.log"), expected("C23")
    decode = [one for one in log.found.samples if one.kind == Kind.DECODE]
    (prefill,) = [one for one in log.found.samples if one.kind == Kind.PREFILL]
    assert [one.running for one in decode] == right["decode"]["running"]
    assert [one.generation_tok_s for one in decode] == right["decode"]["gen_tps"]
    assert [one.kv_usage for one in decode] == right["decode"]["usage"]
    assert [one.accept_len for one in decode] == right["decode"]["accept_len"]
    assert [one.waiting for one in decode] == [0, 0, 0]
    found = (prefill.new_tokens, prefill.cached_tokens, prefill.cached_share, prefill.waiting, prefill.prompt_tok_s)
    assert found == tuple(
        right["prefill"][key] for key in ("new_tokens", "cached_tokens", "cached_share", "queue", "input_tps")
    )
    assert log.unknown == 0


def test_published_captioning_line(log_of: Callable[..., EngineLog]) -> None:
    """1,924 generated and 1,301 prompt tok/s, 30 running, KV 4.8 %, prefix 0.0 %, images 50.1 %."""
    (sample,) = log_of(FIRST.replace("\n", ", MM cache hit rate: 50.1%\n")).found.samples
    assert (sample.prompt_tok_s, sample.generation_tok_s, sample.running, sample.waiting) == (1301.2, 1924.3, 30, 0)
    assert (sample.kv_usage, sample.prefix_hit_rate, sample.mm_hit_rate) == pytest.approx((0.048, 0.0, 0.501))
    assert (sample.swapped, sample.preemptions, sample.external_hit_rate) == (None, None, None)


def test_published_boot_lines(log_of: Callable[..., EngineLog]) -> None:
    """KV memory, KV size, what fits, and how long the start took; a second start is a second one."""
    boot = (
        "INFO 05-19 10:00:00 [core.py:133] Initializing a V1 LLM engine (v0.11.0) with config: model='m'\n"
        "INFO 05-19 10:01:00 [gpu_worker.py:298] Available KV cache memory: 64.53 GiB\n"
        "INFO 05-19 10:01:00 [kv_cache_utils.py:1087] GPU KV cache size: 846,912 tokens\n"
        "INFO 05-19 10:01:00 [kv_cache_utils.py:1091] Maximum concurrency for 262,144 tokens per request: {}x\n"
        "INFO 05-19 10:02:10 [core.py:210] init engine (profile, create kv cache, warmup model) took 130.87 seconds\n"
    )
    log = log_of(boot.format("12.56") + boot.format("12.73"))
    first, second = log.found.boots
    assert "the engine started 2 times in it" in log.notes
    assert (first.version, first.kv_memory_gib, first.kv_tokens, first.init_s) == ("0.11.0", 64.53, 846912, 130.87)
    assert (first.max_concurrency_tokens, first.max_concurrency, second.max_concurrency) == (262144, 12.56, 12.73)


def test_recorded_vllm() -> None:
    """A server on a CPU with a small KV cache: what it told of it, and one line about the load among noise."""
    log = read_log(LOGS / "vllm-0.32.0-smallkv.log")
    (boot,), (sample,) = log.found.boots, log.found.samples
    assert (boot.version, boot.kv_tokens, boot.max_concurrency, boot.init_s) == ("0.32.0", 2080, 2.03, 0.01)
    assert (sample.generation_tok_s, sample.kv_usage) == (845.6, 0.0)
    assert log.lines == 48
    assert log.unknown == 44  # version, sizes, init and load are known


def test_recorded_hit_rates_of_images() -> None:
    """The MM part stands in the lines of a vision model."""
    log = read_log(LOGS / "vllm-0.32.0-mm-tiny-qwen2-vl-periodic.log")
    assert values(log, "mm_hit_rate", 100) == [54.5, 33.3, 47.3, 53.2, 0.0]
    assert values(read_log(LOGS / "vllm-0.32.0-text-periodic.log"), "mm_hit_rate") == [None] * 6


def test_recorded_speculative_decoding() -> None:
    """Accepted and drafted tokens of each interval, and the engine's own rates."""
    first, second = read_log(LOGS / "vllm-0.32.0-spec-periodic.log").found.drafting
    assert (first.accepted, first.drafted, first.rate, first.mean_length) == (226, 332, pytest.approx(0.681), 3.09)
    assert (second.accepted, second.drafted, second.rate, second.mean_length) == (
        1023,
        1668,
        pytest.approx(0.613),
        3.03,
    )


def test_speculative_decoding_of_other_versions(log_of: Callable[..., EngineLog]) -> None:
    """V0 tells a rate of the moment beside totals since its start, which are no interval's; early V1 has other parts
    in another order."""
    v0 = (
        "INFO 03-01 10:00:05 [metrics.py:475] Speculative metrics: Draft acceptance rate: 0.700, System efficiency: "
        "0.525, Number of speculative tokens: 2, Number of accepted tokens: 84, Number of draft tokens: 120, Number of "
        "emitted tokens: 126.\n"
    )
    v1 = (
        "INFO 06-01 10:00:05 [metrics.py:86] SpecDecoding metrics: Draft acceptance rate: 70.0%, Mean acceptance "
        "length: 2.40, Accepted: 84 tokens, Drafted: 120 tokens, Per-position acceptance rate: 0.800, 0.600\n"
    )
    old, new = log_of(v0 + v1).found.drafting
    assert (old.rate, old.accepted, old.drafted) == (0.7, None, None)
    assert (new.rate, new.accepted, new.drafted, new.mean_length) == (pytest.approx(0.7), 84, 120, 2.4)


def test_recorded_sglang() -> None:
    """The start tells the KV cache and the limit on requests; batches of a queue behind 16 slots."""
    (boot,) = read_log(LOGS / "sglang-start.log").found.boots
    assert (boot.kv_tokens, boot.max_running, boot.init_s) == (65536, 16, 9.46)
    log = read_log(LOGS / "sglang-periodic.log")
    assert (len(log.found.samples), log.unknown) == (44, 0)
    full = [one for one in log.found.samples if one.running == 16]
    assert [(one.generation_tok_s, one.waiting) for one in full] == [(832.22, 4), (1106.19, 4)]


def test_recorded_llamacpp() -> None:
    """One sample a request: prompt tokens computed, tokens made, and how many ran when it ended."""
    log = read_log(LOGS / "llamacpp-smollm2.log")
    first = log.found.samples[0]
    assert (log.engine, len(log.found.samples), log.found.boots[0].max_running) == (LogEngine.LLAMACPP, 20, 2)
    assert (first.new_tokens, first.output_tokens) == (41, 59)
    assert first.prompt_tok_s == pytest.approx(238.49, abs=0.01)
    assert first.generation_tok_s == pytest.approx(59 / 0.4937, rel=1e-4)  # the log itself divides 58 by it
    assert first.busy_s == pytest.approx(1.522752 - 0.856985)
    assert {one.running for one in log.found.samples} == {1, 2}


def test_several_engines(log_of: Callable[..., EngineLog]) -> None:
    """Each engine has its label; the sum of several is one of its own."""
    text = FIRST + FIRST.replace("Engine 000", "Engine 001") + FIRST.replace("Engine 000", "2 Engines Aggregated")
    assert [one.engine for one in log_of(text).found.samples] == ["000", "001", "all 2"]


def test_ranks_of_sglang(log_of: Callable[..., EngineLog]) -> None:
    """Data-parallel engines are several, ranks of one engine are not; what the others print is counted as read."""
    line = "[2026-04-05 20:02:51 {}] Decode batch, #running-req: 4, token usage: 0.10, #queue-req: 0\n"
    log = log_of("".join(line.format(tags) for tags in ("DP0 TP0", "DP1 TP0", "DP0 TP1", "DP1 TP1")))
    assert ([one.engine for one in log.found.samples], log.unknown) == (["DP0", "DP1"], 0)


def test_preempted_requests(log_of: Callable[..., EngineLog]) -> None:
    """V1 in its line, V0 in a warning, SGLang with the number of requests that it retracted."""
    v1 = log_of(FIRST.replace("Waiting: 0 reqs", "Waiting: 0 reqs, Preemptions: 3"))
    assert (v1.found.samples[0].preemptions, v1.found.samples[0].kv_usage) == (3, pytest.approx(0.048))
    warning = "WARNING 05-25 06:50:24 [scheduler.py:1754] Sequence group cmpl-1 is preempted by RECOMPUTE mode\n"
    assert [one.requests for one in log_of(FIRST + warning).found.preempted] == [1]
    line = "[2026-04-05 20:02:51] Decode batch, #running-req: 4, token usage: 0.99, #queue-req: 0\n"
    full = "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 0.9 -> 1.0"
    retracted = f"[2026-04-05 20:02:52] {full}\n"
    assert [one.requests for one in log_of(line + retracted).found.preempted] == [2]


def test_a_year_from_the_run(log_of: Callable[..., EngineLog]) -> None:
    """Stamps take the year that brings them nearest to the run, on both sides of New Year."""
    new_year = 1798761600.0  # 2027-01-01 00:00:00 UTC
    old = log_of(FIRST.replace("06-13 11:03:35", "12-31 23:59:50"), new_year).found.samples[0]
    new = log_of(FIRST.replace("06-13 11:03:35", "01-01 00:00:10"), new_year - 60).found.samples[0]
    assert (old.time_s, new.time_s) == (new_year - 10, new_year + 10)
    leap = log_of(FIRST.replace("06-13", "02-29"), new_year).found.samples[0]
    assert leap.time_s == 1835435015.0  # 2028, the only year near that has the day
    assert log_of(FIRST.replace("06-13", "02-29"), new_year - 2 * 366 * 86400).found.samples[0].time_s == 1709204615.0
    (nowhere,) = log_of(FIRST.replace("06-13", "13-45")).found.samples
    assert nowhere.time_s is None


# damage


def test_a_last_line_that_is_cut(log_of: Callable[..., EngineLog]) -> None:
    """18 requests cut down to 1 would be a wrong figure: the line is left out, and that is said."""
    log = log_of(FIRST + FIRST[: FIRST.index("30 reqs") + 1])
    assert len(log.found.samples) == 1
    assert "the last line is cut off and was left out" in log.notes


def test_a_line_cut_in_the_middle_of_the_file(log_of: Callable[..., EngineLog]) -> None:
    """What two processes wrote into each other is unknown, not half of a sample."""
    log = log_of(FIRST[: FIRST.index("Running")] + "(Worker pid=7) hello\n" + FIRST)
    assert ([one.line for one in log.found.samples], log.unknown) == ([2], 1)


def test_binary_junk_and_colours(log_of: Callable[..., EngineLog]) -> None:
    """Bytes that are no text are counted; colour codes within a line hide nothing; Windows line ends neither."""
    colours = FIRST.replace("INFO", "\x1b[1;32mINFO\x1b[0m").replace("\n", "\r\n").encode()
    log = log_of(b"\x00\x01\x02\xff\n" + b"\xff\xfe no utf-8\n" + colours + bytes(range(256)) + b"\n" + FIRST.encode())
    assert len(log.found.samples) == 2
    assert log.binary == 3  # the last of these bytes has a line end of its own inside
    assert f"{log.unknown} of {log.lines} lines tell nothing that is known here, 3 of them no text" in log.notes


def test_progress_bars_in_the_same_line(log_of: Callable[..., EngineLog]) -> None:
    """A carriage return begins a line anew."""
    assert len(log_of("Loading: 10%\rLoading: 99%\r" + FIRST).found.samples) == 1


@pytest.mark.parametrize("text", ["", "hello\nworld\n", "\x00" * 1000])
def test_a_file_that_is_no_log(log_of: Callable[..., EngineLog], text: str) -> None:
    """One line that names the file and what was wanted."""
    with pytest.raises(InputError, match=r"server\.log: wanted the log of vLLM, SGLang or llama\.cpp .*none of its"):
        log_of(text)


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 2, and one line."""
    assert main(["ingest", str(tmp_path / "none.log")]) == 2
    assert capsys.readouterr().err == (
        f"{tmp_path}/none.log: wanted the log of vLLM, SGLang or llama.cpp with its lines about the load: "
        "No such file or directory\n"
    )


def test_logs_of_two_engines_in_one_file(log_of: Callable[..., EngineLog]) -> None:
    """The one with more lines about its load is read, the other is named."""
    other = "[2026-04-05 20:02:51] Decode batch, #running-req: 4, token usage: 0.99, #queue-req: 0\n"
    log = log_of(FIRST + other + FIRST)
    assert (log.engine, len(log.found.samples)) == (LogEngine.VLLM, 2)
    assert "lines of SGLang are in it too and were left out" in log.notes


# the command


def test_a_log_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each line, with what it does not tell left out, and the caution that hit rates are recent."""
    assert main(["ingest", str(CASES / "C20" / "vllm.log"), "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    rows = [line for line in out.splitlines() if line.startswith("| ")]
    assert rows[0] == (
        "| stamp | prompt tok/s | generation tok/s | running | waiting | KV % | prefix hits ~% | external hits ~% |"
    )
    assert rows[3].split(" | ")[1:] == ["12068.8", "734.9", "18", "33", "87.7", "32.2", " |"]
    assert rows[4].split(" | ")[-1] == "1.20 |"
    assert "stamps have neither year nor zone; a missing interval was idle; hit rates are of recent requests" in out


def test_a_log_alone_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON with unknown as null, CSV with unknown blank; several logs one after the other."""
    logs = [str(CASES / "C19" / "vllm.log"), str(CASES / "C23" / "sglang.log")]
    assert main(["ingest", *logs, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["logs"]
    assert [one["swapped"] for one in first["samples"]] == [1, 0, 0]
    assert [one["prefix_hit_rate"] for one in first["samples"]] == [0.125, None, None]
    assert second["samples"][1]["cached_share"] == expected("C23")["prefill"]["cached_share"]
    assert main(["ingest", logs[0], "--format", "csv"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    found = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    assert [one["prefix_hit_rate"] for one in found] == ["0.125", "", ""]
    assert [one["time_s"] for one in found] == ["", "", ""]  # no year, no time
