"""The fitted presets against the published tables, in virtual time; the demo against its promise.

A published row is one run of 8 to 128 requests; its random lengths are not known. Held to the tolerances is therefore
the mean over twelve runs with different lengths, which is what the engine stands for.
"""

from __future__ import annotations

import csv
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from closed_loop import Client, Level, published_lengths, published_sweep

from simulator.engine import Engine
from simulator.settings import load_settings, preset_names

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
LEVELS = (1, 2, 4, 8, 16, 32)
SEEDS = range(12)


def rows(name: str, **wanted: str) -> list[dict[str, str]]:
    with (PUBLISHED / name).open() as file:
        return [row for row in csv.DictReader(file) if wanted.items() <= row.items()]


@pytest.fixture(scope="module")
def spark() -> list[dict[int, Level]]:
    settings = load_settings("spark-qwen3.6-35b-fp8").engine()
    return [published_sweep(Engine(settings), seed, LEVELS) for seed in SEEDS]


def mean_quantile(levels: list[Level], fact: str, q: float) -> float:
    return float(np.mean([np.quantile(getattr(level, fact), q) for level in levels]))


@pytest.mark.parametrize("users", LEVELS)
def test_spark_gives_the_published_primary_sweep(spark: list[dict[int, Level]], users: int) -> None:
    """TPOT p50 within 2 %, output tok/s and E2E p50 within 5 %, TTFT p50 within 15 %."""
    (row,) = rows("spark_qwen3.6_35b.csv", table="primary sweep", concurrency=str(users))
    levels = [sweep[users] for sweep in spark]
    assert all(len(level.e2e_s) == int(row["requests"]) for level in levels)
    assert mean_quantile(levels, "tpot_s", 0.5) * 1e3 == pytest.approx(float(row["tpot_p50_ms"]), rel=0.02)
    assert mean_quantile(levels, "ttft_s", 0.5) * 1e3 == pytest.approx(float(row["ttft_p50_ms"]), rel=0.15)
    assert mean_quantile(levels, "e2e_s", 0.5) == pytest.approx(float(row["e2e_p50_s"]), rel=0.05)
    output_tok_s = float(np.mean([level.output_tok_s for level in levels]))
    assert output_tok_s == pytest.approx(float(row["output_tok_s"]), rel=0.05)


def test_spark_stalls_once_in_the_first_wave_of_eight(spark: list[dict[int, Level]]) -> None:
    """Eight requests of 32 wait for the stall, before their first token: TTFT p95 shows it, TPOT p95 does not."""
    (row,) = rows("spark_qwen3.6_35b.csv", table="primary sweep", concurrency="8")
    for sweep in spark:
        assert sum(ttft > 11.6 for ttft in sweep[8].ttft_s) == 8
        assert not any(ttft > 11.6 for users in LEVELS if users != 8 for ttft in sweep[users].ttft_s)
    levels = [sweep[8] for sweep in spark]
    assert mean_quantile(levels, "ttft_s", 0.95) * 1e3 == pytest.approx(float(row["ttft_p95_ms"]), rel=0.10)
    assert mean_quantile(levels, "tpot_s", 0.95) * 1e3 == pytest.approx(float(row["tpot_p95_ms"]), rel=0.02)


@pytest.mark.parametrize("users", LEVELS[1:])
def test_spark_scales_as_published(spark: list[dict[int, Level]], users: int) -> None:
    """Scaling efficiency within one point."""
    wanted = {"table": "scaling", "quantity": "efficiency_pct", "concurrency": str(users)}
    (row,) = rows("spark_qwen3.6_35b_derived.csv", **wanted)
    efficiency = np.mean([sweep[users].output_tok_s / sweep[1].output_tok_s / users * 100 for sweep in spark])
    assert efficiency == pytest.approx(float(row["value"]), abs=1.0)


SPARK = "spark-qwen3.6-35b-fp8"
ONE_DRAFT_TOKEN = {"fp8+mtp1": f"{SPARK}-mtp1", "fp8": f"{SPARK}-30ms"}
DRAFT_LEVELS = (1, 4, 8)


