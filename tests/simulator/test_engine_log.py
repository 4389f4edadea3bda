"""The line that vLLM prints about itself, beside recorded ones."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drawings import about, data_url, drawing, image_part, text_part
from recorded import RECORDED
from sim_process import Simulator

from simulator import engine_log
from simulator.engine import Engine, Sequence
from simulator.engine_log import EngineLog
from simulator.settings import load_settings

CHAT = "/v1/chat/completions"


def shape(line: str) -> str:
    """A line with every number, and what the device is, left out."""
    return re.sub(r"[\d.]+", "0", line.partition("Engine ")[2]).replace("CPU", "GPU").strip()


def number(line: str, name: str) -> float:
    found = re.search(rf"{name}: ([\d.]+)", line)
    assert found, line
    return float(found[1])


def lines_until_silent(path: Path) -> list[str]:
    """The lines up to one without any token, which is the last of a busy time."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        lines = path.read_text().splitlines()
        if lines and "Avg generation throughput: 0.0 " in lines[-1]:
            return lines
        time.sleep(0.02)
    raise AssertionError("no line without tokens within 10 s")


def test_the_line_has_the_words_of_vllm(start: Callable[..., Any], tmp_path: Path) -> None:
    """As recorded, in a file: the second image is found, the prefix cache gives 64 of 2 * 73 tokens."""
    recorded = {shape(line) for line in (RECORDED / "engine-lines.log").read_text().splitlines()}
    assert len(recorded) == 1
    log = tmp_path / "engine.log"
    switches = ("--set", "vision={}", "--speed", "10", "--log-interval", "0.1", "--log-file", str(log))
    with start(*switches) as simulator:
        for _ in range(2):
            assert simulator.call("POST", CHAT, about([image_part(data_url(drawing(1)))]))[0] == 200
        *_, busy, silent = lines_until_silent(log)
    assert {shape(line) for line in (busy, silent)} == recorded
    assert re.match(r"\(APIServer pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[", busy)
    assert number(busy, "Avg generation throughput") > 0
    assert number(silent, "Prefix cache hit rate") == pytest.approx(100 * 64 / 146, abs=0.051)
    assert number(silent, "MM cache hit rate") == 50.0


def test_without_images_the_line_says_nothing_of_them(start: Callable[..., Any], tmp_path: Path) -> None:
    """Nor of a prefix cache that is off; on standard error nothing at all without the switch."""
    log = tmp_path / "engine.log"
    simulator: Simulator
    with start("--no-prefix-cache", "--speed", "100", "--log-interval", "0.05", "--log-file", str(log)) as simulator:
        simulator.call("POST", CHAT, about([text_part("hello there")]))
        line = lines_until_silent(log)[-1]
    assert line.endswith("Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%")


def test_rates_count_what_was_computed_since_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two prompts of 100 tokens, 96 of the second cached, 5 tokens each, in 4 s; then one silent line, then none."""
    clock = iter([0.0, 4.0, 8.0, 12.0])
    monkeypatch.setattr(engine_log.time, "monotonic", lambda: next(clock))
    out = io.StringIO()
    log = EngineLog(4.0, out)
    engine = Engine(load_settings("demo").engine())
    for at_s in (0.0, 1.0):
        engine.submit(Sequence([1] * 100, [0] * 5), at_s)
        while engine.next_s is not None:
            log.note(engine.complete_step(), caches_prefixes=True)
    log.images.note(3, 1)
    for _ in range(3):
        log.write(engine)
    first, second = out.getvalue().splitlines()
    assert first.partition("Engine ")[2] == (
        "000: Avg prompt throughput: 26.0 tokens/s, Avg generation throughput: 2.5 tokens/s, Running: 0 reqs, "
        "Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 48.0%, MM cache hit rate: 33.3%"
    )
    assert "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s" in second


def test_hit_rates_are_of_the_last_thousand_requests() -> None:
    """1,000 hits push 1,000 misses out; a reset forgets them."""
    hits = engine_log.RecentHits()
    assert hits.part("x") == []
    for found in [0] * 1000 + [1] * 500:
        hits.note(1, found)
    assert hits.part("x") == ["x: 50.0%"]
    for _ in range(500):
        hits.note(1, 1)
    assert hits.part("x") == ["x: 100.0%"]
    hits.clear()
    assert hits.part("x") == []
