"""How many connections a process may have: told before any load, raised as far as the system lets it."""

from __future__ import annotations

import resource

import pytest

from tokenswarm.errors import InputError
from tokenswarm.open_files import SPARE_FILES, require_open_files


class Limits:
    """The limits of this process, without touching them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.set: list[tuple[int, int]] = []
        monkeypatch.setattr("tokenswarm.open_files.resource.getrlimit", lambda kind: self._get(kind, soft, hard))
        monkeypatch.setattr("tokenswarm.open_files.resource.setrlimit", lambda kind, limits: self.set.append(limits))

    @staticmethod
    def _get(kind: int, soft: int, hard: int) -> tuple[int, int]:
        assert kind == resource.RLIMIT_NOFILE
        return soft, hard


@pytest.mark.parametrize("soft", [1024, resource.RLIM_INFINITY])
def test_a_limit_that_is_enough_is_left_alone(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    """960 connections and the 64 files beside them are 1,024."""
    assert SPARE_FILES == 64
    limits = Limits(monkeypatch, soft, 4096)
    require_open_files(960)
    assert limits.set == []


@pytest.mark.parametrize("hard", [1025, resource.RLIM_INFINITY])
def test_a_limit_that_is_too_low_is_raised_to_what_is_needed(monkeypatch: pytest.MonkeyPatch, hard: int) -> None:
    """One connection more: 1,025, and the hard limit stays what it was."""
    limits = Limits(monkeypatch, 1024, hard)
    require_open_files(961)
    assert limits.set == [(1025, hard)]


def test_a_limit_that_cannot_be_raised_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how many users would do, how many are asked for, and what helps."""
    limits = Limits(monkeypatch, 256, 1024)
    with pytest.raises(InputError) as told:
        require_open_files(961)
    assert str(told.value) == (
        "open files: the limit of 1024 lets about 960 users run in one process, 961 are asked for; "
        "raise it (ulimit -Hn) or use more processes (--processes)"
    )
    assert limits.set == []


def test_a_limit_below_what_the_process_needs_itself_lets_no_user_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a number below zero."""
    Limits(monkeypatch, 32, 32)
    with pytest.raises(InputError, match="lets about 0 users run"):
        require_open_files(1)
