"""Servers that the tests of the simulator share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sim_process import STEADY, Simulator, running_simulator


@pytest.fixture(scope="session")
def steady_preset(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a preset with steps of exactly 10 ms."""
    path = tmp_path_factory.mktemp("presets") / "steady.yaml"
    path.write_text(STEADY)
    return str(path)


@pytest.fixture(scope="session")
def steady(steady_preset: str) -> Iterator[Simulator]:
    """A server for all tests that change nothing about it."""
    with running_simulator("--preset", steady_preset, "--truth", "tokens", "--seed", "3") as simulator:
        yield simulator


@pytest.fixture
def start(steady_preset: str) -> Callable[..., Any]:
    """Starts a server of the test's own: ``with start("--no-usage") as simulator``."""

    def starter(*arguments: str, env: dict[str, str] | None = None) -> Any:
        return running_simulator("--preset", steady_preset, *arguments, env=env)

    return starter
