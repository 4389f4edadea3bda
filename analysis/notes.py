"""Footnotes of a run: what the numbers mean, what was left out, and what casts doubt on them."""

from __future__ import annotations

import pandas as pd

from analysis.calibration import calibration_notes
from analysis.health_notes import merged_read_notes
from analysis.level_names import level_names
from analysis.level_state import Basis, state_of
from analysis.levels import LevelRow
from analysis.outcome import Note
from analysis.run_folder import Run
from analysis.steady_notes import steady_lines
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Phase

BASIS_TEXT: dict[Basis, str] = {
    Basis.DRAIN: (
        "output tok/s (plain drain): output tokens of the successful measured requests / time from the first measured "
        "send to the last measured finish"
    ),
    Basis.WINDOW: (
        "output tok/s (window): all tokens that arrived between the first measured send and the last measured finish "
        "/ that time, those of requests that keep the concurrency up and of failed requests included"
    ),
}

# One line under the table; the whole definition is a detail.
BASIS_LINE: dict[Basis, str] = {
    Basis.DRAIN: "output tok/s: tokens of the successful measured requests / wall time, the falling end included",
    Basis.WINDOW: "output tok/s: all tokens that arrived between the first measured send and the last measured finish",
}

_DEFINITIONS = (
    "latencies are over successful measured requests, quantiles by linear interpolation; TTFT = first token - send, "
    "TPOT = (last token - first token) / (output tokens - 1), E2E = last token - send",
    "per-request tok/s = output tokens / time between first and last token, summed over the successful requests",
)
_BY_CLOCK = (
    "scheduled TTFT = first token - scheduled time, scheduled E2E = last token - scheduled time; objectives on TTFT "
    "and E2E are judged by these; done per s: sessions completed within the scheduled time, of the warm-up too"
)
SIMULATED_TEXT = "these numbers come from a simulated engine, not from a real server"
_INFINITE = "TTFT, TPOT and E2E quantiles count every failed request as infinitely late (∞)"
_CUT_INFINITE = ", of levels by the clock also those that were cut at their end"


def notes_of(run: Run, rows: list[LevelRow], *, failures_infinite: bool) -> list[Note]:
    """All footnotes of a run, the most important first."""
    notes = _simulated(run) + _interrupted(run) + _level_states(run, rows) + _early_stops(rows)
    notes += _token_sources(rows) + _prompts(run) + _left_out(run.requests) + _clock(run, rows)
    notes += [Note("input", text) for text in run.notes]
    notes += [Note("steady", text) for text in steady_lines(rows)]
    notes += calibration_notes(run, rows)
    bases = sorted({row.basis for row in rows if row.basis})
    notes += [Note("basis", BASIS_LINE[basis]) for basis in bases]
    if failures_infinite:
        notes.append(Note("definition", _INFINITE + (_CUT_INFINITE if any(row.by_clock for row in rows) else "")))
    notes += [Note("definition", BASIS_TEXT[basis], detail=True) for basis in bases]
    definitions = (*_DEFINITIONS, *((_BY_CLOCK,) if any(row.by_clock for row in rows) else ()))
    notes += [Note("definition", text, detail=True) for text in definitions]
    return notes


def unrun_levels(run: Run, rows: list[LevelRow]) -> list[str]:
    """Names of the planned levels of which no request exists."""
    seen = {row.level for row in rows}
    names = level_names(run)
    return [names[level["level"]] for level in run.planned_levels if "level" in level and level["level"] not in seen]


def _simulated(run: Run) -> list[Note]:
    if not run.simulated:
        return []
    preset = run.target.get("preset")
    which = f" (preset {preset})" if preset else ""
    return [Note("simulated", f"SIMULATED{which}: {SIMULATED_TEXT}")]


def _interrupted(run: Run) -> list[Note]:
    if not run.whole_folder:
        text = "completeness unknown: only requests.csv was read, without plan, level states and timeline"
        return [Note("input", text)]
    if run.end is None:
        return [Note("interrupted", "INTERRUPTED: the run has no end.json; the table shows what was written so far")]
    if run.end.get("state") == "finished":
        return []
    reasons = "; ".join(str(reason) for reason in run.end.get("reasons") or [])
    return [Note("interrupted", f"the run was stopped before its end{': ' + reasons if reasons else ''}")]


