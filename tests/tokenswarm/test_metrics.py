"""Metrics of one request: formulas by hand, one definition for records and frames, agreement with docs/metrics.md."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.columns import FURTHER, PUBLISHED
from analysis.requests_csv import column_of
from tokenswarm.metrics import METRICS, tokens_in_window
from tokenswarm.records import RequestRecord

DOCUMENT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


def record(**facts: float | int | None) -> RequestRecord:
    return RequestRecord(phase="measured", ticket=0, traffic="chat", **facts)  # type: ignore[arg-type]


WHOLE = record(
    scheduled_s=9.5,
    sent_s=10.0,
    first_token_s=10.4,
    first_output_s=11.0,
    last_token_s=12.4,
    finished_s=13.0,
    output_tokens=21,
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ttft_s", 0.4),
        ("ttfo_s", 1.0),
        ("tpot_s", 0.1),  # 2 s / 20
        ("e2e_s", 2.4),  # not 3.0: the end of the body is no token
        ("scheduled_ttft_s", 0.9),  # from 9.5
        ("scheduled_e2e_s", 2.9),
        ("send_delay_s", 0.5),
        ("request_tok_s", 10.5),  # 21 tokens / 2 s
    ],
)
def test_metric_by_hand(name: str, value: float) -> None:
    """Each formula on one request with a late usage chunk and reasoning first."""
    assert METRICS[name].of(WHOLE) == pytest.approx(value)


def test_every_metric_is_worked_out_above() -> None:
    """A metric without a case by hand would go unnoticed here."""
    cases = test_metric_by_hand.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {name for name, _ in cases} == set(METRICS)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_metric_is_blank_without_any_of_its_facts(name: str) -> None:
    """Unknown facts make an unknown metric, never 0."""
    metric = METRICS[name]
    for fact in metric.needs:
        facts = {need: getattr(WHOLE, need) for need in metric.needs} | {fact: None}
        assert metric.of(record(**facts)) is None, fact


@pytest.mark.parametrize(("tokens", "last"), [(0, 10.4), (1, 10.4), (5, 10.4), (1, 10.9)])
def test_tpot_needs_two_tokens_at_two_instants(tokens: int, last: float) -> None:
    """One token has no time per further token, and tokens that all came at once have none that could be told."""
    one = record(sent_s=10.0, first_token_s=10.4, last_token_s=last, output_tokens=tokens)
    assert METRICS["tpot_s"].of(one) is None
    assert METRICS["request_tok_s"].of(one) is None
    assert METRICS["ttft_s"].of(one) == pytest.approx(0.4)


optional_time = st.none() | st.floats(min_value=0, max_value=1000, allow_nan=False)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "scheduled_s": optional_time,
                "sent_s": optional_time,
                "first_token_s": optional_time,
                "first_output_s": optional_time,
                "last_token_s": optional_time,
                "output_tokens": st.none() | st.integers(min_value=0, max_value=1000),
            }
        ),
        min_size=1,
        max_size=8,
    )
)
def test_frame_and_record_give_the_same(rows: list[dict[str, float | None]]) -> None:
    """A table of requests is computed by the same definition as a single one, blanks included."""
    frame = pd.DataFrame(rows, dtype="float64")
    for metric in METRICS.values():
        column = column_of(metric, frame)
        for facts, value in zip(rows, column.tolist(), strict=True):
            single = metric.of(record(**facts))
            assert (single is None and pd.isna(value)) or value == pytest.approx(single)


def test_tokens_in_window_by_hand() -> None:
    """The first token counts at its time, ten others are spread over 10 to 20 s."""
    assert tokens_in_window(10.0, 20.0, 11, 0.0, 30.0) == 11
    assert tokens_in_window(10.0, 20.0, 11, 12.0, 15.0) == pytest.approx(3.0)
    assert tokens_in_window(10.0, 20.0, 11, 5.0, 12.5) == pytest.approx(3.5)
    assert tokens_in_window(10.0, 20.0, 11, 21.0, 30.0) == 0
    assert tokens_in_window(10.0, 10.0, 7, 9.0, 11.0) == 7
    assert tokens_in_window(10.0, 10.0, 7, 11.0, 12.0) == 0


@given(
    st.floats(min_value=0, max_value=50),
    st.floats(min_value=0, max_value=50),
    st.integers(min_value=0, max_value=300),
    st.floats(min_value=0.5, max_value=49.5),
)
def test_two_windows_side_by_side_hold_all_tokens(first: float, length: float, tokens: int, border: float) -> None:
    """No token is lost or counted twice where two windows meet (a first token on the border aside)."""
    last = first + length
    if first == border:
        return
    halves = tokens_in_window(first, last, tokens, -1.0, border) + tokens_in_window(first, last, tokens, border, 200.0)
    assert halves == pytest.approx(tokens, abs=1e-6)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_document_defines_every_metric(name: str) -> None:
    """Name, unit, direction and formula stand in one row of docs/metrics.md."""
    metric = METRICS[name]
    row = f"| `{name}` | {metric.unit} | {metric.better} | `{metric.formula}` |"
    assert row in DOCUMENT


def test_document_defines_no_metric_that_does_not_exist() -> None:
    """The table of request metrics in docs/metrics.md holds exactly the metrics of the code."""
    section = DOCUMENT.split("## Metrics of one request")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(METRICS)


@pytest.mark.parametrize("column", PUBLISHED + FURTHER, ids=lambda column: column.key)
def test_document_defines_every_column_of_a_level(column: object) -> None:
    """Each column of the level table has its definition in docs/metrics.md."""
    section = DOCUMENT.split("## Metrics of one level")[1].split("\n## ")[0]
    assert f"`{column.key}`" in section  # type: ignore[attr-defined]


def test_document_defines_no_column_that_does_not_exist() -> None:
    """Names in the first cells of the level section are columns of the CSV."""
    section = DOCUMENT.split("## Metrics of one level")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    counts = {"concurrency", "requests", "ok", "failed", "cancelled", "early_stopped", "throughput_ratio", "efficiency"}
    counts |= {"rate_per_s", "scheduled", "not_admitted", "unfinished", "lost", "epoch"}
    assert named - counts == {column.key for column in PUBLISHED + FURTHER}
