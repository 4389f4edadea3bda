"""``python -m analysis export-trace RUN``: the load of a finished run as a trace, so that it can be repeated.

Times are those at which sessions were due, lengths those that the server counted. docs/traces.md describes the format.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from analysis.prefix_paths import has_path, path_of
from analysis.run_folder import Run, read_run, run_of_requests
from tokenswarm.arms import COLD
from tokenswarm.errors import InputError, RunFolderError
from tokenswarm.session_trace import session_line
from tokenswarm.trace import SharedText, TraceSession, TraceTurn

_FACTS = (
    *("session", "turn", "traffic", "arm", "prefix", "error_kind", "scheduled_s", "sent_s", "pause_s", "prompt_tokens"),
    *("asked_input_tokens", "output_tokens", "asked_output_tokens", "prefix_tokens"),
)


class _Row(NamedTuple):
    """One request; None is unknown. ``at_s``: when it was due, on the run's own axis."""

    session: str
    turn: int
    at_s: float
    traffic: str
    pause_s: float
    prompt: int | None
    added: int | None  # what was asked for: of the first turn the whole prompt, else what the turn adds
    output: int | None
    shared: tuple[SharedText, ...]


class Exported(NamedTuple):
    """``unknown``: sessions that are not among them because the length of their first request is not known."""

    sessions: list[TraceSession]
    unknown: int


def export(path: str, options: argparse.Namespace) -> None:
    """Write the trace. Raises ``RunFolderError`` or ``InputError``."""
    exported = exported_sessions(_run_at(Path(path)), options.level)
    if not exported.sessions:
        raise RunFolderError(f"{path}: has no session to export{_of_level(options.level)}")
    _write(options.output, (session_line(session) for session in exported.sessions))
    left_out = f", {exported.unknown} left out whose lengths are not known" if exported.unknown else ""
    print(f"{len(exported.sessions)} sessions{left_out}", file=sys.stderr)


def exported_sessions(run: Run, level: int | None = None) -> Exported:
    """All sessions of a run, or of one level, in the order of their times; the first one at 0."""
    rows = run.requests
    if level is not None:
        rows = rows[rows["level"] == level]
    found = [_session(list(turns)) for _, turns in groupby(_rows_of(run, rows), key=lambda row: row.session)]
    sessions = sorted((session for session in found if session is not None), key=lambda session: session.at_s)
    begins_s = sessions[0].at_s if sessions else 0.0
    moved = [TraceSession(round(one.at_s - begins_s, 6), one.turns, one.shared, one.traffic) for one in sessions]
    return Exported(moved, len(found) - len(sessions))


def _session(rows: list[_Row]) -> TraceSession | None:
    """None where the first request's lengths are not known; what follows an unknown turn is left out.

    A later prompt may lack what a template leaves out of the history, such as thoughts; a replay does not, so that each
    turn adds what the prompt then still needs.
    """
    turns: list[TraceTurn] = []
    replayed = 0  # tokens that the next prompt begins with
    for row in rows:
        added = row.added if row.prompt is None else max(1, row.prompt - replayed)
        if not added or not row.output or row.turn != len(turns):
            break
        turns.append(TraceTurn(added, row.output, row.pause_s))
        replayed += added + row.output
    if not turns:
        return None
    return TraceSession(rows[0].at_s, tuple(turns), _within(rows[0].shared, turns[0].input_tokens), rows[0].traffic)


def _within(pieces: tuple[SharedText, ...], tokens: int) -> tuple[SharedText, ...]:
    """Pieces that together have no more than ``tokens``."""
    kept = []
    for piece in pieces:
        if tokens > 0:
            kept.append(SharedText(piece.name, min(piece.tokens, tokens)))
        tokens -= piece.tokens
    return tuple(kept)


def _rows_of(run: Run, rows: pd.DataFrame) -> Iterator[_Row]:
    """Requests session by session, in the order of their turns."""
    ordered = rows.assign(session=_keys(rows), at_s=rows["scheduled_s"].fillna(rows["sent_s"]))
    ordered = ordered[ordered["at_s"].notna()].sort_values(["session", "turn"], kind="stable")
    pieces = _Pieces(run)
    paths = has_path(ordered)
    columns: Iterable[Any] = zip(*(ordered[name].astype("object") for name in (*_FACTS, "at_s")), strict=True)
    for cells, is_path in zip(columns, paths, strict=True):
        facts = {name: None if pd.isna(cell) else cell for name, cell in zip((*_FACTS, "at_s"), cells, strict=True)}
        yield _row(facts, pieces.of(facts, is_path=bool(is_path)))


def _row(facts: dict[str, Any], shared: tuple[SharedText, ...]) -> _Row:
    """Of a request that failed the server has counted only what it sent, if anything: what was asked for counts."""
    output = _first(facts, "asked_output_tokens" if facts["error_kind"] else "output_tokens", "asked_output_tokens")
    return _Row(
        session=facts["session"],
        turn=int(facts["turn"] or 0),
        at_s=float(facts["at_s"]),
        traffic=str(facts["traffic"]),
        pause_s=float(facts["pause_s"] or 0.0),
        prompt=_first(facts, "prompt_tokens"),
        added=_first(facts, "asked_input_tokens"),
        output=output,
        shared=shared,
    )


def _first(facts: dict[str, Any], *names: str) -> int | None:
    return next((int(facts[name]) for name in names if facts[name] is not None), None)


def _keys(rows: pd.DataFrame) -> pd.Series[str]:
    """What tells sessions apart; a request without one is a session of its own."""
    named = rows["session"].astype("object")
    alone = pd.Series([f"row {at}" for at in range(len(rows))], index=rows.index, dtype="object")
    return named.where(named.notna() & (named != ""), alone).astype(str)


class _Pieces:
    """Names what prompts share: the places of a replayed path, or a text of a class."""

    def __init__(self, run: Run) -> None:
        texts = {name: item.get("system_prompt") for name, item in run.traffic_classes.items()}
        first: dict[str, str] = {}
        self._owners = {
            name: first.setdefault(text, name) if isinstance(text, str) else name for name, text in texts.items()
        }

    def of(self, facts: dict[str, Any], *, is_path: bool) -> tuple[SharedText, ...]:
        """Cold sessions of a prefix-cache test share nothing."""
        prefix, tokens = facts["prefix"], int(facts["prefix_tokens"] or 0)
        if prefix is None or tokens < 1 or facts["arm"] == COLD:
            return ()
        if not is_path:
            owner = self._owners.get(facts["traffic"], facts["traffic"])
            return (SharedText(f"{owner} {prefix}", tokens),)
        found, before = [], 0
        for place, until in path_of(prefix):
            found.append(SharedText(place, int(until) - before))
            before = int(until)
        return _within(tuple(found), tokens)


def _run_at(path: Path) -> Run:
    folder = path.parent if path.name == "run.json" else path
    if (folder / "run.json").is_file():
        return read_run(folder)
    if path.is_file():
        return run_of_requests(path)
    raise RunFolderError(f"{path}: wanted a run folder or a requests.csv")


def _write(output: str | None, lines: Iterable[bytes]) -> None:
    if output is None:
        for line in lines:
            sys.stdout.write(f"{line.decode()}\n")
        return
    try:
        with open(output, "wb") as file:
            file.writelines(line + b"\n" for line in lines)
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror}") from error


def _of_level(level: int | None) -> str:
    return "" if level is None else f" in level {level}"


def add_options(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "run", metavar="RUN", nargs="*", help="a run folder or a requests.csv (default: the newest run in results/)"
    )
    options.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")
    options.add_argument("--level", type=int, help="only this level, from 0 (default: all, one after the other)")
