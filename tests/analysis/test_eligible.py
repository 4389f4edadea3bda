"""Prompt tokens that an ideal cache could have served, worked out by hand request by request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.eligible import eligible_tokens
from analysis.run_folder import read_run
from tests.analysis.conftest import write_run
from tokenswarm.records import COLUMNS, RequestRecord


def request(session: str, sent_s: float, prompt: int | None, history: int | None = 0, **facts: Any) -> RequestRecord:
    """A request whose first token comes 1 s after it was sent and whose answer ends 1 s later."""
    given: dict[str, Any] = {
        "level": 0, "concurrency": 2, "phase": "measured", "ticket": 0, "traffic": "agent", "session": session,
        "sent_s": sent_s, "first_token_s": sent_s + 1, "last_token_s": sent_s + 2, "finished_s": sent_s + 2,
        "prompt_tokens": prompt, "history_tokens": history, "output_tokens": 50,
    }  # fmt: skip
    return RequestRecord(**given | facts)


def figures(folder: Path, *rows: RequestRecord, **facts: Any) -> list[tuple[float, float, float]]:
    """Eligible, least and most tokens of each row."""
    found = eligible_tokens(read_run(write_run(folder, rows, **facts)))
    return list(found.itertuples(index=False, name=None))


PAGED = {"cache_probe": {"state": "on", "block_tokens": 16}, "template_prefix_tokens": 10}


def test_history_in_whole_blocks(tmp_path: Path) -> None:
    """A second prompt of 400 tokens of which 250 were said before: 15 blocks of 16, at least those of 249 tokens."""
    _, second = figures(
        tmp_path / "run", request("a", 0, 200), request("a", 10, 400, 250, turn=1, pause_s=3.0), **PAGED
    )
    assert second == (240, 240, 256)  # 250 and 249 hold 15 blocks, 250 + 16 hold 16


def test_a_prompt_is_never_cached_to_its_end(tmp_path: Path) -> None:
    """The last token is computed in any case: 255 of 256 tokens hold 15 blocks."""
    assert figures(tmp_path / "run", request("a", 0, 256, 256, turn=1), **PAGED) == [(240, 240, 240)]


def test_shared_text_counts_once_it_has_been_computed(tmp_path: Path) -> None:
    """The first request of a text finds nothing, one sent meanwhile may find it, one sent after its first token must.

    The template's head of 10 tokens and 16 of chance come on top of the most: 160 + 26 hold 11 blocks.
    """
    shared = {"prefix": "agent/0/0", "prefix_tokens": 160}
    rows = [request(name, sent_s, 600, **shared) for name, sent_s in (("a", 0), ("b", 0.9), ("c", 1.0))]
    other = request("d", 5, 600, prefix="agent/0/1", prefix_tokens=160)
    found = figures(tmp_path / "run", *rows, other, **PAGED)
    assert found == [(0, 0, 176), (0, 0, 176), (160, 144, 176), (0, 0, 176)]


def test_a_system_prompt_is_shared_by_its_text(tmp_path: Path) -> None:
    """Two chat classes call their system prompts alike; only where the texts are equal do they share it."""
    shared = {"prefix": "system", "prefix_tokens": 160}
    rows = [request(name, t, 600, traffic=name, **shared) for t, name in ((0, "one"), (5, "two"), (10, "three"))]
    texts = {"one": "Be brief.", "two": "Be kind.", "three": "Be brief."}
    traffic = [{"name": name, "system_prompt": text} for name, text in texts.items()]
    found = figures(tmp_path / "run", *rows, scenario={"traffic": traffic}, **PAGED)
    assert [eligible for eligible, _, _ in found] == [0, 0, 160]


def test_what_the_look_at_the_server_has_sent_is_found_at_once(tmp_path: Path) -> None:
    """Tools and recorded system texts of agents went out before the load, without a key: 160 tokens for the first job
    already. Generated texts, those of chats and the keys of a prefix-cache test are new."""
    rows = [
        request(name, t, 600, traffic=traffic, prefix=prefix, prefix_tokens=160, **arm)
        for name, t, traffic, prefix, arm in (
            ("a", 0, "agent", "system", {}),
            ("b", 0, "agent", "tools 3", {}),
            ("c", 0, "agent", "prompt 0.0", {}),
            ("d", 0, "chat", "system", {}),
            ("e", 0, "agent", "system 1", {"arm": "warm"}),
        )
    ]
    traffic = [{"name": "agent", "kind": "agentic"}, {"name": "chat", "kind": "chat"}]
    found = figures(tmp_path / "run", *rows, scenario={"traffic": traffic}, **PAGED)
    assert [eligible for eligible, _, _ in found] == [160, 160, 0, 0, 0]


def test_a_cold_session_finds_only_its_own(tmp_path: Path) -> None:
    """With a salt a session: the shared text is nothing to it, not even the template's head; its history is."""
    shared = {"prefix": "agent/0/0", "prefix_tokens": 160}
    rows = [
        request("w", 0, 600, arm="warm", **shared),
        request("c", 5, 600, arm="cold", **shared),
        request("c", 10, 900, 650, turn=1, arm="cold", **shared),
        request("v", 15, 600, arm="warm", **shared),
    ]
    found = figures(tmp_path / "run", *rows, isolation={"by": "salt", "cold": "session"}, **PAGED)
    assert found == [(0, 0, 176), (0, 0, 0), (640, 640, 656), (160, 144, 176)]


