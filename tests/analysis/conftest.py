"""Runs the command as a user does and gives back what it printed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main

HERE = Path(__file__).parent
CASES = HERE / "cases"
SMALL = HERE / "runs" / "small"


@dataclass(frozen=True)
class Answer:
    """Exit code and both streams of one call."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture
def table(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """``python -m analysis table RUN …`` in this process."""

    def call(run: Path | str, *options: str) -> Answer:
        code = main(["table", str(run), *options])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A copy of the hand-made run folder that a test may damage."""
    return Path(shutil.copytree(SMALL, tmp_path / "small"))
