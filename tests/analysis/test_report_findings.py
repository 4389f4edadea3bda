"""The sentences of a report: each from hand-made figures, each withheld where its rule does not hold."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.arrivals import LevelArrivals
from analysis.audit import audit_notes
from analysis.figures import Figure, Mark
from analysis.levels import LevelRow
from analysis.objectives import judge
from analysis.outcome import FailureGroup, Outcome
from analysis.report_capacity import sets_of
from analysis.report_findings import Findings, findings


def level(number: int, users: int, rate: float, **changes: Any) -> LevelRow:
    """``ttft`` and ``tpot``: value, low and high of p50, seconds."""
    row = LevelRow(number, users, label=f"c={users}", state="complete", requests=100, ok=100)
    row.figures["output_tok_s"] = Figure(rate)
    for name in ("ttft", "tpot"):
        if name in changes:
            value, low, high = changes.pop(name)
            row.figures[f"{name}_p50_s"] = Figure(value, 100, low, high)
    for name, value in changes.items():
        setattr(row, name, value)
    return row


def outcome_of(*rows: LevelRow, **changes: Any) -> Outcome:
    classes = [LevelRow(row.level, row.concurrency, "chat", row.label, figures=row.figures, ok=row.ok) for row in rows]
    return Outcome("run", "run folder", "hand-made", levels=list(rows), classes=classes, **changes)


def said(*rows: LevelRow, **changes: Any) -> Findings:
    outcome = outcome_of(*rows, **changes)
    return findings(outcome, judge(outcome), sets_of(outcome, None))


def texts(sentences: Any) -> str:
    return "\n".join(sentence.text for sentence in sentences)


def test_highest_throughput_and_knee_link_to_their_rows() -> None:
    """Of 100, 185, 200 and 196 tok/s the third is the most; from the second on a doubling buys less than a quarter."""
    found = said(*(level(i, 2**i, rate) for i, rate in enumerate((100.0, 185.0, 200.0, 196.0))))
    (most,) = [sentence for sentence in found.said if "highest" in sentence.text]
    assert (
        most.text
        == "Throughput is highest at c=4: 200 output tok/s, 2.00 times that of c=1; beyond it nothing is gained."
    )
    assert [link.anchor for link in most.links] == ["levels-1", "levels-3"]
    (knee,) = [sentence for sentence in found.said if "Knee" in sentence.text]
    assert "2 users" in knee.text
    assert "8% throughput" in knee.text  # 200 / 185
    assert [link.anchor for link in knee.links] == ["levels-1", "levels-2", "levels-3", "levels-4"]


def test_throughput_that_still_rises_is_no_highest() -> None:
    """Where the last level has by far the most, more was possible, and the report says so."""
    found = said(level(0, 1, 100.0), level(1, 2, 190.0), level(2, 4, 350.0))
    assert "still rose by 84% from the level before" in texts(found.said)  # 350 / 190


def test_levels_that_overlap_are_not_ranked() -> None:
    """Where intervals overlap, the two best levels are named together."""
    rows = [level(0, 1, 100.0), level(1, 2, 200.0), level(2, 4, 205.0)]
    for row, half in zip(rows, (2.0, 8.0, 8.0), strict=True):
        value = row.figures["output_tok_s"].value or 0.0
        row.figures["output_tok_s"] = Figure(value, 100, value - half, value + half)
    assert "highest at c=2, 4, which their intervals do not tell apart: 205 output tok/s at c=4" in texts(
        said(*rows).said
    )


@pytest.mark.parametrize("state", ["partial", "timeout", "interrupted"])
def test_levels_that_are_not_complete_carry_no_sentence(state: str) -> None:
    """An incomplete level with the highest throughput is in no conclusion, and is named as not credible."""
    found = said(level(0, 1, 100.0), level(1, 2, 150.0), level(2, 4, 900.0, state=state))
    assert "900" not in texts(found.said)
    (warning,) = [one for one in found.warnings if "c=4" in one.text]
    assert [link.anchor for link in warning.links] == ["levels-3"]


def test_growth_is_told_only_where_intervals_are_apart() -> None:
    """TPOT doubles with intervals apart; TTFT overlaps, so that its sentence is withheld."""
    found = said(
        level(0, 1, 100.0, ttft=(0.10, 0.05, 0.20), tpot=(0.010, 0.009, 0.011)),
        level(1, 8, 500.0, ttft=(0.15, 0.12, 0.30), tpot=(0.020, 0.019, 0.021)),
    )
    assert "(TPOT p50) grows 2.00 times, from 10 ms at c=1 to 20 ms at c=8" in texts(found.said)
    assert "TTFT p50) grows: the intervals of c=1 and c=8 overlap" in texts(found.withheld)
    assert "TTFT" not in texts(found.said)


def test_half_of_the_speed_is_found_in_the_scaling_table() -> None:
    """Efficiencies of 1, 0.8 and 0.45: the third level is the first below a half, and its row is linked."""
    found = said(level(0, 1, 100.0), level(1, 2, 160.0), level(2, 4, 180.0))
    (sentence,) = [one for one in found.said if "less than half" in one.text]
    assert sentence.text.startswith("From c=4 on")
    assert "(45%)" in sentence.text
    assert [link.anchor for link in sentence.links] == ["scaling-3"]


def test_failures_and_marks_are_told_with_their_next_step() -> None:
    """Three failures at one level and a quantile without bound at the other, each linked to its row."""
    first, second = level(0, 1, 100.0), level(1, 2, 150.0, failed=3, ok=97)
    first.figures["ttft_p95_s"] = Figure(0.2, 20, marks=(Mark.NO_BOUND,))
    found = said(first, second, failures=[FailureGroup("http_5xx", 3, ())])
    (failed,) = [one for one in found.warnings if "requests failed" in one.text]
    assert failed.text.startswith("3 of 200 measured requests failed (3 x http_5xx)")
    assert [link.anchor for link in failed.links] == ["levels-2"]
    (advice,) = found.advice
    assert advice.text.startswith("At c=1: too few requests")
    assert "p95 needs 72" in advice.text


def test_a_saturated_rate_is_one_that_is_not_kept_up_with() -> None:
    """A level that was stopped because its queue grew ends what the server keeps up with, whatever came after."""
    rows = []
    for number, (rate, state) in enumerate(((2.0, "complete"), (3.0, "saturated"), (4.0, "complete"))):
        row = level(number, 1, 100.0, label=f"{rate:g}/s", concurrency=None, state=state)
        row.arrivals = LevelArrivals(rate, 40, 40, 0, 0, 0, 0)
        row.figures |= {"scheduled_per_s": Figure(rate), "done_per_s": Figure(rate)}
        rows.append(row)
    expected = "At 3/s the queue grew until the level was stopped (saturated); up to 2/s the server keeps up"
    assert expected in texts(said(*rows).said)


def test_what_does_not_close_is_a_warning_with_its_row() -> None:
    """A peak below the mean at the second level is told first, with a link to that level."""
    second = level(1, 2, 150.0)
    second.figures["peak_tok_s"] = Figure(120.0)
    outcome = outcome_of(level(0, 1, 100.0), second)
    outcome.notes += audit_notes(outcome)
    warnings = findings(outcome, judge(outcome), []).warnings
    (peak,) = [one for one in warnings if one.text.startswith("Does not close: peak below mean")]
    assert [link.anchor for link in peak.links] == ["levels-2"]


def test_one_level_says_nothing_of_a_curve() -> None:
    """A single level gives no conclusion about load, only reasons why not."""
    found = said(level(0, 4, 100.0))
    assert found.said == ()
    assert "it takes two credible levels" in texts(found.withheld)


def test_open_loop_is_judged_by_what_was_done() -> None:
    """Of 2/s all sessions were done in time, of 4/s seven tenths: the server keeps up to 2/s."""
    rows = []
    for number, (rate, done) in enumerate(((2.0, 1.98), (4.0, 2.8))):
        arrivals = LevelArrivals(rate, 40, 40, 0, 0, 0, 0)
        row = level(number, 1, 100.0, label=f"{rate:g}/s", concurrency=None, arrivals=arrivals)
        row.figures |= {"scheduled_per_s": Figure(rate), "done_per_s": Figure(done)}
        rows.append(row)
    found = said(*rows)
    assert "At 4/s only 70% of the sessions that arrive in a second are done in one; up to 2/s" in texts(found.said)
    assert "Throughput is highest" not in texts(found.said)  # it is what was asked for
