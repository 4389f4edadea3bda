"""What the readers of other tools' results have in common: documents, levels, figures from samples or summaries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.effective_sample import EffectiveSample
from analysis.failures import groups_of_texts, kind_of_text
from analysis.figures import QUANTILES, Figure, Mark, mean_figure, number, quantile_figure, ratio
from analysis.foreign_figures import FOREIGN, foreign_of
from analysis.level_state import Basis
from analysis.levels import LevelRow
from analysis.outcome import Note, Outcome
from tokenswarm.errors import ErrorKind, RunFolderError
from tokenswarm.quantiles import order_statistic_interval

WANTED = "results of vllm bench serve, GuideLLM, AIPerf, inference-perf, SGLang's bench_serving or genai-bench"
Document = dict[str, Any]
_LARGEST = 1e30  # some tools stamp in nanoseconds since 1970, which is 2e18
_LARGEST_COUNT = 1e12


@dataclass
class Imported:
    """What one or more documents of a tool hold. Levels come in any order and without numbers."""

    tool: str
    levels: list[LevelRow] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    failures: list[tuple[str, int]] = field(default_factory=list)  # text, occurrences
    version: str = ""
    model: str = ""


def documents_of(path: Path) -> tuple[list[Document], list[str]]:
    """One document of JSON, or one for each line; and what was left out.

    Raises ``RunFolderError`` with one line for a file that is empty, cut off or no JSON.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = "it is no text" if isinstance(problem, UnicodeDecodeError) else problem.strerror
        raise RunFolderError(f"{path}: wanted {WANTED}: {reason}") from problem
    if not text.strip():
        raise RunFolderError(f"{path}: wanted {WANTED}, but it is empty")
    try:
        return [_object(path, json.loads(text))], []
    except json.JSONDecodeError as problem:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not _is_json(lines[0]):
            raise RunFolderError(f"{path}: wanted {WANTED}, but it is cut off or no JSON: {problem}") from problem
    return _lines(path, lines)


def _lines(path: Path, lines: list[str]) -> tuple[list[Document], list[str]]:
    documents, left_out = [], []
    for i, line in enumerate(lines, start=1):
        try:
            documents.append(_object(path, json.loads(line)))
        except json.JSONDecodeError as problem:
            if i < len(lines):
                raise RunFolderError(f"{path}: wanted {WANTED}, but line {i} is no JSON: {problem}") from problem
            left_out.append(f"{path.name}: the last line is cut off and was left out")
    return documents, left_out


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except json.JSONDecodeError:
        return False


def _object(path: Path, document: Any) -> Document:
    if not isinstance(document, dict):
        raise RunFolderError(f"{path}: wanted {WANTED}, but it holds {type(document).__name__}, not an object")
    return document


def outcome_of(imported: Imported, path: Path) -> Outcome:
    """Levels by load, with names that differ, and a remark on every figure that is none of ours."""
    rows = sorted(imported.levels, key=_load)
    seen: dict[str, int] = {}
    for i, row in enumerate(rows):
        times = seen[row.label] = seen.get(row.label, 0) + 1
        row.level, row.label = i, row.label if times == 1 else f"{row.label} #{times}"
        row.figures = {name: figure for name, figure in row.figures.items() if figure.value is not None}
    tool = f"{imported.tool} {imported.version}".strip()
    return Outcome(
        path=str(path),
        source=imported.tool,
        name=path.stem if path.is_file() else path.name,
        facts={"tool": tool, "target": {"model": imported.model} if imported.model else {}},
        levels=rows,
        classes=[replace(row) for row in rows if row.count("failed") is not None],
        failures=groups_of_texts(imported.failures),
        notes=[
            Note(
                "source", f"measured by {tool}: figures of ours stand only where it measures the same, blank where not"
            ),
            *imported.notes,
            *_meanings(rows, imported.tool),
        ],
        doubts=[] if any(row.ok for row in rows) else ["no request succeeded"],
    )


def _load(row: LevelRow) -> tuple[bool, float]:
    rate = row.figure("asked_requests_per_s").value
    return row.clocked, float(row.concurrency or 0) if rate is None else rate


def _meanings(rows: list[LevelRow], tool: str) -> list[Note]:
    names = dict.fromkeys(foreign_of(name) for row in rows for name in row.figures)
    return [
        Note("meaning", f"{FOREIGN[name].title} ({tool}): {FOREIGN[name].text}", detail=True) for name in names if name
    ]


def level_of(*, users: int | None = None, rate_per_s: float | None = None, label: str = "") -> LevelRow:
    """A level without figures: of a number of users, or by the clock where a rate is given."""
    name = label or (f"{rate_per_s:g}/s" if rate_per_s is not None else f"c={users}")
    row = LevelRow(0, None if rate_per_s is not None else users, label=name, basis=Basis.DRAIN)
    row.clocked = rate_per_s is not None
    row.figures["asked_requests_per_s"] = number(rate_per_s)
    return row


