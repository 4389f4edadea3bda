"""``python -m benchmarks all`` (or one section): builds the reference server, measures, prints, writes JSON."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import build, report
from benchmarks.build import BenchmarkError
from benchmarks.figures import Row
from benchmarks.load import Bench
from benchmarks.process import ROOT
from benchmarks.sections import SECTIONS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="How fast and truthful the client is.")
    parser.add_argument("sections", nargs="+", choices=["all", "build", *SECTIONS], help="what to measure")
    parser.add_argument("--out", type=Path, help="output folder (results/bench-<UTC time> when left out)")
    parser.add_argument(
        "--urgent",
        action="store_true",
        help="real-time priority for server and client (needs root), where the machine does other work meanwhile",
    )
    options = parser.parse_args()
    wanted = list(SECTIONS) if "all" in options.sections else [name for name in SECTIONS if name in options.sections]
    folder = options.out or ROOT / "results" / f"bench-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    try:
        print(f"reference server: {os.path.relpath(build.reference_server())}")
        return measure(wanted, folder, urgent=options.urgent) if wanted else 0
    except BenchmarkError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def measure(wanted: list[str], folder: Path, *, urgent: bool) -> int:
    """Runs the sections in turn. One that cannot run here says so in one line and is skipped. 1 when none could run."""
    folder.mkdir(parents=True, exist_ok=True)
    bench = Bench.at(folder.resolve(), urgent=urgent)
    if bench.server_core == bench.client_core:
        print("only one core: server and client share it, and no figure below means much")
    results: dict[str, list[Row]] = {}
    for name in wanted:
        print(f"{name} …", flush=True)
        try:
            results[name] = SECTIONS[name](bench)
        except BenchmarkError as error:
            print(f"skipped {name}: {error}", flush=True)
        report.write(folder, results)
    print("\n" + report.text(results))
    print(f"\n{os.path.relpath(folder)}/bench.json")
    return 0 if results else 1


if __name__ == "__main__":
    raise SystemExit(main())
