"""Starts the engines that ``make engines`` has installed; each ends with the tests that use it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from tests.engines import install
from tests.engines.wire import Wire
from tests.locust_process import Run, free_port, run_locust

HERE = Path(__file__).parent
START_LIMIT_S = 240  # vLLM's first start inspects the model and fills caches
AGENT_TEMPLATE = HERE / "agent.jinja"
VLLM_REPORTING = ("--enable-prompt-tokens-details", "--enable-per-request-metrics")
VLLM_TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")


@dataclass
class Engine:
    """A running engine. Through ``wire`` everything said is kept; ``url`` is the engine itself."""

    url: str
    process: subprocess.Popen[str]
    wire: Wire

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return str(answer.read().decode())

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def counter(self, name: str) -> float:
        """One counter of ``/metrics``, over all its labels."""
        values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", self.get("/metrics"), re.MULTILINE)
        assert values, f"the engine has no counter {name}"
        return sum(float(value) for value in values)


def _need(engine: str, name: str) -> None:
    if not install.installed(engine):
        pytest.skip(f"{name} is not installed (as pinned): make engines ARGS={engine}")


@contextlib.contextmanager
def _running(
    command: list[str], log: Path, env: dict[str, str] | None = None, *, stdout: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process group of its own, ended as a group: politely first. All that it says goes to ``log``.

    ``stdout``: another way for what it prints; nobody may forget to read a pipe, or the process stops when it is full.
    """
    with log.open("w", encoding="utf-8") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=said if stdout is None else stdout, stderr=said, text=True,
            start_new_session=True, env={**os.environ, **(env or {})},
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            _close(stream)


def _close(stream: IO[str] | None) -> None:
    with contextlib.suppress(BrokenPipeError):
        if stream is not None:
            stream.close()


@contextlib.contextmanager
def _engine(process: subprocess.Popen[str], url: str) -> Iterator[Engine]:
    wire = Wire(int(url.rpartition(":")[2]))
    try:
        yield Engine(url, process, wire)
    finally:
        wire.close()


@contextlib.contextmanager
def wired_anew(engine: Engine) -> Iterator[Engine]:
    """The same engine with a wire that has kept nothing yet."""
    with _engine(engine.process, engine.url) as one:
        yield one


@contextlib.contextmanager
def llamacpp_engine(folder: Path, *options: str) -> Iterator[Engine]:
    """llama.cpp with SmolLM2-135M, eight slots, on one core. About a second to start.

    ``options`` are those of ``llamacpp_server.py``.
    """
    _need("llamacpp", "llama.cpp")
    command = [install.python("llamacpp"), HERE / "llamacpp_server.py", install.model_path("llamacpp"), *options]
    log = folder / "llamacpp.log"
    with _running([str(part) for part in command], log, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), f"llama.cpp did not start: {log.read_text('utf-8')[-2000:]}"
        with _engine(process, url) as engine:
            yield engine


@contextlib.contextmanager
def vllm_engine(folder: Path, options: tuple[str, ...] = (*VLLM_REPORTING, *VLLM_TOOLS)) -> Iterator[Engine]:
    """vLLM on the CPU with a tiny random Qwen2. Half a minute to start, twice that the first time."""
    _need("vllm", "vLLM")
    flags = ("--max-num-seqs", "16", "--chat-template", str(AGENT_TEMPLATE), "--enable-prefix-caching", *options)
    with vllm_server(folder, "vllm", "tiny", flags) as engine:
        yield engine


@contextlib.contextmanager
def vllm_vision_engine(folder: Path) -> Iterator[Engine]:
    """vLLM with a tiny random Qwen2-VL, both of its caches on. Most of a minute to start."""
    _need("vllm-vision", "vLLM with images")
    flags = ("--max-num-seqs", "8", "--limit-mm-per-prompt", '{"image": 3, "video": 0}')
    flags += ("--enable-prefix-caching", "--enable-prompt-tokens-details")
    with vllm_server(folder, "vllm-vision", "tiny-vl", flags) as engine:
        yield engine


@contextlib.contextmanager
def vllm_server(folder: Path, model: str, served: str, options: tuple[str, ...]) -> Iterator[Engine]:
    """vLLM with one of the installed models under the name ``served``, in blocks of 32 tokens."""
    url, log = f"http://127.0.0.1:{free_port()}", folder / "vllm.log"
    command = [
        str(install.python("vllm").with_name("vllm")), "serve", str(install.model_path(model)),
        "--host", "127.0.0.1", "--port", url.rpartition(":")[2], "--served-model-name", served,
        "--enforce-eager", "--max-model-len", "4096", "--block-size", "32", *options,
    ]  # fmt: skip
    env = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }
    with _running(command, log, env) as process:
        _wait_until_healthy(process, url, log)
        with _engine(process, url) as engine:
            yield engine


def _wait_until_healthy(process: subprocess.Popen[str], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"vLLM did not start: {log.read_text('utf-8')[-2000:]}"
        try:
            with urllib.request.urlopen(url + "/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"vLLM was not ready after {START_LIMIT_S} s: {log.read_text('utf-8')[-2000:]}")


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One vLLM for all tests that need no other, since its start takes longer than they do. It reports all it can."""
    with vllm_engine(tmp_path_factory.mktemp("vllm")) as engine:
        yield engine


@pytest.fixture
def llamacpp(tmp_path: Path) -> Iterator[Engine]:
    """A llama.cpp that only this test uses."""
    with llamacpp_engine(tmp_path) as engine:
        yield engine


@pytest.fixture
def locust(tmp_path: Path) -> Callable[..., Run]:
    """Runs a whole Locust headless and reads what it left."""
    return partial(run_locust, tmp_path)
