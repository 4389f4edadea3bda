"""What other load generators reached on the same kind of machine, from ``peers.csv``.

Measured on 30 November 2026 on two x86-64 cores, a compiled server with exact pacing on one and the tool, with its own
recommended settings, on the other; all streams in step (TTFT 50 ms, 128 tokens of 10 ms), four rounds a run. Many rows
are single runs, with about ±4 ms of noise in a TTFT p95; a blank was not measured or the tool did not get that far.
``ttft_within_5_percent_up_to`` is the largest concurrency at which the reported TTFT p95 is within 5 % (0: none).
"""

from __future__ import annotations

import csv
from pathlib import Path

FILE = Path(__file__).resolve().parent / "peers.csv"

Peer = dict[str, str | float | None]


def load() -> list[Peer]:
    """One row a tool: its name under ``tool``, numbers elsewhere, ``None`` where the cell is blank."""
    with open(FILE, encoding="utf-8", newline="") as file:
        return [
            {name: cell if name == "tool" else float(cell) if cell else None for name, cell in row.items()}
            for row in csv.DictReader(file)
        ]
