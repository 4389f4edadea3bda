"""Preset files: what is refused, and that the refusal names the place."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from sim_process import STEADY

from simulator.faults import Fault, FaultPlan, Kind, parse_fault
from simulator.settings import Settings, load_settings


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
        ("prefix_cache: sometimes", "sometimes"),
        ("salt: wanted", "wanted"),
        ("drift: {until_s: 0, factor: 1.1}", "until_s"),
        ("tool_call_share: 1.5", "tool_call_share is a share from 0 to 1, got 1.5"),
        ("malformed_call_share: -1", "malformed_call_share"),
        ("reasoning_field: thoughts", "thoughts"),
        ("reasoning: {mean: 5}", "mean"),
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


@pytest.mark.parametrize(
    ("value", "says_on", "inert"),
    [
        *((value, True, False) for value in ("true", "on", "'on'")),
        *((value, False, False) for value in ("false", "off", "'off'")),
        ("inert", True, True),
    ],
)
def test_the_cache_is_on_off_or_inert(tmp_path: Path, value: str, says_on: bool, inert: bool) -> None:
    """YAML reads a bare on and off as true and false; both forms mean the same."""
    settings = load(tmp_path, f"{STEADY}\nprefix_cache: {value}\n")
    assert isinstance(settings, Settings)
    assert settings.caches_prefixes is says_on
    engine = settings.engine()
    assert (engine.prefix_cache, engine.inert_cache) == (says_on, inert)


def test_the_presets_without_a_working_cache_are_the_demo_in_all_else() -> None:
    """Only then does a comparison with the demo say something about the cache."""
    demo = msgspec.structs.asdict(load_settings("demo"))
    for name, value in (("cache-off", False), ("cache-inert", "inert")):
        assert msgspec.structs.asdict(load_settings(name)) == {**demo, "prefix_cache": value}


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
