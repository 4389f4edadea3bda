"""Client and engine held against each other: times on means, counts that close, and when nothing follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from analysis.engine_export import server_object
from analysis.engine_window import Counting, engine_window
from analysis.levels import LevelRow
from analysis.reconcile import server_views
from analysis.run_folder import read_run
from analysis.window import Window
from tests.analysis.conftest import write_run
from tests.analysis.test_cache_verdict import engine_csv
from tokenswarm.engine_metrics import parse_metrics
from tokenswarm.records import RequestRecord

CASES = Path(__file__).parents[1] / "data" / "cases"
# Totals before the level: what others did earlier is of no interest.
BEFORE = {
    "requests_ok": 100, "generation_tokens": 5000, "prompt_tokens": 7000, "preemptions": 2, "process_start_s": 1e9,
    "ttft_sum_s": 10.0, "ttft_count": 100, "queue_sum_s": 1.0, "queue_count": 100, "prefill_sum_s": 8.0,
    "prefill_count": 100, "decode_sum_s": 100.0, "decode_count": 100, "e2e_sum_s": 120.0, "e2e_count": 100,
    "drafts": 10, "draft_tokens": 40, "accepted_tokens": 20,
}  # fmt: skip
# Of six requests: queue 0.2 s, prefill 0.7 s, TTFT 0.96 s, decode 1 s, whole 1.96 s on average.
GROWN = {
    "requests_ok": 6, "generation_tokens": 66, "prompt_tokens": 6000, "preemptions": 0, "process_start_s": 0,
    "ttft_sum_s": 5.76, "ttft_count": 6, "queue_sum_s": 1.2, "queue_count": 6, "prefill_sum_s": 4.2,
    "prefill_count": 6, "decode_sum_s": 6.0, "decode_count": 6, "e2e_sum_s": 11.76, "e2e_count": 6,
    "drafts": 15, "draft_tokens": 60, "accepted_tokens": 45,
}  # fmt: skip


def request(ticket: int, /, **facts: Any) -> RequestRecord:
    """TTFT 1 s, 11 tokens, one after the other from second 0 on, two seconds each."""
    sent = 2.0 * ticket
    given: dict[str, Any] = {
        "level": 0, "concurrency": 1, "phase": "measured", "ticket": ticket, "traffic": "chat", "user": 0,
        "session": f"0.{ticket}", "sent_s": sent, "first_token_s": sent + 1, "last_token_s": sent + 2,
        "finished_s": sent + 2, "prompt_tokens": 1000, "output_tokens": 11, "token_source": "usage",
        "asked_input_tokens": 990, "asked_output_tokens": 11, "chunks": 11,
    }  # fmt: skip
    return RequestRecord(**given | facts)


def rows() -> list[RequestRecord]:
    """A warm-up, four measured requests and one that keeps the load up: the engine counts all six."""
    return [
        request(0, phase="warmup"),
        *(request(ticket) for ticket in range(1, 5)),
        request(5, phase="fill"),
    ]


def cut(**facts: Any) -> RequestRecord:
    """A request that was cut after four tokens of twenty, without its usage."""
    nothing = dict.fromkeys(("output_tokens", "prompt_tokens", "token_source", "last_token_s"))
    return request(6, phase="drain", error_kind="cancelled", asked_output_tokens=20, chunks=4, **nothing | facts)


def samples(grown: dict[str, Any] | None = None, **end: Any) -> list[dict[str, Any]]:
    """Both edges of the level."""
    grown = GROWN | (grown or {})
    start: dict[str, Any] = {"level": 0, "edge": "start", "time_s": -0.5} | BEFORE
    after = {name: value + grown[name] for name, value in BEFORE.items()}
    return [start, {"level": 0, "edge": "end", "time_s": 15.0} | after | end]


def between(time_s: float, **gauges: Any) -> dict[str, Any]:
    """A sample in the level."""
    return {"level": 0, "edge": None, "time_s": time_s} | BEFORE | gauges


def view(folder: Path, requests: list[RequestRecord], engine: list[dict[str, Any]]) -> dict[str, Any]:
    """What the JSON has of the only level."""
    write_run(folder, requests, levels=[{"concurrency": 1}], engine=engine_csv(*engine))
    (found,) = server_views(read_run(folder), [LevelRow(0, 1, label="c=1")])
    return server_object(found)


def test_where_the_ttft_went(tmp_path: Path) -> None:
    """1 s at the client: 0.2 s queue, 0.7 s prefill, 0.1 s unexplained, of which 0.06 s in the engine's front end."""
    found = view(tmp_path / "run", rows(), samples())
    assert (found["counts"], found["counting"], found["why"]) == ("closes", "whole", "")
    assert found["ttft_mean_s"] == pytest.approx(
        {
            "client": 1.0, "server": 0.96, "queue": 0.2, "prefill": 0.7, "unexplained": 0.1, "frontend": 0.06,
            "beyond": 0.04, "client_lag": None,
        }
    )  # fmt: skip
    assert found["means_s"]["decode"] == pytest.approx(1.0)
    assert found["e2e_mean_s"] == pytest.approx({"client": 2.0, "server": 1.96})
    assert found["accept_rate"] == 0.75
    assert found["window_s"] == 15.5
    for name, value in (("requests", 6), ("generation_tokens", 66), ("prompt_tokens", 6000)):
        assert found[name] == {"engine": value, "least": value, "most": value}
    assert found["finding"] == (
        "100 ms of the mean TTFT are neither queue nor prefill, more than the client's lag: network, proxy or "
        "tokenisation may be the cause"
    )


