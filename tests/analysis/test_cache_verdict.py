"""Was a level's share of cached prompt tokens what its workload implies? Measured by answers, or by engine counters."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from analysis.cache_block import TOO_GOOD
from tests.analysis.conftest import CASES, write_run
from tokenswarm.engine_metrics import COLUMNS, parse_metrics
from tokenswarm.records import RequestRecord
from tokenswarm.rundir import csv_lines

PROBE = {"state": "on", "block_tokens": 16, "reports_cached_tokens": True, "flag": None, "line": "caching is on"}


def request(level: int, ticket: int, cached: int | None, **facts: Any) -> RequestRecord:
    """The only request of its session: 1,000 prompt tokens, sent when the one before it has ended."""
    sent = 1000.0 * level + 10 * ticket
    given: dict[str, Any] = {
        "level": level, "concurrency": 1, "phase": "measured", "ticket": ticket, "traffic": "chat",
        "session": f"{level}.{ticket}", "sent_s": sent, "first_token_s": sent + 1, "last_token_s": sent + 2,
        "finished_s": sent + 2, "prompt_tokens": 1000, "history_tokens": 0, "output_tokens": 11,
        "token_source": "usage", "cached_tokens": cached,
    }  # fmt: skip
    return RequestRecord(**given | facts)


def level_of(cached: list[int | None], level: int = 0, **facts: Any) -> list[RequestRecord]:
    return [request(level, ticket, count, **facts) for ticket, count in enumerate(cached)]


def engine_csv(*samples: dict[str, Any]) -> str:
    """``engine.csv`` with these columns filled."""
    rows = [[{"time_s": float(i)} | sample for i, sample in enumerate(samples)][i] for i in range(len(samples))]
    return ",".join(COLUMNS) + "\n" + csv_lines([[row.get(name) for name in COLUMNS] for row in rows])


def verdict(table: Any, folder: Path) -> Any:
    """The first level's."""
    return table(folder, "--json").json["levels"][0]["cache"]


# from the answers


def test_nothing_implied_and_nothing_found(table: Any, tmp_path: Path) -> None:
    """A chat with fresh prompts: confirmed, and a line instead of a table."""
    folder = write_run(tmp_path / "run", level_of([0] * 4), levels=[{"concurrency": 1}], cache_probe=PROBE)
    assert verdict(table, folder) == {
        "state": "confirmed", "reason": "", "source": "usage", "measured": 0.0, "implied": 0.0, "prompt_tokens": 4000.0,
        "finding": "",
    }  # fmt: skip
    answer = table(folder, "--check")
    assert answer.code == 0
    assert "prefix cache: nothing came from it at any level, as the workload implies" in answer.out
    assert "Prefix cache" not in answer.out


def test_prompts_of_an_earlier_load(table: Any, tmp_path: Path) -> None:
    """512 of 1,000 tokens in each prompt came from the cache though no prompt was sent before: marked everywhere."""
    objectives = {"fast": {"ttft_s": {"p95": 5.0}}}
    scenario = {"traffic": [{"name": "chat", "kind": "chat", "objective": "fast"}], "objectives": objectives}
    rows = level_of([0] * 4) + level_of([512] * 4, level=1, concurrency=2)
    levels = [{"concurrency": 1}, {"concurrency": 2}]
    folder = write_run(tmp_path / "run", rows, levels=levels, cache_probe=PROBE, scenario=scenario)
    answer = table(folder, "--json", "--check")
    assert answer.code == 3
    first, second = (level["cache"] for level in answer.json["levels"])
    assert first["state"] == "confirmed"
    assert (second["state"], second["measured"], second["implied"]) == ("contaminated", 0.512, 0.0)
    assert "c=2: contaminated: 51.2% of the prompt tokens came from the cache, the workload implies 0.0%" in answer.err
    shown = table(folder, "--width", "100").out
    assert sum(line.startswith("2†") for line in shown.splitlines()) >= 3  # levels, prefix cache, scaling
    assert "c=2: contaminated: prompts of an earlier load were still in the cache" in shown
    assert "TTFT and throughput are too good" in " ".join(shown.split())
    assert "undecided" in shown
    assert "all objectives met up to c=1; the run is not credible" in shown
    assert TOO_GOOD in table(folder, "--format", "markdown").out
    rows_of_csv = list(csv.DictReader(io.StringIO(table(folder, "--format", "csv").out)))
    keys = ("cache_share", "cache_share_implied", "cache_source", "cache_verdict")
    assert [[row[key] for key in keys] for row in rows_of_csv] == [
        ["0", "0", "usage", "confirmed"], ["0.512", "0", "usage", "contaminated"],
    ]  # fmt: skip


