"""Was a level's share of images from the multimodal cache what its workload implies? By the engine's counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.analysis.conftest import write_run
from tests.analysis.test_cache_verdict import engine_csv
from tokenswarm.records import RequestRecord


def question(level: int, session: int, turn: int, /, **facts: Any) -> RequestRecord:
    """One second long; the two of a session follow each other, sessions are 10 s apart."""
    sent = 1000.0 * level + 10 * session + 2 * turn
    given: dict[str, Any] = {
        "level": level, "concurrency": 1, "phase": "measured", "ticket": session, "traffic": "captions",
        "session": f"{level}.measured.{session}", "turn": turn, "sent_s": sent, "first_token_s": sent + 0.5,
        "last_token_s": sent + 1, "finished_s": sent + 1, "prompt_tokens": 300, "history_tokens": 0,
        "output_tokens": 11, "token_source": "usage", "images": 1, "cached_tokens": 0,
    }  # fmt: skip
    return RequestRecord(**given | facts)


def level_of(sessions: int, level: int = 0, turns: int = 2, **facts: Any) -> list[RequestRecord]:
    return [question(level, session, turn, **facts) for session in range(sessions) for turn in range(turns)]


def counted(*levels: tuple[int, int], engine: str = "", **facts: Any) -> list[dict[str, Any]]:
    """Samples at both ends of levels in which so many images were looked up and found; totals go on from 100 and 40."""
    samples: list[dict[str, Any]] = []
    queries, hits = 100, 40
    for level, (asked, found) in enumerate(levels):
        samples.append({"level": level, "edge": "start", "engine": engine, "mm_queries": queries, "mm_hits": hits})
        queries, hits = queries + asked, hits + found
        samples.append(samples[-1] | {"edge": "end", "mm_queries": queries, "mm_hits": hits} | facts)
    return samples


def written(folder: Path, rows: list[RequestRecord], samples: list[dict[str, Any]], **facts: Any) -> Path:
    levels = facts.pop("levels", [{"concurrency": 1} for _ in {row.level for row in rows}])
    return write_run(folder, rows, levels=levels, engine=engine_csv(*samples) if samples else "", **facts)


def verdicts(table: Any, folder: Path) -> list[dict[str, Any]]:
    return [level["image_cache"] for level in table(folder, "--json").json["levels"]]


def captions(source: dict[str, Any]) -> dict[str, Any]:
    return {"traffic": [{"name": "captions", "kind": "captioning", "images": source}]}


@pytest.mark.parametrize(("turns", "asked", "found", "implied"), [(2, 20, 10, 0.5), (4, 40, 30, 0.75), (1, 10, 0, 0.0)])
def test_further_questions_find_their_picture(
    table: Any, tmp_path: Path, turns: int, asked: int, found: int, implied: float
) -> None:
    """Of two questions about a picture half are look-ups that an ideal cache serves, of four three quarters."""
    folder = written(tmp_path / "run", level_of(10, turns=turns), counted((asked, found)))
    assert verdicts(table, folder) == [
        {
            "state": "confirmed", "reason": "", "source": "counters", "measured": implied, "implied": implied,
            "finding": "", "images": float(asked),
        }
    ]  # fmt: skip


def test_all_images_of_all_phases_are_looked_up(table: Any, tmp_path: Path) -> None:
    """Three pictures in each prompt; warm-up and fill are in the counters and in what is implied."""
    rows = level_of(4, images=3)
    rows += [question(0, 10, turn, images=3, phase="warmup", session="0.warmup.0") for turn in (0, 1)]
    rows += [question(0, 11, 0, images=3, phase="fill", session="0.fill.0")]  # its second question never came
    folder = written(tmp_path / "run", rows, counted((33, 15)))  # 11 requests, 5 of them second ones
    (found,) = verdicts(table, folder)
    assert (found["state"], found["images"]) == ("confirmed", 33.0)
    assert found["measured"] == found["implied"] == pytest.approx(15 / 33)


@pytest.mark.parametrize(
    ("found", "state"), [(104, "confirmed"), (105, "contaminated"), (96, "confirmed"), (95, "below")]
)
def test_the_threshold_is_two_points(table: Any, tmp_path: Path, found: int, state: str) -> None:
    """Of 200 look-ups 100 are implied; 4 more or less are still confirmed."""
    (verdict,) = verdicts(table, written(tmp_path / "run", level_of(100), counted((200, found))))
    assert verdict["state"] == state


def test_pictures_of_an_earlier_load(table: Any, tmp_path: Path) -> None:
    """All look-ups were served at the second level: marked in every table, undecided, exit code 3."""
    rows = level_of(4) + level_of(4, level=1, concurrency=2)
    levels = [{"concurrency": 1}, {"concurrency": 2}]
    folder = written(tmp_path / "run", rows, counted((8, 4), (8, 8)), levels=levels)
    answer = table(folder, "--json", "--check")
    assert [level["image_cache"]["state"] for level in answer.json["levels"]] == ["confirmed", "contaminated"]
    assert answer.code == 3
    assert "c=2: contaminated: 100.0% of the images came from the cache, the workload implies 50.0%" in answer.err
    shown = table(folder, "--width", "120").out
    assert sum(line.startswith("2†") for line in shown.splitlines()) >= 3  # levels, captions, multimodal cache
    assert "c=2: contaminated: images of an earlier load were still in the cache" in shown
    assert "more of the prompts or images came from the server's caches" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("samples", "state", "shown", "reason"),
    [
        (counted((20, 3)), "below", "below", "images were evicted before their next use"),
        (counted((20, 0)), "below", "below", "nothing came from the cache"),
        (counted((0, 0), prompt_tokens=6000), "below", "off", "the engine looked no image up"),
        (counted((30, 10)), "unknown", "unknown", "others use the server: it counted 30 images, this run sent 20"),
        (counted((10, 5)), "unknown", "unknown", "not all requests reached the engine that shows its counters"),
        ([], "unknown", "unknown", "the engine does not tell"),
    ],
    ids=["evicted", "nothing", "off", "others", "elsewhere", "untold"],
)  # fmt: skip
def test_less_than_implied_or_unknown(
    table: Any, tmp_path: Path, samples: list[dict[str, Any]], state: str, shown: str, reason: str
) -> None:
    """Each with its reason; nothing of it makes a level too good."""
    for sample in samples:
        if sample["edge"] == "start" and samples[-1].get("prompt_tokens"):
            sample["prompt_tokens"] = 0
    folder = written(tmp_path / "run", level_of(10), samples)
    (found,) = verdicts(table, folder)
    assert found["state"] == state
    assert found["reason"].startswith(reason)
    answer = table(folder, "--width", "160", "--check")
    assert answer.code == 0
    lines = answer.out[answer.out.index("Multimodal cache") :].splitlines()
    assert any(line.startswith("1 ") and line.endswith(f"  {shown}") for line in lines)
    assert any(line.startswith(f"c=1: {state}: {reason}") for line in lines)


def test_several_engines_with_caches_of_their_own(table: Any, tmp_path: Path) -> None:
    """The second questions went to the other engine half of the time: 5 of 20 found, and why that may be."""
    samples = counted((10, 3), engine="0") + counted((10, 2), engine="1")
    (found,) = verdicts(table, written(tmp_path / "run", level_of(10), samples))
    assert (found["state"], found["measured"]) == ("below", 0.25)
    assert found["reason"].startswith("each of the 2 engines may have a cache of its own")


def test_failed_requests_may_have_been_looked_up(table: Any, tmp_path: Path) -> None:
    """Four refused requests: the counters may have them or not, and their images may have been found or not."""
    failed = [question(0, 20 + i, 0, error_kind="http_400", first_token_s=None, last_token_s=None) for i in range(4)]
    for asked, found in ((20, 10), (24, 10), (24, 14)):
        folder = written(tmp_path / f"{asked}-{found}", level_of(10) + failed, counted((asked, found)))
        assert verdicts(table, folder)[0]["state"] == "confirmed", (asked, found)


@pytest.mark.parametrize(("source", "implied"), [({"synthetic": {"distinct": 4}}, 16 / 20), ({}, 0.5)])
def test_pictures_that_come_again(table: Any, tmp_path: Path, source: dict[str, Any], implied: float) -> None:
    """Four drawings for ten sessions of two questions: only four look-ups are the first ones of a drawing."""
    folder = written(tmp_path / "run", level_of(10), counted((20, 16)), scenario=captions(source))
    (found,) = verdicts(table, folder)
    assert found["implied"] == pytest.approx(implied)
    assert found["state"] == ("confirmed" if source else "contaminated")


def test_drawings_of_earlier_levels_come_again(table: Any, tmp_path: Path) -> None:
    """Six drawings, four sessions a level: at the second level two are new, the other two were shown before."""
    rows = level_of(4) + level_of(4, level=1)
    scenario = captions({"synthetic": {"distinct": 6}})
    first, second = verdicts(table, written(tmp_path / "run", rows, counted((8, 4), (8, 6)), scenario=scenario))
    assert (first["implied"], second["implied"]) == (0.5, 0.75)
    assert (first["state"], second["state"]) == ("confirmed", "confirmed")


def test_the_note_on_too_few_pictures_is_the_runs_own(table: Any, tmp_path: Path) -> None:
    """A folder with too few pictures makes more hits than implied: contaminated, for the reason that the run wrote."""
    from tokenswarm.image_settings import Images
    from tokenswarm.images import ImageFacts, ImageSource

    settings = Images.model_validate({"folder": str(tmp_path)}, context={"folder": tmp_path})
    note = ImageSource(settings, name="captions", seed=1).shortage(ImageFacts(5), sessions=10)
    assert note is not None
    scenario = captions({"folder": str(tmp_path)})
    folder = written(tmp_path / "run", level_of(10), counted((20, 15)), scenario=scenario, notes=[note])
    (found,) = verdicts(table, folder)
    assert (found["state"], found["reason"]) == (
        "contaminated",
        "there are too few pictures, so that some were sent again",
    )


def test_both_sessions_of_a_pair_show_one_picture(table: Any, tmp_path: Path) -> None:
    """A key keeps prompts of the two arms apart, but not their picture: three of its four look-ups are implied."""
    rows = [
        question(0, 2 * pair + place, turn, arm=arm, pair=pair)
        for pair in range(5)
        for place, arm in enumerate(("warm", "cold"))
        for turn in (0, 1)
    ]
    levels = [{"concurrency": 1, "arms": "paired"}]
    (found,) = verdicts(table, written(tmp_path / "run", rows, counted((20, 15)), levels=levels))
    assert (found["state"], found["implied"]) == ("confirmed", 0.75)


def test_classes_have_the_levels_verdict(table: Any, tmp_path: Path) -> None:
    """Counters know no classes: the class with pictures has the verdict without a share, the chat has none."""
    rows = [*level_of(10), question(0, 50, 0, traffic="chat", images=None)]
    document = table(written(tmp_path / "run", rows, counted((20, 10))), "--json").json
    pictures, chat = (one["image_cache"] for one in document["classes"])
    assert (pictures["state"], pictures["measured"], pictures["images"]) == ("confirmed", None, 20.0)
    assert chat is None


def test_runs_without_pictures_have_no_such_table(table: Any, small: Path) -> None:
    """vLLM shows the counters also where no image was sent."""
    assert "Multimodal" not in table(small).out
    assert [level["image_cache"] for level in table(small, "--json").json["levels"]] == [None, None]
