"""Pictures for captioning: how fast they are made, how large they are, and what the load process feels of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, ClassVar

from benchmarks import figures
from benchmarks.build import BenchmarkError
from benchmarks.figures import Row
from benchmarks.load import Bench, Shape, steady_run
from benchmarks.process import ROOT
from tokenswarm.image_settings import Images
from tokenswarm.images import ImageSource
from tokenswarm.quantiles import quantile

USERS = 16
LIMIT_S = 600.0
LARGE: dict[str, Any] = {"synthetic": {"pixels": 500_000}}


@dataclass(frozen=True)
class Captioners(Shape):
    """Chats of one turn, and beside them ``captioners`` streams that send one picture with each request.

    Requests of both last equally long, so that shares of the sessions are shares of the streams.
    """

    captioners: int = 16
    locustfile: ClassVar[str] = "locustfiles/mixed.py"

    def traffic(self) -> list[dict[str, Any]]:
        (chat,) = super().traffic()
        captions = {
            "name": "captions",
            "kind": "captioning",
            "weight": self.captioners,
            "images": LARGE,
            "turns": 1,
            "output_tokens": self.tokens,
        }
        return [{**chat, "weight": self.streams - self.captioners}, captions]


def beside(bench: Bench, seconds: float = 10.0) -> list[Row]:
    """What 64 chats measure alone, and beside 16 streams of pictures of 500,000 pixels; the maker has the same core."""
    rows = []
    for shape in (Shape(64), Captioners(80)):
        part = bench.part(f"beside-{shape.streams - 64}")
        row, truth = steady_run(part, shape, seconds)
        requests = part.requests()
        chats = [one for one in requests if one["traffic"] == "chat"]
        captions = [one for one in requests if one["traffic"] == "captions" and one["phase"] == "measured"]
        row |= figures.compare(figures.seen(chats), truth)
        row |= {"streams": 64, "beside": shape.streams - 64, "captions": len(captions)}
        row["prepare_p95_ms"] = _ms(captions, "prepare_s")
        row["request_kb"] = _mean_kb(captions)
        rows.append(row)
    return rows


def _ms(rows: list[dict[str, str]], name: str) -> float | None:
    value = quantile([float(row[name]) for row in rows if row[name]], 0.95)
    return None if value is None else value * 1e3


def _mean_kb(rows: list[dict[str, str]]) -> float | None:
    return fmean(int(row["request_bytes"]) for row in rows) / 1e3 if rows else None


def images(bench: Bench, pictures: int = 1_000, many: int = 10_000) -> list[Row]:
    """16 users that take pictures as fast as they can; a heartbeat of 1 ms in the load process feels every stall.

    Not pinned: the maker is a process of its own and goes where there is room.
    """
    folder = bench.part("images").folder
    png = {"synthetic": {"pixels": 500_000, "format": "png"}}
    webp = {"synthetic": {"pixels": 500_000, "format": "webp"}}
    return [
        {"load": "no pictures", **_run("idle", LARGE, 0)},
        {"load": "500,000 pixels JPEG, made in the load process", **_run("loop", LARGE, pictures)},
        {"load": "500,000 pixels JPEG", **_run("store", LARGE, pictures)},
        {"load": "500,000 pixels PNG", **_run("store", png, pictures // 5)},
        {"load": "500,000 pixels WebP", **_run("store", webp, pictures // 5)},
        {"load": "files of 500,000 pixels", **_run("store", {"folder": str(_files(folder))}, pictures)},
        {"load": "3,136 to 500,000 pixels JPEG", **_run("store", {"synthetic": {}}, many)},
    ]


def _run(way: str, source: dict[str, Any], pictures: int) -> Row:
    command = [sys.executable, "-m", "benchmarks.image_users", way, json.dumps(source), str(USERS), str(pictures)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise BenchmarkError(f"users of pictures ended with exit code {done.returncode}: {last}")
    row: Row = json.loads(done.stdout)
    return row


def _files(folder: Path, count: int = 100) -> Path:
    files = folder / "files"
    files.mkdir()
    source = ImageSource(Images.model_validate(LARGE), name="files", seed=7)
    for number in range(count):
        (files / f"{number:03}.jpg").write_bytes(source.picture(Random(number), number).data)
    return files
