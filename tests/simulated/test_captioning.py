"""Streams of captions through a whole Locust: what the server saw of their pictures, what their rows say, and what
happens when pictures cannot be had."""

from __future__ import annotations

import base64
import io
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.simulated.conftest import ROOT, Run, Simulator, assert_as_served, sessions_of
from tests.simulated.scripted import Handler, Scripted, good, scripted
from tests.simulated.test_web_page import Page

CAPTIONING = ROOT / "locustfiles" / "captioning.py"
MIXED = ROOT / "locustfiles" / "mixed.py"
PRESET = "rtx-pro-6000-captioning"
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
VISION_ARENA = pa.schema(
    [
        ("images", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))),
        ("conversation", pa.list_(pa.list_(MESSAGE))),
    ]
)
LIMIT_S = 15.0


def photograph(number: int) -> bytes:
    """A small PNG whose file is as long as no other one's."""
    file = io.BytesIO()
    size = (60 + number, 40)
    Image.frombytes("RGB", size, Random(number).randbytes(size[0] * size[1] * 3)).save(file, "PNG")
    return file.getvalue()


def folder_of(path: Path, count: int) -> Path:
    path.mkdir()
    for number in range(count):
        (path / f"p{number:02}.png").write_bytes(photograph(number))
    return path


def scenario(traffic: str, load: str = "users: [2], sessions: 6, tail: drain", probe: str = "never") -> str:
    return f"traffic:\n  - {{kind: captioning, {traffic}}}\nload: {{closed: {{{load}}}}}\ncache_probe: {probe}\n"


def counter(server: Simulator, name: str) -> float:
    (value,) = re.findall(rf"^vllm:{name}_total{{.*}} (\S+)$", str(server.get("/metrics")), re.MULTILINE)
    return float(value)


def assert_good(run: Run, server: Simulator) -> None:
    """As the server served them, pictures included, and each answer as long as asked."""
    assert_as_served(run, server, "images", "image_tokens")
    assert all(row["output_tokens"] == row["asked_output_tokens"] for row in run.rows)


# the workload -----------------------------------------------------------------------------------------------------


