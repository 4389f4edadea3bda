"""Captioning runs side by side: the table, its files for programs, and the plot."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.caption_plot import figure_of
from analysis.caption_report import caption_levels
from analysis.source import read_outcome
from tests.analysis.conftest import Answer
from tests.analysis.test_image_cache import counted, question, written

USERS = (1, 4)


@pytest.fixture
def captions(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """``python -m analysis captions …`` in this process."""

    def call(*arguments: Path | str) -> Answer:
        code = main(["captions", *map(str, arguments)])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


def run(folder: Path, model: str, *, sessions: tuple[int, int] = (2, 8), found: tuple[int, int] = (2, 8)) -> Path:
    """Levels of 1 and 4 streams; each pair of questions has 10 s for itself, TTFT is 0.5 s and 0.3 s."""
    rows = []
    for level, users in enumerate(USERS):
        for session in range(sessions[level]):
            for turn, ttft in ((0, 0.5), (1, 0.3)):
                answered = 1000.0 * level + 10 * session + 2 * turn + ttft
                facts = {"concurrency": users, "first_token_s": answered, "history_tokens": 250 * turn}
                rows.append(question(level, session, turn, **facts))
    samples = counted(*((2 * count, hits) for count, hits in zip(sessions, found, strict=True)))
    levels = [{"concurrency": users} for users in USERS]
    target = {"model": model, "simulated": model == "fast"}
    probe = {"state": "inert", "line": "enabled but inert"}
    return written(folder, rows, samples, levels=levels, target=target, cache_probe=probe)


def test_models_stand_beside_each_other_at_each_number_of_streams(captions: Any, tmp_path: Path) -> None:
    """Rows by streams, the models in the order given; both verdicts, and which run is simulated."""
    fast, slow = run(tmp_path / "a", "fast", found=(2, 16)), run(tmp_path / "b", "slow", sessions=(2, 4), found=(2, 4))
    out = captions(fast, slow, "--width", "300").out
    rows = [line.split() for line in out.splitlines() if line.split()[1:2] in (["fast"], ["slow"])]
    assert [row[:2] for row in rows] == [["1", "fast"], ["1", "slow"], ["4†", "fast"], ["4", "slow"]]
    # 4 captions in 13 s, and at 4 streams 16 in 73 s beside 8 in 33 s
    assert [row[3] for row in rows] == ["1108", "1108", "789", "873"]
    assert [row[-4] for row in rows] == ["confirmed", "confirmed", "contaminated", "confirmed"]
    assert all(row[-3:] == ["enabled", "but", "inert"] for row in rows)
    assert "SIMULATED (fast): these numbers come from a simulated engine" in out
    assert "†  contaminated" in out


def test_names_where_the_models_are_the_same(captions: Any, tmp_path: Path) -> None:
    """The runs' own names, then their folders."""
    one, other = run(tmp_path / "one", "m"), run(tmp_path / "other", "m")
    assert [level["name"] for level in captions(one, other, "--json").json["runs"]] == ["one", "other"]
    again = run(tmp_path / "deeper" / "one", "m")
    for folder in (one, again):
        (folder / "run.json").write_text((folder / "run.json").read_text().replace('"name": "one"', '"name": "same"'))
    moved = again.rename(tmp_path / "again")
    assert [level["name"] for level in captions(one, moved, "--json").json["runs"]] == ["one", "again"]


def test_captions_of_runs_for_programs(captions: Any, tmp_path: Path) -> None:
    """CSV: one line a run and level, with units in the names; JSON: all figures by run."""
    folder = run(tmp_path / "run", "m")
    rows = list(csv.DictReader(io.StringIO(captions(folder, "--format", "csv").out)))
    assert [(row["run"], row["concurrency"], row["image_cache_verdict"]) for row in rows] == [
        ("m", "1", "confirmed"), ("m", "4", "confirmed"),
    ]  # fmt: skip
    assert (rows[1]["ttft_first_p50_ms"], rows[1]["ttft_second_p50_ms"]) == ("500", "300")
    assert (rows[1]["image_cache_share"], rows[1]["cache_verdict"]) == ("0.5", rows[0]["cache_verdict"])
    (found,) = captions(folder, "--json").json["runs"]
    assert (found["model"], found["simulated"], found["path"]) == ("m", False, str(folder))
    assert [level["captions"]["captions"] for level in found["levels"]] == [4, 16]
    assert found["levels"][1]["level_caches"]["image_cache"]["measured"] == 0.5
    assert "| 4 | m |" in captions(folder, "--format", "markdown").out


def test_runs_without_pictures_are_refused(captions: Any, tmp_path: Path, small: Path) -> None:
    """One line with the run's place, whichever of the runs it is."""
    answer = captions(run(tmp_path / "run", "m"), small)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert answer.err.startswith(f"{small}: wanted a run with captioning traffic")


# the plot


def test_the_plot_shows_the_figures_of_the_table(tmp_path: Path) -> None:
    """A line a run over 1 and 4 streams; the contaminated level has a hollow mark."""
    folders = run(tmp_path / "a", "fast", found=(2, 16)), run(tmp_path / "b", "slow")
    rates, times = figure_of(caption_levels([read_outcome(str(folder)) for folder in folders])).axes
    lines = {str(line.get_label()): line for line in rates.lines if not str(line.get_label()).startswith("_")}
    assert list(lines) == ["fast (SIMULATED)", "slow"]
    assert lines["slow"].get_xydata().tolist() == [[1, pytest.approx(4 * 3600 / 13)], [4, pytest.approx(57600 / 73)]]
    hollow = [list(line.get_xdata()) for line in rates.lines if line.get_markerfacecolor() == "white"]
    assert [users for users in hollow if users] == [[4]]
    first, second = (line for line in times.lines if str(line.get_label()).startswith("slow"))
    assert list(first.get_ydata()) == pytest.approx([0.5, 0.5])
    assert list(second.get_ydata()) == pytest.approx([0.3, 0.3])


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_plot_is_written_beside_the_table(captions: Any, tmp_path: Path, suffix: str) -> None:
    """In the format that its name ends in; the table is printed as without it."""
    folder = run(tmp_path / "run", "m")
    answer = captions(folder, "--plot", tmp_path / f"plot.{suffix}")
    assert (answer.code, answer.out) == (0, captions(folder).out)
    beginning = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix]
    assert (tmp_path / f"plot.{suffix}").read_bytes().startswith(beginning)


def test_equal_runs_give_equal_plots(captions: Any, tmp_path: Path) -> None:
    """No date and no chance in an SVG file, whose words stay words."""
    folder = run(tmp_path / "run", "m")
    texts = []
    for name in ("one.svg", "two.svg"):
        assert captions(folder, "--plot", tmp_path / name).code == 0
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    assert "captions per hour" in texts[0]


@pytest.mark.parametrize(
    ("file", "reason"),
    [("plot.txt", "wanted a file that ends in .svg, .png, .pdf"), ("none/plot.svg", "cannot be written: No such file")],
)
def test_a_plot_that_cannot_be_written(captions: Any, tmp_path: Path, file: str, reason: str) -> None:
    """One line, and no table as if all was well."""
    answer = captions(run(tmp_path / "run", "m"), "--plot", tmp_path / file)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"--plot {tmp_path / file}: {reason}")
    assert answer.err.count("\n") == 1


def test_tables_do_not_load_the_plotting_library() -> None:
    """It takes half a second, at the end of every run."""
    check = "import sys, analysis.__main__; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
