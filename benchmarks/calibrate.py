"""``python -m benchmarks.calibrate SCENARIO``: what this machine can measure truthfully, at a scenario's planned load.

Whole Locust drives a server that knows what it sent when, at a few of the planned levels; every request is compared,
and the result kept in ``calibration.json`` for later runs. Options that are not its own go to Locust (``--processes``).
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks import report
from benchmarks.build import BenchmarkError, reference_server
from benchmarks.calibration_level import measured_level, milliseconds
from benchmarks.calibration_load import DRAIN_LIMIT_S, Pace, calibration_scenario, planned_loads
from benchmarks.cpu_samples import CpuSampler
from benchmarks.figures import Row
from benchmarks.load import RECORDS
from benchmarks.process import PinnedProcess
from benchmarks.server import ReferenceServer, TruthRow
from benchmarks.simulator_server import SimulatorServer
from tokenswarm.calibration import Axis, keep_calibration, machine, read_calibrations, truthful_up_to
from tokenswarm.errors import TokenswarmError
from tokenswarm.provenance import provenance
from tokenswarm.rundir import require_results_folder
from tokenswarm.scenario import Scenario, load_scenario

START_LIMIT_S = 120.0
BUSY = 0.6  # of a core: a process that is busier lacks time of its own
PER_LEVEL_LIMIT_S = 60.0  # beside its measured time
COLUMNS = {  # of the table; errors in milliseconds
    "load": "load",
    "requests": "requests",
    "TTFT error p50 ms": "ttft_error_p50_ms",
    "p95 ms": "ttft_error_p95_ms",
    "max ms": "ttft_error_max_ms",
    "TPOT error p95 ms": "tpot_error_p95_ms",
    "E2E error p95 ms": "e2e_error_p95_ms",
    "tokens exact": "tokens_exact",
    "send delay p95 ms": "send_delay_p95_ms",
    "CPU cores": "busiest_cpu",
    "events/s": "events_per_s",
    "truthful": "truthful",
}


@dataclass(frozen=True)
class Calibration:
    """What is asked for, and where its files go."""

    scenario: Scenario
    axis: Axis
    loads: list[float]
    pace: Pace
    seconds: float
    folder: Path
    words: list[str]  # for Locust
    simulator: bool = False  # even where the reference server can be had

    @property
    def limit_s(self) -> float:
        return START_LIMIT_S + len(self.loads) * (self.seconds + DRAIN_LIMIT_S + PER_LEVEL_LIMIT_S)


def main() -> int:
    options, words = _parser().parse_known_args()
    try:
        return _run(options, words)
    except (BenchmarkError, TokenswarmError) as error:
        print(f"calibrate: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.calibrate",
        description="What this machine can measure truthfully, at a scenario's planned load.",
        epilog="Any other option goes to Locust, for example --processes 2.",
    )
    parser.add_argument("scenario", type=Path, help="the scenario whose traffic and levels are to be measured")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where calibration.json is kept")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each level (12)")
    parser.add_argument("--simulator", action="store_true", help="against the simulator even where C can be compiled")
    parser.add_argument("--ttft-ms", type=float, default=50.0, help="the server's time to first token (50)")
    parser.add_argument("--gap-ms", type=float, default=10.0, help="the server's time from token to token (10)")
    return parser


def _run(options: argparse.Namespace, words: list[str]) -> int:
    scenario = load_scenario(options.scenario, check_env=False)
    if scenario.load is None:
        raise BenchmarkError(f"{options.scenario}: has no load; levels are wanted, for they say how far to go")
    results = options.results.resolve()
    require_results_folder(results)
    read_calibrations(results)  # one that could not be added to is told before the load
    axis, loads = planned_loads(scenario.load)
    folder = results / f"calibration-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    folder.mkdir()
    pace = Pace(options.ttft_ms / 1e3, options.gap_ms / 1e3)
    entry = measure(Calibration(scenario, axis, loads, pace, options.seconds, folder, words, options.simulator))
    path = keep_calibration(results, entry)
    print("\n" + table(entry["levels"]))
    print("\n" + sentence(entry))
    print(f"\n{os.path.relpath(path)}")
    return 0 if entry["truthful_up_to"] is not None else 1


def measure(wanted: Calibration) -> dict[str, Any]:
    """One entry of ``calibration.json``. Raises ``BenchmarkError`` where Locust does not come to its end."""
    with _server(wanted) as (server, name, reference):
        print(f"{name}, {len(wanted.loads)} levels of {wanted.seconds:g} s: {_listed(wanted)}", flush=True)
        scenario = calibration_scenario(wanted.scenario, server.url, wanted.loads, wanted.seconds, reference)
        path = wanted.folder / "scenario.yaml"
        path.write_text(yaml.safe_dump(scenario, sort_keys=False, allow_unicode=True), encoding="utf-8")
        command = [sys.executable, "-m", "locust", "-f", "locustfiles/mixed.py", "--headless", "--no-table"]
        command += ["--scenario", str(path), "--results", str(wanted.folder / "runs"), *wanted.words]
        load = PinnedProcess(command, core=_clients_cores(), log=wanted.folder / "client.log")
        with load, CpuSampler(load.popen.pid) as sampler:
            load.wait(wanted.limit_s)
        truth = {row.request_id: row for row in server.truth()}
    levels, processes = _levels(wanted, _run_folder(wanted, load), truth, sampler, load.popen.pid)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {key: value for key, value in provenance().items() if key not in ("command", "host_cpus")},
        "server": name,
        "scenario": wanted.scenario.name,
        "scenario_digest": wanted.scenario.digest,
        "ttft_ms": wanted.pace.ttft_s * 1e3,
        "gap_ms": wanted.pace.gap_s * 1e3,
        "processes": processes,
        "axis": wanted.axis,
        "highest": max(wanted.loads),
        "truthful_up_to": truthful_up_to(levels),
        "levels": levels,
    }


@contextmanager
def _server(wanted: Calibration) -> Iterator[tuple[ReferenceServer | SimulatorServer, str, dict[str, Any] | None]]:
    """The server, its name, and the plan of an answer that goes into each request."""
    pace = wanted.pace
    if wanted.simulator or not _compiled():
        with SimulatorServer(pace.gap_s) as simulator:
            yield simulator, "simulator", None
        return
    gap_us = round(pace.gap_s * 1e6)
    plan = {"ttft_us": round(pace.ttft_s * 1e6), "itl_us": gap_us, "jitter_us": gap_us}
    options = ("--records", str(RECORDS))
    with ReferenceServer(max(os.sched_getaffinity(0)), wanted.folder / "server.log", options=options) as server:
        yield server, "reference server", plan


def _compiled() -> bool:
    try:
        reference_server()
    except BenchmarkError as error:
        print(f"{error}; the simulator is used instead", flush=True)
        return False
    return True


def _clients_cores() -> set[int]:
    """All but the server's, which in earnest is on another machine."""
    cores = os.sched_getaffinity(0)
    return cores - {max(cores)} if len(cores) > 1 else cores