@pytest.fixture(scope="module")
def one_draft_token() -> dict[str, list[dict[int, Level]]]:
    """The table of that name: sweeps by configuration."""
    engines = {name: load_settings(preset).engine() for name, preset in ONE_DRAFT_TOKEN.items()}
    return {
        name: [published_sweep(Engine(engine, seed), seed, DRAFT_LEVELS) for seed in SEEDS]
        for name, engine in engines.items()
    }


def one_draft_token_row(configuration: str, users: int) -> dict[str, str]:
    wanted = {"table": "one draft token", "configuration": configuration, "concurrency": str(users)}
    (row,) = rows("spark_qwen3.6_35b.csv", **wanted)
    return row


@pytest.mark.parametrize("users", DRAFT_LEVELS)
@pytest.mark.parametrize("configuration", ONE_DRAFT_TOKEN)
def test_one_draft_token_gives_the_published_tpot(
    one_draft_token: dict[str, list[dict[int, Level]]], configuration: str, users: int
) -> None:
    """p50 within 2 % at every level of the table, with and without the draft token."""
    row = one_draft_token_row(configuration, users)
    levels = [sweep[users] for sweep in one_draft_token[configuration]]
    assert all(len(level.e2e_s) == int(row["requests"]) for level in levels)
    assert mean_quantile(levels, "tpot_s", 0.5) * 1e3 == pytest.approx(float(row["tpot_p50_ms"]), rel=0.02)


@pytest.mark.parametrize("configuration", ONE_DRAFT_TOKEN)
def test_one_draft_token_gives_the_published_rate_at_four_users(
    one_draft_token: dict[str, list[dict[int, Level]]], configuration: str
) -> None:
    """Output tok/s within 5 %: there the printed rate and the printed TPOT close."""
    row = one_draft_token_row(configuration, 4)
    rate = float(np.mean([sweep[4].output_tok_s for sweep in one_draft_token[configuration]]))
    assert rate == pytest.approx(float(row["output_tok_s"]), rel=0.05)


# Printed rate over the rate that the printed TPOT implies with 256 tokens and the TTFT of the primary sweep,
# users * 256 / (TTFT + 255 * TPOT): 28.4 / 26.1, 85.7 / 102.4, 28.7 / 31.9, 70.2 / 80.0.
DOES_NOT_CLOSE = [
    ("fp8+mtp1", 1, 1.09),
    ("fp8+mtp1", 8, 0.84),
    ("fp8", 1, 0.90),
    ("fp8", 8, 0.88),
]


@pytest.mark.parametrize(("configuration", "users", "printed_over_implied"), DOES_NOT_CLOSE)
def test_what_does_not_close_in_the_table_is_not_fitted(
    one_draft_token: dict[str, list[dict[int, Level]]], configuration: str, users: int, printed_over_implied: float
) -> None:
    """At 1 and 8 users the printed rates contradict the TPOT beside them; the engines follow TPOT.

    They give the implied rate within 5 % (below it at 8 users, by the drain), and miss the printed one by more.
    """
    row = one_draft_token_row(configuration, users)
    (sweep_row,) = rows("spark_qwen3.6_35b.csv", table="primary sweep", concurrency=str(users))
    implied = users * 256 / (float(sweep_row["ttft_p50_ms"]) / 1e3 + 255 * float(row["tpot_p50_ms"]) / 1e3)
    printed = float(row["output_tok_s"])
    assert printed / implied == pytest.approx(printed_over_implied, abs=0.005)
    rate = float(np.mean([sweep[users].output_tok_s for sweep in one_draft_token[configuration]]))
    assert rate == pytest.approx(implied, rel=0.05)
    assert rate != pytest.approx(printed, rel=0.07)