def test_marks_and_shares_above_all_in_the_tables_of_steps(table: Any, tmp_path: Path) -> None:
    """Sessions of two turns: the columns of a contaminated level carry its mark, and it is told how a cache can serve
    more than all of what was eligible."""
    clean, stale = [
        [
            request(
                level, 2 * ticket + turn, cached, session=f"{level}.{ticket}", turn=turn, concurrency=1 + level, **facts
            )
            for ticket in range(4)
            for turn, cached, facts in ((0, first, {}), (1, second, {"prompt_tokens": 1500, "history_tokens": 1100}))
        ]
        for level, (first, second) in enumerate([(0, 1088), (992, 1488)])
    ]
    levels = [{"concurrency": 1}, {"concurrency": 2}]
    shown = table(write_run(tmp_path / "run", clean + stale, levels=levels, cache_probe=PROBE), "--width", "100").out
    header = next(line for line in shown.splitlines() if line.startswith("step  requests"))
    assert header.split()[-2:] == ["c=1", "c=2†"]
    assert "c=2†" in shown[shown.index("TTFT by length") :].splitlines()[1]
    assert "above 100%: also the head that all prompts have" in " ".join(shown.split())
    assert "above 100%" not in table(write_run(tmp_path / "clean", clean, cache_probe=PROBE)).out


@pytest.mark.parametrize(
    ("cached", "state"),
    [
        (36, "confirmed"),  # 20 tokens are 2 %; the template's head of 10 and 16 of chance hold one block of 16
        (37, "contaminated"),
    ],
)
def test_the_border_to_contamination(table: Any, tmp_path: Path, cached: int, state: str) -> None:
    """2 % of the prompt tokens beyond the most that the workload implies is still confirmed."""
    facts = {"cache_probe": PROBE, "template_prefix_tokens": 10, "levels": [{"concurrency": 1}]}
    folder = write_run(tmp_path / "run", level_of([cached] * 10), **facts)
    assert verdict(table, folder)["state"] == state


def turns(served: int) -> list[RequestRecord]:
    """Four sessions of two turns: the second prompt has 1,000 tokens of which 610 were said before."""
    rows = []
    for ticket in range(4):
        first = {"session": f"s{ticket}", "prompt_tokens": 600, "cached_tokens": 0}
        rows.append(request(0, 2 * ticket, 0, **first))
        rows.append(request(0, 2 * ticket + 1, served, session=f"s{ticket}", turn=1, history_tokens=610))
    return rows


@pytest.mark.parametrize(
    ("served", "state"),
    [
        (608, "confirmed"),  # 38 blocks, 38 % of 6,400 tokens
        (577, "confirmed"),  # 31 tokens a session less: 2 % of its 1,600 tokens are 32
        (575, "below"),
        (0, "below"),
    ],
)
def test_less_than_the_history(table: Any, tmp_path: Path, served: int, state: str) -> None:
    """What a session said before is implied; 2 % of the prompt tokens less is still confirmed."""
    folder = write_run(tmp_path / "run", turns(served), cache_probe=PROBE, levels=[{"concurrency": 1}])
    found = verdict(table, folder)
    assert (found["state"], found["implied"]) == (state, pytest.approx(4 * 608 / 6400))
    assert table(folder, "--check").code == 0  # a cache that does less than it could makes nothing too good
    assert "Prefix cache" in table(folder).out


@pytest.mark.parametrize(
    ("probe", "served", "shown", "reason"),
    [
        ("off", 0, "off", "the server's prefix cache is off"),
        ("inert", 0, "enabled but inert", "the server's prefix cache is enabled but inert: it serves nothing"),
        ("inert", 304, "below", "part of it was evicted before it was wanted again"),
        ("on", 0, "below", "the prefix cache works, but all was evicted before it was wanted again"),
        ("on", 304, "below", "part of it was evicted before it was wanted again"),
        ("unknown", 0, "below", "nothing came from the cache: it is off or inert, or all was evicted"),
    ],
)  # fmt: skip
def test_why_less_came_from_the_cache(
    table: Any, tmp_path: Path, probe: str, served: int, shown: str, reason: str
) -> None:
    """The probe tells apart a cache that is off, inert, or too small; the table has the word for it."""
    probed = PROBE | {"state": probe}
    folder = write_run(tmp_path / "run", turns(served), cache_probe=probed, levels=[{"concurrency": 1}])
    found = verdict(table, folder)
    assert found["state"] == "below"
    assert found["reason"].startswith(reason)
    out = table(folder, "--width", "140").out
    assert f"c=1: below: {reason}" in out
    assert any(line.startswith("1 ") and line.endswith(f"  {shown}") for line in out.splitlines())


