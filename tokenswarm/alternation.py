"""``python -m tokenswarm.alternation A=URL B=URL``: two servers under the same load in turns, A B B A A B B A.

Each block is a whole Locust, with a run folder of its own and prompts that no other run has sent. Whatever gets slower
or faster in the meantime (the room, the clock of the GPU, other people's traffic) meets both sides alike. In the end
``python -m analysis compare`` reads the blocks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenswarm.errors import TokenswarmError

ORDER = "ABBA"
FILE = "alternation.json"  # names the blocks, for the analysis
_LOCUSTFILE = Path(__file__).parents[1] / "locustfiles" / "mixed.py"
_BAD_INPUT, _NOT_CREDIBLE, _INTERRUPTED = 2, 3, 130


@dataclass(frozen=True)
class Block:
    """``run``: the run folder, relative to that of the comparison."""

    side: str
    url: str
    run: str
    exit_code: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the comparison; 2 for bad input, 3 where a block left no run."""
    options = _parser().parse_args(arguments)
    try:
        return _alternate(options)
    except TokenswarmError as problem:
        print(problem, file=sys.stderr)
        return _BAD_INPUT
    except KeyboardInterrupt:
        return _INTERRUPTED


def _alternate(options: argparse.Namespace) -> int:
    urls = {"A": options.a, "B": options.b}
    folder = Path(options.results) / f"ab-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    folder.mkdir(parents=True)
    blocks: list[Block] = []
    for number, side in enumerate(sides(options.rounds), start=1):
        print(f"block {number} of {len(ORDER) * options.rounds}: {side}, {urls[side]}", flush=True)
        block = _played(folder, number, side, urls[side], options)
        if block is None:
            print(f"{folder}: block {number} ({side}) left no run; see what Locust said above", file=sys.stderr)
            return _NOT_CREDIBLE
        blocks.append(block)
        _write(folder, urls, blocks)
    compare = [sys.executable, "-m", "analysis", "compare", str(folder), *options.compare]
    return subprocess.run(compare, cwd=Path.cwd(), check=False).returncode


def sides(rounds: int) -> Iterator[str]:
    """Which side each block is of."""
    for _ in range(rounds):
        yield from ORDER


def _played(folder: Path, number: int, side: str, url: str, options: argparse.Namespace) -> Block | None:
    """One whole Locust; ``None`` where it ended without a run folder. A missed objective is no reason to stop."""
    results = folder / f"{number:02d}-{side}"
    command = [
        *(str(Path(sys.executable).with_name("locust")), "-f", str(_LOCUSTFILE), "--headless", "--only-summary"),
        *("--scenario", options.scenario, "--host", url, "--results", str(results), "--no-table", *options.locust),
    ]
    code = subprocess.run(command, check=False).returncode
    runs = sorted(results.glob("*/run.json")) if results.is_dir() else []
    if code == _BAD_INPUT or not runs:
        return None
    return Block(side, url, str(runs[-1].parent.relative_to(folder)), code)


def _write(folder: Path, urls: dict[str, str], blocks: Sequence[Block]) -> None:
    """Anew after each block, so that an interrupted comparison can be read as well."""
    facts: dict[str, Any] = {"format": 1, "order": ORDER, "sides": urls, "blocks": [vars(one) for one in blocks]}
    (folder / FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tokenswarm.alternation", description="Two servers in turns.")
    add = parser.add_argument
    add("--a", metavar="URL", required=True, help="the base")
    add("--b", metavar="URL", required=True, help="the candidate")
    add("--scenario", metavar="PATH", required=True, help="what to send and how hard, in every block")
    add("--rounds", type=_rounds, default=2, help="how often A B B A is played (default: 2, which makes 8 blocks)")
    add("--results", metavar="DIR", default="results", help="where the folder of the comparison is made")
    add("--compare", metavar="OPTION", action="append", default=[], help="for the comparison, as in --compare=--check")
    add("--locust", metavar="OPTION", action="append", default=[], help="for every Locust: --locust=--processes=2")
    return parser


def _rounds(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"wanted a number from 1 to 100, not {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