def test_whether_a_draft_token_pays_at_one_user_depends_on_which_table_is_right(
    spark: list[dict[int, Level]], one_draft_token: dict[str, list[dict[int, Level]]]
) -> None:
    """37 ms a token with it; without it 48 ms by the primary sweep, 30 ms by the table of draft tokens."""
    with_draft = mean_quantile([sweep[1] for sweep in one_draft_token["fp8+mtp1"]], "tpot_s", 0.5)
    by_the_sweep = mean_quantile([sweep[1] for sweep in spark], "tpot_s", 0.5)
    by_its_own_table = mean_quantile([sweep[1] for sweep in one_draft_token["fp8"]], "tpot_s", 0.5)
    assert by_its_own_table < with_draft < by_the_sweep


def test_a_step_with_one_draft_token_costs_what_a_step_of_twice_as_many_sequences_does() -> None:
    """Within 3 % of the primary sweep's table at 1, 4 and 8, which is where the acceptance of 0.70 comes from."""
    settings = load_settings(f"{SPARK}-mtp1")
    with_drafts, without = settings.engine(), load_settings(SPARK).engine()
    assert with_drafts.acceptance == (0.70,)
    for sequences in DRAFT_LEVELS:
        twice = without.decode_step_s.at(2 * sequences)
        assert with_drafts.decode_step_s.at(sequences) == pytest.approx(twice, rel=0.03), sequences


def test_the_engine_with_a_draft_token_is_the_sweep_s_in_everything_else() -> None:
    """Same prefill, memory and steps without drafts; only the prefix cache is given up, and the stall left out."""
    settings = msgspec.structs.asdict(load_settings(f"{SPARK}-mtp1"))
    sweep = msgspec.structs.asdict(load_settings(SPARK))
    differing = {key for key in sweep if settings[key] != sweep[key]}
    assert differing == {"speculative", "prefix_cache", "stall"}
    assert (settings["prefix_cache"], sweep["prefix_cache"]) == (False, True)
    own_table = msgspec.structs.asdict(load_settings(f"{SPARK}-30ms"))
    assert {key for key in sweep if own_table[key] != sweep[key]} == {"decode_step_s", "stall"}
    steps, sweep_steps = own_table["decode_step_s"], sweep["decode_step_s"]
    assert {count for count in steps if steps[count] != sweep_steps[count]} == {1}


def test_two_sparks_give_the_published_sweep() -> None:
    """Rates and wall time within 5 %, mean TTFT within 20 %, counts exact, after a warm-up request of 50 tokens."""
    client = Client(Engine(load_settings("two-spark-qwen3.5-122b").engine()))
    client.run([(60, 50)], 1)
    table = rows("two_spark_qwen3.5_122b.csv")
    assert len(table) == 5
    for row in table:
        users = int(row["concurrency"])
        client.now_s += 1.0
        level = client.run([(60, 500)] * max(4, 2 * users), users)
        got = {"output_tok_s": level.output_tok_s, "per_request_tok_s": level.request_tok_s, "wall_s": level.wall_s}
        for name, value in got.items():
            if row[name]:
                assert value == pytest.approx(float(row[name]), rel=0.05), (users, name)
        assert np.mean(level.ttft_s) == pytest.approx(float(row["ttft_mean_s"]), rel=0.20), users
        if row["tokens"]:
            assert (sum(level.output_tokens), len(level.e2e_s)) == (int(row["tokens"]), int(row["ok"]))


def test_two_sparks_can_start_cold() -> None:
    """With the switch the first request has the TTFT of 11.99 s that was seen, the second one does not."""
    client = Client(Engine(load_settings("two-spark-qwen3.5-122b", cold_start=True).engine()))
    level = client.run([(60, 50)] * 2, 1)
    assert level.ttft_s[0] == pytest.approx(11.99, rel=0.01)
    assert level.ttft_s[1] < 1.0


def test_a_demo_sweep_is_over_in_well_under_a_minute() -> None:
    """The published workload from 1 to 32 users, warm-ups included, in at most 45 s."""
    client = Client(Engine(load_settings("demo").engine()))
    lengths = random.Random(1)
    for users in LEVELS:
        client.run(published_lengths(lengths, 2), users)
        client.run(published_lengths(lengths, max(8, 4 * users)), users)
    assert client.now_s < 45.0


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads(name: str) -> None:
    """And says which model it plays."""
    assert load_settings(name).model