def test_only_hits_are_told(table: Any, tmp_path: Path) -> None:
    """A server that leaves out a count of 0 would seem to serve everything: no share from those that tell."""
    folder = write_run(tmp_path / "run", level_of([512, None, None, None]), levels=[{"concurrency": 1}])
    found = verdict(table, folder)
    assert (found["state"], found["measured"]) == ("unknown", None)
    assert found["reason"] == "only 1 of 4 answers tell their cached tokens"


def test_unknown_is_told_where_it_matters(table: Any, tmp_path: Path) -> None:
    """Agents: a table with a blank and the server flag. Chats: a line where history is implied, else nothing."""
    flag = {"flag": "--enable-prompt-tokens-details"}
    rows = level_of([None] * 4)
    agents = {"scenario": {"traffic": [{"name": "chat", "kind": "agentic"}]}, "cache_probe": PROBE | flag}
    shown = table(write_run(tmp_path / "agents", rows, levels=[{"concurrency": 1}], **agents), "--width", "160").out
    assert "c=1: unknown: the answers do not tell their cached tokens; start the server with " + flag["flag"] in shown
    assert "probe: caching is on" in shown
    chats = table(write_run(tmp_path / "chats", rows, levels=[{"concurrency": 1}])).out
    assert "cache" not in chats
    talking = [request(0, 0, None, prompt_tokens=600), request(0, 1, None, turn=1, history_tokens=600)]
    told = table(write_run(tmp_path / "talking", talking, levels=[{"concurrency": 1}]), "--width", "200").out
    assert "prefix cache: what came from it is unknown, the workload implies up to 38%" in told  # 600 of 1,600


def test_the_head_of_the_template_is_no_reuse(table: Any, tmp_path: Path) -> None:
    """llama.cpp serves the 24 tokens that all prompts begin with: confirmed, said in a line."""
    rows = level_of([24] * 4, prompt_tokens=400)
    facts = {"template_prefix_tokens": 24, "levels": [{"concurrency": 1}]}
    folder = write_run(tmp_path / "run", rows, **facts)
    assert verdict(table, folder)["state"] == "confirmed"
    assert "at most 6.0% of a level's prompt tokens came from it, the head that all prompts have" in table(folder).out


def test_recorded_prompts_share_what_nobody_knows(table: Any, tmp_path: Path) -> None:
    """Prompts of a file may begin alike; the level is contaminated where the run says that some were sent twice."""
    scenario = {"traffic": [{"name": "chat", "kind": "chat", "prompts": {"file": "p.jsonl"}}]}
    facts = {"scenario": scenario, "levels": [{"concurrency": 1}], "cache_probe": PROBE}
    folder = write_run(tmp_path / "some", level_of([512] * 4), **facts)
    assert verdict(table, folder)["state"] == "unknown"
    assert "recorded prompts share text with each other" in table(folder).out
    notes = ["the prompt file has 2 conversations for 4 sessions: some repeat and may hit a cache"]
    again = write_run(tmp_path / "again", level_of([512] * 4), notes=notes, **facts)
    assert verdict(table, again)["state"] == "contaminated"


def test_the_note_on_repeated_prompts_is_the_runs_own(tmp_path: Path) -> None:
    """What the verdict looks for in the notes is what a run with too few prompts writes there."""
    from tokenswarm.prompts import Material
    from tokenswarm.scenario import ChatTraffic
    from tokenswarm.tokens import TokenCounter

    (tmp_path / "one.jsonl").write_text('{"prompt": "Say something."}\n')
    traffic = ChatTraffic.model_validate(
        {"prompts": {"file": "one.jsonl"}}, context={"folder": tmp_path, "environ": None}
    )
    shortage = Material(traffic, TokenCounter(source="server", exact=True)).shortage(5)
    assert shortage is not None
    assert "may hit a cache" in shortage


# prompts that the scenario repeats