def _run_folder(wanted: Calibration, load: PinnedProcess) -> Path:
    runs = wanted.folder / "runs"
    found = sorted(runs.iterdir()) if runs.exists() else []
    if len(found) != 1 or not (found[0] / "end.json").exists():
        raise BenchmarkError(f"Locust wrote no whole run: {load.last_line()} (all of it: {load.log})")
    return found[0]


def _levels(
    wanted: Calibration, run: Path, truth: Mapping[str, TruthRow], sampler: CpuSampler, main_pid: int
) -> tuple[list[Row], int]:
    """The levels, and how many processes made the load."""
    rows = defaultdict(list)
    for row in _table(run / "requests.csv"):
        rows[row["level"]].append(row)
    workers = {row["worker"] for row in _table(run / "workers.csv")}
    alone = workers == {"local"}
    levels = []
    for level in _table(run / "levels.csv"):
        if not (level["measured_started_s"] and level["measured_ended_s"]):
            continue
        window_s = float(level["measured_started_s"]), float(level["measured_ended_s"])
        load = wanted.loads[int(level["level"])]
        found = measured_level(load, rows[level["level"]], truth, window_s, by_clock=wanted.axis == "rate")
        shares = sampler.shares(*window_s)
        master = None if alone else shares.pop(main_pid, None)
        cpus = sorted(shares.values(), reverse=True)
        busiest = cpus[0] if cpus else None
        levels.append(found | {"cpus": cpus, "busiest_cpu": busiest, "master_cpu": master})
    if not levels:
        raise BenchmarkError(f"{run}: no level was measured")
    return levels, len(workers)


def _table(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _listed(wanted: Calibration) -> str:
    return ", ".join(_named(wanted.axis, load) for load in wanted.loads)


def _named(axis: Axis, load: float) -> str:
    return f"{load:g} user{'' if load == 1 else 's'}" if axis == "users" else f"{load:g}/s"


def table(levels: Sequence[Row]) -> str:
    """Milliseconds to a microsecond, everything else as the benchmarks show it."""
    rows = [
        {title: _cell(key, level[key]) for title, key in COLUMNS.items()}
        for level in sorted(levels, key=lambda one: float(one["load"]))
    ]
    return report.table(rows, list(COLUMNS))


def _cell(key: str, value: Any) -> Any:
    return f"{value:.3f}" if key.endswith("_ms") and value is not None else value


def sentence(entry: Mapping[str, Any]) -> str:
    """How far this machine is truthful, and what goes wrong beyond."""
    processes = f"{entry['processes']} process{'' if entry['processes'] == 1 else 'es'}"
    reached, highest = entry["truthful_up_to"], entry["highest"]
    parts = []
    if reached is not None:
        level = next(one for one in entry["levels"] if one["load"] == reached)
        errors = [
            f"{name.upper()} error p95 {milliseconds(value)}"
            for name in ("ttft", "tpot", "e2e")
            if (value := level[f"{name}_error_p95_ms"]) is not None
        ]
        parts.append(f"truthful up to {_named(entry['axis'], reached)} with {processes}: {', '.join(errors)}")
    if reached != highest:
        first = next((one for one in entry["levels"] if not one["truthful"]), None)
        if first is None:
            parts.append(f"not all levels were measured; the highest is {_named(entry['axis'], highest)}")
        else:
            where = f"not truthful with {processes} at {_named(entry['axis'], first['load'])}"
            parts.append(f"{where}: {'; '.join(first['doubts'])}; {_advice(first)}")
    return "\n".join(parts)


def _advice(level: Row) -> str:
    cpu = level["busiest_cpu"]
    if cpu is None or cpu > BUSY:
        return "use more load processes (ARGS='--processes N')"
    return f"the load process was busy for {cpu:.0%} of the time only: repeat it while nothing else runs"


if __name__ == "__main__":
    raise SystemExit(main())