def test_what_people_read(table: Any, tmp_path: Path) -> None:
    """A row a level with its means, and the finding below; what is not told has no column."""
    write_run(tmp_path / "run", rows(), levels=[{"concurrency": 1}], engine=engine_csv(*samples()))
    text = table(tmp_path / "run", "--format", "markdown").out
    part = text[text.index("### Server's view") :].splitlines()
    assert part[2] == (
        "| c | requests | output tokens | TTFT mean ms | server TTFT ms | queue ms | prefill ms | unexplained ms "
        "| decode s | preemptions | drafts accepted % | counts |"
    )
    assert part[4] == "| 1 | 6 | 66 | 1000 | 960 | 200 | 700 | 100 | 1.00 | 0 | 75.0 | closes |"
    assert part[6].startswith("- c=1: 100 ms of the mean TTFT are neither queue nor prefill")


def test_what_the_lag_of_the_client_explains(tmp_path: Path) -> None:
    """Of stamps taken when bytes were read, a lag of 60 ms is allowed for beside 5 %; kernel stamps have none."""
    late = [msgspec.structs.replace(row, clock="watcher", lag_max_s=0.06) for row in rows()]
    found = view(tmp_path / "late", late, samples())
    assert (found["ttft_mean_s"]["client_lag"], found["finding"]) == (pytest.approx(0.06), "")
    kernel = [msgspec.structs.replace(row, clock="kernel") for row in late]
    found = view(tmp_path / "kernel", kernel, samples())
    assert (found["ttft_mean_s"]["client_lag"], found["finding"][:6]) == (0.0, "100 ms")


def test_an_engine_that_does_not_tell_its_prefill(tmp_path: Path) -> None:
    """Nothing is explained, but what lies outside of the engine's own TTFT is known: here 0.3 s."""
    engine = samples({"ttft_sum_s": 4.2})
    for sample in engine:
        sample |= dict.fromkeys(("prefill_sum_s", "prefill_count"))
    found = view(tmp_path / "run", rows(), engine)
    assert (found["ttft_mean_s"]["unexplained"], found["ttft_mean_s"]["beyond"]) == (None, pytest.approx(0.3))
    assert found["finding"].startswith("300 ms of the mean TTFT are outside the engine")


def test_histograms_of_other_requests(tmp_path: Path) -> None:
    """An engine cannot spend more before the first token than the client waited."""
    found = view(tmp_path / "run", rows(), samples({"queue_sum_s": 6.0}))
    assert found["ttft_mean_s"]["unexplained"] == pytest.approx(-0.7)
    assert "its histograms are of other requests" in found["finding"]