def repeating(fresh: bool | None, **facts: Any) -> dict[str, Any]:
    closed = {"users": [1, 2]} | ({} if fresh is None else {"fresh_prompts": fresh})
    return {"scenario": {"load": {"closed": closed}}, "levels": [{"concurrency": 1}, {"concurrency": 2}], **facts}


@pytest.mark.parametrize("cached", [960, None])
def test_repeated_prompts_are_marked_from_the_second_level_on(table: Any, tmp_path: Path, cached: int | None) -> None:
    """fresh_prompts: false, whether or not the server tells what it served."""
    rows = level_of([0 if cached else None] * 4) + level_of([cached] * 4, level=1)
    answer = table(write_run(tmp_path / "run", rows, **repeating(False)), "--json", "--check")
    states = [level["cache"]["state"] for level in answer.json["levels"]]
    assert states == ["confirmed" if cached else "unknown", "contaminated"]
    assert answer.code == 3
    assert "repeats the prompts of the first level (load.closed.fresh_prompts: false)" in answer.err
    fresh = write_run(tmp_path / "fresh", rows, **repeating(None))
    found = [level["cache"]["reason"] for level in table(fresh, "--json").json["levels"]]
    assert not any("repeats" in reason for reason in found)


def test_repeated_prompts_on_a_server_without_cache(table: Any, tmp_path: Path) -> None:
    """Nothing came from the cache, so nothing is too good: confirmed, and said."""
    rows = level_of([0] * 4) + level_of([0] * 4, level=1)
    folder = write_run(tmp_path / "run", rows, **repeating(False))
    found = table(folder, "--json").json["levels"][1]["cache"]
    assert found["state"] == "confirmed"
    assert "repeats the prompts of the first level" in " ".join(table(folder, "--width", "100").out.split())


# from the engine's counters


def counted(*edges: tuple[int | None, str, int, int], **facts: Any) -> str:
    """Samples of one engine: level, edge, queries, hits."""
    return engine_csv(
        *(
            {"level": level, "edge": edge, "prefix_queries": queries, "prefix_hits": hits, **facts}
            for level, edge, queries, hits in edges
        )
    )


def test_counters_where_the_answers_do_not_tell(table: Any, tmp_path: Path) -> None:
    """4 prompts of 1,000 tokens, 2,048 of them found: counters of before and between do not matter."""
    samples = counted((0, "start", 5000, 900), (0, "", 7000, 1900), (0, "end", 9000, 2948))
    folder = write_run(tmp_path / "run", level_of([None] * 4), levels=[{"concurrency": 1}], engine=samples)
    found = verdict(table, folder)
    assert (found["source"], found["measured"], found["state"]) == ("counters", 0.512, "contaminated")
    assert "engine counters" in table(folder).out


def test_counters_of_a_free_running_load(table: Any, tmp_path: Path) -> None:
    """Without levels the whole run is one row, and so are its counters."""
    samples = counted((None, "start", 0, 0), (None, "end", 4000, 400))
    rows = level_of([None] * 4, level=0)
    for row in rows:
        row.level = None
    folder = write_run(tmp_path / "run", rows, engine=samples)
    found = verdict(table, folder)
    assert (found["source"], found["measured"], found["state"]) == ("counters", 0.1, "contaminated")
    assert "the whole run: contaminated" in table(folder).out


def test_answers_come_before_counters(table: Any, tmp_path: Path) -> None:
    """cached_tokens belong to the measured requests alone; the counters are not asked."""
    samples = counted((0, "start", 0, 0), (0, "end", 4000, 4000))
    folder = write_run(tmp_path / "run", level_of([0] * 4), levels=[{"concurrency": 1}], engine=samples)
    assert verdict(table, folder)["source"] == "usage"


def test_counters_are_added_over_engines(table: Any, tmp_path: Path) -> None:
    """Two engines on one page, one with 500 of 1,500 found, one with 100 of 2,500: 600 of 4,000."""
    rows = [
        {"level": 0, "edge": "start", "engine": "0", "prefix_queries": 100, "prefix_hits": 100},
        {"level": 0, "edge": "start", "engine": "1", "prefix_queries": 0, "prefix_hits": 0},
        {"level": 0, "edge": "end", "engine": "1", "prefix_queries": 2500, "prefix_hits": 100},
        {"level": 0, "edge": "end", "engine": "0", "prefix_queries": 1600, "prefix_hits": 600},
    ]
    folder = write_run(tmp_path / "run", level_of([None] * 4), levels=[{"concurrency": 1}], engine=engine_csv(*rows))
    assert verdict(table, folder)["measured"] == pytest.approx(0.15)


