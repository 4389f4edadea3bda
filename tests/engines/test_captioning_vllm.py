"""Streams of captions against a real vLLM on the CPU with a tiny Qwen2-VL of random weights."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from tests.engines import install
from tests.engines.conftest import vllm_vision_engine
from tests.engines.sweep import Sweep
from tests.engines.wire import Exchange
from tests.locust_process import ROOT, run_locust

pytestmark = pytest.mark.engine

LOCUSTFILE = ROOT / "locustfiles" / "captioning.py"
SCENARIO = """
traffic:
  - kind: captioning
    images: {synthetic: {pixels: {uniform: [3136, 150000]}}}
    images_per_session: {uniform: [1, 2]}
    output_tokens: {uniform: [6, 12]}
load:
  closed: {users: [1, 4], sessions: {at_least: 8}, warmup_sessions: 1, tail: drain}
cache_probe: never
"""
SESSIONS = 2 * (8 + 1)
PROMPTED, GENERATED = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
LOOKED_UP, FOUND = "vllm:mm_cache_queries_total", "vllm:mm_cache_hits_total"


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """One run of two levels, looked at by several tests."""
    with vllm_vision_engine(tmp_path_factory.mktemp("vllm")) as engine:
        before = {name: engine.counter(name) for name in (PROMPTED, GENERATED, LOOKED_UP, FOUND)}
        folder = tmp_path_factory.mktemp("captions")
        run = run_locust(folder, "-H", engine.wire.url, scenario=SCENARIO, timeout=300, locustfile=LOCUSTFILE)
        gained = {name: engine.counter(name) - count for name, count in before.items()}
        exchanges = {one.id: one for one in engine.wire.exchanges()}
        yield Sweep(engine, run, exchanges, gained)


def pictures(exchange: Exchange) -> list[Image.Image]:
    """Those of one request as the server got them, decoded."""
    found = []
    for message in exchange.request["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] == "image_url":
                data = base64.b64decode(part["image_url"]["url"].partition(";base64,")[2], validate=True)
                found.append(Image.open(io.BytesIO(data)).convert("RGB"))
    return found


def tokens_of(width: int, height: int) -> int:
    """Of one picture, as the published Qwen2-VL computes them: both sides are rounded to whole tokens, and the picture
    is scaled first where it has too many or too few pixels."""
    settings = json.loads((install.model_path("vllm-vision") / "preprocessor_config.json").read_text("utf-8"))
    side = settings["patch_size"] * settings["merge_size"]
    smallest, largest = settings["min_pixels"], settings["max_pixels"]
    across, down = max(1, round(width / side)), max(1, round(height / side))
    if across * down * side**2 > largest:
        shrink = math.sqrt(width * height / largest)
        across, down = math.floor(width / shrink / side), math.floor(height / shrink / side)
    elif across * down * side**2 < smallest:
        grow = math.sqrt(smallest / (width * height))
        across, down = math.ceil(width * grow / side), math.ceil(height * grow / side)
    return across * down


def sessions(captions: Sweep) -> list[list[dict[str, str]]]:
    found: dict[Any, list[dict[str, str]]] = defaultdict(list)
    for row in sorted(captions.run.rows, key=lambda row: int(row["turn"])):
        found[row["session"]].append(row)
    return list(found.values())


def test_captions_of_two_turns_run_without_failures(captions: Sweep) -> None:
    """Every stream asks twice, gets answers of the asked lengths, and its second prompt begins with its first."""
    run = captions.run
    assert run.good, run.output
    assert [row["error"] for row in run.rows if row["error_kind"]] == []
    assert [level["requests"] for level in run.table()["levels"]] == [16, 16]
    played = sessions(captions)
    assert len(played) == SESSIONS
    for first, second in played:
        assert all(row["output_tokens"] == row["asked_output_tokens"] for row in (first, second))
        one, two = (captions.exchanges[row["request_id"]] for row in (first, second))
        assert two.request["messages"][:1] == one.request["messages"]
        assert two.request["messages"][1] == {"role": "assistant", "content": one.text}


def test_tokens_are_the_servers_own_count(captions: Sweep) -> None:
    """Rows add up to the engine's counters, and each has its stream's usage."""
    rows = captions.run.rows
    assert len(rows) == len(captions.exchanges) == 2 * SESSIONS
    for row in rows:
        usage = captions.exchanges[row["request_id"]].last("usage")
        assert int(row["prompt_tokens"]) == usage["prompt_tokens"]
        assert int(row["cached_tokens"]) == usage["prompt_tokens_details"]["cached_tokens"]
    assert sum(int(row["prompt_tokens"]) for row in rows) == captions.gained[PROMPTED]
    assert sum(int(row["output_tokens"]) for row in rows) == captions.gained[GENERATED]


def test_pictures_are_what_the_rows_say_and_no_two_are_the_same(captions: Sweep) -> None:
    """By their decoded pixels; what the server bills for them is what the published rule gives for their sizes."""
    hashes: list[str] = []
    for first, second in sessions(captions):
        shown, again = (pictures(captions.exchanges[row["request_id"]]) for row in (first, second))
        assert [one.tobytes() for one in shown] == [one.tobytes() for one in again]
        hashes += [hashlib.sha256(one.tobytes()).hexdigest() for one in shown]
        for row in (first, second):
            assert int(row["images"]) == len(shown)
            assert int(row["image_pixels"]) == sum(one.width * one.height for one in shown)
            billed = captions.exchanges[row["request_id"]].last("usage")["prompt_tokens_details"]["multimodal_tokens"]
            assert int(row["image_tokens"]) == billed["image"]
            assert int(row["image_tokens"]) == sum(tokens_of(one.width, one.height) for one in shown)
    assert len(hashes) > SESSIONS
    assert len(set(hashes)) == len(hashes)


def test_half_of_the_look_ups_are_served_from_the_multimodal_cache(captions: Sweep) -> None:
    """By the engine's own counters, at every level: 50 % ± 2; the table calls it confirmed."""
    looked_up = sum(int(row["images"]) for row in captions.run.rows)
    assert captions.gained[LOOKED_UP] == looked_up
    assert captions.gained[FOUND] / captions.gained[LOOKED_UP] == pytest.approx(0.5, abs=0.02)
    for level in captions.run.table()["levels"]:
        cache = level["image_cache"]
        assert (cache["state"], cache["source"]) == ("confirmed", "counters")
        assert cache["measured"] == pytest.approx(0.5, abs=0.02)


def test_the_second_question_finds_the_first_in_the_prefix_cache(captions: Sweep) -> None:
    """Whole blocks of 32 tokens of what the stream has sent before, pictures included; a first question finds at most
    what the chat template begins with."""
    for first, second in sessions(captions):
        assert int(first["cached_tokens"]) < 32
        cached, sent = int(second["cached_tokens"]), int(first["prompt_tokens"])
        assert cached % 32 == 0
        assert sent - 32 <= cached <= int(second["history_tokens"])
