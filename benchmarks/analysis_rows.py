"""A run folder with very many request rows, and what its table costs: wall time and peak memory of the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.build import BenchmarkError
from benchmarks.figures import Row
from benchmarks.load import Bench
from benchmarks.process import ROOT
from tokenswarm.records import COLUMNS

ROWS = 1_000_000
LEVELS = (16, 64, 256, 1024)
TURNS = 4  # requests of a session
LIMIT_S = 300.0
_CLASSES = ("chat", "batch")
_LIMITS = {"ttft_s": {"p95": 0.5}, "tpot_s": {"p95": 0.05}, "failed": 0.05}


def analysis(bench: Bench, rows: int = ROWS) -> list[Row]:
    """``python -m analysis table --json`` of a folder with so many rows."""
    folder = write_folder(bench.folder / f"rows-{rows}", rows)
    return [{"rows": rows, "requests_csv_mb": (folder / "requests.csv").stat().st_size / 1e6, **cost_of(folder)}]


def write_folder(folder: Path, rows: int, seed: int = 1) -> Path:
    """Four levels of two classes, sessions of four turns, one in a hundred of which fails. Nothing is measured."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, start_s = np.random.default_rng(seed), 1_000.0
    tables, levels = [], []
    for level, users in enumerate(LEVELS):
        table, end_s = _level(rng, level, users, rows // len(LEVELS) // TURNS, start_s)
        tables.append(table)
        times = f"{start_s:.6f},{start_s:.6f},{end_s:.6f},{end_s + 1:.6f}"
        levels.append(f"{level},{users},complete,,{times},{len(table) // TURNS},{len(table) // TURNS},,,,,,,\n")
        start_s = end_s + 2.0
    csv.write_csv(pa.concat_tables(tables), folder / "requests.csv", csv.WriteOptions(quoting_style="needed"))
    head = (
        "level,concurrency,state,reason,started_s,measured_started_s,measured_ended_s,ended_s,planned_sessions,"
        "measured_sessions,arms,rate_per_s,scheduled,not_admitted,lost,epoch,label\n"
    )
    (folder / "levels.csv").write_text(head + "".join(levels))
    scenario = {
        "traffic": [{"name": name, "objective": "quick", "turns": TURNS} for name in _CLASSES],
        "objectives": {"quick": _LIMITS},
    }
    planned = [{"level": i, "concurrency": users, "tail": "fill"} for i, users in enumerate(LEVELS)]
    facts = {"format": 1, "name": folder.name, "scenario": scenario, "target": {}, "levels": planned}
    (folder / "run.json").write_text(json.dumps(facts))
    (folder / "end.json").write_text('{"state": "finished"}')
    return folder


def _level(rng: np.random.Generator, level: int, users: int, sessions: int, start_s: float) -> tuple[pa.Table, float]:
    """Users play sessions one after the other; the time to the first token follows a slow wave of load."""
    n = sessions * TURNS
    waves = -(-sessions // users)
    ttft = 0.05 * np.exp(0.4 * rng.standard_normal((waves, users, TURNS))) * (1 + users / 512)
    tokens = rng.integers(2, 257, (waves, users, TURNS))
    tpot = 0.008 * np.exp(0.1 * rng.standard_normal((waves, users, TURNS))) * (1 + users / 256)
    took = ttft + tpot * (tokens - 1) + 0.001
    by_user = took.transpose(1, 0, 2).reshape(users, -1)
    sent = (start_s + by_user.cumsum(1) - by_user).reshape(users, waves, TURNS).transpose(1, 0, 2)
    sent, ttft, tpot, tokens = (values.reshape(-1)[:n] for values in (sent, ttft, tpot, tokens))
    first, last = sent + ttft, sent + ttft + tpot * (tokens - 1)
    session, turn = np.repeat(np.arange(sessions), TURNS), np.tile(np.arange(TURNS), sessions)
    traffic = np.array(_CLASSES)[session % 2]
    failed = rng.random(n) < 0.01 * (turn == TURNS - 1)
    answered = ~failed
    prompt = 200 + 300 * (turn + 1)
    columns: dict[str, Any] = {
        "level": np.full(n, level), "concurrency": np.full(n, users), "phase": np.full(n, "measured"),
        "ticket": session, "worker": np.char.add("w", (session % users % 4).astype("str")), "user": session % users,
        "traffic": traffic, "session": np.char.add(f"{level}.measured.", session.astype("str")), "turn": turn,
        "session_end": _blank_but((turn == TURNS - 1) & answered, np.full(n, "done")),
        "request_id": np.char.add(f"chatcmpl-{level:08x}", np.arange(n).astype("str")),
        "pause_s": np.zeros(n), "scheduled_s": sent - 0.0001, "sent_s": sent, "headers_s": sent + 0.001,
        "first_token_s": _blank_but(answered, first), "first_output_s": _blank_but(answered, first),
        "last_token_s": _blank_but(answered, last), "finished_s": np.where(answered, last, first),
        "asked_input_tokens": np.full(n, 300), "asked_output_tokens": tokens, "prompt_tokens": prompt,
        "prefix_tokens": np.zeros(n), "history_tokens": np.where(turn > 0, prompt - 300, 0),
        "cached_tokens": _blank_but(answered, np.where(turn > 0, (prompt - 300) // 16 * 16, 0)),
        "output_tokens": _blank_but(answered, tokens), "token_source": np.full(n, "usage"), "chunks": tokens,
        "tool_calls": np.zeros(n), "request_bytes": prompt * 5, "response_bytes": tokens * 200,
        "clock": np.full(n, "kernel"), "reads": tokens, "merged_reads": np.zeros(n), "lag_max_s": np.full(n, 0.0003),
        "finish_reason": _blank_but(answered, np.full(n, "length")), "http_status": np.where(answered, 200, 503),
        "error_kind": _blank_but(failed, np.full(n, "http_5xx")),
        "error": _blank_but(failed, np.full(n, "503 Service Unavailable")),
    }  # fmt: skip
    order = np.argsort(columns["finished_s"], kind="stable")
    arrays = {name: _array(columns[name]) if name in columns else pa.nulls(n) for name in COLUMNS}
    return pa.table(arrays).take(pa.array(order)), float(columns["finished_s"].max())


def _blank_but(known: np.ndarray, values: np.ndarray) -> np.ma.MaskedArray[Any, Any]:
    return np.ma.masked_array(values, mask=~known)


def _array(values: Any) -> pa.Array:
    plain = np.ma.getdata(values)
    if plain.dtype.kind == "f":
        plain = plain.round(6)
    mask = np.ma.getmaskarray(values) if np.ma.isMaskedArray(values) else None
    return pa.array(plain, mask=mask)


def cost_of(folder: Path) -> Row:
    """Of the whole command, start-up included, on at most two cores."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    command = [sys.executable, "-m", "analysis", "table", str(folder), "--json"]
    began = time.perf_counter()
    process = subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, cores)), *command], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise BenchmarkError(f"{' '.join(command)} ended with {process.returncode}")
    return {
        "table_s": took,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_rss_mb": usage.ru_maxrss / 1024.0,
        "cores": len(cores),
    }
