"""The benchmarks are run from a checkout and are not installed: make them importable, and start their server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.build import BenchmarkError, compiler
from benchmarks.server import ReferenceServer

StartServer = Callable[..., ReferenceServer]


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Starts reference servers that end with the session; skips where there is no compiler or no Linux."""
    if sys.platform != "linux":
        pytest.skip("the reference server needs Linux (epoll)")
    try:
        compiler()
    except BenchmarkError as error:
        pytest.skip(str(error))
    log = tmp_path_factory.mktemp("reference") / "server.log"
    with ExitStack() as servers:

        def start(*options: str) -> ReferenceServer:
            core = max(os.sched_getaffinity(0))
            return servers.enter_context(ReferenceServer(core, log, options=options))

        yield start


@pytest.fixture(scope="session")
def server(start_server: StartServer) -> ReferenceServer:
    return start_server()
