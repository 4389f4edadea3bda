"""The search for the highest load: which loads it tries, and where it ends, against servers with a known capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tokenswarm.level_verdict import Judgement, LevelVerdict
from tokenswarm.search import Ended, Search

MET, MISSED, UNDECIDED = (LevelVerdict(one, f"chat {one}") for one in Judgement)


def up_to(capacity: float) -> Callable[[float], LevelVerdict]:
    return lambda load: MET if load <= capacity else MISSED


def play(search: Search, server: Callable[[float], LevelVerdict]) -> list[float]:
    """The loads that are tried; at most 100."""
    tried, load = [], search.start
    while len(tried) < 100:
        tried.append(load)
        following = search.judged(len(tried) - 1, search.named(load), load, server(load))
        if following is None:
            return tried
        load = following
    raise AssertionError("the search does not end")


def users(start: int, limit: int, within: float = 0.1) -> Search:
    return Search(start, limit, within, whole=True)


def rates(start: float, limit: float, within: float = 0.1) -> Search:
    return Search(start, limit, within, whole=False)


def found(search: Search) -> tuple[float | None, float | None, Ended | None]:
    return search.good and search.good.load, search.bad and search.bad.load, search.ended


def test_users_double_and_then_close_in() -> None:
    """Capacity 11 from 1 on: 16 is the first bad level, then halves of what lies between, until 12 is next to 11."""
    search = users(1, 64, within=0.01)
    assert play(search, up_to(11)) == [1, 2, 4, 8, 16, 12, 10, 11]
    assert found(search) == (11, 12, Ended.ADJACENT)


def test_a_search_ends_where_the_two_are_close_enough() -> None:
    """Capacity 100, within 10 %: 104 is less than 10 % above 96, so nothing between them is tried."""
    search = users(1, 1000)
    assert play(search, up_to(100)) == [1, 2, 4, 8, 16, 32, 64, 128, 96, 112, 104]
    assert found(search) == (96, 104, Ended.WITHIN)


def test_rates_meet_in_the_geometric_middle() -> None:
    """Capacity 2.6/s from 0.5 on: 4 is bad; the roots of 2 x 4, 2 x 2.83 and 2.38 x 2.83, in three digits."""
    search = rates(0.5, 100)
    assert play(search, up_to(2.6)) == [0.5, 1, 2, 4, 2.83, 2.38, 2.6]
    assert found(search) == (2.6, 2.83, Ended.WITHIN)


def test_no_load_above_the_limit_is_tried() -> None:
    """The last doubling is cut to the limit; where that is good the search says so."""
    search = users(3, 20)
    assert play(search, up_to(1000)) == [3, 6, 12, 20]
    assert found(search) == (20, None, Ended.LIMIT)
    assert search.reason == "c=20 is the limit that was asked for"


def test_a_start_that_is_too_much_is_halved() -> None:
    """Capacity 5 from 40 on: down to 5, which is good, then up between 5 and 10."""
    search = users(40, 100, within=0.01)
    assert play(search, up_to(5)) == [40, 20, 10, 5, 7, 6]
    assert found(search) == (5, 6, Ended.ADJACENT)


def test_one_user_may_be_too_many() -> None:
    """Nothing lies below one user, and the answer is that none is good."""
    search = users(5, 100)
    assert play(search, up_to(0)) == [5, 2, 1]
    assert found(search) == (None, 1, Ended.LOWEST)
    assert search.reason == "even c=1 misses an objective, and nothing lower is tried"


def test_rates_are_not_halved_for_ever() -> None:
    """Down to a thousandth of the start: 1 / 2 ** 9 is about 0.00195, the half of it is below."""
    search = rates(1, 100)
    assert len(play(search, up_to(0))) == 10
    assert found(search)[2] == Ended.LOWEST


def test_what_cannot_be_told_is_tried_once_more() -> None:
    """The second verdict on the same load counts, and a later doubt gets its own second try."""
    answers = iter([MET, UNDECIDED, MET, UNDECIDED, MISSED, MET])
    search = users(1, 4, within=0.9)
    assert play(search, lambda load: next(answers)) == [1, 2, 2, 4, 4, 3]
    assert found(search) == (3, 4, Ended.WITHIN)


def test_two_doubts_end_the_search() -> None:
    """No guess: the best so far stays, and the reason is that of the level."""
    answers = iter([MET, MET, UNDECIDED, UNDECIDED])
    search = users(1, 64)
    assert play(search, lambda load: next(answers)) == [1, 2, 4, 4]
    assert found(search) == (2, None, Ended.UNDECIDED)
    assert search.reason == "c=4: chat undecided"


def test_users_past_saturation_end_the_way_up() -> None:
    """From 16 to 32 users 2 % more tokens and twice the time: 32 is the best that was tried, and no more are."""
    verdicts = {
        8: LevelVerdict(Judgement.MET, "", 400.0, 4.0, 3.9, 4.1),
        16: LevelVerdict(Judgement.MET, "", 700.0, 5.0, 4.8, 5.2),
        32: LevelVerdict(Judgement.MET, "", 714.0, 10.0, 9.6, 10.4),
    }
    search = users(8, 256)
    assert play(search, lambda load: verdicts[int(load)]) == [8, 16, 32]
    assert found(search) == (32, None, Ended.SATURATED)
    assert search.reason == "past saturation: 32 users bring 2 % more tokens than 16 and take 2.0 times as long"


def test_saturation_does_not_stop_the_search_for_a_crossing() -> None:
    """Between a good and a bad level tokens no longer rise, and the crossing is found all the same."""
    flat = LevelVerdict(Judgement.MET, "", 700.0, 5.0, 4.9, 5.1)
    search = users(8, 256, within=0.01)
    assert play(search, lambda load: flat if load <= 11 else MISSED) == [8, 16, 12, 10, 11]
    assert found(search) == (11, 12, Ended.ADJACENT)


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 63, 64, 65, 500])
@pytest.mark.parametrize("start", [1, 7, 64])
def test_the_answer_brackets_the_capacity(capacity: int, start: int) -> None:
    """Whatever the start, the best is at most the capacity, the first bad above it, and both within what was asked."""
    search = users(start, 512, within=0.05)
    loads = play(search, up_to(capacity))
    assert len(loads) == len(set(loads)) <= 20
    assert max(loads) <= 512
    assert search.good is not None
    assert search.bad is not None
    assert search.good.load <= capacity < search.bad.load
    assert search.bad.load <= max(1.05 * search.good.load, search.good.load + 1)


def test_the_document_tells_every_step() -> None:
    """What is written at the end of the run: the steps in order, the answer and the reason."""
    search = rates(1, 3)
    play(search, up_to(2))
    document = search.document()
    assert labels(document["steps"]) == ["1/s", "2/s", "3/s", "2.45/s", "2.21/s", "2.1/s"]
    assert document["best"]["label"] == "2/s"
    assert document["first_bad"] == {
        "level": 5,
        "label": "2.1/s",
        "load": 2.1,
        "judgement": "missed",
        "why": MISSED.why,
    }
    assert (document["of"], document["ended"]) == ("rate_per_s", "within")
    assert rates(1, 3).document()["ended"] == "stopped"


def labels(steps: Iterable[dict[str, object]]) -> list[object]:
    return [step["label"] for step in steps]
