"""Compiles the reference server. A C compiler is all it needs; ``python -m benchmarks build`` does only this."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = ("reference_server.c", "buffer.h", "json_scan.h", "word_tokens.h")
FLAGS = ("-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Werror")


class BenchmarkError(Exception):
    """A benchmark cannot run here; the text is one line for a person."""


def compiler() -> str:
    """Path of ``$CC``, ``cc``, ``gcc`` or ``clang``; ``BenchmarkError`` names what is missing."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)):
            return path
    raise BenchmarkError("no C compiler found (cc, gcc or clang): the reference server cannot be built")


def reference_server(output: Path = HERE / "build" / "reference_server") -> Path:
    """Path of the compiled server; compiled anew only when a source is newer. Linux only (epoll)."""
    newest = max((HERE / source).stat().st_mtime for source in SOURCES)
    if output.exists() and output.stat().st_mtime > newest:
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_suffix(f".{os.getpid()}")
    command = [compiler(), *FLAGS, "-o", str(part), str(HERE / SOURCES[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        first = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise BenchmarkError(f"{' '.join(command)} failed: {first}")
    os.replace(part, output)
    return output
