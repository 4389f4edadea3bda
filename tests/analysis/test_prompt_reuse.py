"""The prompts of our own levels: nothing of one level comes again in another, unless the scenario asks for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis.conftest import CASES
from tokenswarm.plan import Plan
from tokenswarm.records import Phase
from tokenswarm.scenario import parse_scenario
from tokenswarm.schedule import Ticket
from tokenswarm.tokens import TokenCounter

COUNTER = TokenCounter(
    source="server", exact=True, heads=["The", "A", "One"], words=[f"w{i}" for i in range(200)], capitals=["It", "No"]
)
USERS = (8, 16, 32)


def first_prompts(fresh: bool, tmp_path: Path) -> dict[int, set[str]]:
    """The first prompt of every measured and warm-up session, by users of the level: as many sessions as users."""
    text = f"""
traffic: [{{name: chat, input_tokens: {{uniform: [40, 60]}}}}]
load:
  closed: {{users: {list(USERS)}, sessions: {{per_user: 1}}, warmup_sessions: 2, fresh_prompts: {str(fresh).lower()}}}
"""
    plan = Plan(
        parse_scenario(text, folder=tmp_path), "http://127.0.0.1:1", "model", COUNTER, simulated=True, run="run1"
    )
    prompts: dict[int, set[str]] = {}
    for level in plan.levels:
        tickets = [(Phase.MEASURED, number) for number in range(level.sessions or 0)]
        tickets += [(Phase.WARMUP, number) for number in range(level.warmup_sessions)]
        for phase, number in tickets:
            _, session = plan.casting.session(Ticket(level, phase, number, 0.0))
            turn = session.next()
            assert turn is not None
            assert turn.messages is not None
            prompts.setdefault(level.concurrency, set()).add(turn.messages[0]["content"])
    return prompts


def overlap_with_earlier(prompts: dict[int, set[str]]) -> dict[str, int]:
    seen: set[str] = set()
    found = {}
    for users, texts in prompts.items():
        found[str(users)] = len(texts & seen)
        seen |= texts
    return found


def test_no_prompt_of_a_level_comes_again(tmp_path: Path) -> None:
    """Every session of every level, warm-up included, has a prompt of its own."""
    prompts = first_prompts(True, tmp_path)
    assert {users: len(texts) for users, texts in prompts.items()} == {users: users + 2 for users in USERS}
    assert overlap_with_earlier(prompts) == {"8": 0, "16": 0, "32": 0}


def test_repeating_is_what_the_scenario_asks_for(tmp_path: Path) -> None:
    """fresh_prompts: false gives the overlap of the case: 8 and 16 prompts, and the 2 of the warm-up."""
    right = json.loads((CASES / "B19" / "expected.json").read_text())["prompt_overlap_with_earlier_levels"]
    found = overlap_with_earlier(first_prompts(False, tmp_path))
    assert found == {users: count + (2 if count else 0) for users, count in right.items()}


@pytest.mark.parametrize("users", USERS)
def test_another_run_has_other_words(tmp_path: Path, users: int) -> None:
    """The server may still have the last run's prompts: no prompt of a level comes again in the next run."""
    text = f"load: {{closed: {{users: {users}, sessions: {users}}}}}"
    texts = []
    for run in ("run1", "run2"):
        plan = Plan(parse_scenario(text, folder=tmp_path), "http://127.0.0.1:1", "m", COUNTER, simulated=True, run=run)
        turns = [plan.casting.session(Ticket(plan.levels[0], Phase.MEASURED, n, 0.0))[1].next() for n in range(users)]
        texts.append({turn.messages[0]["content"] for turn in turns if turn and turn.messages})
    assert not texts[0] & texts[1]
