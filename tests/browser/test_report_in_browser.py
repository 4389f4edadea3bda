"""The report as a person sees it: opened from disk in a browser that has no network, light and dark."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from analysis import __main__ as analysis
from tests.locust_process import run_locust

# Levels long enough for a sample of the engine between their edges.
SCENARIO = """
target: {simulator: demo}
traffic:
  - {name: chat, objective: interactive, input_tokens: {uniform: [100, 200]}, output_tokens: {uniform: [40, 80]}}
load:
  closed: {users: [1, 8], duration_s: 5.5, warmup_s: 0.5}
objectives:
  interactive: {ttft_s: {p95: 0.5}, failed: 0.01}
"""
PLOTS = [
    "plot-throughput", "plot-ttft", "plot-tpot", "plot-e2e", "plot-speed", "plot-scaling", "ecdf-ttft", "ecdf-tpot",
    "ecdf-e2e", "plot-timeline",
]  # fmt: skip
LAPTOP, PHONE = {"width": 1366, "height": 768}, {"width": 390, "height": 800}

# Of each figure: its box, the boxes of what is drawn and written in it, and the colours that are really used.
LOOK = """() => [...document.querySelectorAll('figure')].map(figure => {
  const svg = figure.querySelector('svg'), box = svg.getBoundingClientRect();
  const inside = one => { const b = one.getBoundingClientRect();
    return b.left >= box.left - 2 && b.right <= box.right + 2 && b.top >= box.top - 2 && b.bottom <= box.bottom + 2; };
  const drawn = [...svg.querySelectorAll('path, use')].filter(one => !one.closest('defs'))
    .filter(one => { const b = one.getBoundingClientRect(); return Math.max(b.width, b.height) > 0; });
  const words = [...svg.querySelectorAll('text')].filter(one => one.textContent.trim());
  return {id: figure.id, width: box.width, height: box.height, drawn: drawn.length, words: words.length,
    outside: words.filter(one => !inside(one)).map(one => one.textContent),
    inks: [...new Set(drawn.map(one => getComputedStyle(one).stroke))], ink: getComputedStyle(words[0]).fill,
    caption: figure.querySelector('figcaption').textContent};
})"""


@dataclass
class Opened:
    """What a browser did with a page."""

    page: Any
    asked: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # on the console, and errors

    @property
    def figures(self) -> list[dict[str, Any]]:
        return list(self.page.evaluate(LOOK))


@contextlib.contextmanager
def opened(browser: Any, file: Path, scheme: str = "light", size: dict[str, int] = LAPTOP) -> Iterator[Opened]:
    """From disk, with the network off."""
    context = browser.new_context(offline=True, color_scheme=scheme, viewport=size)
    try:
        page = context.new_page()
        seen = Opened(page)
        page.on("request", lambda request: seen.asked.append(request.url))
        page.on("requestfailed", lambda request: seen.failed.append(request.url))
        page.on("console", lambda message: seen.told.append(message.text))
        page.on("pageerror", lambda error: seen.told.append(str(error)))
        page.goto(file.as_uri())
        yield seen
    finally:
        context.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run against the simulated engine."""
    made = run_locust(tmp_path_factory.mktemp("browser"), scenario=SCENARIO)
    assert made.good, made.output
    assert made.measured()
    assert [row for row in made.rows if row["error_kind"] not in ("", "cancelled")] == []
    return made.folder


@pytest.fixture(scope="module")
def report(run: Path) -> Path:
    return written(run, run / "report.html")


def written(*arguments: Path) -> Path:
    """The report of runs, into the file that is named last."""
    *runs, file = arguments
    with contextlib.redirect_stdout(io.StringIO()):
        assert analysis.main(["report", *map(str, runs), "-o", str(file)]) == 0
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_plot_is_seen_without_a_network(chromium: Any, report: Path, scheme: str) -> None:
    """Each plot has an area, lines and words inside it, in colours that stand out; nothing is asked for or failed."""
    with opened(chromium, report, scheme) as seen:
        assert (seen.asked, seen.failed, seen.told) == ([report.as_uri()], [], [])
        paper = luminance(seen.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert paper > 0.9 if scheme == "light" else paper < 0.05
        assert [figure["id"] for figure in seen.figures] == PLOTS
        for figure in seen.figures:
            assert figure["width"] > 400, figure
            assert figure["height"] > 200, figure
            assert figure["drawn"] >= 10, figure  # axes, ticks, grid and lines
            assert figure["words"] >= 8, figure
            assert figure["outside"] == [], figure
            assert contrast(luminance(figure["ink"]), paper) > 4.5, figure
            assert max(contrast(luminance(ink), paper) for ink in figure["inks"] if ink != "none") > 4.5, figure
            assert len(figure["caption"]) > 40, figure


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_page_is_no_wider_than_the_screen(chromium: Any, report: Path, size: dict[str, int]) -> None:
    """Wide tables scroll by themselves, the page does not."""
    with opened(chromium, report, size=size) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_links_of_sentences_lead_to_their_rows(chromium: Any, report: Path) -> None:
    """A click on a level's name in the findings brings its row into view and marks it."""
    from playwright.sync_api import expect

    with opened(chromium, report) as seen:
        link = seen.page.locator("#findings .rows a").last
        anchor = link.get_attribute("href")
        before = seen.page.evaluate("scrollY")
        link.click()
        row = seen.page.locator(f"tr{anchor}")
        expect(row).to_be_in_viewport()  # waits while the page scrolls
        assert row.evaluate("row => row.matches(':target')")
        assert seen.page.evaluate("scrollY") > before
        plain, marked = (
            seen.page.locator(f"tr{which} td").first.evaluate("cell => getComputedStyle(cell).backgroundColor")
            for which in (":not(:target)", anchor)
        )
        assert plain != marked


def test_comparison_is_drawn(chromium: Any, run: Path, tmp_path: Path) -> None:
    """Two runs give the plots of the change beside those of the candidate."""
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    with opened(chromium, written(run, copy, tmp_path / "comparison.html")) as seen:
        figures = {figure["id"]: figure for figure in seen.figures}
        assert {"change-output-tok-s", "change-ttft-p50-s", *PLOTS} <= set(figures)
        assert all(figure["width"] > 400 and figure["drawn"] >= 5 for figure in figures.values())
        assert (seen.failed, seen.told) == ([], [])


def luminance(colour: str) -> float:
    """Relative luminance of ``rgb(…)`` by WCAG 2, 0 to 1."""
    parts = [float(part) / 255.0 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    """Of two luminances by WCAG 2, 1 to 21."""
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)
