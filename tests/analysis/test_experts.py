"""Experts touched by one forward pass: the published shares, exact by enumeration, and the command that prints them."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations, product
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.experts import mean_share, simulated_union, uniform_union


@pytest.mark.parametrize(("streams", "mean"), [(24, 0.5333), (30, 0.6142)])
def test_published_shares(streams: int, mean: float) -> None:
    """256 experts, 8 active: 53 % at 24 streams and 61 % at 30, which are 1 - (248/256) ** streams."""
    assert mean_share(256, 8, streams) == pytest.approx(1 - (248 / 256) ** streams)
    assert uniform_union(256, 8, streams).mean == pytest.approx(mean, abs=5e-5)


def test_published_quantile() -> None:
    """The 95 % quantile at 24 streams is 56 %."""
    high = uniform_union(256, 8, 24).high
    assert high is not None
    assert round(high * 100) == 56


@pytest.mark.parametrize(("experts", "active", "tokens"), [(5, 2, 3), (4, 1, 4), (6, 3, 2), (3, 3, 2)])
def test_distribution_is_that_of_all_outcomes(experts: int, active: int, tokens: int) -> None:
    """Mean and quantile equal those over every possible set of picks."""
    picks = list(combinations(range(experts), active))
    counts = Counter(len(set().union(*picked)) for picked in product(picks, repeat=tokens))
    total = sum(counts.values())
    union = uniform_union(experts, active, tokens)
    assert union.mean == pytest.approx(sum(size * count for size, count in counts.items()) / total / experts)
    high = next(
        size for size in range(experts + 1) if sum(counts[smaller] for smaller in range(size + 1)) >= 0.95 * total
    )
    assert union.high == high / experts


def test_simulation_agrees_with_the_exact_distribution() -> None:
    """The mean of 3,000 passes is within 4 standard errors (2 points / sqrt(3000)), the quantile within one expert."""
    exact, played = uniform_union(256, 8, 24), simulated_union(256, 8, 24, passes=3000)
    assert played.mean == pytest.approx(exact.mean, abs=0.0015)
    assert played.high == pytest.approx(exact.high, abs=1 / 256 + 1e-9)


@pytest.mark.parametrize(("streams", "share"), [(24, 0.487), (30, 0.557)])
def test_skewed_gating(streams: int, share: float) -> None:
    """With Zipf's weights of exponent 0.5: 48.7 % at 24 streams and 55.7 % at 30."""
    assert mean_share(256, 8, streams, 0.5) == pytest.approx(share, abs=0.002)
    assert simulated_union(256, 8, streams, skew=0.5, passes=2000).mean == pytest.approx(share, abs=0.002)


def test_one_token_touches_its_own_experts_whatever_the_gating() -> None:
    """8 of 256, always."""
    assert mean_share(256, 8, 1, 1.0) == pytest.approx(8 / 256)
    assert uniform_union(256, 8, 1).high == pytest.approx(8 / 256)


def test_the_command_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    """Exact and simulated figures of uniform and skewed gating, in the terminal and as JSON."""
    asked = ["experts", "--experts", "256", "--active", "8", "--streams", "24", "30", "--passes", "500"]
    assert main([*asked, "--width", "100"]) == 0
    text = capsys.readouterr().out
    assert "MODEL" in text
    uniform = [line.split() for line in text.splitlines() if " uniform " in line]
    assert [cells[3] for cells in uniform] == ["53.3", "61.4"]
    assert main([*asked, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["gating"], row["streams"]) for row in rows] == [
        ("uniform", 24), ("skewed 0.5", 24), ("uniform", 30), ("skewed 0.5", 30),
    ]  # fmt: skip
    assert all(row["mean_share"] == pytest.approx(row["mean_share_simulated"], abs=0.004) for row in rows)
    assert main([*asked, "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_drafts_widen_the_union(capsys: pytest.CaptureFixture[str]) -> None:
    """8 streams with 2 drafts each touch what 24 tokens touch."""
    shape = ["--experts", "256", "--active", "8"]
    main(["experts", *shape, "--streams", "8", "--draft-tokens", "2", "--passes", "50", "--json"])
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert (row["tokens"], round(row["mean_share"], 3)) == (24, 0.533)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--experts", "8", "--active", "9", "--streams", "1"], "--active 9"),
        (["--experts", "8", "--active", "2", "--streams", "0"], "--streams"),
        (["--experts", "8", "--active", "2", "--streams", "1", "--skew", "-1"], "--skew"),
        (["--experts", "8", "--active", "2", "--streams", "1", "--skew", "nan"], "--skew"),
        (["--experts", "8", "--active", "2", "--streams", "1", "--skew", "inf"], "--skew"),
        (["--experts", "8", "--active", "2", "--streams", "1", "--draft-tokens", "-1"], "--draft-tokens"),
    ],
)
def test_impossible_counts_are_one_line(capsys: pytest.CaptureFixture[str], options: list[str], named: str) -> None:
    """Exit code 2 and one line that names the option."""
    assert main(["experts", *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert named in lines[0]