def test_what_cold_sessions_compute_is_not_for_warm_ones(tmp_path: Path) -> None:
    """A text that only a cold session has sent is new to the first warm one."""
    shared = {"prefix": "agent/0/0", "prefix_tokens": 160}
    rows = [request("c", 0, 600, arm="cold", **shared), request("w", 5, 600, arm="warm", **shared)]
    found = figures(tmp_path / "run", *rows, isolation={"by": "salt", "cold": "session"}, **PAGED)
    assert found[1][0] == 0


def test_a_cold_request_finds_nothing(tmp_path: Path) -> None:
    """With a key a request even its own history is gone; behind a nonce the template's head is still common."""
    rows = [request("c", 0, 600, arm="cold"), request("c", 10, 900, 650, turn=1, arm="cold")]
    salted = figures(tmp_path / "salt", *rows, isolation={"by": "salt", "cold": "request"}, **PAGED)
    assert salted == [(0, 0, 0), (0, 0, 0)]
    nonced = figures(
        tmp_path / "nonce", *rows, isolation={"by": "nonce", "cold": "request", "nonce_tokens": 14}, **PAGED
    )
    assert nonced == [(0, 0, 32), (0, 0, 32)]  # 10 + 14 + 16 tokens hold 2 blocks


def test_unknown_blocks_and_heads_leave_room(tmp_path: Path) -> None:
    """Without a probe a block may have 128 tokens and the head of the template 32."""
    rows = [request("a", 0, 200), request("a", 10, 400, 250, turn=1)]
    assert figures(tmp_path / "run", *rows) == [(0, 0, 48), (250, 122, 266)]


def test_what_nobody_counted_stays_blank(tmp_path: Path) -> None:
    """A prompt or a history of unknown length implies nothing, not 0."""
    import math

    rows = [request("a", 0, None), request("b", 0, 400, None, turn=1)]
    assert all(math.isnan(value) for row in figures(tmp_path / "run", *rows) for value in row)


def test_runs_that_did_not_write_down_the_history(tmp_path: Path) -> None:
    """An earlier run of chats: the prompt and the answer before stand in the next prompt, 200 + 50 of 400 tokens."""
    rows = [request("a", 0, 200), request("b", 1, 300), request("a", 10, 400, turn=1), request("a", 20, 700, turn=2)]
    folder = write_run(tmp_path / "run", rows)
    lines = (folder / "requests.csv").read_text().splitlines()
    at = COLUMNS.index("history_tokens")
    cut = [",".join(cells[:at] + cells[at + 1 :]) for cells in (line.split(",") for line in lines)]
    (folder / "requests.csv").write_text("\n".join(cut) + "\n")
    found = eligible_tokens(read_run(folder))
    assert found["eligible_tokens"].tolist() == [0, 0, 250, 450]


@pytest.mark.parametrize("empty", [True, False])
def test_no_requests_no_figures(tmp_path: Path, empty: bool) -> None:
    """A run that sent nothing, or nothing that names a shared text, has no trouble with it."""
    rows = [] if empty else [request("a", 0, 100)]
    assert len(figures(tmp_path / "run", *rows)) == len(rows)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [({}, (240, 240, 256)), ({"tool_calls": 1}, (192, 192, 256)), ({"reasoning_tokens": 30}, (192, 192, 256))],
)
def test_an_answer_that_comes_back_in_other_words_is_not_implied(
    tmp_path: Path, answer: dict[str, int], expected: tuple[int, int, int]
) -> None:
    """200 tokens were sent and 50 answered. Templates write calls anew and leave thoughts out: then only the 200 are
    sure (12 blocks of 16), and the whole 250 may be found all the same."""
    _, second = figures(
        tmp_path / "run", request("a", 0, 200, **answer), request("a", 10, 400, 250, turn=1, pause_s=3.0), **PAGED
    )
    assert second == expected


def test_replayed_prompts_share_as_far_as_their_paths_go(tmp_path: Path) -> None:
    """Paths of a trace, by hand: b has both blocks of a; c, sent before a's first token, may find a's; d has the first
    block of all; e shares 512 tokens with d and 600 with f, which comes later; g is a's text cut short."""
    sent = (
        ("a", 0, "0@512/1@1024"),
        ("b", 5, "0@512/1@1024"),
        ("c", 5.5, "0@512/2@1536"),
        ("d", 10, "0@512"),
        ("e", 20, "3@512/4@600"),
        ("f", 30, "3@512/4@600"),
        ("g", 40, "0@512/1@700"),
    )
    tokens = {"a": 1024, "b": 1024, "c": 1536, "d": 512, "e": 600, "f": 600, "g": 700}
    rows = [
        request(name, at, 2000, traffic="trace", prefix=path, prefix_tokens=tokens[name]) for name, at, path in sent
    ]
    found = figures(tmp_path / "run", *rows, **PAGED)
    assert [eligible for eligible, _, _ in found] == [0, 1024, 512, 512, 0, 592, 688]  # 600 holds 37 blocks, 700 43
    assert [least for _, least, _ in found] == [0, 1008, 496, 496, 0, 592, 688]
    # most: 16 of chance on top, 26 with the template's head where nothing is shared
    assert [most for _, _, most in found] == [16, 1040, 528, 528, 16, 608, 704]


def test_a_replayed_prompt_may_find_one_that_is_under_way(tmp_path: Path) -> None:
    """Sent half a second after the first request and before its first token: nothing must be found, all may be."""
    rows = [
        request(name, at, 2000, traffic="trace", prefix="0@512", prefix_tokens=512)
        for name, at in (("a", 0), ("b", 0.5))
    ]
    assert figures(tmp_path / "run", *rows, **PAGED) == [(0, 0, 16), (0, 0, 528)]
