"""Virtual levels as the analysis reads them, and what one session took, worked out without the analysis."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from analysis.benefit_test import BenefitTest, benefit_test_of
from analysis.levels import level_rows
from analysis.requests_csv import column_of
from analysis.run_folder import read_run
from tests.statistics.virtual_level import VirtualLevel
from tokenswarm.metrics import METRICS
from tokenswarm.records import COLUMNS, HEADER, RequestRecord, to_csv

_TEXT = ("phase", "worker", "traffic", "session", "session_end", "arm", "prefix", "error_kind", "finish_reason")


def frame_of(rows: Iterable[RequestRecord]) -> pd.DataFrame:
    """Facts and metrics as ``read_requests`` gives them for a file with these rows."""
    table = pd.DataFrame([[getattr(row, name) for name in COLUMNS] for row in rows], columns=list(COLUMNS))
    table = table.astype({name: "object" if name in _TEXT else "float64" for name in COLUMNS if name in _USED})
    for metric in METRICS.values():
        table[metric.name] = column_of(metric, table)
    return table


_USED = {  # the rest stays blank
    *_TEXT,
    *("level", "ticket", "turn", "pair", "scheduled_s", "sent_s", "first_token_s", "first_output_s", "last_token_s"),
    *("finished_s", "prompt_tokens", "prefix_tokens", "history_tokens", "cached_tokens", "output_tokens"),
}


def times_of(requests: list[RequestRecord]) -> dict[str, float]:
    """TTFT of the first request, mean TTFT, mean E2E and time of the whole session, seconds."""
    ttft = [(row.first_token_s or 0.0) - (row.sent_s or 0.0) for row in requests]
    e2e = [(row.last_token_s or 0.0) - (row.sent_s or 0.0) for row in requests]
    return {
        "first_ttft": ttft[0],
        "ttft": sum(ttft) / len(ttft),
        "e2e": sum(e2e) / len(e2e),
        "job": (requests[-1].finished_s or 0.0) - (requests[0].sent_s or 0.0),
    }


def write_run(folder: Path, levels: Sequence[VirtualLevel]) -> Path:
    """The files of a run with these levels that the analysis needs."""
    folder.mkdir()
    (folder / "requests.csv").write_text(HEADER + "".join(to_csv(one.rows) for one in levels), encoding="utf-8")
    run = {
        "format": 1,
        "name": "virtual",
        "target": {"simulated": True},
        "levels": [
            {"level": one.level.index, "concurrency": one.level.concurrency, "arms": one.level.arms, "tail": "fill"}
            for one in levels
        ],
        "isolation": {"by": levels[0].isolation.by, "cold": levels[0].isolation.cold},
        "template_prefix_tokens": 0,
    }
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    (folder / "end.json").write_text('{"state": "finished"}', encoding="utf-8")
    return folder


def benefit_of(folder: Path, levels: Sequence[VirtualLevel]) -> BenefitTest:
    """The product's own reading of these levels, files and all."""
    run = read_run(write_run(folder, levels))
    test = benefit_test_of(run, level_rows(run)[0])
    assert test is not None
    return test
