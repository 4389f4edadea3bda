"""The simulator in the reference server's place, where that cannot be compiled: slower, and less exact itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

from benchmarks.server import TruthRow
from tokenswarm.simulated import SimulatedTarget

_PLENTY = {"max_num_seqs": 20_000, "kv_blocks": 10_000_000, "max_model_len": 1_000_000}


class SimulatorServer:
    """Steps of ``gap_s``, whatever is asked; its TTFT is a step or two. ``TargetError`` where it does not start."""

    def __init__(self, gap_s: float) -> None:
        values: dict[str, Any] = {
            "decode_step_s": f"{{0: {gap_s:.6f}, 1: {gap_s:.6f}}}",
            "step_jitter": 0,
            "prefill_token_s": "0.0000001",
            "prefill_step_tokens": 1_000_000,
            "prefill_request_tokens": 1_000_000,
            **_PLENTY,
        }
        options = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        self._target = SimulatedTarget("demo", 7, *options)
        self.url = self._target.url

    def __enter__(self) -> SimulatorServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._target.stop()

    def truth(self) -> list[TruthRow]:
        """Finished requests, oldest first. A token's time is that at which its write began: no client has it before."""
        return [found for row in self._pages() if (found := _truth_row(row)) is not None]

    def _pages(self) -> Iterator[dict[str, Any]]:
        since = 0
        while True:
            with urlopen(f"{self.url}/truth?since={since}") as answer:
                page = json.load(answer)
            if not page["rows"]:
                return
            yield from page["rows"]
            since = page["next"]


def _truth_row(row: dict[str, Any]) -> TruthRow | None:
    if row["id"] is None or row["finished_s"] is None:
        return None
    first_s, last_s = row["first_token_begun_s"], row["last_token_begun_s"]
    return TruthRow(
        request_id=row["id"],
        received_ns=round(row["arrival_s"] * 1e9),
        first_token_ns=None if first_s is None else round(first_s * 1e9),
        last_token_ns=None if last_s is None else round(last_s * 1e9),
        late_ns=round(row["max_late_s"] * 1e9),
        asked=row["output_tokens"],
        tokens=row["output_tokens"],
    )
