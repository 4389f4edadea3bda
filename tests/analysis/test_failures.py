"""A thousand failure texts stay a few groups with a few harmless samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.failures import MOST_SAMPLES, groups_of_texts, kind_of_text, short_text
from analysis.locust_csv import read_locust
from analysis.locust_levels import outcome_of_locust
from tokenswarm.errors import ErrorKind

CASES = Path(__file__).parent / "cases"


def test_d16_a_thousand_texts_are_three_groups() -> None:
    """Ids, addresses and bodies in the texts do not split a kind."""
    texts = (CASES / "D16" / "errors.txt").read_text().splitlines()
    right = json.loads((CASES / "D16" / "expected.json").read_text())
    groups = groups_of_texts((text, 1) for text in texts)
    assert [group.count for group in groups] == right["counts"]
    assert [group.kind for group in groups] == ["total_timeout", "http_5xx", "reset"]
    assert all(len(group.samples) <= MOST_SAMPLES for group in groups)


@pytest.mark.parametrize("name", ["old", "new"])
def test_c14_failures_with_and_without_times(tmp_path: Path, name: str) -> None:
    """17 of 20 failures are push-back, whatever else the file tells, and texts may span lines."""
    (tmp_path / "run_failures.csv").write_bytes((CASES / "C14" / f"{name}_failures.csv").read_bytes())
    (tmp_path / "run_stats.csv").write_text("Type,Name,Request Count,Failure Count\nPOST,chat,100,20\n")
    outcome = outcome_of_locust(read_locust(str(tmp_path / "run")))
    assert sum(group.count for group in outcome.failures) == 20
    assert {group.kind: group.count for group in outcome.failures}["http_429"] == 17
    right = json.loads((CASES / "C14" / "expected.json").read_text())[name]
    first, second = read_locust(str(tmp_path / "run")).failures
    assert (first.kind, first.name, first.count) == ("POST", "chat", 17)
    assert first.first_seen == right["first_seen"]
    assert second.first_seen is None
    assert second.text == right.get("row2_error", "ConnectionResetError(104, 'Connection reset by peer')")


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_our_own_texts_name_their_kind(kind: ErrorKind) -> None:
    """A text that begins with an error kind belongs to it."""
    assert kind_of_text(f"{kind.value}: something with 500 and a timeout in it") == kind.value
    assert kind_of_text(kind.value) == kind.value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("HTTPError('401 Client Error: Unauthorized for url: /v1')", "http_401"),
        ("ConnectionRefusedError(111, 'Connection refused')", "refused"),
        ("gaierror(-2, 'Name or service not known')", "dns"),
        ("OSError(24, 'Too many open files')", "client_limit"),
        ("RemoteDisconnected('Remote end closed connection without response')", "truncated"),
        ("something nobody has seen", "other"),
    ],
)
def test_texts_of_other_clients(text: str, kind: str) -> None:
    """What HTTP libraries write is sorted into the same closed list."""
    assert kind_of_text(text) == kind


def test_samples_are_one_short_line() -> None:
    """Control characters and length cannot break a terminal or a table."""
    shown = short_text("a\x1b[31m\n\tb " + "x" * 500)
    assert shown.isprintable()
    assert len(shown) <= 120
    assert shown.startswith("a [31m b x")
