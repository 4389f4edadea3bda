"""Pages of real engines in our words, and the samples taken of them while a run goes on."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import msgspec
import pytest

from tokenswarm.engine_metrics import COLUMNS, CacheConfig, EngineSample, parse_cache_config, parse_metrics
from tokenswarm.errors import TargetError
from tokenswarm.rundir import HEADERS
from tokenswarm.telemetry import EngineSampler

DATA = Path(__file__).parents[1] / "data"
PAGES = sorted(path.relative_to(DATA / "metrics").with_suffix("").as_posix() for path in DATA.glob("metrics/*/*.txt"))

# Our fields -> what a reader looks for at the start of the lines that add up to them.
VLLM = {
    "running": "vllm:num_requests_running{",
    "waiting": "vllm:num_requests_waiting{",
    "kv_usage": "vllm:kv_cache_usage_perc{",
    "prompt_tokens": "vllm:prompt_tokens_total{",
    "cached_prompt_tokens": "vllm:prompt_tokens_cached_total{",
    "generation_tokens": "vllm:generation_tokens_total{",
    "prefix_queries": "vllm:prefix_cache_queries_total{",
    "prefix_hits": "vllm:prefix_cache_hits_total{",
    "mm_queries": "vllm:mm_cache_queries_total{",
    "mm_hits": "vllm:mm_cache_hits_total{",
    "preemptions": "vllm:num_preemptions_total{",
    "requests_ok": 'vllm:request_success_total{engine="0",finished_reason="(?:stop|length|repetition)"',
    "requests_failed": 'vllm:request_success_total{engine="0",finished_reason="error"',
    "drafts": "vllm:spec_decode_num_drafts_total{",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total{",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total{",
    "ttft_sum_s": "vllm:time_to_first_token_seconds_sum{",
    "ttft_count": "vllm:time_to_first_token_seconds_count{",
    "queue_sum_s": "vllm:request_queue_time_seconds_sum{",
    "prefill_sum_s": "vllm:request_prefill_time_seconds_sum{",
    "decode_sum_s": "vllm:request_decode_time_seconds_sum{",
    "e2e_sum_s": "vllm:e2e_request_latency_seconds_sum{",
    "tpot_count": "vllm:request_time_per_output_token_seconds_count{",
    "gap_count": "vllm:inter_token_latency_seconds_count{",
}
SGLANG = {
    "running": "sglang:num_running_reqs{",
    "waiting": "sglang:num_queue_reqs{",
    "kv_usage": "sglang:token_usage{",
    "hit_rate": "sglang:cache_hit_rate{",
    "prompt_tokens": "sglang:prompt_tokens_total{",
    "cached_prompt_tokens": "sglang:cached_tokens_total{",
    "generation_tokens": "sglang:generation_tokens_total{",
    "requests_ok": "sglang:num_requests_total{",
    "ttft_sum_s": "sglang:time_to_first_token_seconds_sum{",
    "ttft_count": "sglang:time_to_first_token_seconds_count{",
    "queue_sum_s": "sglang:queue_time_seconds_sum{",
    "prefill_sum_s": "sglang:per_stage_req_latency_seconds_sum{.*prefill_forward",
    "e2e_count": "sglang:e2e_request_latency_seconds_count{",
}
LLAMACPP = {
    "running": "llamacpp:requests_processing ",
    "waiting": "llamacpp:requests_deferred ",
    "prompt_tokens": "llamacpp:prompt_tokens(?:_cached)?_total ",
    "cached_prompt_tokens": "llamacpp:prompt_tokens_cached_total ",
    "generation_tokens": "llamacpp:tokens_predicted_total ",
    "prefill_sum_s": "llamacpp:prompt_seconds_total ",
    "decode_sum_s": "llamacpp:tokens_predicted_seconds_total ",
    "drafts": "llamacpp:spec_decode_num_drafts_total ",
    "draft_tokens": "llamacpp:spec_decode_num_draft_tokens_total ",
    "accepted_tokens": "llamacpp:spec_decode_num_accepted_tokens_total ",
}

# Read off the pages: running, waiting, prompt tokens, cached of them, generated tokens, requests.
FACTS = {
    "vllm-0.32.0-text/99_metrics_after": (0, 0, 26637, 21312, 11365, 109),
    "vllm-0.32.0-smallkv/03_metrics_busy_3": (4, 8, 871, 0, 2982, 1),
    "vllm-0.32.0-reasoning/03_metrics_overload": (4, 4, 1907, 1152, 1710, 15),
    "sglang/99_metrics_after": (0, 0, 17021, 14689, 2787, 52),
    "sglang/03_metrics_busy": (16, 4, 3241, 939, 147, 22),
    "llamacpp-xllamacpp/03_metrics_busy": (2, 1, 16898, 9004, 6379, None),
}


def page(name: str) -> str:
    return (DATA / "metrics" / f"{name}.txt").read_text()


def case(name: str, file: str) -> EngineSample:
    (sample,) = parse_metrics((DATA / "cases" / name / file).read_text())
    return sample


def expected(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((DATA / "cases" / name / "expected.json").read_text())
    return facts


def gained(after: EngineSample, before: EngineSample, field: str) -> float:
    return float(getattr(after, field) - getattr(before, field))


@pytest.mark.parametrize("name", PAGES)
def test_recorded_pages(name: str) -> None:
    """Every field is the sum of the lines that a plain search finds, and blank where it finds none."""
    assert len(PAGES) == 24
    text = page(name)
    (sample,) = parse_metrics(text)
    kind = name.partition("-")[0].partition("/")[0]
    for field, start in {"vllm": VLLM, "sglang": SGLANG, "llamacpp": LLAMACPP}[kind].items():
        found = [float(value) for value in re.findall(rf"^{start}.*?(\S+)$".replace("{", r"\{"), text, re.MULTILINE)]
        assert getattr(sample, field) == (pytest.approx(sum(found)) if found else None), field
    assert sample.engine == ("0" if kind == "vllm" else "")


@pytest.mark.parametrize("name", FACTS)
def test_read_off_the_page(name: str) -> None:
    """What a person reads on the page."""
    (sample,) = parse_metrics(page(name))
    counts = (sample.prompt_tokens, sample.cached_prompt_tokens, sample.generation_tokens, sample.requests_ok)
    assert (sample.running, sample.waiting, *counts) == FACTS[name]


def test_drafts_images_and_preemptions() -> None:
    """Read off the pages of the runs that had them: 33 of 63 images found, 12 preemptions, 2000 draft tokens."""
    (spec,) = parse_metrics(page("vllm-0.32.0-spec/99_metrics_after"))
    (images,) = parse_metrics(page("vllm-0.32.0-mm-tiny-qwen2-vl/99_metrics_after_reset"))
    (small,) = parse_metrics(page("vllm-0.32.0-smallkv/99_metrics_after"))
    assert (spec.drafts, spec.draft_tokens, spec.accepted_tokens) == (613, 2000, 1249)
    assert (images.mm_queries, images.mm_hits, images.prefix_hits) == (63, 33, 2048)
    assert (small.preemptions, small.drafts) == (12, None)


def test_what_an_engine_does_not_tell_is_none() -> None:
    """llama.cpp shows no KV cache use and no histograms, SGLang no lookups: blank, not 0."""
    (llamacpp,) = parse_metrics(page("llamacpp-xllamacpp/99_metrics_after"))
    (sglang,) = parse_metrics(page("sglang/99_metrics_after"))
    unknown = {field for field, value in msgspec.structs.asdict(llamacpp).items() if value is None}
    assert unknown >= {"kv_usage", "prefix_queries", "ttft_sum_s", "ttft_count", "requests_ok", "process_start_s"}
    assert (sglang.prefix_queries, sglang.prefix_hits, sglang.drafts, sglang.decode_sum_s) == (None,) * 4


def test_vllm_before_and_after_a_run() -> None:
    """C24: a run's values are differences; no creation time is taken for a count."""
    before, after, facts = case("C24", "before.txt"), case("C24", "after.txt"), expected("C24")
    for field in ("prompt_tokens", "generation_tokens", "ttft_count"):
        assert gained(after, before, field) == facts[field]
    hits, queries = (gained(after, before, field) for field in ("prefix_hits", "prefix_queries"))
    assert hits / queries == facts["prefix_hit_rate"]
    assert gained(after, before, "ttft_sum_s") / gained(after, before, "ttft_count") == facts["ttft_mean_s"]
    assert (after.running, after.waiting, after.kv_usage) == (facts["running"], facts["waiting"], facts["kv_usage"])
    assert after.process_start_s == before.process_start_s == pytest.approx(1753795326.935)


