"""One row for every way in which a request can end, through a whole Locust and a real socket."""

from __future__ import annotations

import csv
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.simulated.conftest import Run, Simulator
from tests.simulated.scripted import DONE, Handler, delta, event, good, scripted, usage

LIMITS = "timeouts: {first_byte_s: 0.8, idle_s: 0.4, total_s: 1.2}"
ROUTE = {"error": {"message": "no such route", "type": "not_found"}}


def _early_stop(http: Handler) -> None:
    http.stream(delta("Yes"), delta("."), delta(finish="stop"), usage(5, 2), DONE)


def _no_usage(http: Handler) -> None:
    http.stream(delta("a"), delta(" b"), delta(" c"), delta(finish="stop"), DONE)


def _cut_off(http: Handler) -> None:
    """The connection ends without the last chunk."""
    http.begin()
    http.chunk(delta("a"))
    http.close_connection = True


def _unfinished(http: Handler) -> None:
    """HTTP ends as it should, the answer does not."""
    http.stream(delta("a"), delta(" b"))


def _empty(http: Handler) -> None:
    http.stream(delta(""), delta(finish="stop"), usage(5, 0), DONE)


def _error_in_stream(http: Handler) -> None:
    http.stream(delta("a"), event({"error": {"message": "CUDA out of memory", "type": "server_error"}}), DONE)


def _reset(http: Handler) -> None:
    http.begin()
    http.chunk(delta("a"))
    time.sleep(0.05)  # a reset may overtake what was sent before it
    http.reset()


def _closed_unanswered(http: Handler) -> None:
    """On a connection that an earlier request has used."""
    http.close_connection = True


def _silent(http: Handler) -> None:
    time.sleep(1.0)
    http.close_connection = True


def _stalled(http: Handler) -> None:
    http.begin()
    http.chunk(delta("a"))
    time.sleep(0.7)
    http.close_connection = True


def _endless(http: Handler) -> None:
    http.begin()
    for _ in range(18):
        http.chunk(delta("a"))
        time.sleep(0.1)
    http.close_connection = True


def _busy_page(http: Handler) -> None:
    http.reply(503, b"<html><h1>busy</h1></html>", Content_Type="text/html")


def _malformed(http: Handler) -> None:
    http.stream(delta("a"), event(b'{"choices": [{'), DONE)


# What the server does, then the row's error_kind, finish_reason, output_tokens, and Locust's text of the failure.
ENDINGS: tuple[tuple[Callable[[Handler], None], str, str, str, str], ...] = (
    (lambda http: http.stream(*good()), "", "length", "3", ""),
    (_early_stop, "", "stop", "2", ""),
    (_no_usage, "", "stop", "3", ""),
    (_cut_off, "truncated", "", "", "truncated"),
    (_unfinished, "truncated", "", "", "truncated"),
    (_empty, "empty", "stop", "0", "empty"),
    (_error_in_stream, "stream_error", "", "", "stream error"),
    (_reset, "reset", "", "", "reset"),
    (lambda http: http.reply(429, ROUTE, Retry_After="2"), "http_429", "", "", "HTTP 429 too many requests"),
    (_busy_page, "http_5xx", "", "", "HTTP 503"),
    (lambda http: http.reply(401, ROUTE), "http_401", "", "", "HTTP 401 key not accepted"),
    (lambda http: http.reply(404, ROUTE), "http_4xx", "", "", "HTTP 404"),
    (lambda http: http.reply(307, b"", Location="http://elsewhere/"), "http_3xx", "", "", "HTTP 307 redirect"),
    (lambda http: http.reply(200, {"object": "chat.completion"}), "non_stream", "", "", "non stream"),
    (_malformed, "malformed", "", "", "malformed"),
    (lambda http: http.stream(*good()), "", "length", "3", ""),
    (_closed_unanswered, "stale_connection", "", "", "stale connection"),
    (_silent, "first_byte_timeout", "", "", "first byte timeout"),
    (_stalled, "idle_timeout", "", "", "idle timeout"),
    (_endless, "total_timeout", "", "", "total timeout"),
    (lambda http: http.stream(*good()), "", "length", "3", ""),
)  # fmt: skip


