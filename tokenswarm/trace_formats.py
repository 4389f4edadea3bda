"""Which format a trace file has, by its first line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from tokenswarm import azure_trace, burstgpt_trace
from tokenswarm.azure_trace import azure_sessions
from tokenswarm.burstgpt_trace import burstgpt_sessions
from tokenswarm.errors import InputError
from tokenswarm.mooncake_trace import mooncake_sessions
from tokenswarm.replay_load import TraceFormat
from tokenswarm.session_trace import recorded_sessions
from tokenswarm.trace import TraceSession
from tokenswarm.trace_rows import lines_of, shown

Reader = Callable[[str], Iterator[TraceSession]]

READERS: dict[str, Reader] = {
    "tokenswarm": recorded_sessions,
    "mooncake": mooncake_sessions,
    "burstgpt": burstgpt_sessions,
    "azure": azure_sessions,
}
_GZIP = b"\x1f\x8b"
_WANTED = "a trace of tokenswarm or Mooncake (JSON lines), BurstGPT or Azure (CSV with a header) is wanted"


def format_of(path: str, asked: TraceFormat) -> str:
    """``asked``, or what the file shows. Raises ``InputError`` where that is no format of a trace."""
    first = next(lines_of(path), None)
    if first is None:
        raise InputError(f"{path}: is empty; {_WANTED}")
    number, line = first
    if line.startswith(b"version https://git-lfs"):
        raise InputError(f"{path}:{number}: a pointer of Git LFS, not the trace itself; fetch it with git lfs pull")
    if line.startswith(_GZIP):
        raise InputError(f"{path}: is compressed with gzip; unpack it (gunzip)")
    found = _shown_by(line) if asked == "auto" else asked
    if found is None:
        text = shown(line[:1000].decode("utf-8", "replace"))
        raise InputError(f"{path}:{number}: value {text}: {_WANTED}")
    return found


def _shown_by(line: bytes) -> str | None:
    if line.startswith(b"{"):
        return _shown_by_keys(line)
    cells = {cell.strip().strip('"') for cell in line.decode("utf-8", "replace").split(",")}
    for name, columns in (("burstgpt", burstgpt_trace.COLUMNS), ("azure", azure_trace.COLUMNS)):
        if any(column in cells for column in columns):
            return name
    return None


def _shown_by_keys(line: bytes) -> str | None:
    try:
        keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if "turns" in keys or "at_s" in keys:
        return "tokenswarm"
    return "mooncake" if {"timestamp", "input_length", "hash_ids"} & keys.keys() else None