def test_thirty_streams_look_each_picture_up_twice_and_find_it_once(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """By the server's own counters, over content: every first look-up misses and every second one hits, so that no
    two of 66 pictures are the same and half of the look-ups are served from the multimodal cache. Its prefix cache is
    found to be on and without effect before the load begins."""
    server = simulator("--speed", "10", "--no-stall", preset=PRESET)
    traffic = "output_tokens: {uniform: [20, 60]}, images: {synthetic: {pixels: {uniform: [3136, 200000]}}}"
    run = locust(
        "-H", server.url, locustfile=CAPTIONING,
        scenario=scenario(traffic, "users: [30], sessions: 60, warmup_sessions: 6, tail: drain", probe="auto"),
    )  # fmt: skip
    assert_good(run, server)
    assert (len(run.measured()), len(run.rows)) == (120, 132)
    assert (counter(server, "mm_cache_queries"), counter(server, "mm_cache_hits")) == (132, 66)
    hits = {row["id"]: row["image_hits"] for row in server.truth()}
    for rows in sessions_of(run.rows).values():
        first, second = rows
        assert (hits[first["request_id"]], hits[second["request_id"]]) == (0, 1)
        assert (first["session_end"], second["session_end"]) == ("", "done")
        assert first["image_bytes"] == second["image_bytes"]
        assert 3136 <= int(first["image_pixels"]) <= 200_000
        # the question's 24 tokens and what the template puts around answer and question
        grown = int(second["prompt_tokens"]) - int(first["prompt_tokens"]) - int(first["output_tokens"])
        assert 24 < grown <= 24 + 16
        assert int(second["history_tokens"]) == int(first["prompt_tokens"]) + int(first["output_tokens"])
        assert float(first["prepare_s"]) >= 0
        assert float(first["encode_s"]) > 0
        assert (second["prepare_s"], second["encode_s"]) == ("", "")
        # base64 makes four bytes of three
        assert int(first["request_bytes"]) > int(first["image_bytes"]) * 4 / 3
    samples = run.file("engine.csv")
    queried, found = ([int(float(row[name])) for row in samples] for name in ("mm_queries", "mm_hits"))
    assert queried[-1] - queried[0] == 132
    assert found[-1] - found[0] == 66
    (level,) = run.table()["levels"]
    assert (level["image_cache"]["state"], level["image_cache"]["measured"]) == ("confirmed", 0.5)
    assert json.loads((run.folder / "run.json").read_text())["cache_probe"]["state"] == "inert"
    assert "enabled but inert" in run.output


def test_the_same_pictures_with_one_and_with_two_workers(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], tmp_path: Path
) -> None:
    """Each ticket has the files, lengths and pauses that it has in one process; made-up ones have the same sizes."""
    text = (
        "traffic:\n"
        f"  - {{name: files, kind: captioning, images: {{folder: {folder_of(tmp_path / 'pictures', 9)}}}, "
        "images_per_session: {uniform: [1, 2]}, turns: {uniform: [1, 3]}, output_tokens: {uniform: [4, 12]}}\n"
        "  - {name: made-up, kind: captioning, images: {synthetic: {pixels: {uniform: [3136, 20000]}}}, "
        "output_tokens: 4}\n"
        "load: {closed: {users: [4], sessions: 16, tail: drain}}\n"
    )
    played = []
    for options in ((), ("--processes", "2")):
        server = simulator("--speed", "20", "--no-stall", preset=PRESET)
        run = locust("-H", server.url, "--no-table", *options, scenario=text, locustfile=CAPTIONING)
        assert_good(run, server)
        assert len({row["worker"] for row in run.rows}) == (2 if options else 1)
        names = ("ticket", "turn", "traffic", "images", "image_pixels", "asked_output_tokens", "pause_s")
        played.append(
            sorted(
                [row[name] for name in names] + [row["image_bytes"] if row["traffic"] == "files" else ""]
                for row in run.measured()
            )
        )
    assert played[0] == played[1]
    files = {int(row[-1]) for row in played[0] if row[2] == "files" and row[3] == "1"}
    assert len(files) > 2
    assert files <= {len(photograph(number)) for number in range(9)}


def test_captions_beside_chats_and_agents(simulator: Callable[..., Simulator], locust: Callable[..., Run]) -> None:
    """The mix is decided ticket by ticket; only captions have pictures, each class its own shape, none fails."""
    server = simulator("--speed", "20", "--no-stall", preset=PRESET)
    text = (
        "traffic:\n"
        "  - {name: chat, weight: 3, turns: 2, input_tokens: 40, output_tokens: 6}\n"
        "  - {name: agents, kind: agentic, weight: 1, steps: 3, tool_time_s: 0, output_tokens: 6, "
        "task_tokens: 20, tool_result_tokens: 10}\n"
        "  - {kind: captioning, weight: 2, images_per_session: 2, output_tokens: 6, "
        "images: {synthetic: {pixels: 10000}}}\n"
        "load: {closed: {users: [6], sessions: 24, tail: drain}}\n"
    )
    run = locust("-H", server.url, "--no-table", scenario=text, locustfile=MIXED)
    assert_good(run, server)
    counts = {name: len({row["session"] for row in run.measured() if row["traffic"] == name}) for name in
              ("chat", "agents", "captioning")}  # fmt: skip
    assert counts == {"chat": 12, "agents": 4, "captioning": 8}
    assert {(row["traffic"], row["images"]) for row in run.rows} == {
        *(("chat", ""), ("agents", ""), ("captioning", "2"))
    }
    assert counter(server, "mm_cache_queries") == 2 * 2 * 8  # pictures, turns and sessions
    assert counter(server, "mm_cache_hits") == 2 * 8


# folders and data sets --------------------------------------------------------------------------------------------


