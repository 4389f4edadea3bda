"""What a worker says of itself when it asks to join, and why it may not."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tokenswarm.provenance import clock_identity, code_digest


def introduction(scenario_path: str) -> dict[str, Any]:
    """Of this process. ``scenario_path``: of the file it was started with; empty without one."""
    path = Path(scenario_path or "-")
    own = {"scenario": _digest(path.read_bytes()), "scenario_path": str(path)} if path.is_file() else {}
    return {"clock": clock_identity(), "code": code_digest(), **own}


def misfit(about: dict[str, Any], scenario_text: str) -> str:
    """Why a worker that introduced itself so cannot take part under this process; empty where it can.

    ``scenario_text``: of the master's file, the one that counts; empty without one.
    """
    if about.get("code") != code_digest():
        return "runs another version of tokenswarm than the master; install the same one on both"
    own = about.get("scenario")
    if own is not None and scenario_text and own != _digest(scenario_text.encode()):
        return f"{about['scenario_path']} differs from the master's scenario; give both the same, or workers none"
    return ""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content.removeprefix(b"\xef\xbb\xbf")).hexdigest()