def test_a_level_that_repeats_the_prompts_of_the_one_before() -> None:
    """B19: the hit rate of each level is a difference over it: 0, 50 and 50 %, not 42.9 % since the server's start."""
    samples = [case("B19", f"metrics_{number}.txt") for number in range(4)]
    rates = [
        gained(after, before, "prefix_hits") / gained(after, before, "prefix_queries")
        for before, after in pairwise(samples)
    ]
    assert rates == list(expected("B19")["hit_rate"].values()) == [0, 0.5, 0.5]


def test_sglang_names() -> None:
    """C27: exponents, rank labels, and the hit rate as a gauge."""
    sample, facts = case("C27", "metrics.txt"), expected("C27")
    for field in ("prompt_tokens", "generation_tokens", "kv_usage", "running", "waiting"):
        assert getattr(sample, field) == facts[field]
    assert sample.hit_rate == facts["prefix_hit_rate"]
    assert sample.ttft_sum_s is not None
    assert sample.ttft_count is not None
    assert sample.ttft_sum_s / sample.ttft_count == facts["ttft_mean_s"]


def test_tgi_names() -> None:
    """C29: no ``_total``, no labels, no help lines."""
    sample, facts = case("C29", "metrics.txt"), expected("C29")
    assert (sample.running, sample.waiting) == (facts["running"], facts["waiting"])
    assert (sample.requests_ok, sample.generation_tokens) == (facts["success"], facts["generation_tokens"])
    assert (sample.requests_failed, sample.requests_refused) == (facts["failures"], facts["overloaded"])
    assert facts["requests"] == facts["success"] + facts["failures"]
    assert (sample.tpot_sum_s, sample.tpot_count) == (pytest.approx(facts["tpot_mean_s"] * 40), 40)


