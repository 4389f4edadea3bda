"""Runs that are started and stopped from Locust's page, several in one process."""

from __future__ import annotations

import contextlib
import csv
import json
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.conftest import LOCUST, ROOT, Simulator, free_port

LIMIT_S = 40


class Page:
    """Locust with its page, on the loopback interface."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        port = str(free_port())
        self.url = f"http://127.0.0.1:{port}"
        command = [str(LOCUST), "-f", str(ROOT / "locustfiles" / "chat.py"), "--web-host", "127.0.0.1"]
        if "--processes" in options:
            bus = str(free_port())
            command += ["--master-bind-port", bus, "--master-port", bus]
        self.log = open(folder / "page.log", "w+", encoding="utf-8")  # noqa: SIM115 - closed by end
        self.process = subprocess.Popen(
            [*command, "--web-port", port, *options],
            cwd=folder, stdout=self.log, stderr=self.log, start_new_session=True,
        )  # fmt: skip
        self.wait("the page", self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            self._call("/")
            return True
        return False

    def _call(self, path: str, **form: Any) -> str:
        data = urllib.parse.urlencode(form).encode() if form else None
        with urllib.request.urlopen(self.url + path, data, timeout=30) as answer:
            return str(answer.read().decode())

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + LIMIT_S
        while not (value := condition()):
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, f"{what}: waited in vain\n{self.text()}"
            time.sleep(0.05)
        return value

    def swarm(self, users: int = 1, **more: Any) -> None:
        answer = json.loads(self._call("/swarm", user_count=users, spawn_rate=users, **more))
        assert answer["success"], answer

    def swarm_levels(self, number: int) -> None:
        """Start run ``number``; Locust ignores a start while it still closes the run before."""

        def started() -> bool:
            self.swarm(7)
            deadline = time.monotonic() + 3
            while len(self.folders()) <= number and time.monotonic() < deadline:
                time.sleep(0.05)
            return len(self.folders()) > number

        self.wait("a run", started)

    def stop(self) -> None:
        self._call("/stop", now="yes")

    def await_state(self, state: str) -> None:
        self.wait(state, lambda: json.loads(self._call("/stats/requests"))["state"] == state)

    def folders(self) -> list[Path]:
        return sorted(self.folder.glob("results/*/"), key=lambda path: path.stat().st_ctime_ns)

    def rows(self, number: int, file: str = "requests.csv") -> list[dict[str, str]]:
        """Of run ``number``, from 0; nothing where there is none yet."""
        if len(self.folders()) <= number or not (self.folders()[number] / file).exists():
            return []
        with open(self.folders()[number] / file, newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))

    def await_end(self, number: int) -> Path:
        self.wait("end.json", lambda: len(self.folders()) > number and (self.folders()[number] / "end.json").exists())
        return self.folders()[number]

    def text(self) -> str:
        self.log.flush()
        return (self.folder / "page.log").read_text(encoding="utf-8")

    def end(self) -> int:
        """Its exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def start(*options: str) -> Page:
        pages.append(Page(tmp_path, *options))
        return pages[-1]

    yield start
    for one in pages:
        if one.process.poll() is None:
            one.process.terminate()
            try:
                one.process.wait(20)
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
        one.log.close()


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "forked"])
def test_a_free_load_is_started_and_stopped_twice(
    simulator: Callable[..., Simulator], page: Callable[..., Page], processes: tuple[str, ...]
) -> None:
    """Two runs of one process, each on the server that the page names, make two run folders; nothing is mixed."""
    first, second = simulator("--speed", "4"), simulator("--speed", "4")
    locust = page(*processes)
    for number, (server, users) in enumerate(((first, 2), (second, 3))):
        locust.swarm(users, host=server.url)
        locust.wait("measured rows", lambda: [row for row in locust.rows(number) if row["phase"] == "measured"][20:])  # noqa: B023
        locust.stop()
        folder = locust.await_end(number)
        rows = locust.rows(number)
        assert {row["concurrency"] for row in rows if row["phase"] == "measured"} == {str(users)}
        assert {row["error_kind"] for row in rows if row["phase"] == "measured"} == {""}
        assert {row["request_id"] for row in rows if row["request_id"]} <= {row["id"] for row in server.truth()}
        assert json.loads((folder / "run.json").read_text())["target"]["url"] == server.url
        assert len(rows) == len(server.truth())
        locust.wait("table", (folder / "table.json").exists)
    assert len(locust.folders()) == 2
    assert locust.end() == 0, locust.text()
    assert "Traceback" not in locust.text()


def test_levels_are_run_from_the_page(
    simulator: Callable[..., Simulator], page: Callable[..., Page], closed_scenario: Callable[..., str], tmp_path: Path
) -> None:
    """The scenario's levels decide, whatever the form says; a second run is another folder; a stopped one is told."""
    server = simulator("--speed", "4")
    (tmp_path / "levels.yaml").write_text(closed_scenario("users: [1, 3, 3], sessions: 6, warmup_sessions: 1"))
    locust = page("--scenario", "levels.yaml", "-H", server.url, "--csv", "out")
    for number in range(2):
        locust.swarm_levels(number)
        locust.await_end(number)
        levels = locust.rows(number, "levels.csv")
        assert [(row["concurrency"], row["state"]) for row in levels] == [(n, "complete") for n in ("1", "3", "3")]
        assert len([row for row in locust.rows(number) if row["phase"] == "measured"]) == 18
    (tmp_path / "levels.yaml").write_text("the file is read once")
    locust.swarm_levels(2)
    locust.wait("rows", lambda: locust.rows(2))
    locust.stop()
    end = json.loads((locust.await_end(2) / "end.json").read_text())
    assert end["state"] in ("stopped", "finished")
    assert all(row["cached_tokens"] == 0 for row in server.truth()), "each run has words of its own"
    locust.end()
    assert "Traceback" not in locust.text()


def test_a_target_that_cannot_be_used_is_told_on_the_page_and_another_one_works(
    simulator: Callable[..., Simulator], page: Callable[..., Page]
) -> None:
    """The page starts without a server; a wrong host makes no run folder; the right one then makes the first."""
    server = simulator("--speed", "4")
    locust = page()
    locust.swarm(1, host="http://127.0.0.1:1")
    locust.wait("a message", lambda: "connection refused" in locust.text())
    locust.await_state("stopped")
    assert locust.folders() == []
    locust.swarm(1, host=server.url)
    locust.wait("rows", lambda: locust.rows(0))
    locust.stop()
    locust.await_end(0)
    assert locust.end() == 0, locust.text()
