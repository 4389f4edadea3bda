"""The levels of a scenario: rounds of blocks for interference, and who plays what in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenswarm.errors import InputError
from tokenswarm.levels import planned_levels
from tokenswarm.plan import Plan
from tokenswarm.quotas import Seats
from tokenswarm.records import Phase
from tokenswarm.scenario import parse_scenario
from tokenswarm.schedule import FILL_BLOCK, Ledger, Level, Ticket
from tokenswarm.tokens import TokenCounter
from tokenswarm.traffic.session import Answer, Session

COUNTER = TokenCounter(
    source="server", exact=True, heads=["The", "A"], words=[f" w{i}" for i in range(200)], overhead=5, pair_overhead=9
)
BLOCKS = """\
traffic:
  - {name: chat, weight: 3, turns: {uniform: [1, 3]},
     input_tokens: {uniform: [90, 900]}, think_time_s: {exponential: 1}}
  - {name: documents, weight: 1, input_tokens: {uniform: [1000, 9000]}}
load: {closed: {users: 8, duration_s: 20, warmup_s: 3, drain_limit_s: 7}}
interference: {blocks: 4}
"""
MIXED = """\
traffic:
  - {name: chat, weight: 6, input_tokens: {uniform: [100, 900]}}
  - {name: agents, kind: agentic, weight: 3}
  - {name: batch, weight: 1}
