"""A log laid on a run by the throughput that both tell, and what it then tells of each level."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.engine_log import read_log
from analysis.log_alignment import Alignment, align
from analysis.log_curve import curve_of
from analysis.log_entries import Kind, LogSample
from tests.analysis.conftest import write_run
from tokenswarm.records import RequestRecord

START = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
LEVEL_S = 20
# Of each level: users, tokens per second, and what the engine shows of it.
LEVELS: list[tuple[int, int, dict[str, Any]]] = [
    (2, 100, {"Running": 2, "Waiting": 0, "GPU KV cache usage": "5.0%", "Prefix cache hit rate": "0.0%"}),
    (8, 400, {"Running": 5, "Waiting": 3, "GPU KV cache usage": "95.5%", "Prefix cache hit rate": "12.5%"}),
    (4, 200, {"Running": 1, "Waiting": 0, "GPU KV cache usage": "9.0%", "Prefix cache hit rate": "25.0%"}),
]


def tokens_until(second: float) -> float:
    """That the run has got by then, of the steps above."""
    return sum(rate * min(max(second - LEVEL_S * i, 0.0), LEVEL_S) for i, (_, rate, _) in enumerate(LEVELS))


def stamp(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%m-%d %H:%M:%S")


def lines(ahead_s: float, every_s: int = 2, engines: int = 1) -> str:
    """The log of a clock that is ``ahead_s`` ahead, a line every two seconds, each with the mean of its interval."""
    text = []
    for second in range(every_s, LEVEL_S * len(LEVELS) + every_s, every_s):
        level = LEVELS[min(len(LEVELS) - 1, (second - 1) // LEVEL_S)][2]
        rate = (tokens_until(second) - tokens_until(second - every_s)) / every_s / engines
        parts = "".join(f", {name}: {value}{' reqs' if 'ing' in name else ''}" for name, value in level.items())
        text += [
            f"INFO {stamp(START + second + ahead_s)} [loggers.py:1] Engine {engine:03}: Avg prompt throughput: 0.0 "
            f"tokens/s, Avg generation throughput: {rate:.1f} tokens/s{parts}\n"
            for engine in range(engines)
        ]
    return "".join(text)


def timeline() -> pd.DataFrame:
    seconds = np.arange(LEVEL_S * len(LEVELS), dtype=np.float64)
    return pd.DataFrame(
        {"second": START + seconds, "tokens": [LEVELS[int(second) // LEVEL_S][1] for second in seconds]}
    )


@pytest.fixture
def aligned(tmp_path: Path) -> Callable[..., Alignment | None]:
    def run(text: str, **options: Any) -> Alignment | None:
        path = tmp_path / "server.log"
        path.write_text(text)
        return align(curve_of(read_log(path, START).found.samples), timeline(), **options)

    return run


@pytest.mark.parametrize("ahead_s", [0, 1, -7, 3600, -18000 + 33, 20700 - 90])
def test_zones_and_clock_errors(aligned: Callable[..., Alignment | None], ahead_s: int) -> None:
    """Whole hours, quarters of an hour (Nepal), and clocks that are wrong beside that: found within half a second,
    which is what stamps of whole seconds can tell, and the truth lies in the stated range."""
    found = aligned(lines(ahead_s))
    assert found is not None
    assert found.offset_s == pytest.approx(-ahead_s, abs=0.51)  # lines on the second count as half a second later
    assert found.uncertainty_s == pytest.approx(0.55, abs=0.1)
    assert abs(found.offset_s + ahead_s) <= (found.uncertainty_s or 0.0)
    assert found.correlation == pytest.approx(1.0, abs=0.01)
    assert found.covered == pytest.approx(1.0, abs=0.05)


def noisy_log(random: np.random.Generator) -> tuple[list[LogSample], pd.DataFrame, float]:
    """A line every ten seconds at any moment of the second, its rate off by 2 %, of a run of four levels; the run's
    timeline, and how far the clock of the log is ahead."""
    rates = random.permutation([100, 200, 400, 800])
    knots = np.arange(0, 240.05, 0.1)
    steps = rates[np.minimum(3, (knots[:-1] // 60).astype(int))] * 0.1 * (1 + random.normal(0, 0.1, len(knots) - 1))
    made = np.concatenate([[0.0], steps.cumsum()])
    ahead_s = 3600.0 * random.integers(-12, 14) + random.uniform(-60, 60)
    ends = random.uniform(0, 10) + np.arange(-10, 260, 10)
    told = (
        (np.interp(ends, knots, made) - np.interp(ends - 10, knots, made))
        / 10
        * (1 + random.normal(0, 0.02, len(ends)))
    )
    samples = [
        LogSample(
            line=i,
            stamp="",
            time_s=float(np.floor(START + end + ahead_s)),
            kind=Kind.INTERVAL,
            generation_tok_s=float(rate),
        )
        for i, (end, rate) in enumerate(zip(ends, told, strict=True))
        if rate > 0
    ]
    seconds = np.arange(240.0)
    arrived = np.diff(np.interp(np.arange(241.0), knots, made))
    return samples, pd.DataFrame({"second": START + seconds, "tokens": arrived.round()}), ahead_s


def test_how_often_the_stated_range_holds_the_truth() -> None:
    """Nominally 95 %: of 40 logs at least 35 (fewer have a chance of 1.4 in 100 then), and the range stays below a
    second on average."""
    random = np.random.default_rng(20261130)
    errors, ranges = [], []
    for _ in range(40):
        samples, told, ahead_s = noisy_log(random)
        found = align(curve_of(samples), told)
        assert found is not None
        assert found.uncertainty_s is not None
        errors.append(abs(found.offset_s + ahead_s))
        ranges.append(found.uncertainty_s)
    assert sum(error <= half for error, half in zip(errors, ranges, strict=True)) >= 35
    assert np.mean(ranges) < 1.0


def test_several_engines_are_laid_as_one(aligned: Callable[..., Alignment | None]) -> None:
    """Each tells half of the throughput."""
    found = aligned(lines(7200, engines=2))
    assert found is not None
    assert found.offset_s == pytest.approx(-7200, abs=0.51)


def test_idle_intervals_are_not_printed(aligned: Callable[..., Alignment | None]) -> None:
    """An hour of silence before the run is no interval of an hour."""
    before = f"INFO {stamp(START - 3600)} [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
    before += "Avg generation throughput: 900.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs\n"
    found = aligned(before + lines(5))
    assert found is not None
    assert found.offset_s == pytest.approx(-5, abs=0.51)


def test_a_log_of_another_load(aligned: Callable[..., Alignment | None]) -> None:
    """No offset makes a falling load look like the run's: nothing is joined."""
    text = "".join(
        f"INFO {stamp(START + second)} [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
        f"Avg generation throughput: {700 if second % 4 else 10}.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs\n"
        for second in range(0, 60, 2)
    )
    assert aligned(text) is None


