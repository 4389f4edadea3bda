"""Before, around and after the load: mistakes, targets that cannot be used, exit codes, keys, processes and files."""

from __future__ import annotations

import csv
import json
import os
import resource
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.conftest import LOCUST, ROOT, Run, Simulator, free_port
from tests.simulated.scripted import DONE, MODELS, Handler, delta, good, scripted, usage

CANARY = "sk-acc-CANARY-7f3a9c21d4"
SMALL = "users: 1, sessions: 2, tail: drain"


def _assert_refused(run: Run, *words: str) -> str:
    """Exit code 2, one line besides Locust's own greeting, and nothing that looks like a result."""
    assert run.code == 2, run.output
    lines = [line for line in run.errors.splitlines() if "/INFO/" not in line]
    assert len(lines) == 1, run.output
    for word in words:
        assert word in lines[0]
    assert not run.folder.exists() or list(run.folder.iterdir()) == []
    return lines[0]


# the target --------------------------------------------------------------------------------


def test_nobody_listens(locust: Callable[..., Run], closed_scenario: Callable[..., str]) -> None:
    """One sentence with the URL and the cause, quickly, also with forked workers."""
    for processes in ((), ("--processes", "2")):
        started = time.monotonic()
        run = locust("-H", "http://127.0.0.1:1/v1", *processes, scenario=closed_scenario(SMALL))
        assert time.monotonic() - started < 20
        if processes:
            assert (run.code, "connection refused" in run.errors, "Traceback" in run.output) == (2, True, False)
        else:
            _assert_refused(run, "http://127.0.0.1:1/v1/models", "refused")


def test_an_unknown_host(locust: Callable[..., Run], closed_scenario: Callable[..., str]) -> None:
    """The name of the host and that it is not found."""
    run = locust("-H", "http://no-such-host.invalid/v1", scenario=closed_scenario(SMALL))
    _assert_refused(run, "no-such-host.invalid", "not found")