def _level_states(run: Run, rows: list[LevelRow]) -> list[Note]:
    notes = [
        Note("level state", f"{row.name}: {row.state}{': ' + row.reason if row.reason else ''}")
        for row in rows
        if row.level is not None and row.state not in ("complete", "unknown")
    ]
    if missing := unrun_levels(run, rows):
        notes.append(Note("level state", f"planned but without any request: {', '.join(missing)}"))
        notes += _reasons(run, missing)
    if any(row.level is None for row in rows):
        notes.append(
            Note("level state", "free-running load: one row for the whole run, c is the largest number of users")
        )
    return notes


def _reasons(run: Run, missing: list[str]) -> list[Note]:
    """Why levels without a request ended, where ``levels.csv`` tells."""
    names = level_names(run)
    told = {names.get(int(level), ""): state_of(run, int(level)) for level in run.levels["level"].dropna()}
    return [
        Note("level state", f"{name}: {state}: {reason}")
        for name, (state, reason) in told.items()
        if name in missing and reason
    ]


def _early_stops(rows: list[LevelRow]) -> list[Note]:
    notes = []
    for row in rows:
        if row.early_stopped:
            got, asked = row.figure("output_tokens_mean").value, row.figure("asked_output_tokens_mean").value
            lengths = f"; mean {got:.1f} of {asked:.1f} tokens" if got is not None and asked is not None else ""
            text = (
                f"{where(row)}: {row.early_stopped} of {row.ok} answers are shorter than requested: they stopped "
                f"before the asked length although an exact one was asked for (ignore_eos){lengths}"
            )
            notes.append(Note("early stops", text))
    return notes


def _token_sources(rows: list[LevelRow]) -> list[Note]:
    notes = []
    for row in rows:
        if row.estimated_tokens:
            share = "all" if row.estimated_tokens == row.ok else f"{row.estimated_tokens} of {row.ok}"
            partly = "" if row.estimated_tokens == row.ok else ": the total is partly estimated"
            notes.append(
                Note("estimated tokens", f"{where(row)}: token counts of {share} answers are estimates{partly}")
            )
        if row.unknown_tokens:
            text = f"{where(row)}: {row.unknown_tokens} of {row.ok} answers have no token count and add no tokens"
            notes.append(Note("unknown tokens", text))
    return notes


def _prompts(run: Run) -> list[Note]:
    """What the load generator itself had to say about its prompts, inexact lengths above all."""
    told = run.facts.get("notes")
    ended = (run.end or {}).get("notes")
    notes = [Note("engine samples", str(text), detail=True) for text in ended] if isinstance(ended, list) else []
    notes += [Note("prompts", str(text)) for text in told] if isinstance(told, list) else []
    if run.facts.get("input_tokens_exact") is False and not any("not exact" in note.text for note in notes):
        why = run.facts.get("input_tokens_note")
        notes.append(Note("prompts", f"prompt lengths are not exact{f': {why}' if why else ''}"))
    return notes


def _left_out(requests: pd.DataFrame) -> list[Note]:
    counts = {str(phase): int(n) for phase, n in requests["phase"].value_counts().items()}
    names = {Phase.WARMUP: "warm-up", Phase.FILL: "fill", Phase.DRAIN: "drain"}
    parts = [f"{counts[phase.value]} {name}" for phase, name in names.items() if counts.get(phase.value)]
    if not parts:
        return []
    cut = int(((requests["phase"] != Phase.MEASURED) & (requests["error_kind"] == ErrorKind.CANCELLED)).sum())
    text = f"not in counts and latencies: {', '.join(parts)} requests"
    return [Note("left out", text + (f"; {cut} of them were cut by the end of the run" if cut else ""), detail=True)]


def _clock(run: Run, rows: list[LevelRow]) -> list[Note]:
    """Which clock stamped the tokens and how well it could tell them apart, with the levels where it could not."""
    measured = run.requests.loc[run.requests["phase"] == Phase.MEASURED, ["clock", "lag_max_s"]]
    kinds = sorted(str(kind) for kind in measured["clock"].dropna().unique()) or _listed(run.facts.get("clock"))
    if not kinds:
        return []
    names = {"kernel": "the kernel's receive stamps", "watcher": "the time at which the client read the bytes"}
    notes = [Note("clock", f"clock: {' and '.join(names.get(kind, kind) for kind in kinds)}")]
    notes += merged_read_notes(rows)
    lag = measured["lag_max_s"].max()
    if not pd.isna(lag):
        notes.append(Note("clock", f"longest time from stamp to reading: {lag * 1000:.2f} ms", detail=True))
    return notes


def _listed(value: object) -> list[str]:
    return [str(value)] if value else []


def where(row: LevelRow) -> str:
    """Names a level and, for one class of it, the class."""
    return f"{row.name} {row.traffic}" if row.traffic else row.name