def test_counters_of_an_engine_without_queries(table: Any, tmp_path: Path) -> None:
    """llama.cpp and SGLang count prompt tokens and those of them that were cached."""
    rows = [
        {"level": 0, "edge": "start", "prompt_tokens": 10, "cached_prompt_tokens": 0},
        {"level": 0, "edge": "end", "prompt_tokens": 4010, "cached_prompt_tokens": 40},
    ]
    folder = write_run(tmp_path / "run", level_of([None] * 4), levels=[{"concurrency": 1}], engine=engine_csv(*rows))
    found = verdict(table, folder)
    assert (found["source"], found["measured"]) == ("counters", 0.01)


@pytest.mark.parametrize(
    ("edges", "reason"),
    [
        (
            ((0, "start", 0, 0), (0, "end", 4145, 0)),
            "others use the server: it counted 4145 prompt tokens, this run sent 4000",
        ),
        (((0, "start", 0, 0), (0, "end", 3855, 0)), "not all requests reached the engine that shows its counters"),
    ],
)  # fmt: skip
def test_counters_that_are_not_ours(table: Any, tmp_path: Path, edges: Any, reason: str) -> None:
    """More than 2 % and 64 tokens more or less than this run sent: unknown, with the reason."""
    folder = write_run(tmp_path / "run", level_of([None] * 4), levels=[{"concurrency": 1}], engine=counted(*edges))
    found = verdict(table, folder)
    assert (found["state"], found["measured"]) == ("unknown", None)
    assert reason in found["reason"]
    near = tuple((level, edge, min(max(queries, 3857), 4143) if queries else 0, 0) for level, edge, queries, _ in edges)
    ours = write_run(tmp_path / "near", level_of([None] * 4), levels=[{"concurrency": 1}], engine=counted(*near))
    assert verdict(table, ours)["state"] == "confirmed"


def test_requests_that_were_cut_may_have_been_counted(table: Any, tmp_path: Path) -> None:
    """A request without usage may have had as many tokens as the largest: 4,900 counted tokens can be ours."""
    rows = [*level_of([None] * 4), request(0, 4, None, prompt_tokens=None, output_tokens=None, error_kind="cancelled")]
    samples = counted((0, "start", 0, 0), (0, "end", 4900, 0))
    folder = write_run(tmp_path / "run", rows, levels=[{"concurrency": 1}], engine=samples)
    assert verdict(table, folder)["state"] == "confirmed"


@pytest.mark.parametrize(
    "samples",
    [
        counted((0, "start", 0, 0)),
        counted((0, "start", 5000, 0), (0, "end", 4000, 0)),
        counted((0, "start", 5000, 0), (0, "", 100, 0), (0, "end", 9000, 0)),
        counted((0, "start", 0, 0, ), (1, "end", 4000, 0)),
        engine_csv({"level": 0, "edge": "start", "engine": "0"}, {"level": 0, "edge": "end", "engine": "0"}),
        engine_csv(
            {"level": 0, "edge": "start", "prefix_queries": 0, "prefix_hits": 0, "process_start_s": 100.0},
            {"level": 0, "edge": "end", "prefix_queries": 4000, "prefix_hits": 0, "process_start_s": 160.0},
        ),
        engine_csv(
            {"level": 0, "edge": "start", "engine": "0", "prefix_queries": 0, "prefix_hits": 0},
            {"level": 0, "edge": "end", "engine": "1", "prefix_queries": 4000, "prefix_hits": 0},
        ),
    ],
    ids=["no end", "fell", "fell and outgrew", "other level", "no counters", "restarted", "other engine"],
)  # fmt: skip
def test_counters_that_say_nothing(table: Any, tmp_path: Path, samples: str) -> None:
    """An edge without sample, a restart or other engines: unknown, not 0."""
    folder = write_run(tmp_path / "run", level_of([None] * 4), levels=[{"concurrency": 1}], engine=samples)
    assert verdict(table, folder)["state"] == "unknown"