def test_wrong_path_wrong_model_and_rejected_key(
    simulator: Callable[..., Simulator],
    locust: Callable[..., Run],
    closed_scenario: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """404 names the URL that was called, whether the model is named or not; 401 speaks of the key."""
    server, load = simulator(), closed_scenario(SMALL)
    _assert_refused(locust("-H", f"{server.url}/wrong", scenario=load), f"{server.url}/wrong/v1/models", "404")
    run = locust("-H", f"{server.url}/wrong", "--model", "demo-8b", scenario=load)
    _assert_refused(run, f"{server.url}/wrong/v1/chat/completions", "404")
    _assert_refused(locust("-H", server.url, "--model", "demo-8", scenario=load), "demo-8", "404")
    assert [row for row in server.truth() if row["output_tokens"]] == []
    monkeypatch.setenv("KEY_OF_THE_SERVER", "right")
    locked = simulator("--api-key-env", "KEY_OF_THE_SERVER")
    _assert_refused(locust("-H", locked.url, scenario=load), f"{locked.url}/v1/models", "401", "key")


def test_no_http_server(locust: Callable[..., Run], closed_scenario: Callable[..., str]) -> None:
    """Something answers that does not speak HTTP."""
    with scripted(lambda http, number: None) as server:
        server.RequestHandlerClass = _Banner
        _assert_refused(locust("-H", server.url, scenario=closed_scenario(SMALL)), server.url, "not HTTP")


class _Banner(Handler):
    def handle(self) -> None:
        self.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("no openssl command")
    return cert, key


def test_a_self_signed_certificate(
    locust: Callable[..., Run], closed_scenario: Callable[..., str], certificate: tuple[Path, Path]
) -> None:
    """Refused with the word certificate and the way out; with its file or with --insecure the load runs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    load = closed_scenario(SMALL)
    with scripted(lambda http, number: http.stream(*good()), tls=context) as server:
        _assert_refused(locust("-H", server.url, scenario=load), server.url, "certificate", "--insecure", "--ca-file")
        trusting = locust("-H", server.url, "--ca-file", str(certificate[0]), scenario=load)
        insecure = locust("-H", server.url, "--insecure", scenario=load)
    for run, verified in ((trusting, True), (insecure, False)):
        assert run.good, run.output
        assert [row["error_kind"] for row in run.rows] == ["", ""]
        assert {row["clock"] for row in run.rows} == {"watcher"}
        assert json.loads((run.folder / "run.json").read_text())["target"]["tls_verified"] is verified


def test_waiting_for_a_server_that_comes_up_late(
    locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """With wait_ready_s a server that first refuses and then answers 503 is waited for; without patience it is told."""
    ready = threading.Event()
    with scripted(lambda http, number: http.stream(*good())) as server:
        server.models = (503, {"error": {"message": "loading model"}})
        load = closed_scenario(SMALL, extra="target: {timeouts: {wait_ready_s: 0.6}}\n")
        started = time.monotonic()
        _assert_refused(locust("-H", server.url, scenario=load), server.url, "503")
        assert time.monotonic() - started < 0.6 + 10

        def become_ready() -> None:
            asked = len(server.gets)
            while len(server.gets) < asked + 2 and not ready.is_set():
                time.sleep(0.02)
            server.models = (200, MODELS)

        waker = threading.Thread(target=become_ready)
        waker.start()
        load = closed_scenario(SMALL, extra="target: {timeouts: {wait_ready_s: 60}}\n")
        run = locust("-H", server.url, scenario=load)
        ready.set()
        waker.join()
    assert run.good, run.output
    assert len(run.rows) == 2


MODEL_LISTS = {
    "one": ([{"id": "org/Model-A"}], "org/Model-A"),
    "alias and adapter": ([{"id": "my-alias", "parent": None}, {"id": "lora-1", "parent": "my-alias"}], "my-alias"),
    "name with a tag": ([{"id": "gemma4:e4b", "owned_by": "library"}], "gemma4:e4b"),
    "two": ([{"id": "a"}, {"id": "b"}], ("several models", "--model", "a, b")),
    "none": ([], ("lists no model",)),
}


@pytest.mark.parametrize("name", MODEL_LISTS)
def test_the_model_is_found_in_the_servers_list_or_asked_for(
    locust: Callable[..., Run], closed_scenario: Callable[..., str], name: str
) -> None:
    """The one base model is used as it is called; a choice that is not clear is the user's."""
    data, wanted = MODEL_LISTS[name]
    with scripted(lambda http, number: http.stream(*good()), models=(200, {"object": "list", "data": data})) as server:
        run = locust("-H", server.url, scenario=closed_scenario(SMALL))
        if isinstance(wanted, tuple):
            _assert_refused(run, f"{server.url}/v1/models", *wanted)
        else:
            assert run.good, run.output
            assert [one["body"]["model"] for one in server.requests] == [wanted, wanted]


def test_a_worker_on_a_machine_without_the_key_ends_the_run(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str], tmp_path: Path
) -> None:
    """Keys do not travel. A worker that has none says so in one line, and the run ends with 2 instead of hanging."""
    port, others = str(free_port()), {name: value for name, value in os.environ.items() if name != "KEY_HERE"}
    workers: list[subprocess.Popen[bytes]] = []

    def watch(process: subprocess.Popen[str]) -> None:
        command = [str(LOCUST), "-f", str(ROOT / "locustfiles" / "chat.py"), "--worker", "--master-port", port]
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        workers.append(subprocess.Popen(command, cwd=tmp_path, env=others, **silent))

    load = closed_scenario(SMALL, extra="target: {api_key: '${KEY_HERE}'}\n")
    master = ("--master", "--master-bind-port", port, "--expect-workers", "1")
    try:
        run = locust("-H", simulator().url, *master, scenario=load, env={"KEY_HERE": "k"}, watch=watch, timeout=60)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert run.code == 2, run.output
    assert "Traceback" not in run.output
    told = [line for line in run.errors.splitlines() if "/ERROR/" in line]
    assert [line.partition("master: ")[2] for line in told] == [
        "w0: the environment variable KEY_HERE, named in the scenario, is not set"
    ]
    assert json.loads((run.folder / "end.json").read_text())["state"] == "stopped"


