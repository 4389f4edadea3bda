"""Runs the command as a user does and gives back what it printed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from tokenswarm.records import HEADER, RequestRecord, to_csv

LEVELS_HEADER = (
    "level,concurrency,state,reason,started_s,measured_started_s,measured_ended_s,ended_s,planned_sessions,"
    "measured_sessions\n"
)
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


def write_run(
    folder: Path,
    records: Iterable[RequestRecord],
    *,
    levels: Iterable[dict[str, Any]] = (),
    engine: str = "",
    ended: bool = True,
    **facts: Any,
) -> Path:
    """A run folder with these requests. ``levels`` are those of ``run.json``; every one counts as complete.

    ``engine``: the text of ``engine.csv``; ``facts``: what else stands in ``run.json``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    planned = [{"level": i, "tail": "drain"} | level for i, level in enumerate(levels)]
    rows = [f"{level['level']},{level['concurrency']},complete,,,,,,,\n" for level in planned]
    head = {"format": 1, "name": folder.name, "scenario": {}, "target": {}, "levels": planned}
    (folder / "run.json").write_text(json.dumps(head | facts))
    (folder / "requests.csv").write_text(HEADER + to_csv(records))
    (folder / "levels.csv").write_text(LEVELS_HEADER + "".join(rows))
    if engine:
        (folder / "engine.csv").write_text(engine)
    if ended:
        (folder / "end.json").write_text('{"state": "finished"}')
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A copy of the hand-made run folder that a test may damage."""
    return Path(shutil.copytree(SMALL, tmp_path / "small"))
