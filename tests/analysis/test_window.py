"""Tokens in a window, the steady stretches and the best second, against definitions applied one request at a time."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.window import Arrivals, Window, best_second, mean_in_flight, steady_of, tokens_arrived, window_of
from tokenswarm.metrics import tokens_in_window

seconds = st.floats(min_value=0.0, max_value=100.0, allow_nan=False).map(lambda value: round(value, 3))


def frame(*rows: tuple[float, float, float, float, float, int, str]) -> pd.DataFrame:
    """Rows of (sent, first, last, finished, tokens, user, session)."""
    columns = ["sent_s", "first_token_s", "last_token_s", "finished_s", "output_tokens", "user", "session"]
    made = pd.DataFrame(list(rows), columns=columns)
    made["worker"] = pd.Categorical(["w0"] * len(made))
    made["session"] = pd.Categorical(made["session"])
    made["phase"] = pd.Categorical(["measured"] * len(made))
    return made


@given(
    st.lists(st.tuples(seconds, seconds, st.integers(min_value=1, max_value=500)), min_size=1, max_size=12),
    st.lists(seconds, min_size=1, max_size=6),
)
def test_arrivals_of_many_requests_equal_the_sum_of_single_ones(
    requests: list[tuple[float, float, int]], moments: list[float]
) -> None:
    """The running total agrees at any moment with the definition of one request, summed."""
    rows = frame(*((0.0, min(a, b), max(a, b), max(a, b), float(n), i, str(i)) for i, (a, b, n) in enumerate(requests)))
    expected = [sum(tokens_in_window(min(a, b), max(a, b), n, -1.0, at) for a, b, n in requests) for at in moments]
    assert Arrivals.of(rows).until(np.array(moments)) == pytest.approx(expected, abs=1e-6)


def test_tokens_in_a_window_by_hand() -> None:
    """First token at 1 s, ten more until 6 s: between 2 and 4 s arrive 4; a one-token answer counts where it falls."""
    rows = frame((0, 1, 6, 6, 11, 0, "a"), (0, 3, 3, 3, 1, 1, "b"), (0, 5, 5, 5, 1, 1, "c"))
    assert tokens_arrived(rows, Window(2.0, 4.0)) == pytest.approx(5.0)


def test_rows_without_tokens_add_none() -> None:
    """A failure without a first token arrives nowhere and breaks nothing."""
    rows = frame((0, float("nan"), float("nan"), 1.0, float("nan"), 0, "a"))
    assert tokens_arrived(rows, Window(0.0, 2.0)) == 0
    assert Arrivals.of(rows).until(np.array([1.0])).tolist() == [0.0]


def test_window_needs_a_send_and_a_later_end() -> None:
    """No request, or none that ended, has no window."""
    assert window_of(frame()) is None
    assert window_of(frame((1.0, float("nan"), float("nan"), float("nan"), 0, 0, "a"))) is None
    assert window_of(frame((1.0, 2, 3, 4, 5, 0, "a"), (0.5, 2, 3, 3, 5, 0, "b"))) == Window(0.5, 4.0)


@given(
    st.lists(st.tuples(seconds, seconds), min_size=1, max_size=12),
    st.integers(min_value=1, max_value=5),
    st.tuples(seconds, seconds),
)
def test_steady_stretches_against_counting(
    spans: list[tuple[float, float]], target: int, edges: tuple[float, float]
) -> None:
    """Between any two neighbouring moments at which something begins or ends, sessions are counted one by one."""
    sessions = [(min(span), max(span)) for span in spans]
    window = Window(min(edges), max(edges) + 1.0)
    moments = sorted({window.start_s, window.end_s, *(at for span in sessions for at in span)})
    expected = sum(
        later - earlier
        for earlier, later in pairwise(moments)
        if window.start_s <= earlier < later <= window.end_s
        and sum(start <= earlier and later <= end for start, end in sessions) >= target
    )
    rows = frame(*((start, start, end, end, 2.0, i, str(i)) for i, (start, end) in enumerate(sessions)))
    assert steady_of(rows, window, target).length_s == pytest.approx(expected, abs=1e-9)


def test_short_hand_over_counts_as_active_and_a_long_one_does_not() -> None:
    """A user's next session 20 ms later leaves the level at its target; half a second of idling does not."""
    rows = frame((0, 1, 5, 5.0, 9, 0, "a"), (5.02, 6, 10, 10.0, 9, 0, "b"), (10.5, 11, 14, 14.0, 9, 0, "c"))
    steady = steady_of(rows, Window(0.0, 14.0), 1)
    assert steady.length_s == pytest.approx(10.0 + 3.5)


def test_time_between_two_turns_is_an_active_session() -> None:
    """Thinking is part of a session: one session of two turns is active from first send to last end."""
    rows = frame((0, 1, 2, 2.0, 5, 0, "a"), (8, 9, 10, 10.0, 5, 0, "a"), (0, 1, 10, 10.0, 5, 1, "b"))
    assert steady_of(rows, Window(0.0, 10.0), 2).length_s == pytest.approx(10.0)
    assert mean_in_flight(rows, Window(0.0, 10.0)) == pytest.approx((2 + 2 + 10) / 10)


def test_steady_rate_is_blank_when_the_target_was_hardly_reached() -> None:
    """Less than a second at the target is no rate."""
    rows = frame((0, 0.1, 0.9, 0.9, 50, 0, "a"), (0.5, 0.6, 3.0, 3.0, 50, 1, "b"))
    steady = steady_of(rows, Window(0.0, 3.0), 2)
    assert steady.length_s == pytest.approx(0.4)
    assert steady.token_rate(rows, None).value is None


def test_best_second_takes_whole_seconds_inside_the_window() -> None:
    """Seconds that are cut by an edge of the window do not compete; a warm-up still under way counts (70 + 10), unless
    no clock pair tells which of its tokens came in the window."""
    timeline = pd.DataFrame(
        {
            "second": [100.0, 101.0, 101.0, 102.0, 103.0],
            "phase": ["measured", "measured", "warmup", "fill", "measured"],
            "tokens": [90.0, 10.0, 70.0, 20.0, 80.0],
        }
    )
    assert best_second(timeline, Window(0.5, 3.5), 100.0) == 80.0
    assert best_second(timeline, Window(0.0, 4.0), 100.0) == 90.0
    assert best_second(timeline, Window(0.5, 1.2), 100.0) is None
    assert best_second(timeline, Window(0.5, 3.5), None) == 90.0


def test_tokens_of_a_warm_up_that_is_still_under_way_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The window is 5 s to 10 s. The warm-up answer's 9 tokens come from 1 s to 9 s: four of them inside. With the
    measured answer's five and no fill token these are 9 tokens in 5 s."""
    columns = (
        "level,concurrency,phase,ticket,traffic,sent_s,first_token_s,last_token_s,finished_s,output_tokens,error_kind"
    )
    rows = ["0,2,warmup,0,chat,0,1,9,9,9,", "0,2,measured,1,chat,5,6,10,10,5,", "0,2,fill,2,chat,9,11,12,12,3,"]
    path = tmp_path / "requests.csv"
    path.write_text("\n".join([columns, *rows]) + "\n")
    assert main(["table", str(path), "--json"]) == 0
    (level,) = json.loads(capsys.readouterr().out)["levels"]
    assert level["requests"] == 1
    assert level["figures"]["window_tokens"]["value"] == pytest.approx(9.0)
    assert level["figures"]["output_tok_s"]["value"] == pytest.approx(1.8)