def sent(server: Scripted) -> list[tuple[list[bytes], str]]:
    """The files and the last question of each request, in order of arrival."""
    found = []
    for request in server.requests:
        messages = request["body"]["messages"]
        files, question = [], ""
        for message in messages:
            if message["role"] != "user":
                continue
            parts = message["content"] if isinstance(message["content"], list) else []
            files += [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
            question = parts[-1]["text"] if parts else message["content"]
        found.append(([base64.b64decode(url.partition(";base64,")[2], validate=True) for url in files], question))
    return found


def test_files_are_sent_as_they_are_in_both_turns(locust: Callable[..., Run], tmp_path: Path) -> None:
    """File by file in the order of their names, byte for byte, under the media type of each."""
    folder_of(tmp_path / "pictures", 3)

    def answer(http: Handler, number: int) -> None:
        http.stream(*good(("I see", " it")))

    text = scenario("images: {folder: pictures}", "users: [1], sessions: 4, tail: drain")
    with scripted(answer) as server:
        run = locust("-H", server.url, "--no-table", scenario=text, locustfile=CAPTIONING)
        assert run.good, run.output
        assert [files for files, _ in sent(server)] == [[photograph(n)] for n in (0, 0, 1, 1, 2, 2, 0, 0)]
        urls = [
            part["image_url"]["url"]
            for request in server.requests
            for part in request["body"]["messages"][0]["content"]
            if part["type"] == "image_url"
        ]
        assert {url.partition(",")[0] for url in urls} == {"data:image/png;base64"}
        assert server.requests[1]["body"]["messages"][1] == {"role": "assistant", "content": "I see it"}
    (note,) = [one for one in json.loads((run.folder / "run.json").read_text())["notes"] if "images" in one]
    assert re.fullmatch(r"\S*/pictures has 3 images for 4 sessions: images repeat and may be served from .*", note)


def test_a_data_set_brings_its_pictures_and_questions(locust: Callable[..., Run], tmp_path: Path) -> None:
    """In the layout of VisionArena-Chat: a row's pictures, its own questions in order, and then a made-up one."""
    rows = [
        {
            "images": [{"bytes": photograph(10 * row + n), "path": None} for n in range(row + 1)],
            "conversation": [
                [{"role": "user", "content": f"What is {row}?"}, {"role": "assistant", "content": "?"}],
                [{"role": "user", "content": f"And beside {row}?"}, {"role": "assistant", "content": "?"}],
            ],
        }
        for row in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=VISION_ARENA), tmp_path / "arena.parquet")

    def answer(http: Handler, number: int) -> None:
        http.stream(*good())

    text = scenario("turns: 3, images: {parquet: {file: arena.parquet}}", "users: [1], sessions: 3, tail: drain")
    with scripted(answer) as server:
        run = locust("-H", server.url, "--no-table", scenario=text, locustfile=CAPTIONING)
        assert run.good, run.output
        requests = sent(server)
    assert len(requests) == 9
    for row in range(3):
        turns = requests[3 * row : 3 * row + 3]
        assert {tuple(files) for files, _ in turns} == {tuple(photograph(10 * row + n) for n in range(row + 1))}
        assert [question for _, question in turns[:2]] == [f"What is {row}?", f"And beside {row}?"]
        assert len(turns[2][1]) > 20
    assert [row["images"] for row in run.measured()] == ["1", "1", "1", "2", "2", "2", "3", "3", "3"]


# what cannot be used ----------------------------------------------------------------------------------------------

MISTAKES = {
    "images: {folder: bad}": [
        r"\S*/bad/b\.png: a broken image \(.+\); a JPEG, PNG, WebP or GIF file is wanted",
        r"\S*/bad/gone\.png: cannot be read \(No such file or directory\)",
    ],
    "images: {folder: empty}": [r"\S*/empty: holds no file; at least one image is wanted"],
    "images: {parquet: {file: a.parquet, image_column: picture}}": [
        r"\S*/a\.parquet: has no column 'picture'; one of images, conversation is wanted"
    ],
}


