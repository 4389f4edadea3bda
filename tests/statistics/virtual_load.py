"""A closed loop against a server of known speed in virtual time, as a run that the analysis can read; a few thousand
requests a second.

Prompts are computed one after the other, so that requests which are sent together wait for each other; the speed of the
server wanders over several requests, so that neighbours are alike; each request scatters besides.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd

from analysis.compared_run import ComparedRun, Sample
from analysis.figures import Figure, Values
from analysis.levels import LevelRow
from analysis.outcome import Outcome
from analysis.run_folder import Run
from analysis.window import Arrivals

STEP_S, STEP_PER_USER_S, PREFILL_TOKEN_S = 0.02, 0.001, 0.0001
WANDER, WANDER_S, SCATTER = 0.03, 1.5, 0.05  # how far the speed wanders, and for how long it stays there


@dataclass(frozen=True)
class Server:
    """``factor``: how much longer everything takes; ``drift``: further share by which it is slower from ``until_s`` on;
    ``between``: by how much runs as a whole differ by chance."""

    factor: float = 1.0
    drift: float = 0.0
    until_s: float = 1.0
    between: float = 0.0

    def slowness(self, at_s: float) -> float:
        return self.factor * (1.0 + self.drift * min(1.0, at_s / self.until_s))


@dataclass(frozen=True)
class Load:
    """``work``: seed of the lengths, the same for runs of one scenario."""

    users: int = 8
    requests: int = 256
    work: int = 7


def played(server: Server, seed: int, load: Load = Load(), start_s: float = 0.0) -> ComparedRun:
    """One level; ``start_s`` on the axis of the drift."""
    sent, first, last, tokens = np.array(_rows(server, Random(seed), load, start_s)).T
    metrics = {"ttft_s": first - sent, "tpot_s": (last - first) / (tokens - 1), "e2e_s": last - sent}
    arrived = pd.DataFrame({"first_token_s": first, "last_token_s": last, "output_tokens": tokens})
    sample = Sample(metrics, sent, np.zeros(len(sent)), Arrivals.of(arrived))
    name = f"c={load.users}"
    row = LevelRow(0, load.users, "chat", name, state="complete", requests=len(sent), ok=len(sent))
    row.figures = _latencies(metrics) | {"output_tok_s": Figure(float(tokens.sum() / (last.max() - sent.min())))}
    outcome = Outcome("virtual", "run folder", "virtual", levels=[row], classes=[row])
    run = Run(Path("virtual"), {}, {}, *[arrived] * 6, unix_minus_master_s=0.0)
    return ComparedRun("virtual", outcome, run, samples={(name, "chat"): sample})


def _latencies(metrics: dict[str, Values]) -> dict[str, Figure]:
    figures = {}
    for name, values in metrics.items():
        short = name.removesuffix("_s")
        figures |= {f"{short}_p{q}_s": Figure(float(np.quantile(values, q / 100))) for q in (50, 95)}
        figures[f"{short}_mean_s"] = Figure(float(values.mean()))
    return figures


def _rows(server: Server, rng: Random, load: Load, start_s: float) -> list[tuple[float, float, float, int]]:
    work = Random(load.work)
    free = [(start_s + user * 0.001, user) for user in range(load.users)]
    heapq.heapify(free)
    prefilled_s, wander, last_s = start_s, rng.gauss(0.0, WANDER), start_s
    between = math.exp(rng.gauss(0.0, server.between)) if server.between else 1.0
    rows = []
    for _ in range(load.requests):
        sent_s, user = heapq.heappop(free)
        kept = math.exp(-(sent_s - last_s) / WANDER_S)
        wander, last_s = wander * kept + rng.gauss(0.0, WANDER * math.sqrt(1.0 - kept * kept)), sent_s
        slowness = server.slowness(sent_s) * between * math.exp(wander)
        prompt, output = work.randint(460, 564), work.randint(40, 60)
        begun_s = max(sent_s, prefilled_s)
        prefilled_s = begun_s + prompt * PREFILL_TOKEN_S * slowness * math.exp(rng.gauss(0.0, SCATTER))
        step_s = (STEP_S + STEP_PER_USER_S * load.users) * slowness * math.exp(rng.gauss(0.0, SCATTER))
        first_s = prefilled_s + step_s
        ended_s = first_s + (output - 1) * step_s
        rows.append((sent_s, first_s, ended_s, output))
        heapq.heappush(free, (ended_s + 0.001, user))
    return rows