def test_a_server_without_a_model_list(locust: Callable[..., Run], closed_scenario: Callable[..., str]) -> None:
    """No list, or something else instead of one: a clear message, and with --model the load runs."""
    load = closed_scenario(SMALL)
    with scripted(lambda http, number: http.stream(*good()), models=(200, {"models": "many"})) as server:
        _assert_refused(locust("-H", server.url, scenario=load), f"{server.url}/v1/models", "--model")
        server.models = (200, b"<html>hello</html>")
        _assert_refused(locust("-H", server.url, scenario=load), f"{server.url}/v1/models", "JSON")
        server.models = (404, {})
        _assert_refused(locust("-H", server.url, scenario=load), f"{server.url}/v1/models", "404", "--model")
        server.probe = (200, {"choices": []})
        run = locust("-H", server.url, "--model", "mine", scenario=load)
        assert run.good, run.output
        assert {one["body"]["model"] for one in server.requests} == {"mine"}


# the user's mistakes -------------------------------------------------------------------------


def test_all_mistakes_of_a_scenario_are_told_at_once(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], tmp_path: Path
) -> None:
    """Four mistakes, four lines with file and line, also with forked workers; nothing is sent."""
    server = simulator()
    text = "traffic:\n  - {nmae: a, turns: 0}\nload:\n  closed: {users: [0], sessons: 3}\n"
    for processes in ((), ("--processes", "2")):
        run = locust("-H", server.url, *processes, scenario=text)
        assert run.code == 2, run.output
        told = [line for line in run.errors.splitlines() if line.startswith(str(tmp_path))]
        assert [line.split(":")[1] for line in told] == ["2", "2", "4", "4"], run.output
        for word in ("nmae", "turns", "sessons", "users[0]"):
            assert sum(word in line for line in told) == 1
        assert "Traceback" not in run.output
        assert not run.folder.exists() or list(run.folder.iterdir()) == []
    assert server.truth() == []