def count(row: LevelRow, *, ok: int | None, failed: int | None, cancelled: int = 0) -> None:
    """Counts of a level; those that are unknown are marked so."""
    row.ok, row.failed, row.cancelled = ok or 0, failed or 0, cancelled
    row.requests = row.ok + row.failed + cancelled
    unknown = {"ok": ok is None, "failed": failed is None, "requests": ok is None or failed is None}
    row.unknown_counts = frozenset(name for name, is_unknown in unknown.items() if is_unknown)


def count_failures(row: LevelRow, texts: Iterable[tuple[str, int]]) -> None:
    """Failures by kind, from their texts; those that say that a run ended are no failures but cut."""
    for text, occurrences in texts:
        kind = kind_of_text(text)
        row.errors[kind] = row.errors.get(kind, 0) + occurrences
    if row.cancelled:
        row.errors[ErrorKind.CANCELLED.value] = row.cancelled


def error_texts(document: Document) -> list[tuple[str, int]]:
    """Last line of each text in a list of errors, which is empty for a success; a traceback ends with its reason."""
    texts = [str(text).strip() for text in list_of(document.get("errors")) if text]
    return [(text.splitlines()[-1], 1) for text in texts if text]


def from_sample(name: str, values: Sequence[float | None]) -> dict[str, Figure]:
    """Our own quantiles and mean of values in seconds, one a request in the order of sending; unknown ones are left
    out."""
    served = np.array([value for value in values if value is not None], dtype=np.float64)
    worth, ordered = EffectiveSample(served), np.sort(served)
    figures = {f"{name}_{label}_s": quantile_figure(ordered, q, worth) for label, q in QUANTILES.items()}
    return figures | {f"{name}_mean_s": mean_figure(served, worth)}


def gaps_of(name: str, values: Sequence[float]) -> dict[str, Figure]:
    """Quantiles and mean of all gaps together, in seconds; without intervals, since those of one answer go together."""
    ordered = np.sort(np.array(values, dtype=np.float64))
    figures = {f"{name}_{label}_s": quantile_figure(ordered, q) for label, q in QUANTILES.items()}
    figures[f"{name}_mean_s"] = mean_figure(ordered)
    return {key: Figure(figure.value, n=figure.n) for key, figure in figures.items()}


def from_summary(
    name: str, statistics: Mapping[str, Any], keys: Mapping[str, str], *, scale: float, n: int | None
) -> dict[str, Figure]:
    """Figures as the tool worked them out. ``keys``: our statistic to the key there; ``scale`` leads to seconds."""
    figures = {}
    for label, key in keys.items():
        value = as_number(statistics.get(key))
        if value is None:
            continue
        unbounded = label in QUANTILES and n is not None and order_statistic_interval(n, QUANTILES[label]) is None
        figures[f"{name}_{label}_s"] = Figure(value * scale, n=n, marks=(Mark.NO_BOUND,) if unbounded else ())
    return figures


def decode_figures(tokens: Sequence[float | None], decode_s: Sequence[float | None]) -> dict[str, Figure]:
    """TPOT and tok/s of a request from output tokens and the time between first and last token, one pair a request."""
    pairs = [
        (n, seconds)
        for n, seconds in zip(tokens, decode_s, strict=True)
        if n is not None and seconds is not None and n > 1 and seconds > 0
    ]
    speed = ratio(sum(n for n, _ in pairs), sum(seconds for _, seconds in pairs))
    return from_sample("tpot", [seconds / (n - 1) for n, seconds in pairs]) | {"per_request_tok_s": number(speed)}


def throughput(
    *, ok: int, tokens: float | None, prompt_tokens: float | None, wall_s: float | None
) -> dict[str, Figure]:
    """Totals and rates over the wall time, the same as ours with a plain drain; blank where nothing succeeded."""
    tokens = tokens if ok else None
    figures = {
        "wall_s": number(wall_s),
        "tokens": number(tokens),
        "output_tok_s": number(ratio(tokens, wall_s)),
        "output_tokens_mean": number(ratio(tokens, ok)),
        "requests_per_s": number(ratio(ok, wall_s)),
    }
    if prompt_tokens is not None and ok:
        figures["prompt_tok_s"] = number(ratio(prompt_tokens, wall_s))
        figures["prompt_tokens_mean"] = number(ratio(prompt_tokens, ok))
    return figures


def as_number(value: Any) -> float | None:
    """A number that a measurement can have; ``None`` for everything else, endless and absurdly large ones included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _LARGEST else None


def as_count(value: Any) -> int | None:
    found = as_number(value)
    return None if found is None or abs(found) >= _LARGEST_COUNT else int(found)


def mapping_of(value: Any) -> Document:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
