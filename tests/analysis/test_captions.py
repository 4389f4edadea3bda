"""The table of captioning traffic, from rows whose rates and times are worked out by hand."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.conftest import write_run
from tests.analysis.test_image_cache import counted, written
from tokenswarm.records import RequestRecord

LEVEL = [{"concurrency": 2}]


def question(session: int, turn: int, /, sent_s: float, ttft_s: float, **facts: Any) -> RequestRecord:
    """Ends 2 s after it was sent."""
    given: dict[str, Any] = {
        "level": 0, "concurrency": 2, "phase": "measured", "ticket": session, "traffic": "captions",
        "session": f"0.measured.{session}", "turn": turn, "sent_s": sent_s, "first_token_s": sent_s + ttft_s,
        "last_token_s": sent_s + 2, "finished_s": sent_s + 2, "prompt_tokens": 300 + 100 * turn, "history_tokens": 0,
        "output_tokens": 50, "token_source": "usage", "images": 1, "request_bytes": 40_000 + 2_000 * turn,
    }  # fmt: skip
    return RequestRecord(**given | facts)


def streams() -> list[RequestRecord]:
    """Three sessions of two questions in 10 s: one stream plays two, the other one."""
    first = {"encode_s": 0.012, "prepare_s": 0.0002}
    return [
        question(0, 0, 100.0, 0.30, **first),
        question(0, 1, 102.0, 0.10),
        question(1, 0, 100.0, 0.50, **first),
        question(1, 1, 106.0, 0.20, pause_s=4.0),
        question(2, 0, 104.0, 0.40, encode_s=0.018, prepare_s=0.0002),
        question(2, 1, 108.0, 0.30),
    ]


def figures(table: Any, folder: Path, *options: str) -> dict[str, float | None]:
    level = table(folder, "--json", *options).json["levels"][0]
    return {name: figure["value"] for name, figure in level["figures"].items()}


def test_rates_of_a_plain_drain(table: Any, tmp_path: Path) -> None:
    """In 10 s six questions about three pictures were answered, with 2,100 prompt and 300 output tokens."""
    found = figures(table, write_run(tmp_path / "run", streams(), levels=LEVEL))
    assert found["wall_s"] == pytest.approx(10)
    assert found["images_per_s"] == pytest.approx(0.3)
    assert found["captions_per_h"] == pytest.approx(6 * 360)
    assert found["prompt_tok_s"] == pytest.approx((3 * 300 + 3 * 400) / 10)
    assert found["output_tok_s"] == pytest.approx(30)
    assert found["request_bytes_mean"] == pytest.approx(41_000)
    assert found["encode_mean_s"] == pytest.approx(0.014)


def test_rates_of_a_window(table: Any, tmp_path: Path) -> None:
    """tail: fill: any request counts by the share of its time in the window, its prompt where its answer began."""
    rows = [
        *streams(),
        question(9, 0, 98.0, 0.5, phase="warmup", session="0.warmup.0"),  # before the window
        question(10, 1, 99.5, 0.6, phase="warmup", session="0.warmup.1"),  # 1.5 of its 2 s, its prompt
        question(7, 0, 108.5, 0.5, phase="fill", session="0.fill.7"),  # 1.5 of its 2 s, its prompt
        question(8, 1, 109.5, 0.6, phase="fill", session="0.fill.8"),  # 0.5 of its 2 s, not its prompt
    ]
    found = figures(table, write_run(tmp_path / "run", rows, levels=[{"concurrency": 2, "tail": "fill"}]))
    assert found["wall_s"] == pytest.approx(10)
    assert found["images_per_s"] == pytest.approx(3.75 / 10)
    assert found["captions_per_h"] == pytest.approx((6 + 0.75 + 0.75 + 0.25) * 360)
    assert found["prompt_tok_s"] == pytest.approx((3 * 300 + 3 * 400 + 400 + 300) / 10)


def test_first_and_second_questions_apart(table: Any, tmp_path: Path) -> None:
    """TTFT of 300, 400 and 500 ms at first questions, 100, 200 and 300 ms at second ones; third ones are in neither."""
    rows = [*streams(), question(2, 2, 110.0, 1.5)]
    found = figures(table, write_run(tmp_path / "run", rows, levels=LEVEL))
    assert found["ttft_first_p50_s"] == pytest.approx(0.40)
    assert found["ttft_first_p95_s"] == pytest.approx(0.49)
    assert found["ttft_second_p50_s"] == pytest.approx(0.20)
    assert found["ttft_second_p95_s"] == pytest.approx(0.29)


def test_failed_questions(table: Any, tmp_path: Path) -> None:
    """A failed first question is no caption and no picture; it is infinitely late where failures count so."""
    failed = question(3, 0, 108.0, 0.1, error_kind="http_400", first_token_s=None, last_token_s=None)
    folder = write_run(tmp_path / "run", [*streams(), failed], levels=LEVEL)
    level = table(folder, "--json").json["levels"][0]
    assert (level["captions"]["captions"], level["captions"]["pictures"]) == (6, 3)
    assert level["captions"]["sessions"] == 4
    late = table(folder, "--json", "--failures-infinite").json["levels"][0]["figures"]
    assert late["ttft_first_p95_s"]["infinite"] is True
    assert late["ttft_second_p95_s"]["value"] == pytest.approx(0.29)


# tokens of an image


def scenario(**captions: Any) -> dict[str, Any]:
    return {"traffic": [{"name": "captions", "kind": "captioning", "question_tokens": 32} | captions]}


def test_image_tokens_as_the_server_tells(table: Any, tmp_path: Path) -> None:
    """Two pictures in each prompt and 500 image tokens: 250 each, without a mark."""
    rows = [question(0, turn, 100.0 + 2 * turn, 0.1, images=2, image_tokens=500) for turn in (0, 1)]
    folder = write_run(tmp_path / "run", rows, levels=LEVEL, scenario=scenario())
    figure = table(folder, "--json").json["levels"][0]["figures"]["tokens_per_image"]
    assert (figure["value"], figure.get("marks")) == (250, None)


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, 300 - 32),
        ({"question_tokens": {"uniform": [20, 60]}}, 300 - 40),
        ({"system_prompt": "Be brief."}, None),
        ({"images": {"parquet": {"file": "p.parquet"}}}, None),
    ],
    ids=["fixed", "drawn", "system prompt", "own questions"],
)
def test_image_tokens_by_difference(table: Any, tmp_path: Path, settings: dict[str, Any], tokens: float | None) -> None:
    """First prompts less the mean length of their text, marked as an estimate; unknown where the text is not ours."""
    folder = write_run(tmp_path / "run", streams(), levels=LEVEL, scenario=scenario(**settings))
    figure = table(folder, "--json").json["levels"][0]["figures"]["tokens_per_image"]
    assert figure["value"] == tokens
    assert figure.get("marks") == (None if tokens is None else ["estimated"])


def test_without_a_scenario_the_difference_is_unknown(table: Any, tmp_path: Path) -> None:
    """A lone requests.csv does not tell how long the questions were; the column is left out."""
    folder = write_run(tmp_path / "run", streams(), levels=LEVEL, scenario=scenario())
    out = table(folder / "requests.csv", "--width", "200").out
    assert "Captions" in out
    assert "per image" not in out


# the generator's own part


def test_waits_for_pictures(table: Any, tmp_path: Path) -> None:
    """Two sessions waited 0.3 and 0.5 s: 0.8 s beside 12 s of requests and 4 s of thinking, 4.8 %; marked and said."""
    rows = streams()
    for row, wait in zip((row for row in rows if row.turn == 0), (0.3, 0.5, 0.0005), strict=True):
        row.prepare_s = wait
    folder = write_run(tmp_path / "run", rows, levels=LEVEL)
    level = table(folder, "--json").json["levels"][0]
    assert level["captions"]["waits"] == 2
    assert level["captions"]["wait_share"] == pytest.approx(0.8005 / 16.8005)
    assert level["figures"]["picture_wait_mean_s"]["value"] == pytest.approx(0.4)
    assert level["figures"]["images_per_s"]["marks"] == ["waited"]
    out = " ".join(table(folder, "--width", "200").out.split())
    assert "c=2: pictures were not ready as fast as they were used: 2 of 3 sessions waited 0.4 s in the mean, 5%" in out
    assert "§ waited: streams waited for pictures" in out


def test_short_waits_are_no_trouble(table: Any, tmp_path: Path) -> None:
    """0.2 ms until the pictures were there is no wait; 0.3 s in all of 16 s is one, but holds nothing back."""
    folder = write_run(tmp_path / "short", streams(), levels=LEVEL)
    assert table(folder, "--json").json["levels"][0]["captions"]["waits"] == 0
    rows = streams()
    rows[0].prepare_s = 0.3
    folder = write_run(tmp_path / "one", rows, levels=LEVEL)
    level = table(folder, "--json").json["levels"][0]
    assert level["captions"]["waits"] == 1
    assert "marks" not in level["figures"]["images_per_s"]
    assert "not ready" not in table(folder).out


# the tables


def test_the_table_for_people(table: Any, tmp_path: Path) -> None:
    """One line a level with what was asked for, the cache's share among it; no column without a figure."""
    folder = written(tmp_path / "run", streams(), counted((6, 3)), levels=LEVEL, scenario=scenario())
    out = table(folder, "--width", "200").out
    block = out[out.index("\nCaptions\n") + 1 :].split("\n\n")
    lines = block[0].splitlines()
    # images/s, captions/h, prompt and generated tok/s, TTFT of first and second questions, tokens an image, MM cache,
    # request kB, encoding ms, waits
    assert lines[-1].split() == ["2", "0.300", "2160", "210.0", "30.0", "400*", "490*", "200*", "290*", "268.0≈",
                                 "50.0%", "41.0", "14", "0"]  # fmt: skip
    assert "wait mean" not in " ".join(block[0].split())
    assert "6 questions about 3 pictures were answered" in block[1]