def _locust_csv(run: Run, name: str) -> list[dict[str, str]]:
    with open(f"{run.csv_prefix}_{name}.csv", newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_every_ending_is_one_row_with_its_kind_and_one_request_in_locusts_statistics(
    locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """One user meets every ending in turn; each leaves one row, one request event, and the user goes on."""
    load = closed_scenario(f"users: 1, sessions: {len(ENDINGS)}, tail: drain", extra=f"target: {{{LIMITS}}}\n")
    with scripted(lambda http, number: ENDINGS[number][0](http)) as server:
        run = locust("-H", server.url, "--csv", "out", "--csv-full-history", scenario=load)
        assert len(server.requests) == len(ENDINGS), run.output
    found = [(row["error_kind"], row["finish_reason"]) for row in run.rows]
    assert found == [(kind, finish) for _, kind, finish, _, _ in ENDINGS]
    assert {row["phase"] for row in run.rows} == {"measured"}
    for row, (_, kind, _, tokens, _) in zip(run.rows, ENDINGS, strict=True):
        assert row["output_tokens"] == tokens or (kind and not tokens), row
    _assert_facts_of_failures(run.rows)
    _assert_locusts_statistics(run)
    (level,) = run.table()["levels"]
    good_ones = [row for row in run.rows if not row["error_kind"]]
    assert (level["requests"], level["ok"]) == (len(ENDINGS), len(good_ones))
    assert level["figures"]["ttft_p50_s"]["n"] == len(good_ones)
    (from_csv,) = run.table(target=run.csv_prefix)["levels"]
    assert from_csv["errors"] == level["errors"] == Counter(kind for _, kind, *_ in ENDINGS if kind)
    assert run.ended(1), "most requests failed, and nobody allowed that"


def _assert_facts_of_failures(rows: list[dict[str, str]]) -> None:
    by_kind = {row["error_kind"]: row for row in rows}
    assert by_kind["http_429"]["retry_after_s"] == "2.000000"
    assert [by_kind[f"http_{kind}"]["http_status"] for kind in ("429", "5xx", "4xx", "3xx")] == [
        "429",
        "503",
        "404",
        "307",
    ]
    assert by_kind["http_5xx"]["error"] == "HTTP 503: busy"
    assert "CUDA out of memory" in by_kind["stream_error"]["error"]
    assert by_kind["idle_timeout"]["first_token_s"], "what came before the failure is kept"
    lasted = {kind: float(row["finished_s"]) - float(row["sent_s"]) for kind, row in by_kind.items()}
    for kind, limit_s in (("first_byte_timeout", 0.8), ("idle_timeout", 0.4), ("total_timeout", 1.2)):
        assert limit_s - 0.02 <= lasted[kind] <= limit_s + 0.3, (kind, lasted[kind])
    estimated = [row["token_source"] for row in rows if not row["error_kind"]]
    assert estimated == ["usage", "usage", "chunks", "usage", "usage"]


def _assert_locusts_statistics(run: Run) -> None:
    """One request event a row; TTFT and its like stand beside the requests and not in the sum."""
    stats = {row["Name"]: row for row in _locust_csv(run, "stats")}
    failed = [text for *_, text in ENDINGS if text]
    for name in ("chat c=1", "Aggregated"):
        assert int(stats[name]["Request Count"]) == len(ENDINGS)
        assert int(stats[name]["Failure Count"]) == len(failed)
    assert stats["Aggregated"]["Average Response Time"] == stats["chat c=1"]["Average Response Time"]
    for beside in ("TTFT", "E2E", "tokens"):
        assert int(stats[f"chat c=1 {beside}"]["Request Count"]) == len(ENDINGS) - len(failed)
    reasons = Counter({row["Error"]: int(row["Occurrences"]) for row in _locust_csv(run, "failures")})
    assert reasons == Counter(failed)
    exceptions = _locust_csv(run, "exceptions")
    assert exceptions == [], "a request that fails is no exception of a user"


def test_a_server_that_goes_away_is_refused_connections(
    locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """After the second answer nobody listens any more: the other rows are of kind refused, quickly."""

    def answer(http: Handler, number: int) -> None:
        if number == 1:
            http.close_connection = True
            threading.Thread(target=_stop_listening, args=(http,)).start()
            http.server.gone.wait()
        http.stream(*good())

    def _stop_listening(http: Handler) -> None:
        http.server.shutdown()
        http.server.server_close()
        http.server.gone.set()

    with scripted(answer) as server:
        server.gone = threading.Event()
        run = locust("-H", server.url, scenario=closed_scenario("users: 1, sessions: 6, tail: drain"))
    assert [row["error_kind"] for row in run.rows] == ["", ""] + ["refused"] * 4, run.output
    assert [bool(row["connect_s"]) for row in run.rows] == [True] + [False] * 5
    assert all(row["sent_s"] and row["finished_s"] for row in run.rows)
    assert run.ended(1)


def test_what_the_end_of_a_level_cuts_is_no_failure(
    simulator: Callable[..., Simulator], locust: Callable[..., Run], closed_scenario: Callable[..., str]
) -> None:
    """Every second answer stalls for ever: after the drain limit it becomes a cut row, in no count of failures."""
    server = simulator("--fault", "stall:every=5", "--speed", "10")
    load = "users: 2, duration_s: 1, drain_limit_s: 0.2"
    run = locust("-H", server.url, "--model", "demo-8b", "--csv", "out", scenario=closed_scenario(load))
    cut = [row for row in run.rows if row["error_kind"]]
    assert [(row["error_kind"], row["phase"]) for row in cut] == [("cancelled", "drain")] * 2, run.output
    assert all(row["first_token_s"] and row["finished_s"] for row in cut)
    assert len(run.measured()) >= 2
    stats = {row["Name"]: row for row in _locust_csv(run, "stats")}
    assert (stats["chat c=2 cut"]["Request Count"], stats["chat c=2 cut"]["Failure Count"]) == ("2", "0")
    assert int(stats["Aggregated"]["Request Count"]) == len(run.rows)
    assert run.table()["levels"][0]["failed"] == 0


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["alone", "forked"])
def test_a_thousand_different_error_texts_make_three_groups(
    locust: Callable[..., Run], closed_scenario: Callable[..., str], processes: tuple[str, ...]
) -> None:
    """600 errors in the stream, 300 times HTTP 500 and 100 resets, no text twice: three entries."""

    def answer(http: Handler, number: int) -> None:
        text = f"request {number:032x} failed at {id(http):x} " + f"{number} " * 400
        if number % 10 < 6:
            http.stream(event({"error": {"message": text, "type": "timeout"}}), DONE)
        elif number % 10 < 9:
            http.reply(500, {"error": {"message": text}})
        else:
            http.reset()

    load = closed_scenario("users: 4, sessions: 1000, tail: drain")
    with scripted(answer) as server:
        run = locust("-H", server.url, "--csv", "out", "--html", "out.html", *processes, scenario=load)
        assert len(server.requests) == 1000, run.output
    assert len({row["error"] for row in run.rows}) > 800
    assert max(len(row["error"]) for row in run.rows) <= 300
    failures = {row["Error"]: int(row["Occurrences"]) for row in _locust_csv(run, "failures")}
    assert failures.pop("stream error") == 600
    assert failures.pop("HTTP 500") == 300
    assert sum(failures.values()) == 100
    assert failures.keys() <= {"reset", "stale connection"}
    assert len(run.output) < 20_000, "no text of a failure belongs on the screen a thousand times"
    assert len((run.folder.parent.parent / "out.html").read_text(encoding="utf-8")) < 3_000_000
    groups = {group["kind"]: group for group in run.table()["failures"]}
    assert groups["stream_error"]["count"] == 600
    assert all(len(group["samples"]) <= 5 for group in groups.values())
    assert run.code == 3, "a level in which nothing succeeded says nothing about the server"


@pytest.mark.parametrize(
    ("fault", "kind", "locusts_text"),
    [
        ("error-in-stream:every=3", "stream_error", "stream error"),
        ("reset:every=3", "reset", "reset"),
    ],
)
def test_every_third_request_fails_and_the_others_are_untouched(
    simulator: Callable[..., Simulator],
    locust: Callable[..., Run],
    closed_scenario: Callable[..., str],
    fault: str,
    kind: str,
    locusts_text: str,
) -> None:
    """Failures of a busy server, several users: counts by the server's own record; latencies are of the successes."""
    server = simulator("--fault", fault, "--speed", "20")
    run = locust("-H", server.url, "--csv", "out", scenario=closed_scenario("users: 3, sessions: 24, tail: drain"))
    assert len(run.rows) == 24, run.output
    truth = {row["id"]: row for row in server.truth() if row["id"]}
    failed = [row for row in run.rows if row["error_kind"]]
    assert {row["error_kind"] for row in failed} == {kind}
    assert len(failed) == 8
    for row in run.rows:
        if not row["error_kind"]:
            assert int(row["output_tokens"]) == truth[row["request_id"]]["output_tokens"]
    assert [(row["Error"], row["Occurrences"]) for row in _locust_csv(run, "failures")] == [(locusts_text, "8")]
    (level,) = run.table()["levels"]
    assert (level["requests"], level["failed"], level["figures"]["ttft_p50_s"]["n"]) == (24, 8, 16)
    assert run.ended(1)