def _members(group: int) -> list[int]:
    """Living processes of a process group."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def _await(condition: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return value


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
@pytest.mark.parametrize("how", ["bad scenario", "SIGKILL"])
def test_forked_workers_end_with_their_master(
    simulator: Callable[..., Simulator], tmp_path: Path, closed_scenario: Callable[..., str], how: str
) -> None:
    """However the master ends, no worker goes on loading the server."""
    server, port = simulator(), str(free_port())
    path = tmp_path / "scenario.yaml"
    path.write_text("nonsense: 1\n" if how == "bad scenario" else closed_scenario("users: 2, sessions: 1000000"))
    command = [str(LOCUST), "-f", str(ROOT / "locustfiles" / "chat.py"), "--headless", "--processes", "2"]
    command += ["--master-bind-port", port, "--master-port", port, "--scenario", str(path), "-H", server.url]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        if how == "SIGKILL":
            _await(lambda: server.truth(), 30)
            process.kill()
        process.wait(30)
        _await(lambda: not _members(process.pid))
    finally:
        for pid in _members(process.pid):
            os.kill(pid, signal.SIGKILL)


def test_options_that_would_be_ignored_or_cannot_work_are_refused(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str], tmp_path: Path
) -> None:
    """Users beside levels, no server, missing files, a results folder that cannot be made, an option Locust lacks."""
    url, load = simulator().url, closed_scenario(SMALL)
    _assert_refused(locust("-H", url, "-u", "4", scenario=load), "-u", "scenario.yaml")
    _assert_refused(locust("-H", url, "-t", "4s", "-r", "1", scenario=load), "-r", "-t")
    _assert_refused(locust(scenario=load), "--host")
    _assert_refused(locust("-H", url, "--scenario", "missing.yaml"), "missing.yaml")
    _assert_refused(locust("-H", url, "--api-key-file", "missing.key", scenario=load), "missing.key")
    prompts = "traffic: [{prompts: {file: missing.jsonl}}]\n"
    _assert_refused(locust("-H", url, scenario=prompts), "scenario.yaml:1", "missing.jsonl")
    (tmp_path / "file").write_text("no folder")
    _assert_refused(locust("-H", url, "--results", str(tmp_path / "file" / "results"), scenario=load), "file/results")
    run = locust("-H", url, "--scenaro", "x")
    assert (run.code, "Traceback" in run.output) == (2, False)
    assert "--scenario" in run.errors


def test_more_users_than_open_files_are_refused_before_the_load(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """With 128 open files 300 users do not fit: one line says how many do."""
    server = simulator("--speed", "10")
    load = closed_scenario("users: [1, 300], sessions: 300")
    for run in (
        locust("-H", server.url, scenario=load, open_files=128),
        locust("-H", server.url, "-u", "300", "-t", "1s", open_files=128),
    ):
        (line,) = [line for line in run.errors.splitlines() if line.startswith("open files")]  # beside Locust's own
        assert all(word in line for word in ("128", "about 64 users", "300", "--processes")), line
        assert run.code == 2
        assert not run.rows
    assert server.truth() == []


# keys --------------------------------------------------------------------------------------------


def _files_with(folder: Path, text: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def _command_lines_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if text.encode() in line:
            found.append(str(path))
    return found


@pytest.mark.parametrize(("processes", "source"), [(("--processes", "2"), "variable"), ((), "file")])
def test_a_key_is_nowhere_but_in_the_requests(
    locust: Callable[..., Run],
    closed_scenario: Callable[..., str],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    processes: tuple[str, ...],
    source: str,
) -> None:
    """The server gets it and repeats it in errors; no file, no screen, no command line has it, even with DEBUG."""
    seen: list[str] = []

    def answer(http: Handler, number: int) -> None:
        key = http.headers["Authorization"]
        seen.extend(_command_lines_with(CANARY))
        text = f"Incorrect API key provided: {key}. key={CANARY}"
        match number % 4:
            case 1:
                http.reply(401, {"error": {"message": text}})
            case 2:
                http.stream(delta("a"), b'data: {"error": {"message": "' + text.encode() + b'"}}\n\n', DONE)
            case 3:
                http.reply(500, f"<html>{text}</html>".encode(), Content_Type="text/html")
            case _:
                http.stream(*good(("A", f" {CANARY}")))

    files = ("--csv", "out", "--csv-full-history", "--html", "out.html", "--json-file", "out", "--logfile", "out.log")
    load, options, env = "users: 2, sessions: 12, tail: drain", ["-L", "DEBUG", *files, *processes], {}
    if source == "variable":
        scenario = closed_scenario(load, extra='target: {api_key: "${CANARY_KEY}"}\n')
        env = {"CANARY_KEY": CANARY}
    else:
        scenario = closed_scenario(load)
        key_file = tmp_path_factory.mktemp("secret") / "key"
        key_file.write_text(f"{CANARY}\n")
        options += ["--api-key-file", str(key_file)]
    with scripted(answer) as server:
        run = locust("-H", server.url, *options, scenario=scenario, env=env)
        assert len(server.requests) == 12, run.output
        assert {one["headers"]["Authorization"] for one in server.requests} == {f"Bearer {CANARY}"}
    assert len([row for row in run.rows if row["error_kind"] == "http_401"]) == 3
    assert "***" in next(row["error"] for row in run.rows if row["error_kind"] == "http_401")
    assert CANARY not in run.output
    assert _files_with(tmp_path, CANARY) == []
    assert seen == []


def test_a_rejected_key_is_not_repeated(locust: Callable[..., Run], closed_scenario: Callable[..., str]) -> None:
    """The check before the load meets a 401 whose text has the key."""
    models = (401, {"error": {"message": f"Incorrect API key provided: {CANARY}"}})
    scenario = closed_scenario(SMALL, extra='target: {api_key: "${CANARY_KEY}"}\n')
    with scripted(lambda http, number: None, models=models) as server:
        run = locust("-H", server.url, "-L", "DEBUG", scenario=scenario, env={"CANARY_KEY": CANARY})
    assert run.code == 2
    assert "401" in run.errors
    assert CANARY not in run.output


# exit codes and figures ------------------------------------------------------------------------


def _stats(run: Run) -> dict[str, dict[str, str]]:
    with open(f"{run.csv_prefix}_stats.csv", newline="", encoding="utf-8") as lines:
        return {row["Name"]: row for row in csv.DictReader(lines)}


def test_locusts_response_time_is_the_whole_stream(
    locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """First token after 0.2 s, end after 0.5 s: Locust's average is the end, TTFT is beside it, nothing is twice."""

    def answer(http: Handler, number: int) -> None:
        http.begin()
        http.chunk(delta(role="assistant", text=""))
        time.sleep(0.2)
        http.chunk(delta("a"))
        time.sleep(0.3)
        for event in (delta(" b"), delta(finish="stop"), usage(5, 2), DONE):
            http.chunk(event)
        http.end()

    with scripted(answer) as server:
        run = locust("-H", server.url, "--csv", "out", scenario=closed_scenario("users: 1, sessions: 6, tail: drain"))
    stats = _stats(run)
    assert [stats[name]["Request Count"] for name in ("chat c=1", "Aggregated")] == ["6", "6"], run.output
    assert 500 <= float(stats["chat c=1"]["Average Response Time"]) < 700
    assert 200 <= float(stats["chat c=1 TTFT"]["Average Response Time"]) < 300
    assert 300 <= float(stats["chat c=1 TPOT"]["Average Response Time"]) < 400