def test_old_and_new_names_of_vllm() -> None:
    """Names changed between versions; where a page has both, the newer one holds."""
    old = parse_metrics(
        "vllm:gpu_cache_usage_perc 0.5\n"
        "vllm:gpu_prefix_cache_queries 100\n"
        "vllm:gpu_prefix_cache_hits_total 40\n"
        "vllm:gpu_prefix_cache_hit_rate -1\n"
        "vllm:time_per_output_token_seconds_sum 2.5\n"
        "vllm:time_per_output_token_seconds_count 50\n"
        'vllm:request_success{finished_reason="stop"} 3\n'
        'vllm:request_success{finished_reason="abort"} 4\n'
    )
    assert old == [
        EngineSample(
            kv_usage=0.5, prefix_queries=100, prefix_hits=40, gap_sum_s=2.5, gap_count=50, requests_ok=3, hit_rate=None
        )
    ]
    both = parse_metrics("vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.6\n")
    assert both == [EngineSample(kv_usage=0.6)]


def test_underscores_where_colons_were() -> None:
    """As older SGLang has them, and collectors that rename."""
    assert parse_metrics("sglang_num_running_reqs 3\nvllm_num_requests_waiting 2\n") == [
        EngineSample(running=3, waiting=2)
    ]


def test_several_engines_on_one_page() -> None:
    """Each has a row of its own, with its own counters; the process they share began at one time."""
    text = "".join(
        f'vllm:num_requests_running{{engine="{engine}",model_name="m"}} {engine + 5}\n'
        f'vllm:prefix_cache_hits_total{{engine="{engine}",model_name="m"}} {engine * 100}\n'
        for engine in (1, 0)
    )
    samples = parse_metrics(text + "process_start_time_seconds 1.7e9\n")
    assert [(one.engine, one.running, one.prefix_hits) for one in samples] == [("0", 5, 0), ("1", 6, 100)]
    assert {one.process_start_s for one in samples} == {1.7e9}


def test_ranks_of_one_engine_are_not_added() -> None:
    """Four processes that share the work of one engine all tell the same; those of another data rank do not."""
    text = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0"}} {10 * (dp + 1)}\n'
        f'sglang:token_usage{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0"}} 0.{dp + 1}\n'
        for dp in (0, 1)
        for tp in (2 * dp + 1, 2 * dp)
    )
    text += 'sglang:prompt_tokens_total{model_name="m"} 500\n'
    assert [(one.engine, one.running, one.kv_usage, one.prompt_tokens) for one in parse_metrics(text)] == [
        ("", None, None, 500),
        ("0", 10, 0.1, None),
        ("1", 20, 0.2, None),
    ]