def test_captions_for_programs(table: Any, tmp_path: Path) -> None:
    """CSV has rates, times, and the verdict on the multimodal cache."""
    folder = written(tmp_path / "run", streams(), counted((6, 3)), levels=LEVEL)
    (row,) = csv.DictReader(io.StringIO(table(folder, "--format", "csv").out))
    found = {name: row[name] for name in ("images_per_s", "captions_per_h", "prompt_tok_s", "ttft_second_p50_ms")}
    assert found == {
        "images_per_s": "0.3",
        "captions_per_h": "2160",
        "prompt_tok_s": "210",
        "ttft_second_p50_ms": "200",
    }
    assert [row[f"image_cache_{part}"] for part in ("share", "share_implied", "source", "verdict")] == [
        "0.5", "0.5", "counters", "confirmed",
    ]  # fmt: skip
    assert (row["request_kb_mean"], row["encode_mean_ms"], row["picture_waits"]) == ("41", "14", "0")


def test_tables_by_class_then_pooled(table: Any, tmp_path: Path) -> None:
    """Captions and a chat in one level: each with its own times first, then both together; captions stay captions."""
    chat = [question(10 + i, 0, 101.0 + i, 0.05, traffic="chat", images=None, session=f"c{i}") for i in range(2)]
    refused = question(12, 0, 103.0, 0.05, traffic="chat", images=None, session="c2", error_kind="refused")
    folder = write_run(tmp_path / "run", [*streams(), *chat, refused], levels=LEVEL)
    out = table(folder, "--width", "160").out
    assert out.index("By class\n") < out.index("All classes together\n") < out.index("Not a full success\n")
    parts = out.split("All classes together\n")
    rows = [line.split()[:4] for line in parts[0].splitlines() if line.startswith("2 ")]
    assert [row for row in rows if row[2] in ("6", "3")] == [["2", "captions", "6", "0"], ["2", "chat", "3", "1"]]
    pooled = next(line for line in parts[1].splitlines() if line.startswith("2 "))
    assert pooled.split()[:3] == ["2", "9", "1"]
    document = table(folder, "--json").json
    assert [one["captions"] is None for one in document["classes"]] == [False, True]
    assert document["levels"][0]["figures"]["captions_per_h"]["value"] == pytest.approx(6 * 360)
    assert "All classes together" not in table(folder, "--by-class").out


def test_chats_have_no_captions(table: Any, small: Path) -> None:
    """No table, and null for programs."""
    assert "Captions" not in table(small).out
    assert [level["captions"] for level in table(small, "--json").json["levels"]] == [None, None]