def test_unusable_pictures_are_told_before_the_load(locust: Callable[..., Run], tmp_path: Path) -> None:
    """A broken image, an unreadable file, an empty folder, a wrong column: one line each, exit code 2, no request."""
    for name in ("bad", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(photograph(1))
    (tmp_path / "bad" / "b.png").write_bytes(photograph(2)[:-200])
    (tmp_path / "bad" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    row = {"images": [{"bytes": photograph(3), "path": None}], "conversation": []}
    pq.write_table(pa.Table.from_pylist([row], schema=VISION_ARENA), tmp_path / "a.parquet")
    with scripted(lambda http, number: http.stream(*good())) as server:
        for images, lines in MISTAKES.items():
            run = locust("-H", server.url, scenario=scenario(images), locustfile=CAPTIONING)
            assert run.code == 2, run.output
            told = [one for one in run.errors.splitlines() if one.strip() and "/INFO/" not in one]
            assert len(told) == len(lines), run.errors
            for one, line in zip(told, lines, strict=True):
                assert re.fullmatch(line, one), one
            assert server.requests == []


def test_a_file_that_goes_while_the_run_is_under_way_fails_its_session_only(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], tmp_path: Path
) -> None:
    """A session that needs it is one failed row that blames the generator; the level ends with all its sessions, and is
    called not credible."""
    server = simulator("--speed", "3", "--no-stall", preset=PRESET)
    folder = folder_of(tmp_path / "pictures", 20)

    def remove(process: subprocess.Popen[str]) -> None:
        _until(lambda: server.truth() or process.poll() is not None)
        for name in ("p18.png", "p19.png"):
            (folder / name).unlink()

    traffic = f"output_tokens: 20, images: {{folder: {folder}}}"
    text = scenario(traffic, "users: [2], sessions: 20, tail: drain")
    run = locust("-H", server.url, scenario=text, locustfile=CAPTIONING, watch=remove)
    assert run.code == 3, run.output
    assert "not credible: c=2: failures inside the load generator (2 client)" in run.output
    failed = [row for row in run.measured() if row["error_kind"]]
    assert sorted((row["ticket"], row["error_kind"], row["turn"], row["first_token_s"]) for row in failed) == [
        *[("18", "client", "0", ""), ("19", "client", "0", "")]
    ]
    assert all(re.search(r"/p1[89]\.png: cannot be read \(No such file", row["error"]) for row in failed)
    assert sorted(len(rows) for rows in sessions_of(run.measured()).values()) == [1] * 2 + [2] * 18
    (level,) = run.file("levels.csv")
    assert (level["state"], level["measured_sessions"]) == ("complete", "20")
    assert "Traceback" not in run.output


VANISHING = """\
import shutil
from locust import events
from tokenswarm import plugin, users

plugin.install("captioning")


@events.test_start.add_listener
def _remove(**_):
    shutil.rmtree({folder!r}, ignore_errors=True)


class CaptionUser(users.CaptionUser):
    abstract = False
"""


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "forked"])
def test_a_worker_without_the_pictures_ends_the_run(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], tmp_path: Path, processes: tuple[str, ...]
) -> None:
    """The master found them and the machine of the load has not: one line of each worker, exit code 2, no waiting for
    users that will never be ready."""
    server = simulator(preset=PRESET)
    folder = folder_of(tmp_path / "pictures", 2)
    file = tmp_path / "vanishing.py"
    file.write_text(VANISHING.format(folder=str(folder)))
    text = scenario(f"images: {{folder: {folder}}}")
    run = locust("-H", server.url, "--no-table", *processes, scenario=text, locustfile=file, timeout=40)
    assert run.code == 2, run.output
    workers = ["w0", "w1"] if processes else ["local"]
    told = [one for one in run.errors.splitlines() if "cannot be read" in one and "tokenswarm.master" in one]
    assert len(told) == len(workers)
    for worker in workers:
        assert any(f"{worker}: {folder}: cannot be read" in one for one in told)
    assert server.truth() == []
    assert "Traceback" not in run.output


# the process that makes pictures ----------------------------------------------------------------------------------