@pytest.mark.parametrize(
    ("grown", "counts", "why"),
    [
        ({"requests_ok": 9}, "others used the server", "the engine counted 9 requests, our requests make 6"),
        (
            {"requests_ok": 5},
            "not all requests reached this engine",
            "the engine counted 5 requests, our requests make 6",
        ),
        (
            {"generation_tokens": 80},
            "tokens do not close",
            "the engine counted 80 generated tokens, our requests make 66",
        ),
        ({"prompt_tokens": 3000}, "tokens do not close", "the engine counted 3000 prompt tokens"),
        ({"prompt_tokens": 6012}, "closes", ""),  # 0.2 %
        ({"prompt_tokens": 6013}, "tokens do not close", "the engine counted 6013 prompt tokens"),
    ],
)
def test_counts_that_do_not_close(table: Any, tmp_path: Path, grown: dict[str, int], counts: str, why: str) -> None:
    """Then the reason is named and no time is explained."""
    found = view(tmp_path / "run", rows(), samples(grown))
    assert found["counts"] == counts
    assert found["why"].startswith(why)
    if counts != "closes":
        assert found["ttft_mean_s"]["queue"] is found["ttft_mean_s"]["unexplained"] is None
        text = " ".join(table(tmp_path / "run", "--width", "200").out.split())
        assert f"c=1: {counts}: {why}" in text
        assert "nothing else is concluded" in text


@pytest.mark.parametrize(
    ("tokens", "counts"),
    [
        (69, "tokens do not close"),  # less than the four that came
        (70, "closes"),
        (86, "closes"),  # all twenty that were asked for
        (87, "tokens do not close"),
    ],
)
def test_tokens_of_requests_that_were_cut(tmp_path: Path, tokens: int, counts: str) -> None:
    """A cut request has made what came at the least, and what was asked for at the most; its prompt of about 1,000
    tokens may have been counted or not."""
    for prompt in (6000, 7000):
        grown = {"generation_tokens": tokens, "prompt_tokens": prompt}
        found = view(tmp_path / f"{prompt}", [*rows(), cut()], samples(grown))
        assert found["counts"] == counts
        assert found["generation_tokens"] == {"engine": tokens, "least": 70, "most": 86}
        assert found["prompt_tokens"] == {"engine": prompt, "least": 6000, "most": 7000}
        assert found["requests"] == {"engine": 6, "least": 6, "most": 7}


def test_estimated_tokens_prove_nothing(tmp_path: Path) -> None:
    """Without usage the client does not know what the engine made: requests alone are compared."""
    chunks = [msgspec.structs.replace(row, token_source="chunks") for row in rows()]
    found = view(tmp_path / "run", chunks, samples({"generation_tokens": 99}))
    assert found["generation_tokens"] == {"engine": 99, "least": None, "most": None}
    assert found["counts"] == "closes"


def test_an_engine_that_counts_tokens_alone(tmp_path: Path) -> None:
    """llama.cpp has no number of requests: more tokens than ours are others', less went elsewhere."""
    for tokens, counts in (
        (66, "closes"),
        (99, "others used the server"),
        (33, "not all requests reached this engine"),
    ):
        engine = samples({"generation_tokens": tokens})
        for sample in engine:
            sample |= dict.fromkeys(("requests_ok", "prompt_tokens"))
        assert view(tmp_path / f"{tokens}", rows(), engine)["counts"] == counts


# when totals cannot be subtracted


@pytest.mark.parametrize(
    ("engine", "counting", "why"),
    [
        ([between(5.0)], "not sampled", "the engine was not sampled at both ends of the level"),
        (samples(process_start_s=1e9 + 100), "restarted", "the engine's process, or its counters, began anew"),
        (samples(process_start_s=1e9 - 100), "several replicas", "several replicas answered behind this URL"),
        (samples(generation_tokens=10), "restarted", "the engine's process, or its counters, began anew"),
        (
            [samples()[0], between(4.0, generation_tokens=900), between(8.0, generation_tokens=5010), samples()[1]],
            "several replicas",
            "several replicas answered",
        ),
        ([samples()[0], samples()[1] | {"engine": "1"}], "several replicas", "several replicas answered"),
    ],
)
def test_totals_that_cannot_be_subtracted(
    table: Any, tmp_path: Path, engine: list[dict[str, Any]], counting: str, why: str
) -> None:
    """A missing edge, a new process, a total that fell, an older process than before, a total that fell and came back,
    or other labels: there is no difference, the reason is told, and the rest of the table stands."""
    found = view(tmp_path / "run", rows(), engine)
    assert (found["counting"], found["counts"], found["totals"], found["means_s"]) == (counting, "unknown", {}, {})
    assert found["why"].startswith(why)
    assert f"c=1: not compared with the client: {why}" in " ".join(
        table(tmp_path / "run", "--width", "200").out.split()
    )


