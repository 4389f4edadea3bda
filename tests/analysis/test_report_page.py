"""The report of finished runs as files: whole, self-contained, and safe whatever names and errors hold."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.__main__ import main
from tests.analysis.conftest import SMALL, write_run
from tokenswarm.records import RequestRecord

DATA = Path(__file__).parents[1] / "data"
D23 = DATA / "cases" / "D23"
PLOTS = ("throughput", "ttft", "tpot", "e2e", "speed", "scaling", "timeline")


class Page(HTMLParser):
    """Elements, ids, links and text of a page as a browser without scripts reads them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []
        self.source, self.text = text, ""
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag == "tr":
            self.rows.append([])
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name.startswith("on"):
                self.outside.append(f"{name}={value}")
            if name in ("src", "href", "xlink:href", "data", "action", "srcset"):
                (self.links if (value or "").startswith("#") else self.outside).append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


@dataclass(frozen=True)
class Small:
    """The report of the hand-made run, made once."""

    page: Page
    markdown: str
    folder: Path


@pytest.fixture(scope="module")
def small_report(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Called where the run is, so that no path of this machine is in it."""
    folder = tmp_path_factory.mktemp("report")
    with contextlib.chdir(SMALL.parent):
        assert main(["report", SMALL.name, "-o", str(folder / "report.html"), "--markdown"]) == 0
    return Small(Page((folder / "report.html").read_text("utf-8")), (folder / "report.md").read_text("utf-8"), folder)


@pytest.fixture
def report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Page, str]]:
    """``python -m analysis report RUN`` in this process: its page, and its Markdown."""

    def make(*runs: Path | str) -> tuple[Page, str]:
        file = tmp_path / "out" / "report.html"
        code = main(["report", *map(str, runs), "-o", str(file), "--markdown"])
        assert code == 0, capsys.readouterr().err
        text = file.read_text(encoding="utf-8")
        return Page(text), file.with_suffix(".md").read_text(encoding="utf-8")

    return make


def request(number: int, level: int, users: int, traffic: str = "chat", **changes: Any) -> RequestRecord:
    """Sent at ``number`` seconds, first token after 0.1 s, the other ten after 0.2 s together."""
    sent = 1000.0 * level + number
    facts: dict[str, Any] = {
        "first_token_s": sent + 0.1, "first_output_s": sent + 0.1, "last_token_s": sent + 0.3, "finished_s": sent + 0.3,
        "output_tokens": 11, "token_source": "usage", "clock": "kernel",
    }  # fmt: skip
    facts |= changes
    return RequestRecord(
        level=level, concurrency=users, phase="measured", ticket=number, worker="local", traffic=traffic,
        session=f"{level}.{number}.{traffic}", sent_s=sent, **facts,
    )  # fmt: skip


def failed(number: int, level: int, users: int, traffic: str, error: str) -> RequestRecord:
    times = dict.fromkeys(("first_token_s", "first_output_s", "last_token_s", "output_tokens", "token_source"))
    return request(number, level, users, traffic, error_kind="http_5xx", http_status=503, error=error, **times)


def test_small_run_as_markdown(small_report: Small, snapshot: SnapshotAssertion) -> None:
    """The whole text of the hand-made run, whose numbers are fixed."""
    assert small_report.markdown == snapshot


def test_small_run_has_every_plot_and_table(small_report: Small, snapshot: SnapshotAssertion) -> None:
    """All figures are there, ids are unique, every link has its place, nothing is loaded from elsewhere."""
    page, markdown = small_report.page, small_report.markdown
    figures = re.findall(r'<figure id="([^"]+)"', page.source)
    assert figures == [
        *(f"plot-{name}" for name in PLOTS[:-1]),
        *(f"ecdf-{n}" for n in ("ttft", "tpot", "e2e")),
        "plot-timeline",
    ]
    assert [one for one, count in Counter(page.ids).items() if count > 1] == []
    assert len(page.links) > 30
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert page.outside == ["data:,"]  # an empty icon, so that no browser asks for one
    assert page.tags["script"] == 0
    assert re.findall(r"https?://(?!127\.0\.0\.1)[^\s\"<]*", page.source) == []
    assert page.tags["svg"] == len(figures)
    assert re.findall(r"<table>.*?</table>", page.source, re.DOTALL) == snapshot
    assert {link.removesuffix(")") for link in re.findall(r"\]\(#([^)]+)\)", markdown)} <= set(
        re.findall(r'id="([^"]+)"', markdown)
    )


def test_plots_beside_the_markdown_are_whole_files(small_report: Small) -> None:
    """Each plot that the Markdown shows is an SVG file that parses, with its own colours for light and dark."""
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", small_report.markdown)
    assert len(shown) == 10
    for name in shown:
        root = ET.parse(small_report.folder / name).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        text = (small_report.folder / name).read_text()
        defined, used = (set(re.findall(pattern, text)) for pattern in (r"(--[\w-]+):", r"var\((--[\w-]+)\)"))
        assert used
        assert used <= defined
        assert "prefers-color-scheme: dark" in text


def test_d23_markup_in_names_and_errors(report: Callable[..., Any], tmp_path: Path) -> None:
    """Names and errors with markup add no element, are read as written, and leave Markdown tables their columns."""
    right = json.loads((D23 / "expected.json").read_text())
    names = (D23 / "names.txt").read_text().splitlines()
    body = (D23 / "error.html").read_text().strip()
    assert len(names) == right["texts_visible"]
    records = [request(i, 0, 1, name) for i, name in enumerate(names)]
    records += [failed(10 + i, 0, 1, name, f"{body} {name}") for i, name in enumerate(names)]
    traffic = [{"name": name, "objective": names[1]} for name in names]
    run = write_run(
        tmp_path / "run", records, levels=[{"concurrency": 1}], target={"model": names[0]},
        scenario={"name": names[1], "traffic": traffic, "objectives": {names[1]: {"failed": 0.5}}}, notes=[names[3]],
    )  # fmt: skip
    page, markdown = report(run)
    assert page.tags["script"] == right["live_script_tags_added"]
    assert page.tags["img"] == right["live_img_tags_added"]
    assert page.tags["center"] == 0  # of the error's body
    assert page.tags["userid"] == 0
    assert [name for name in names if name in page.text] == names
    assert body in page.text
    assert page.outside == ["data:,"]
    outside_code = re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    for block in re.findall(r"(?:^\|.*\n)+", outside_code, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert not re.search(r"<(?!/?a\b|/?details>|/?summary>)[a-zA-Z/]", outside_code)


def test_dollars_and_underscores_are_names_in_plots(report: Callable[..., Any], tmp_path: Path) -> None:
    """A class called ``_a$x^2$`` is in the legend as it is written, neither a formula nor hidden."""
    records = [request(i, level, level + 1, name) for level in (0, 1) for name in ("_a$x^2$", "b") for i in range(3)]
    run = write_run(tmp_path / "run", records, levels=[{"concurrency": 1}, {"concurrency": 2}])
    page, _ = report(run)
    (plot,) = re.findall(r'<figure id="plot-ttft">.*?</figure>', page.source, re.DOTALL)
    assert ">_a$x^2$</text>" in plot


def test_interrupted_run_has_a_report_that_says_so(report: Callable[..., Any], small: Path) -> None:
    """Without end.json and with a torn last row the page has its plots and tells that the run was interrupted."""
    (small / "end.json").unlink()
    text = (small / "requests.csv").read_text()
    (small / "requests.csv").write_text(text[: len(text) - 40])
    page, _ = report(small)
    assert "INTERRUPTED" in page.text
    assert "Not credible: the run was interrupted" in page.text
    assert page.tags["svg"] >= 8


def test_run_without_requests_says_what_is_missing(report: Callable[..., Any], tmp_path: Path) -> None:
    """A run that sent nothing has no plot, and a line for each that is missing."""
    page, markdown = report(write_run(tmp_path / "run", [], levels=[{"concurrency": 1}]))
    assert page.tags["svg"] == 0
    for text in (page.text, markdown):
        assert "Not credible: the run has no measured request" in text
        assert "No plots over the load" in text
        assert "No distributions: no measured request succeeded" in text
        assert "No timeline" in text


def test_statistics_of_another_locustfile(report: Callable[..., Any], tmp_path: Path) -> None:
    """Locust's own CSV files give the table by name; what they do not tell is named instead of drawn."""
    stats = (
        "Type,Name,Request Count,Failure Count,Median Response Time,Average Response Time,Min Response Time,"
        "Max Response Time,Average Content Size,Requests/s,Failures/s,50%,95%\n"
        "GET,/slow,100,0,200,210.0,100,900,10,1.0,0.0,200,800\n"
        "GET,/fast,100,5,20,21.0,10,90,10,1.0,0.0,20,80\n"
        ",Aggregated,200,5,110,115.5,10,900,10,2.0,0.0,110,800\n"
    )
    (tmp_path / "out_stats.csv").write_text(stats)
    page, _ = report(tmp_path / "out")
    assert "Slowest at p95 is GET /slow: 800 ms" in page.text
    assert "5 requests failed" in page.text
    assert "No distributions: the source has only summaries" in page.text
    assert "Not told by this source: server, " in page.text


def test_results_of_another_tool(report: Callable[..., Any]) -> None:
    """Imported figures have a report of their own, which names its source."""
    page, _ = report(DATA / "imports" / "vllm-bench-serve" / "out.json")
    assert "vllm" in page.text.lower()
    assert "No timeline" in page.text


def test_two_runs_are_compared(report: Callable[..., Any], tmp_path: Path) -> None:
    """A candidate that is twice as slow is called worse, with links to the cells and plots of the change."""

    def run(name: str, factor: float) -> Path:
        records = []
        for i in range(200):
            sent, wait = 1000.0 + i, factor * (0.1 + 0.0001 * (i * 37 % 100))  # 0.1 to 0.11 s in a mixed order
            ends = sent + wait + 0.2 * factor
            times = {
                "first_token_s": sent + wait,
                "first_output_s": sent + wait,
                "last_token_s": ends,
                "finished_s": ends,
            }
            records.append(request(i, 1, 1, prompt_tokens=10, **times))
        return write_run(tmp_path / name, records, levels=[{"level": 1, "concurrency": 1}])

    page, _ = report(run("base", 1.0), run("candidate", 2.0))
    assert "worse: TTFT p50" in page.text
    assert {"#comparison-cells-1", "#comparison-cells-2"} & set(page.links)
    assert "change-ttft-p50-s" in page.ids


def test_places_that_cannot_be_written_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is no page, and a folder that is a file, end with one line and code 2."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    for output in (tmp_path / "report.md", blocked / "report.html"):
        assert main(["report", str(SMALL), "-o", str(output)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(output) in line


def test_report_stands_in_the_run_folder(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without -o the page is report.html of the run, and its name is printed; the tables are read as before."""
    before = shutil.copytree(small, small.parent / "before")
    assert main(["report", str(small)]) == 0
    assert capsys.readouterr().out == f"{small / 'report.html'}\n"
    assert {path.name for path in small.iterdir()} == {path.name for path in before.iterdir()} | {"report.html"}