def test_engine_samples_cut_off_when_the_run_died(table: Any, tmp_path: Path) -> None:
    """The last line of engine.csv is dropped and said; the file may be empty."""
    samples = counted((0, "start", 0, 0), (0, "end", 4000, 0))
    folder = write_run(tmp_path / "run", level_of([None] * 4), levels=[{"concurrency": 1}], engine=samples[:-20])
    notes = [note["text"] for note in table(folder, "--json").json["notes"]]
    assert "engine.csv: the last line is cut off and was left out" in notes
    (folder / "engine.csv").write_text("")
    assert verdict(table, folder)["state"] == "unknown"


def test_impossible_counts_are_taken_as_not_told(table: Any, tmp_path: Path) -> None:
    """More cached tokens than the prompt has say nothing of the cache: a note, and no share of 6,400 %."""
    folder = write_run(tmp_path / "run", level_of([64_000] * 4), levels=[{"concurrency": 1}], cache_probe=PROBE)
    found = verdict(table, folder)
    assert (found["state"], found["measured"]) == ("unknown", None)
    notes = [note["text"] for note in table(folder, "--json").json["notes"]]
    assert (
        "requests.csv: 4 answers tell more cached tokens than their prompts have, or fewer than none: taken as not told"
    ) in notes


def test_classes_have_verdicts_where_the_answers_tell(table: Any, tmp_path: Path) -> None:
    """The counters of an engine know no classes: each has the level's verdict and a blank share."""
    rows = level_of([512] * 2) + [request(0, 5 + i, 0, traffic="batch") for i in range(2)]
    told = table(write_run(tmp_path / "told", rows, levels=[{"concurrency": 1}]), "--json").json["classes"]
    assert [(one["traffic"], one["cache"]["state"], one["cache"]["measured"]) for one in told] == [
        ("batch", "confirmed", 0.0), ("chat", "contaminated", 0.512),
    ]  # fmt: skip
    for row in rows:
        row.cached_tokens = None
    samples = counted((0, "start", 0, 0), (0, "end", 4000, 1024))
    counts = write_run(tmp_path / "counted", rows, levels=[{"concurrency": 1}], engine=samples)
    classes = table(counts, "--json").json["classes"]
    assert [(one["cache"]["state"], one["cache"]["measured"]) for one in classes] == [("contaminated", None)] * 2


# one seed at every level


@pytest.fixture
def b19(tmp_path: Path) -> Path:
    """A run folder of the case: its prompts of 1,024 tokens each, and the server's pages at the levels' edges."""
    with (CASES / "B19" / "prompts.csv").open() as file:
        prompts = list(csv.DictReader(file))
    users = list(dict.fromkeys(int(row["level"]) for row in prompts))
    rows = [
        request(level, int(row["index"]), None, concurrency=count, prompt_tokens=1024)
        for level, count in enumerate(users)
        for row in prompts
        if int(row["level"]) == count
    ]
    pages = [parse_metrics((CASES / "B19" / f"metrics_{i}.txt").read_text()) for i in range(4)]
    samples = [
        {"level": level, "edge": edge} | {name: getattr(engine, name) for name in engine.__struct_fields__}
        for level in range(len(users))
        for edge, page in (("start", pages[level]), ("end", pages[level + 1]))
        for engine in page
    ]
    levels = [{"concurrency": count} for count in users]
    return write_run(tmp_path / "b19", rows, levels=levels, engine=engine_csv(*samples))


def test_b19_hit_rates_are_of_each_level(table: Any, b19: Path) -> None:
    """0 %, 50 % and 50 % by differences of the counters, not the 42.9 % since the server's start; 16 and 32 marked."""
    right = json.loads((CASES / "B19" / "expected.json").read_text())
    answer = table(b19, "--json", "--check")
    found = {str(level["concurrency"]): level["cache"] for level in answer.json["levels"]}
    assert {name: cache["measured"] for name, cache in found.items()} == pytest.approx(right["hit_rate"])
    assert {name: cache["state"] == "contaminated" for name, cache in found.items()} == right["contaminated"]
    assert answer.code == 3


def test_b19_arithmetic_stands_in_the_report(table: Any, b19: Path) -> None:
    """The table has the tokens, both shares and the verdict of each level."""
    lines = [" ".join(line.split()) for line in table(b19, "--width", "100").out.splitlines()]
    assert "8 8192 0 % 0 % engine counters confirmed" in lines
    assert "16† 16384 50.0 % 0 % engine counters contaminated" in lines
    assert "32† 32768 50.0 % 0 % engine counters contaminated" in lines
    assert "c=16, 32: contaminated: prompts of an earlier load were still in the cache" in lines
