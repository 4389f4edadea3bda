"""Which levels the scaling table compares."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from tests.analysis.conftest import write_run
from tokenswarm.records import RequestRecord


def run_of(folder: Path, levels: list[dict[str, Any]], rates: list[int], classes: list[str] | None = None) -> Path:
    """Each level is one request that takes a second, so that its tokens are its tok/s."""
    rows = [
        RequestRecord(
            level=i, concurrency=level["concurrency"], phase="measured", ticket=0, session=f"{i}.measured.0",
            traffic=classes[i] if classes else "chat", sent_s=10.0 * i, first_token_s=10.0 * i + 0.5,
            last_token_s=10.0 * i + 1, finished_s=10.0 * i + 1, output_tokens=rate, token_source="usage",
        )
        for i, (level, rate) in enumerate(zip(levels, rates, strict=True))
    ]  # fmt: skip
    return write_run(folder, rows, levels=levels)


def scaling(out: str) -> list[list[str]]:
    """Lines of the scaling table."""
    lines = out[out.index("Scaling (") :].split("\n\n")[0].splitlines()
    return [line.split() for line in lines if "x " in line]


def test_only_levels_with_equal_arms_are_compared(table: Any, tmp_path: Path) -> None:
    """Paired, cold and warm levels of 1 and 4 users: each relative to the one of its own arms at 1."""
    arms = ["paired", "cold", "warm", "warm", "cold"]
    levels = [{"concurrency": users, "arms": one} for users in (1, 4) for one in arms]
    folder = run_of(tmp_path / "run", levels, [15, 10, 20, 21, 11, 45, 30, 50, 51, 31])
    shown = table(folder, "--width", "100").out
    assert "Scaling (levels of the same kind)" in shown
    found = {line.rpartition("c=")[0].strip(): line.split()[-2:] for line in shown.splitlines() if "x " in line}
    assert found["4 paired"] == ["3.00x", "75%"]  # 45 / 15
    assert found["4 cold"] == ["3.00x", "75%"]  # 30 / 10
    assert found["4 warm"] == ["2.50x", "62%"]  # 50 / 20
    rows = {row["label"]: row for row in table(folder, "--json").json["scaling"]}
    assert rows["c=4 cold #2"]["base"] == "c=1 cold"
    assert rows["c=4 cold #2"]["throughput_ratio"] == 3.1
    by_label = {row["label"]: row for row in csv.DictReader(io.StringIO(table(folder, "--format", "csv").out))}
    assert by_label["c=4 warm"]["efficiency"] == "0.625"


def test_no_scaling_among_levels_of_the_same_users(table: Any, tmp_path: Path) -> None:
    """Four levels of 8 users in both arms have nothing to scale from; the table is left out."""
    levels = [{"concurrency": 8, "arms": one} for one in ("paired", "cold", "warm", "warm", "cold")]
    assert "Scaling" not in table(run_of(tmp_path / "run", levels, [5, 6, 7, 8, 9])).out


def test_classes_alone_are_not_compared_with_all_together(table: Any, tmp_path: Path) -> None:
    """Levels in which other classes have users are of another kind; their names are those of the plan."""
    mixes = [({"chat": 1, "captions": 0}, "c=1 chat alone"), ({"chat": 1, "captions": 1}, "c=2 together")]
    mixes += [({"chat": 2, "captions": 0}, "c=2 chat alone"), ({"chat": 2, "captions": 2}, "c=4 together")]
    levels = [{"concurrency": sum(users.values()), "users_by_class": users, "label": label} for users, label in mixes]
    folder = run_of(tmp_path / "run", levels, [10, 30, 16, 45])
    rows = table(folder, "--json").json["scaling"]
    assert [row["label"] for row in rows] == [label for _, label in mixes]
    assert [(row["base"], row["throughput_ratio"]) for row in rows[2:]] == [
        ("c=1 chat alone", 1.6),
        ("c=2 together", 1.5),
    ]


def test_a_level_without_its_like_is_left_out(table: Any, tmp_path: Path) -> None:
    """One paired level beside a sweep of plain ones: the sweep alone is shown, with its base in the title."""
    levels = [{"concurrency": 1}, {"concurrency": 2}, {"concurrency": 8, "arms": "paired"}]
    shown = table(run_of(tmp_path / "run", levels, [10, 18, 40])).out
    assert "Scaling (relative to c=1)" in shown
    assert [line[0] for line in scaling(shown)] == ["1", "2"]
