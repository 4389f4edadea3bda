"""Whole clusters on one machine: namespaces, a delaying relay, a master, workers, and the simulated engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.distributed.cluster import Cluster
from tests.distributed.network import Network, problem
from tests.simulated.conftest import Simulator, simulator

__all__ = ["Cluster", "Network", "Simulator", "simulator"]

# Every step takes 20 ms, whatever the batch, and prefill costs nothing beside it: what a request takes does not depend
# on who else is there.
STEPS_OF_20_MS = """\
model: steady
max_model_len: 4096
decode_step_s: {0: 0.02, 128: 0.02}
prefill_token_s: 0
prefill_step_tokens: 8192
prefill_request_tokens: 8192
max_num_seqs: 128
kv_blocks: 10000
"""


@pytest.fixture
def network() -> Iterator[Network]:
    """A bridge for machines of the test."""
    reason = problem()
    if reason is not None:
        pytest.skip(reason)
    with Network() as made:
        yield made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Master and workers on the loopback interface, the relay between them."""
    with Cluster(tmp_path / "cluster") as made:
        yield made


@pytest.fixture
def steady(simulator: Callable[..., Simulator], tmp_path: Path) -> Callable[..., Simulator]:
    """Starts simulators whose requests take a fixed time."""
    preset = tmp_path / "steady.yaml"
    preset.write_text(STEPS_OF_20_MS, encoding="utf-8")

    def start(*options: str) -> Simulator:
        return simulator(*options, preset=str(preset))

    return start