def test_several_engines_on_one_page(tmp_path: Path) -> None:
    """Their totals are added, their means are over the requests of both."""
    halves = [{name: value / 2 for name, value in GROWN.items()} for _ in range(2)]
    engine = []
    for edge in (0, 1):
        engine += [samples(half)[edge] | {"engine": str(label)} for label, half in enumerate(halves)]
    found = view(tmp_path / "run", rows(), engine)
    assert (found["counts"], found["requests"]["engine"]) == ("closes", 6)
    assert found["ttft_mean_s"]["prefill"] == pytest.approx(0.7)


def test_no_samples_no_block(table: Any, tmp_path: Path) -> None:
    """A server without the page leaves no table behind."""
    write_run(tmp_path / "run", rows(), levels=[{"concurrency": 1}])
    assert table(tmp_path / "run", "--json").json["server"] == []
    assert "Server's view" not in table(tmp_path / "run").out


# gauges


def test_what_gauges_show(tmp_path: Path) -> None:
    """Samples in the measured time count, those of the warm-up before it do not; a full KV cache with waiting requests
    is the reason for the limit."""
    gauges = [(1.0, 9, 9, 0.99), (3.0, 1, 0, 0.5), (5.0, 1, 1, 0.92), (7.0, 1, 2, 0.91)]
    inside = [between(at, running=run, waiting=wait, kv_usage=kv) for at, run, wait, kv in gauges]
    start, end = samples()
    found = view(tmp_path / "run", rows(), [start, *inside, end])
    assert (found["samples"], found["running_mean"], found["waiting_mean"], found["waiting_max"]) == (3, 1.0, 1.0, 2.0)
    assert (found["kv_usage_max"], found["waiting_share"]) == (0.92, pytest.approx(2 / 3))
    assert [one["what"] for one in found["concerns"]] == ["KV-limited"]
    assert found["concerns"][0]["reason"] == "requests waited in 67% of the samples, up to 2, KV cache at 92% at most"


def test_preempted_requests(tmp_path: Path) -> None:
    """Those of the level, from its two edges."""
    found = view(tmp_path / "run", rows(), samples({"preemptions": 3}))
    assert found["concerns"] == [
        {
            "what": "preempted",
            "reason": "3 requests lost their KV cache and began anew",
            "next_step": "fewer users or more KV cache: preempted requests are computed again",
        }
    ]


# the cases


def engine_rows(*pages: str) -> pd.DataFrame:
    found = []
    for i, page in enumerate(pages):
        (sample,) = parse_metrics((CASES / page).read_text())
        found.append({"time_s": float(i), "level": 0, "edge": ("start", "end")[i]} | msgspec.structs.asdict(sample))
    return pd.DataFrame(found)


def test_vllm_before_and_after_a_run() -> None:
    """C24: the differences are the run's: tokens, and the mean TTFT over the 60 requests between both pages."""
    right = json.loads((CASES / "C24" / "expected.json").read_text())
    found = engine_window(engine_rows("C24/before.txt", "C24/after.txt"), 0, Window(0.0, 1.0))
    assert found is not None
    assert found.counting == Counting.WHOLE
    assert found.totals["prompt_tokens"] == right["prompt_tokens"]
    assert found.totals["generation_tokens"] == right["generation_tokens"]
    assert (found.means["ttft"], found.counts["ttft"]) == (right["ttft_mean_s"], right["ttft_count"])
    assert (found.kv_usage_max, found.waiting_max) == (right["kv_usage"], right["waiting"])
