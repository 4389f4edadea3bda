"""The verdict on one level of a run that goes on: from the analysis as a child, without holding anything up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.analysis.searched_run import searched_run
from tokenswarm.level_verdict import Judgement
from tokenswarm.verdict import judged_level

BESIDE = """\
from gevent import monkey; monkey.patch_all()
import gevent, sys, time
from pathlib import Path
from tokenswarm.verdict import judged_level
beats = []
def beat():
    while True:
        beats.append(time.perf_counter())
        gevent.sleep(0.01)
gevent.spawn(beat)
verdict = judged_level(Path(sys.argv[1]), 1)
print(verdict.judgement, len(beats))
"""


def test_each_level_of_a_run_that_goes_on(tmp_path: Path) -> None:
    """There is no end.json yet, and only the first level is in run.json; figures come with the verdict.

    100 requests of one token, one every half second: from the first send to the last token 49.5 + 1.5 s.
    """
    folder = searched_run(tmp_path / "run", [(1.0, 0.2), (2.0, 1.5)], ended=False)
    good, bad = judged_level(folder, 0), judged_level(folder, 1)
    assert (good.judgement, good.why) == (Judgement.MET, "chat scheduled TTFT p95 200 ms ≤ 1000 ms")
    assert (bad.judgement, bad.why) == (Judgement.MISSED, "chat scheduled TTFT p95 1500 ms > 1000 ms")
    assert bad.e2e_p50_s is not None
    assert bad.output_tok_s is not None
    assert abs(bad.e2e_p50_s - 1.5) < 1e-6
    assert abs(bad.output_tok_s - 100 / 51) < 1e-3


def test_what_cannot_be_analysed_is_undecided(tmp_path: Path) -> None:
    """One line says why: no such level, no run, a damaged run."""
    folder = searched_run(tmp_path / "run", [(1.0, 0.2)], ended=False)
    missing = judged_level(folder, 7)
    assert missing.judgement == Judgement.UNDECIDED
    assert missing.why == "the analysis gave no verdict on it: it has no request"
    (folder / "run.json").write_text(json.dumps({"format": 99}))
    damaged = judged_level(folder, 0)
    assert damaged.judgement == Judgement.UNDECIDED
    assert damaged.why.startswith("the analysis failed: ")
    assert "wanted format 1, found 99" in damaged.why
    assert "\n" not in damaged.why


def test_other_greenlets_go_on_meanwhile(tmp_path: Path) -> None:
    """As in Locust's process, where heartbeats of workers have to be heard: the child takes longer than 30 beats."""
    folder = searched_run(tmp_path / "run", [(1.0, 0.2), (2.0, 1.5)], ended=False)
    command = [sys.executable, "-c", BESIDE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    judgement, beats = done.stdout.split()
    assert judgement == "missed"
    assert int(beats) > 30
