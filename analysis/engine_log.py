"""Reads the log that an inference engine printed. Lines that are not known are counted, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analysis.llamacpp_log import LlamacppReader
from analysis.log_entries import LogEngine, LogEntries
from analysis.sglang_log import SglangReader
from analysis.vllm_log import VllmReader
from tokenswarm.errors import InputError

_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LONGEST = 10_000  # characters of a line that are looked at
_JUNK = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_WANTED = "the log of vLLM, SGLang or llama.cpp with its lines about the load"


@dataclass
class EngineLog:
    """``lines`` are those that are not blank; ``unknown`` of them told nothing, ``binary`` of these are no text."""

    path: Path
    engine: LogEngine
    found: LogEntries
    lines: int
    unknown: int
    binary: int
    notes: list[str] = field(default_factory=list)

    @property
    def dated(self) -> bool:
        """Whether stamps have a date with its year."""
        return self.engine == LogEngine.SGLANG


def read_log(path: Path, near_s: float | None = None) -> EngineLog:
    """``near_s``: a moment near which it was written, seconds since 1970, for stamps without a year.

    Raises ``InputError`` with one line where the file cannot be read or has no line about the load.
    """
    readers: dict[LogEngine, VllmReader | SglangReader | LlamacppReader] = {
        LogEngine.VLLM: VllmReader(near_s),
        LogEngine.SGLANG: SglangReader(),
        LogEngine.LLAMACPP: LlamacppReader(),
    }
    lines = unknown = binary = 0
    last_cut = False
    for number, raw, whole in _lines(path):
        if not whole:
            last_cut = True
            continue
        lines += 1
        text = raw[:_LONGEST].decode("utf-8", "replace")
        if _JUNK.search(raw) or not any(reader.read(number, text) for reader in readers.values()):
            unknown += 1
            binary += bool(_JUNK.search(raw))
    engine, reader = max(readers.items(), key=lambda item: (len(item[1].found.samples), item[1].found.read))
    if not reader.found.read:
        raise InputError(f"{path}: wanted {_WANTED}, but none of its {lines} lines is known")
    others = [str(name) for name, other in readers.items() if other.found.read and name != engine]
    log = EngineLog(path, engine, reader.found, lines, unknown, binary)
    log.notes = _notes(log, others, last_cut)
    return log


def _lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Number, text without colours, and whether its end was written, of each line that is not blank."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                whole = line.endswith(b"\n")
                # Progress bars go back to the beginning of their line.
                for part in line.split(b"\r"):
                    if text := _COLOUR.sub(b"", part).strip():
                        yield number, text, whole
    except OSError as problem:
        raise InputError(f"{path}: wanted {_WANTED}: {problem.strerror}") from problem


def _notes(log: EngineLog, others: list[str], last_cut: bool) -> list[str]:
    binary = f", {log.binary} of them no text" if log.binary else ""
    notes = [f"{log.unknown} of {log.lines} lines tell nothing that is known here{binary}"]
    if last_cut:
        notes.append("the last line is cut off and was left out")
    if len(log.found.boots) > 1:
        notes.append(f"the engine started {len(log.found.boots)} times in it")
    if others:
        notes.append(f"lines of {' and '.join(others)} are in it too and were left out")
    if not log.found.samples:
        notes.append("no line about the load: vLLM prints them unless it was started with --disable-log-stats")
    return notes