@pytest.mark.parametrize(("limit", "code"), [(None, 1), (0.2, 0)])
def test_too_many_failures_fail_the_run(
    simulator: Callable[..., Simulator],
    locust: Callable[..., Run],
    closed_scenario: Callable[..., str],
    limit: float | None,
    code: int,
) -> None:
    """30 requests, 5 of them 429: exit code 1 unless the objective allows as many; latencies are of the 25."""
    server = simulator("--speed", "10", "--fault", "429:every=6")
    objective = "" if limit is None else f"objectives: {{ci: {{failed: {limit}}}}}\n"
    load = "users: 2, sessions: 30, tail: drain"
    run = locust("-H", server.url, scenario=closed_scenario(load, ", objective: ci" if objective else "", objective))
    (level,) = run.table()["levels"]
    assert (level["requests"], level["errors"], level["figures"]["ttft_p50_s"]["n"]) == (30, {"http_429": 5}, 25)
    assert {row["retry_after_s"] for row in run.rows if row["error_kind"]} == {"1.000000"}
    assert run.ended(code), run.output
    assert ("chat at c=2: failed 16.7 % >" in run.output) is (code == 1)


def test_latency_objectives_decide_the_exit_code(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """A limit of 10 s is met, one of a microsecond is missed, and the table names it."""
    server = simulator("--speed", "10")
    for limit, code in (("10", 0), ("0.000001", 1)):
        extra = f"objectives: {{quick: {{ttft_s: {{p50: {limit}}}}}}}\n"
        run = locust("-H", server.url, scenario=closed_scenario("users: 1, sessions: 6", ", objective: quick", extra))
        assert run.ended(code), run.output
        (verdict,) = run.table()["objectives"]
        assert verdict["met"] is (code == 0)
        assert ("chat at c=1: TTFT p50" in run.output) is (code == 1)


def test_measured_time_begins_at_full_load(simulator: Callable[..., Simulator], locust: Callable[..., Run]) -> None:
    """6 users at 3 a second for 4 s: the two seconds of spawning are warm-up, and the table's wall time is the rest."""
    server = simulator("--speed", "4")
    run = locust("-H", server.url, "-u", "6", "-r", "3", "-t", "4s")
    first = [min(float(row["sent_s"]) for row in run.rows if row["user"] == str(user)) for user in range(6)]
    start = min(float(row["sent_s"]) for row in run.measured())
    assert max(first) - min(first) > 0.8, "the users came one after the other"
    assert start >= max(first) - 0.1
    (level,) = run.table()["levels"]
    end = max(float(row["finished_s"]) for row in run.measured())
    assert level["figures"]["wall_s"]["value"] == pytest.approx(end - start, abs=0.01)
    assert level["figures"]["wall_s"]["value"] < 4 - (max(first) - min(first)) + 0.2


def test_idle_connections_that_the_server_closes_are_no_failures(locust: Callable[..., Run]) -> None:
    """Think time beyond the server's keep-alive: 12 turns, none fails, none is sent twice."""

    def answer(http: Handler, number: int) -> None:
        http.stream(*good())
        http.connection.settimeout(0.2)  # the handler ends the connection when nothing has come by then

    scenario = (
        "traffic: [{input_tokens: 20, output_tokens: 3, turns: 6, think_time_s: 0.4}]\n"
        "load: {closed: {users: 1, sessions: 2, tail: drain}}\n"
    )
    with scripted(answer) as server:
        run = locust("-H", server.url, scenario=scenario)
        assert len(server.requests) == 12
    assert [row["error_kind"] for row in run.rows] == [""] * 12, run.output
    assert sum(1 for row in run.rows if row["connect_s"]) >= 10, "connections were closed in between"
    for row in run.rows:
        assert float(row["finished_s"]) - float(row["sent_s"]) < 0.3, "think time is outside the request"
    assert run.good, run.output


def test_slow_streams_are_not_cut_by_the_idle_limit(
    locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """Seven chunks 0.2 s apart pass an idle limit of 0.6 s; a total limit of 0.7 s ends them."""

    def answer(http: Handler, number: int) -> None:
        http.begin()
        for _ in range(7):
            time.sleep(0.2)
            http.chunk(delta("a"))
        for event in (delta(finish="length"), usage(5, 7), DONE):
            http.chunk(event)
        http.end()

    with scripted(answer) as server:
        kinds = []
        for limits in ("idle_s: 0.6, total_s: 60", "idle_s: 0.6, total_s: 0.7"):
            load = closed_scenario("users: 1, sessions: 1", extra=f"target: {{timeouts: {{{limits}}}}}\n")
            run = locust("-H", server.url, scenario=load)
            kinds.append([row["error_kind"] for row in run.measured()])
            if not run.measured()[0]["error_kind"]:
                figures = run.table()["levels"][0]["figures"]
                assert figures["tpot_mean_s"]["value"] == pytest.approx(0.2, abs=0.05)
    assert kinds == [[""], ["total_timeout"]]


# the simulator that a scenario names --------------------------------------------------------------


def _simulators(marker: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if b"simulator" in line and marker.encode() in line:
            found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc")
@pytest.mark.parametrize("ending", [None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
def test_the_simulator_ends_with_the_run(
    tmp_path: Path, closed_scenario: Callable[..., str], ending: signal.Signals | None
) -> None:
    """A scenario's own simulator is a child process; it is gone after the run, however that ends."""
    seed = f"{os.getpid()}{time.monotonic_ns() % 10**6}"
    sessions = "2" if ending is None else "1000000"
    (tmp_path / "scenario.yaml").write_text(
        closed_scenario(f"users: 1, sessions: {sessions}", extra=f"target: {{simulator: demo}}\nseed: {seed}\n")
    )
    command = [str(LOCUST), "-f", str(ROOT / "locustfiles" / "chat.py"), "--headless", "--only-summary"]
    process = subprocess.Popen(
        [*command, "--scenario", "scenario.yaml"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        if ending is not None:
            _await(lambda: any(len(path.read_text()) > 1000 for path in tmp_path.glob("results/*/requests.csv")), 30)
            assert len(_simulators(seed)) == 1
            process.send_signal(ending)
        process.wait(30)
        _await(lambda: not _simulators(seed), 10)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == {None: 0, signal.SIGKILL: -9}.get(ending, 3)


# Locust's own ways to run ---------------------------------------------------------------------------


def test_locusts_own_outputs_and_configuration_file(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str], tmp_path: Path
) -> None:
    """A --config file gives the options; CSV with history, HTML and JSON are written; the history has our rows too."""
    server = simulator("--speed", "10")
    (tmp_path / "scenario.yaml").write_text(closed_scenario("users: 2, sessions: 8"))
    (tmp_path / "my.conf").write_text(
        f"host = {server.url}\nscenario = scenario.yaml\ncsv = out\ncsv-full-history = true\nhtml = out.html\n"
    )
    run = locust("--config", "my.conf", "--json-file", "out")
    assert run.good, run.output
    assert len(run.measured()) == 8
    assert _stats(run)["chat c=2"]["Request Count"] == "8"
    assert len((tmp_path / "out_stats_history.csv").read_text().splitlines()) > 1
    assert "chat c=2 TTFT" in (tmp_path / "out.html").read_text()
    entries = json.loads((tmp_path / "out.json").read_text())
    assert {entry["name"]: entry["num_requests"] for entry in entries}["chat c=2"] == 8


def test_free_running_over_processes(simulator: Callable[..., Simulator], locust: Callable[..., Run]) -> None:
    """-u 4 -t 3s with two workers: both send, every row knows the four users, and no file of a row is lost."""
    server = simulator("--speed", "2")
    run = locust("-H", server.url, "-u", "4", "-r", "4", "-t", "3s", "--processes", "2", "--csv", "out")
    assert run.good, run.output
    assert {row["worker"] for row in run.rows} == {"w0", "w1"}
    assert {row["concurrency"] for row in run.measured()} == {"4"}
    assert [row["error"] for row in run.measured() if row["error_kind"]] == []
    assert int(_stats(run)["Aggregated"]["Request Count"]) == len(run.rows)
    truth = {row["id"] for row in server.truth()}
    assert {row["request_id"] for row in run.rows if row["request_id"]} <= truth
    assert len(truth) == len(run.rows)


def test_json_on_standard_output_is_nothing_else(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """With Locust's --json another program reads standard output: no table stands behind it."""
    server = simulator("--speed", "20")
    run = locust("-H", server.url, "--json", scenario=closed_scenario("users: 1, sessions: 3"))
    entries = json.loads(run.output.removesuffix(run.errors))
    assert {entry["name"]: entry["num_requests"] for entry in entries}["chat c=1"] == 3
    assert (run.folder / "table.txt").exists()


def test_a_run_that_never_reached_full_load_says_why_it_proves_nothing(
    simulator: Callable[..., Simulator], locust: Callable[..., Run]
) -> None:
    """Spawning that takes longer than the run: exit code 3 and the reason on the screen."""
    server = simulator("--speed", "4")
    run = locust("-H", server.url, "-u", "3", "-r", "0.5", "-t", "1s")
    assert {row["phase"] for row in run.rows} <= {"warmup", "drain"}
    assert run.code == 3, run.output
    assert "not credible: " in run.output


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "forked"])
@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_free_load_that_is_stopped_keeps_everything(
    simulator: Callable[..., Simulator],
    tmp_path: Path,
    processes: tuple[str, ...],
    stop_signal: signal.Signals,
) -> None:
    """Without a time limit a signal is the usual end: rows, table and exit code are those of a good run."""
    server, port = simulator("--speed", "4"), str(free_port())
    command = [str(LOCUST), "-f", str(ROOT / "locustfiles" / "chat.py"), "--headless", "--only-summary", *processes]
    command += ["--master-bind-port", port, "--master-port", port]
    command += ["-u", "2", "-r", "2", "-H", server.url, "--csv", "out"]
    with open(tmp_path / "log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
    try:
        _await(lambda: any("measured" in path.read_text() for path in tmp_path.glob("results/*/requests.csv")), 30)
        process.send_signal(stop_signal)
        process.wait(30)
        _await(lambda: not _members(process.pid))
    finally:
        for pid in _members(process.pid):
            os.kill(pid, signal.SIGKILL)
    text = (tmp_path / "log").read_text()
    assert process.returncode == 0, text
    assert "Traceback" not in text
    (folder,) = tmp_path.glob("results/*/")
    assert json.loads((folder / "end.json").read_text())["state"] == "finished"
    with open(folder / "requests.csv", newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    with open(tmp_path / "out_stats.csv", newline="", encoding="utf-8") as lines:
        stats = {row["Name"]: row for row in csv.DictReader(lines)}
    assert {row["error_kind"] for row in rows} <= {"", "cancelled"}
    assert len(rows) == int(stats["Aggregated"]["Request Count"])
    assert len([row for row in rows if row["sent_s"]]) == len(server.truth())
    assert stats["wall"]["Request Count"] == "1"


def test_a_second_interrupt_does_not_wait_for_the_table(
    simulator: Callable[..., Simulator], closed_scenario: Callable[..., str], tmp_path: Path
) -> None:
    """Ctrl-C twice: exit code 3 without a traceback, and a folder that the analysis reads."""
    server = simulator()
    (tmp_path / "s.yaml").write_text(closed_scenario("users: 2, sessions: 100000"))
    command = [str(LOCUST), "-f", str(ROOT / "locustfiles" / "chat.py"), "--headless", "--only-summary"]
    command += ["--scenario", "s.yaml", "-H", server.url]
    log = tmp_path / "log"
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=file, stderr=file, start_new_session=True)
    try:
        _await(lambda: any("measured" in path.read_text() for path in tmp_path.glob("results/*/requests.csv")), 30)
        process.send_signal(signal.SIGINT)
        _await(lambda: "CTRL+C" in log.read_text())
        process.send_signal(signal.SIGINT)
        process.wait(30)
    finally:
        for pid in _members(process.pid):
            os.kill(pid, signal.SIGKILL)
    text = log.read_text()
    assert process.returncode == 3, text
    assert "Traceback" not in text
    (folder,) = tmp_path.glob("results/*/")
    table = subprocess.run(
        [sys.executable, "-m", "analysis", "table", str(folder), "--json"], capture_output=True, text=True, check=False
    )
    assert table.returncode == 0, table.stderr
    assert json.loads(table.stdout)["levels"][0]["requests"] > 0


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "forked"])
def test_a_run_whose_rows_cannot_be_kept_ends(
    simulator: Callable[..., Simulator],
    closed_scenario: Callable[..., str],
    tmp_path: Path,
    processes: tuple[str, ...],
) -> None:
    """A file as long as files may become, as on a full disk: one line, code 3, and what is there is readable."""
    server = simulator("--speed", "20")
    (tmp_path / "s.yaml").write_text(closed_scenario("users: 4, sessions: 100000"))
    command = [str(LOCUST), "-f", str(ROOT / "locustfiles" / "chat.py"), "--headless", "--only-summary", *processes]
    command += ["--scenario", "s.yaml", "-H", server.url]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)),
    )  # fmt: skip
    text = run.stdout + run.stderr
    assert run.returncode == 3, text
    assert "Traceback" not in text
    assert text.count("requests.csv: cannot be written: File too large") >= 1
    (folder,) = tmp_path.glob("results/*/")
    end = json.loads((folder / "end.json").read_text())
    assert end["state"] == "stopped"
    assert any("cannot be written" in reason for reason in end["reasons"])
    assert (folder / "requests.csv").stat().st_size <= 40_000