load: {closed: {users: [1, 4, 32], sessions: 1000}}
"""


def make_plan(text: str, kind: str | None = None) -> Plan:
    return Plan(parse_scenario(text), "http://127.0.0.1:1", "m", COUNTER, simulated=False, kind=kind, run="one")


def lengths(session: Session) -> list[tuple[int | None, int, float]]:
    """Input and output tokens and pause of each turn."""
    turns = []
    while (turn := session.next()) is not None:
        turns.append((turn.input_tokens, turn.max_tokens, turn.pause_s))
        session.hear(Answer("yes", []))
    return turns


def words(session: Session) -> str:
    turn = session.next()
    assert turn is not None
    return str(turn.messages)


MATERIAL = Path(__file__).parents[2] / "scenarios" / "material"
GENERATED = "steps: {uniform: [2, 9]}"
RECORDED = (
    f"tools: {MATERIAL / 'tools/support.yaml'}, trajectories: {MATERIAL / 'trajectories/support.jsonl'}"  # 9 jobs
)
WHOLE = """\
traffic: [{{kind: agentic, {course}, system_prompt: {{tokens: 50}}}}]
load: {{closed: {{users: [2, 4], sessions: 6, warmup_sessions: 2}}}}
prefix_cache: {{cold: session, throughput: true}}
"""


@pytest.mark.parametrize(
    ("course", "phase", "first"),
    [
        (GENERATED, Phase.WARMUP, 0),
        (GENERATED, Phase.MEASURED, 0),
        (GENERATED, Phase.FILL, FILL_BLOCK),
        (RECORDED, Phase.WARMUP, 0),
        (RECORDED, Phase.MEASURED, 0),
    ],
)
def test_whole_levels_play_the_same_jobs_in_other_words(course: str, phase: Phase, first: int) -> None:
    """Cold, warm, warm and cold of one number of users are equal in all lengths and pauses, and share no text; the
    paired level and those of another number of users have jobs of their own."""
    plan = make_plan(WHOLE.format(course=course))
    assert [level.round for level in plan.levels] == [None, 1, 1, 1, 1, None, 6, 6, 6, 6]

    def played(level: Level, play: Callable[[Session], Any]) -> tuple[Any, ...]:
        tickets = [Ticket(level, phase, first + number, 0.0) for number in range(6)]
        return tuple(play(plan.casting.session(ticket)[1]) for ticket in tickets)

    courses = [played(level, lengths) for level in plan.levels]
    assert len({repr(course) for course in courses[1:5]}) == 1
    assert len({repr(course) for course in courses}) == 4
    assert len({played(level, words) for level in plan.levels}) == 10


def test_blocks_alone_and_together_take_turns() -> None:
    """Six users of the first class, two of the second; every other round goes the other way."""
    levels = planned_levels(parse_scenario(BLOCKS))
    assert [level.label for level in levels] == [
        *("c=6 chat alone", "c=2 documents alone", "c=8 together"),
        *("c=8 together #2", "c=2 documents alone #2", "c=6 chat alone #2"),
        *("c=6 chat alone #3", "c=2 documents alone #3", "c=8 together #3"),
        *("c=8 together #4", "c=2 documents alone #4", "c=6 chat alone #4"),
    ]
    assert [level.quotas for level in levels[:3]] == [(6, 0), (0, 2), (6, 2)]
    assert [level.round for level in levels] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert {(level.duration_s, level.warmup_s, level.drain_limit_s, level.sessions) for level in levels} == {
        (20, 3, 7, None)
    }
    places = defaultdict(list)
    for level in levels:
        places[level.quotas].append(level.index)
    assert {sum(indexes) for indexes in places.values()} == {22}  # 66 / 3: the same mean place in time


def test_a_class_does_the_same_work_alone_and_together_with_other_words() -> None:
    """The lengths and pauses of its sessions are those of the round; the words are of the block, and all are new."""
    plan = make_plan(BLOCKS)
    alone, _, together, again = plan.levels[:4]
    numbers = [FILL_BLOCK + 2 * rank for rank in range(20)]  # of the first class

    def played(level: Level, phase: Phase = Phase.MEASURED) -> list[Session]:
        return [plan.casting.session(Ticket(level, phase, number, 0.0))[1] for number in numbers]

    work = [lengths(session) for session in played(alone)]
    assert len({str(one) for one in work}) > 15
    assert [lengths(session) for session in played(together)] == work
    assert [lengths(session) for session in played(together, Phase.WARMUP)] == work
    assert [lengths(session) for session in played(again)] != work
    texts = [words(session) for level in (alone, together, again) for session in played(level)]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("workers", [1, 3])
def test_every_ticket_of_a_block_is_of_a_class_that_has_users_there(workers: int) -> None:
    """The plan sees in each number the class whose place it was, on any worker."""
    plan = make_plan(BLOCKS)
    _, documents, together = plan.levels[:3]
    for level, wanted in ((documents, {"documents": 5}), (together, {"chat": 6, "documents": 2})):
        seats = Seats(workers - 1, level.quotas if level is together else (0, 5))
        numbers = []
        while (number := seats.take()) is not None:
            numbers.append(number)
        names = [plan.casting.session(Ticket(level, Phase.MEASURED, number, 0.0))[0].name for number in numbers]
        assert Counter(names) == wanted


def test_interference_needs_a_locustfile_that_plays_every_class() -> None:
    """chat.py would leave the agents out and call what is left together."""
    text = BLOCKS.replace("{name: documents,", "{name: documents, kind: agentic,").replace(
        "input_tokens: {uniform: [1000, 9000]}", "steps: 2"
    )
    assert len(make_plan(text).casting.traffic) == 2
    with pytest.raises(InputError, match=r"interference needs every traffic class.*locustfiles/mixed\.py"):
        _ = make_plan(text, kind="chat").casting.traffic


# mixed traffic: tickets decide ------------------------------------------------------------------------------------


def played_classes(plan: Plan, level: Level, users: dict[str, int]) -> tuple[list[str], dict[int, str]]:
    """Classes in the order in which sessions begin, and by ticket; workers end their sessions in turn."""
    ledger, order, by_ticket = Ledger(level.sessions or 0, spares=True), [], {}
    held: dict[str, list[int]] = {worker: [] for worker in users}
    while not ledger.complete:
        for worker, number in users.items():
            for ticket in ledger.grant(worker, number, level.concurrency):
                index = plan.casting.class_of(Ticket(level, Phase.MEASURED, ticket, 0.0), ticket)
                by_ticket[ticket] = plan.casting.traffic[index].name
                order.append(by_ticket[ticket])
                held[worker].append(ticket)
            if held[worker]:
                ledger.finish(worker, held[worker].pop(0))
    return order, by_ticket


def test_a_mix_is_right_at_every_concurrency() -> None:
    """6:3:1 over 1,000 sessions are 600, 300 and 100 at 1, 4 and 32 users, and right to one at every tenth session."""
    plan = make_plan(MIXED)
    for level in plan.levels:
        order, _ = played_classes(plan, level, {"local": level.concurrency})
        assert Counter(order) == {"chat": 600, "agents": 300, "batch": 100}
        for begun in range(10, 1001, 10):
            counts = Counter(order[:begun])
            assert abs(counts["chat"] - 0.6 * begun) <= 1
            assert abs(counts["agents"] - 0.3 * begun) <= 1
            assert abs(counts["batch"] - 0.1 * begun) <= 1


def test_the_class_of_a_ticket_is_the_same_on_one_and_on_three_workers() -> None:
    """Who plays a ticket does not change what it is: class, lengths and pauses."""
    plan, elsewhere = make_plan(MIXED), make_plan(MIXED)
    level = plan.levels[2]
    _, alone = played_classes(plan, level, {"local": 32})
    order, shared = played_classes(elsewhere, level, {"w0": 11, "w1": 11, "w2": 10})
    assert len(alone) == 1000
    assert alone == shared
    assert Counter(order) == {"chat": 600, "agents": 300, "batch": 100}
    for number in (0, 1, 17, 999):
        ticket = Ticket(level, Phase.MEASURED, number, 0.0)
        name, session = plan.casting.session(ticket)
        other_name, other = elsewhere.casting.session(ticket)
        assert (name, lengths(session)) == (other_name, lengths(other))
