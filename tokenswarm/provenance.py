"""What ran, where, on what: enough to repeat a run, and never a secret."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import uuid4

from tokenswarm.clocks import wrong_by_s

_PACKAGES = ("tokenswarm", "locust", "gevent", "geventhttpclient", "msgspec")
_SECRET_OPTION = re.compile(r"(?i)(key|token|secret|passw|auth)")
_SECRET_VALUE = re.compile(r"(?i)\b(?:sk-[\w-]{6,}|bearer\s+\S+)")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def redact(arguments: list[str]) -> list[str]:
    """Command-line words with the values of anything that sounds like a secret replaced by ``***``.

    Options that name a file keep their value: a path is needed to repeat the run and is no secret.
    """
    words: list[str] = []
    hide_next = False
    for word in arguments:
        name, equals, value = word.partition("=")
        secret = bool(_SECRET_OPTION.search(name)) and name.startswith("-") and not name.endswith("-file")
        if hide_next and not word.startswith("-"):
            words.append("***")
        elif secret and equals:
            words.append(f"{name}=***")
        else:
            words.append(_SECRET_VALUE.sub("***", word))
        hide_next = secret and not equals and not value
    return words


def provenance() -> dict[str, Any]:
    """Versions, machine and command of this process."""
    return {
        **{package: _version(package) for package in _PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "command": " ".join(["locust", *redact(sys.argv[1:])]),
    }


@cache
def code_digest() -> str:
    """Equal in two processes that run the same version of this package: all of its source files count."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def clock_identity() -> str:
    """Equal in two processes whose clocks are the same: the boot of the kernel they run on, and how far their wall
    clocks are set wrong by a test."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {wrong_by_s():+g}"
    except OSError:
        return f"unknown {uuid4().hex}"