def test_a_log_of_another_day(aligned: Callable[..., Alignment | None]) -> None:
    """Two days later is no time zone."""
    assert aligned(lines(2 * 86400)) is None


def test_a_log_that_covers_a_part(aligned: Callable[..., Alignment | None]) -> None:
    """Of the last two levels of three: laid, and the share of the tokens is told (12,000 of 14,000); of the last
    seconds alone nothing is concluded."""
    whole = lines(0).splitlines(keepends=True)
    found = aligned("".join(whole[9:]))
    assert found is not None
    assert found.covered == pytest.approx(12000 / 14000, abs=0.03)
    assert aligned("".join(whole[-4:])) is None


def test_stamps_from_the_start_of_the_process(aligned: Callable[..., Alignment | None]) -> None:
    """llama.cpp's clock is laid wherever it fits: started 100 s before the run. Requests that decode one after the
    other at the rate of their level."""
    text = []
    for second in range(0, LEVEL_S * len(LEVELS), 2):
        rate = LEVELS[second // LEVEL_S][1]
        begun, ended = (f"{int(at // 60)}.{at % 60:02.0f}.000.000" for at in (100.0 + second, 102.0 + second))
        text.append(f"{begun} I slot launch_slot_: id  0 | task {second} | processing task, is_child = 0\n")
        for what, ms, count in (("prompt eval", 0, 1), ("eval", 2000, 2 * rate)):
            text.append(
                f"{ended} I slot print_timing: id  0 | task {second} | {what} time = {ms}.00 ms / {count} tokens\n"
            )
        text.append(
            f"{ended} I slot      release: id  0 | task {second} | stop processing: n_tokens = 9, truncated = 0\n"
        )
    found = aligned("".join(text), uptime=True)
    assert found is not None
    assert found.offset_s == pytest.approx(START - 100, abs=0.3)


# beside a run


def run_folder(folder: Path) -> Path:
    """Each user of a level has one request, as long as the level."""
    rows = [
        RequestRecord(
            level=level, concurrency=users, phase="measured", ticket=ticket, traffic="chat", user=ticket,
            session=f"{level}.{ticket}", sent_s=float(LEVEL_S * level), first_token_s=LEVEL_S * level + 0.5,
            last_token_s=LEVEL_S * (level + 1.0), finished_s=LEVEL_S * (level + 1.0), prompt_tokens=10,
            output_tokens=LEVEL_S * rate // users, token_source="usage",
        )
        for level, (users, rate, _) in enumerate(LEVELS)
        for ticket in range(users)
    ]  # fmt: skip
    write_run(folder, rows, levels=[{"concurrency": users} for users, _, _ in LEVELS])
    (folder / "workers.csv").write_text(f"worker,wall_s,monotonic_s,offset_s\nw0,{START},0.0,\n")
    told = "".join(
        f"w0,{second // LEVEL_S},chat,measured,{START + second:.0f},{LEVELS[second // LEVEL_S][1]},0,0,0,1\n"
        for second in range(LEVEL_S * len(LEVELS))
    )
    head = "worker,level,traffic,phase,second,tokens,started,finished,failed,in_flight_s\n"
    (folder / "timeline.csv").write_text(head + told)
    return folder


def ingest(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, *options: str) -> str:
    (tmp_path / "server.log").write_text(text)
    assert main(["ingest", str(run_folder(tmp_path / "run")), str(tmp_path / "server.log"), *options]) == 0
    return capsys.readouterr().out


def test_levels_of_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each level shows what the engine printed in its time, in the zone of New York."""
    (log,) = json.loads(ingest(capsys, tmp_path, lines(-18000), "--json"))["logs"]
    first, second, third = log["levels"]
    assert [level["label"] for level in log["levels"]] == ["c=2", "c=8", "c=4"]
    assert [level["running_mean"] for level in log["levels"]] == [2.0, 5.0, 1.0]
    assert [level["kv_usage_max"] for level in log["levels"]] == pytest.approx([0.05, 0.955, 0.09])
    assert [level["generation_tok_s"] for level in log["levels"]] == pytest.approx([100, 400, 200])
    assert [level["prefix_hit_rate"] for level in log["levels"]] == pytest.approx([0.0, 0.125, 0.25])
    assert (second["waiting_mean"], second["waiting_max"], second["waiting_share"]) == (3.0, 3.0, 1.0)
    assert 8 <= first["lines"] <= 10
    assert first["preemptions"] is None  # the log does not tell them, which is not 0
    assert first["concerns"] == []
    assert [one["what"] for one in second["concerns"]] == ["KV-limited"]
    assert second["concerns"][0]["reason"] == (
        "requests waited in 100% of the samples, up to 3, KV cache at 96% at most"
    )
    assert [one["what"] for one in third["concerns"]] == ["not in the engine"]
    assert third["concerns"][0]["reason"] == "1.0 requests in the engine on average, 4.0 in flight at the client"


def test_levels_of_a_run_as_people_read_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The offset with its uncertainty, each concern with its next step, and hit rates as the approximation they are."""
    out = " ".join(ingest(capsys, tmp_path, lines(-18000), "--width", "120").split())
    assert "log clock + 17999.5 ± 0.6 s = clock of the run, from the generation throughput of both" in out
    assert "c=8: KV-limited: requests waited in 100% of the samples" in out
    assert "fewer users, shorter contexts, more memory for the KV cache, or a smaller type for it" in out
    assert "hit rates of the log are over the last 1,000 requests" in out
    assert "| prefix hits ~% |" in ingest(capsys, tmp_path, lines(0), "--format", "markdown")


def test_preemptions_and_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Preempted requests are added up over the level; more requests than ours are others'."""
    text = lines(0).replace("Running: 2 reqs, Waiting: 0 reqs", "Running: 5 reqs, Waiting: 0 reqs, Preemptions: 2")
    (log,) = json.loads(ingest(capsys, tmp_path, text, "--json"))["logs"]
    first = log["levels"][0]
    assert first["preemptions"] == 2 * first["lines"]
    assert [one["what"] for one in first["concerns"]] == ["preempted", "others' requests"]


def test_speculative_decoding_of_a_level(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Accepted and drafted tokens of the intervals together, not the mean of their rates: 1,249 of 2,000; and
    1 + 1,249 / (226 / 2.09 + 1,023 / 2.03) tokens a step."""
    drafts = "".join(
        f"INFO {stamp(START + at)} [metrics.py:120] SpecDecoding metrics: Mean acceptance length: {length}, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, Avg Draft acceptance rate: {rate}%\n"
        for at, length, accepted, drafted, rate in ((26, 3.09, 226, 332, 68.1), (34, 3.03, 1023, 1668, 61.3))
    )
    (log,) = json.loads(ingest(capsys, tmp_path, lines(0) + drafts, "--json"))["logs"]
    assert [level["accept_rate"] for level in log["levels"]] == [None, pytest.approx(0.6245), None]
    assert log["levels"][1]["accept_len"] == pytest.approx(3.0406, abs=1e-4)


def test_several_engines_of_a_level(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Requests of both are added: 2 + 2, 5 + 5 and 1 + 1."""
    (log,) = json.loads(ingest(capsys, tmp_path, lines(0, engines=2), "--json"))["logs"]
    assert [level["running_mean"] for level in log["levels"]] == [4.0, 10.0, 2.0]
    assert [level["generation_tok_s"] for level in log["levels"]] == pytest.approx([100, 400, 200])


def test_batches_of_sglang(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Requests running are those of decode batches; the share of cached prompt tokens is that of the level's prefills:
    3 x 64 of 3 x 222."""
    text = []
    for second in range(2, LEVEL_S * len(LEVELS) + 2, 2):
        users, rate, _ = LEVELS[min(2, (second - 1) // LEVEL_S)]
        head = f"[{datetime.fromtimestamp(START + second, UTC):%Y-%m-%d %H:%M:%S} TP0]"
        if second in (24, 30, 36):
            text.append(
                f"{head} Prefill batch, #new-seq: 1, #new-token: 158, #cached-token: 64, token usage: 0.08, "
                "#running-req: 0, #queue-req: 2, input throughput (token/s): 559.53\n"
            )
        text.append(
            f"{head} Decode batch, #running-req: {users}, #token: 9, token usage: 0.20, cuda graph: True, "
            f"gen throughput (token/s): {rate:.2f}, #queue-req: 0,\n"
        )
    (log,) = json.loads(ingest(capsys, tmp_path, "".join(text), "--json"))["logs"]
    assert [level["running_mean"] for level in log["levels"]] == [2.0, 8.0, 4.0]
    assert [level["cached_share"] for level in log["levels"]] == [None, pytest.approx(64 / 222), None]
    assert log["levels"][1]["waiting_max"] == 2.0


def test_what_does_not_fit_is_not_joined(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One sentence; with an offset by hand it is joined all the same, and the table says so."""
    text = lines(2 * 86400)
    assert "do not fit together, and nothing was joined" in " ".join(ingest(capsys, tmp_path, text).split())
    out = ingest(capsys, tmp_path, text, "--offset", str(-2 * 86400), "--json")
    (log,) = json.loads(out)["logs"]
    assert log["alignment"] == {"offset_s": -172800.0, "uncertainty_s": None, "correlation": None, "covered": None}
    assert log["levels"][1]["running_mean"] == pytest.approx(5.0, abs=0.5)


def test_a_run_without_a_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One line, exit code 2."""
    folder = run_folder(tmp_path / "run")
    assert main(["ingest", str(folder)]) == 2
    assert capsys.readouterr().err == f"{folder}: wanted the log of a server after the run folder\n"


def test_a_run_without_clocks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without the clocks of its processes nothing can be laid on a run, without its timeline only by hand."""
    folder, log = run_folder(tmp_path / "run"), tmp_path / "server.log"
    log.write_text(lines(0))
    (folder / "timeline.csv").unlink()
    assert main(["ingest", str(folder), str(log)]) == 2
    assert capsys.readouterr().err == f"{folder}: wanted a run with its timeline.csv, or --offset for the log's clock\n"
    assert main(["ingest", str(folder), str(log), "--offset", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["logs"][0]["levels"][0]["running_mean"] == 2.0
    (folder / "workers.csv").unlink()
    assert main(["ingest", str(folder), str(log), "--offset", "0"]) == 2
    assert capsys.readouterr().err == f"{folder}: wanted a run with its workers.csv, whose clocks a log is laid on\n"


def test_a_free_running_load(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without levels there is one row for the whole run: 2, 5 and 1 running in 10 lines each."""
    folder, log = run_folder(tmp_path / "run"), tmp_path / "server.log"
    log.write_text(lines(0))
    for name in ("requests.csv", "timeline.csv"):
        table = pd.read_csv(folder / name, dtype=str).assign(level="")
        table.to_csv(folder / name, index=False)
    assert main(["ingest", str(folder), str(log), "--json"]) == 0
    (level,) = json.loads(capsys.readouterr().out)["logs"][0]["levels"]
    assert (level["level"], level["label"]) == (None, "free-running")
    assert level["running_mean"] == pytest.approx(8 / 3, abs=0.1)