def _until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _parents() -> dict[int, int]:
    """Of every process on this machine that runs."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if fields[0] != "Z":
            found[int(stat.parent.name)] = int(fields[1])
    return found


def _makers(locust_pid: int) -> set[int]:
    """Processes below this one that make pictures for a load."""
    parents, found = _parents(), set()
    for pid, parent in parents.items():
        above = parent
        while above not in (0, locust_pid) and above in parents:
            above = parents[above]
        if above != locust_pid:
            continue
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"tokenswarm.image_maker" in command and b"--check" not in command:
            found.add(pid)
    return found


@pytest.mark.parametrize(
    ("ending", "processes"),
    [(signal.SIGINT, ()), (signal.SIGTERM, ("--processes", "2")), (signal.SIGKILL, ())],
    ids=["interrupt", "terminated workers", "killed"],
)
def test_a_run_that_is_stopped_leaves_no_process_behind(
    simulator: Callable[..., Simulator],
    locust: Callable[..., Run],
    tmp_path: Path,
    ending: signal.Signals,
    processes: tuple[str, ...],
) -> None:
    """However Locust ends, the makers of its pictures end with it, one for each worker."""
    server = simulator(preset=PRESET)
    seen: list[set[int]] = []

    def stop(process: subprocess.Popen[str]) -> None:
        def rows() -> bool:
            return any(path.stat().st_size > 2000 for path in tmp_path.glob("results/*/requests.csv"))

        _until(lambda: rows() or process.poll() is not None)
        seen.append(_makers(process.pid))
        process.send_signal(ending)
        process.wait(LIMIT_S)
        _until(lambda: not seen[0] & _parents().keys())

    text = scenario("output_tokens: 10", "users: [4], duration_s: 60")
    run = locust("-H", server.url, "--no-table", *processes, scenario=text, locustfile=CAPTIONING, watch=stop)
    assert len(seen[0]) == (2 if processes else 1), run.output
    assert [row["error"] for row in run.rows if row["error_kind"] not in ("", "cancelled")] == []
    assert len(run.rows) > 3


def test_sessions_that_still_wait_for_pictures_are_cut_without_a_row(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """A level ends by time while large pictures are being made: who waits leaves nothing, and the next level runs."""
    server = simulator("--speed", "50", "--no-stall", preset="demo")
    traffic = "images: {synthetic: {pixels: 3000000, format: png}}, images_per_session: 3, turns: 1, output_tokens: 4"
    load = "users: [1, 6], duration_s: 1.5, drain_limit_s: 0.2"
    run = locust("-H", server.url, "--no-table", scenario=scenario(traffic, load), locustfile=CAPTIONING)
    levels = run.file("levels.csv")
    assert [level["state"] for level in levels] == ["complete", "complete"], run.output
    for level in levels:
        assert float(level["ended_s"]) - float(level["started_s"]) < 1.5 + 0.2 + 3
    assert len(run.rows) < 30
    assert {row["error_kind"] for row in run.rows} <= {"", "cancelled"}
    assert "Traceback" not in run.output


def test_each_run_of_one_process_has_a_maker_of_its_own(simulator: Callable[..., Simulator], tmp_path: Path) -> None:
    """Runs that are started and stopped from the page: the maker ends with its run, the next run gets another one and
    other pictures."""
    server = simulator("--speed", "4", "--no-stall", preset=PRESET)
    file = tmp_path / "free.yaml"
    file.write_text("traffic: [{kind: captioning, output_tokens: 5, images: {synthetic: {pixels: 4000}}}]\n")
    page = Page(tmp_path, "-f", str(CAPTIONING), "--scenario", str(file), "--no-table", "-H", server.url)
    try:
        seen: list[set[int]] = []
        for number in range(2):
            page.swarm(2)
            page.wait("measured rows", lambda: [r for r in page.rows(number) if r["phase"] == "measured"][4:])  # noqa: B023
            seen.append(_makers(page.process.pid))
            page.stop()
            page.await_end(number)
            page.await_state("stopped")
            _until(lambda: not _makers(page.process.pid))
        first, second = seen
        assert (len(first), len(second), first & second) == (1, 1, set())
        rows = page.rows(0) + page.rows(1)
        assert {row["error_kind"] for row in rows} <= {"", "cancelled"}
        firsts = [row for row in rows if row["turn"] == "0" and not row["error_kind"]]
        assert counter(server, "mm_cache_queries") - counter(server, "mm_cache_hits") >= len(firsts), page.text()
        assert "Traceback" not in page.text()
    finally:
        page.end()
        page.log.close()