def test_pages_that_are_no_engines() -> None:
    """Other exporters and HTML give nothing; a line that cannot be read takes no other with it; NaN is unknown."""
    assert parse_metrics("<html>vllm:num_requests_running 3</html>\n") == []
    assert parse_metrics("process_start_time_seconds 1.7e9\npython_info 1\n") == []
    torn = 'vllm:num_requests_running{engine="0 3\nvllm:num_requests_waiting nonsense\nvllm:generation_tokens_total 7\n'
    assert parse_metrics(torn + "vllm:kv_cache_usage_perc NaN\n") == [EngineSample(generation_tokens=7)]


def test_half_a_page_gives_no_half_of_a_number() -> None:
    """A page that broke off after ``4`` of ``40`` tells nothing of that line, and all of those before."""
    text = "vllm:num_requests_running 3\nvllm:prompt_tokens_total 40\n"
    assert parse_metrics(text[:-2]) == [EngineSample(running=3)]
    assert parse_metrics(text) == [EngineSample(running=3, prompt_tokens=40)]


def test_settings_of_the_cache() -> None:
    """vLLM's page has block size and switch, SGLang's the page size; llama.cpp's and TGI's only show who they are."""
    assert parse_cache_config(page("vllm-0.32.0-text/00_metrics_before")) == CacheConfig("vllm", True, 32)
    assert parse_cache_config(page("sglang/99_metrics_after")) == CacheConfig("sglang", None, 1)
    assert parse_cache_config(page("llamacpp-xllamacpp/99_metrics_after")) == CacheConfig("llamacpp")
    assert parse_cache_config("tgi_queue_size 1\n") == CacheConfig("tgi")
    off = 'vllm:cache_config_info{block_size="None",enable_prefix_caching="False"} 1.0\n'
    assert parse_cache_config(off) == CacheConfig("vllm", False, None)
    assert parse_cache_config("nginx_up 1\n") == CacheConfig()


def test_columns_are_the_run_folders() -> None:
    """``engine.csv`` has the sample's fields behind time, level and edge."""
    assert HEADERS["engine"] == COLUMNS
    assert COLUMNS[:6] == ("time_s", "level", "edge", "engine", "running", "waiting")


def test_columns_are_documented() -> None:
    """Each column of ``engine.csv`` has its line in docs/cache.md."""
    text = (DATA.parents[1] / "docs" / "cache.md").read_text()
    assert [column for column in COLUMNS if f"`{column}`" not in text] == []


class Rows:
    """Keeps rows, and lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._grew = gevent.event.Event()

    def write(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self._grew.set()

    def wait(self, count: int) -> None:
        while len(self.rows) < count:
            self._grew.clear()
            assert self._grew.wait(timeout=10)

    @property
    def edges(self) -> list[tuple[Any, Any]]:
        return [(row["level"], row["edge"]) for row in self.rows]


def ticking() -> Callable[[], float]:
    """A clock that a second passes on at each look."""
    seen = [100.0]

    def clock() -> float:
        seen[0] += 1
        return seen[0]

    return clock


PAGE = b"vllm:num_requests_running 0\nvllm:prompt_tokens_total 40\n"


def test_samples_at_the_edges_and_between() -> None:
    """A row at each edge and every few seconds between; none between two levels, and none after the end."""
    kept = Rows()
    sampler = EngineSampler(lambda: (200, PAGE), kept.write, interval_s=0.005)
    sampler.edge(0, "start")
    kept.wait(4)
    sampler.edge(0, "end")
    count = len(kept.rows)
    gevent.sleep(0.03)
    assert len(kept.rows) == count
    sampler.edge(1, "start")
    sampler.stop()
    assert kept.edges == [(0, "start"), *[(0, None)] * (count - 2), (0, "end"), (1, "start")]
    assert {row["prompt_tokens"] for row in kept.rows} == {40}
    assert set(kept.rows[0]) == set(COLUMNS)
    assert sampler.note is None


def test_a_sample_bears_the_middle_of_its_request() -> None:
    """Asked at 101 s, answered at 102 s."""
    kept = Rows()
    sampler = EngineSampler(lambda: (200, PAGE), kept.write, ticking())
    sampler.edge(0, "start")
    sampler.stop()
    assert kept.rows[0]["time_s"] == 101.5


def test_the_end_of_a_level_waits_for_the_last_count() -> None:
    """An engine that still counts a request as running is asked again, twice at most."""
    busy = b"vllm:num_requests_running 1\nvllm:prompt_tokens_total 39\n"
    pages = [busy, PAGE]
    kept = Rows()
    sampler = EngineSampler(lambda: (200, pages.pop(0)), kept.write)
    sampler.edge(0, "end")
    assert [row["prompt_tokens"] for row in kept.rows] == [40]
    pages[:] = [busy] * 5
    sampler.edge(0, "end")
    assert len(pages) == 2
    assert [row["prompt_tokens"] for row in kept.rows] == [40, 39]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "SGLang needs --enable-metrics, llama.cpp --metrics"),
        (401, "answered 401"),
        (200, "no engine that is known"),
    ],
)
def test_a_server_without_the_page_is_asked_once(status: int, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """One note, no rows, no failed run."""
    asked: list[int] = []

    def get() -> tuple[int, bytes]:
        asked.append(1)
        return status, b"Not Found"

    kept = Rows()
    sampler = EngineSampler(get, kept.write, interval_s=0.001)
    for level in range(3):
        sampler.edge(level, "start")
        gevent.sleep(0.005)
        sampler.edge(level, "end")
    assert len(asked) == 1
    assert kept.rows == []
    assert words in str(sampler.note)
    assert [record.message for record in caplog.records] == [sampler.note]


@pytest.mark.parametrize(
    "failure", [TargetError("http://h/metrics: no answer in time"), ConnectionResetError(104, "x")]
)
def test_a_failure_is_told_once_and_the_next_sample_is_taken(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A server too busy for its page now and then."""
    failures = [failure, failure]

    def get() -> tuple[int, bytes]:
        if failures:
            raise failures.pop()
        return 200, PAGE

    kept = Rows()
    sampler = EngineSampler(get, kept.write, interval_s=0.001)
    sampler.edge(0, "start")
    kept.wait(2)
    sampler.edge(0, "end")
    assert kept.edges[-1] == (0, "end")
    assert "start" not in [edge for _, edge in kept.edges]
    assert len(caplog.records) == 1
    assert str(failure) in str(sampler.note)


