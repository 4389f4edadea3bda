"""Reads a file that holds one JSON object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenswarm.errors import RunFolderError


def read_object(path: Path, wanted: str) -> dict[str, Any]:
    """Raises ``RunFolderError`` with one line that names the file and what was ``wanted``."""
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as problem:
        raise RunFolderError(f"{path}: wanted {wanted}: {problem.strerror}") from problem
    except ValueError as problem:
        raise RunFolderError(f"{path}: wanted JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise RunFolderError(f"{path}: wanted a JSON object")
    return found
