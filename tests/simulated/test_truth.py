"""What the rows say against the server's own stamps on the same monotonic clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.simulated.conftest import Run, Simulator

STREAMS = 32
STEPS_OF_10_MS = """\
# Every step takes 10 ms, whatever the batch; prefill costs nothing beside it.
model: steady
max_model_len: 4096
decode_step_s: {0: 0.01, 128: 0.01}
prefill_token_s: 0
prefill_step_tokens: 8192
prefill_request_tokens: 8192
max_num_seqs: 128
kv_blocks: 10000
"""


def test_first_tokens_and_tpot_agree_with_the_server(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], tmp_path: Path
) -> None:
    """32 streams of 10 ms: 5 ms and 2 % at the 95 % quantile, tokens exact."""
    preset = tmp_path / "steady.yaml"
    preset.write_text(STEPS_OF_10_MS, encoding="utf-8")
    server = simulator("--truth", "ends", preset=str(preset))
    scenario = (
        "traffic: [{name: chat, input_tokens: 60, output_tokens: {uniform: [90, 110]}}]\n"
        f"load: {{closed: {{users: {STREAMS}, sessions: {3 * STREAMS}, warmup_sessions: 4, tail: fill}}}}\n"
    )
    run = locust("-H", server.url, scenario=scenario)
    assert run.good, run.output
    rows = [row for row in run.rows if row["phase"] in ("measured", "fill")]
    assert len(run.measured()) == 3 * STREAMS
    assert all(row["error_kind"] == "" for row in rows)
    truth = {row["id"]: row for row in server.truth()}
    late_s, tpot_error = [], []
    for row in rows:
        fact = truth[row["request_id"]]
        assert int(row["output_tokens"]) == fact["output_tokens"]
        late_s.append(float(row["first_token_s"]) - fact["first_token_s"])
        true_tpot = (fact["last_token_s"] - fact["first_token_s"]) / (fact["output_tokens"] - 1)
        tpot = (float(row["last_token_s"]) - float(row["first_token_s"])) / (int(row["output_tokens"]) - 1)
        assert float(row["first_token_s"]) >= fact["first_token_begun_s"]
        tpot_error.append(abs(tpot / true_tpot - 1))
    assert np.quantile(np.abs(late_s), 0.95) < 0.005
    assert np.quantile(tpot_error, 0.95) < 0.02
    assert {row["clock"] for row in rows} == {"kernel"}