def test_a_page_that_drips_costs_one_sample_and_no_level(caplog: pytest.LogCaptureFixture) -> None:
    """A page that never ends is given up after some seconds; the level goes on, and the next page is read."""
    dripping = [True]

    def get() -> tuple[int, bytes]:
        while dripping:
            gevent.sleep(0.01)
        return 200, PAGE

    kept = Rows()
    sampler = EngineSampler(get, kept.write, interval_s=60)
    started = time.monotonic()
    sampler.edge(0, "start")
    assert 1 < time.monotonic() - started < 15
    dripping.clear()
    sampler.edge(0, "end")
    assert kept.edges == [(0, "end")]
    assert [record.message for record in caplog.records] == [
        "engine samples are missing: /metrics did not come within 2.5 s"
    ]


def test_a_page_too_large_to_be_read_beside_a_load_is_left_alone() -> None:
    """Megabytes of other people's metrics would hold up the streams: told once, and not asked for again."""
    asked: list[int] = []
    kept = Rows()

    def get() -> tuple[int, bytes]:
        asked.append(1)
        return 200, PAGE * 100_000

    sampler = EngineSampler(get, kept.write)
    sampler.edge(0, "start")
    sampler.edge(0, "end")
    assert (len(asked), kept.rows) == (1, [])
    assert sampler.note == (
        f"no engine samples: /metrics has {len(PAGE) * 100_000} bytes, more than can be read beside a load"
    )


@pytest.mark.parametrize("answer", [(200, b"<html>maintenance</html>"), (404, b"")])
def test_a_page_that_was_there_is_asked_for_again(answer: tuple[int, bytes]) -> None:
    """A gateway that shows something else for a moment does not end the samples of the run."""
    answers = [(200, PAGE), answer, (200, PAGE)]
    kept = Rows()
    sampler = EngineSampler(lambda: answers.pop(0), kept.write, interval_s=60)
    sampler.edge(0, "start")
    sampler.edge(0, "end")
    sampler.edge(1, "start")
    sampler.stop()
    assert kept.edges == [(0, "start"), (1, "start")]
    assert sampler.note is not None


def test_a_restarting_server_is_asked_again() -> None:
    """503 is no page now, and may be one later."""
    answers = [(503, b""), (200, PAGE)]
    kept = Rows()
    sampler = EngineSampler(lambda: answers.pop(0), kept.write)
    sampler.edge(0, "start")
    sampler.edge(0, "end")
    assert kept.edges == [(0, "end")]
    assert sampler.note == "engine samples are missing: /metrics answered 503"
