"""Preset files: what is refused, and that the refusal names the place."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim_process import STEADY

from simulator.faults import Fault, FaultPlan, Kind, parse_fault
from simulator.settings import load_settings


def load(tmp_path: Path, text: str) -> object:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    return load_settings(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("colour: red", "colour"),
        ("max_num_seqs: 0", "max_num_seqs must be at least 1"),
        ("tokens_per_chunk: many", "tokens_per_chunk"),
        ("kv_blocks: 10", "must hold one sequence"),
        ("role_chunk: sometimes", "sometimes"),
        ("cold_start: true", "cold_start needs cold_start_s"),
        ("faults: [{kind: explode}]", "explode"),
        ("faults: [{kind: reset, rate: 7}]", "rate"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path: Path, change: str, message: str) -> None:
    """The last of two equal keys counts in YAML, so a change can simply be appended."""
    with pytest.raises(ValueError, match=message) as caught:
        load(tmp_path, f"{STEADY}\n{change}\n")
    assert "\n" not in str(caught.value)


def test_an_unknown_preset_names_the_known_ones() -> None:
    """So that a typing mistake is mended at once."""
    with pytest.raises(ValueError, match=r"no preset 'dmo'; known: .*, demo, .*"):
        load_settings("dmo")


def test_fault_options_are_read() -> None:
    """The form of the command line."""
    wanted = Fault(kind=Kind.RESET, rate=0.05, after_tokens=10)
    assert parse_fault("reset:rate=0.05,after_tokens=10") == wanted
    assert parse_fault("429:above=16,retry_after_s=7") == Fault(kind=Kind.HTTP_429, above=16, retry_after_s=7)
    with pytest.raises(ValueError, match="explode"):
        parse_fault("explode")


def test_faults_come_at_their_rate_and_the_same_ones_again() -> None:
    """Of 2,000 requests 10 % +- 2 points, the same ones for the same seed, others for another."""

    def hit(seed: int) -> list[int]:
        plan = FaultPlan((Fault(kind=Kind.RESET, rate=0.1),), seed)
        return [number for number in range(2000) if plan.for_request(1)]

    assert 160 <= len(hit(1)) <= 240
    assert hit(1) == hit(1) != hit(2)


def test_conditions_of_a_fault_must_all_hold() -> None:
    """Every second request, and only while more than two are open."""
    plan = FaultPlan((Fault(kind=Kind.STALL, above=2, every=2),), 0)
    assert [plan.for_request(n) is not None for n in (3, 3, 3, 2, 3, 3)] == [False, True, False, False, False, True]
