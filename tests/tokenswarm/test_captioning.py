"""A stream of captions: what its messages hold, and what decides its lengths, words and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest
from word_server import WordServer

from tokenswarm.casting import WantedPictures
from tokenswarm.counting import Server
from tokenswarm.image_frames import Shown
from tokenswarm.plan import Plan
from tokenswarm.protocols import chat_body
from tokenswarm.records import Phase, SessionEnd
from tokenswarm.scenario import parse_scenario
from tokenswarm.schedule import FILL_BLOCK, Ticket
from tokenswarm.survey import survey
from tokenswarm.tokens import TokenCounter, messages_behind
from tokenswarm.traffic.captioning import CaptionSession
from tokenswarm.traffic.session import Answer
from tokenswarm.traffic.turn import Turn
from tokenswarm.traffic_settings import CaptioningTraffic

SERVER = WordServer("vllm")
COUNTER = survey(Server(SERVER.post, "m"))
VARIED: dict[str, Any] = {
    "turns": {"uniform": [2, 5]},
    "question_tokens": {"uniform": [5, 60]},
    "followup_tokens": {"uniform": [3, 30]},
    "output_tokens": {"uniform": [10, 300]},
    "think_time_s": {"exponential": 3},
}


class Served(NamedTuple):
    """What a session is about, as a store of pictures serves it."""

    pictures: list[Shown]
    questions: list[str]


def about(*sides: tuple[int, int], questions: tuple[str, ...] = ()) -> Served:
    """Pictures of these sides, whose files have 1,000 bytes for the first, 1,001 for the second and so on."""
    shown = [
        Shown(f'"data:image/png;base64,AAA{number}"'.encode(), *size, 1000 + number, "test")
        for number, size in enumerate(sides)
    ]
    return Served(shown, list(questions))


def session(served: Served | None = None, ticket: int = 0, words: str = "run", **traffic: Any) -> CaptionSession:
    settings = CaptioningTraffic.model_validate({"kind": "captioning", **traffic})
    pictures = served or about((64, 48))
    return CaptionSession(settings, COUNTER, pictures, Random(f"rng {ticket}"), Random(f"{words} {ticket}"))


def played(one: CaptionSession, answer: str = "a picture") -> list[Turn]:
    turns = []
    while (turn := one.next()) is not None:
        turns.append(turn)
        one.hear(Answer(answer))
    return turns


def as_sent(turn: Turn) -> list[dict[str, Any]]:
    """The messages as a server reads them."""
    body = json.loads(chat_body("m", turn.messages or [], max_tokens=turn.max_tokens))
    messages: list[dict[str, Any]] = body["messages"]
    return messages


def question_of(message: dict[str, Any]) -> str:
    """Its text, without pictures."""
    content = message["content"]
    text = content if isinstance(content, str) else content[-1]["text"]
    assert isinstance(text, str)
    return text


# messages ---------------------------------------------------------------------------------------------------------


def test_the_first_message_has_the_pictures_and_then_the_question() -> None:
    """Data URLs in the order of the pictures, as OpenAI's chat API has them, then one part of text."""
    turn = session(about((64, 48), (10, 20)), system_prompt="be brief").next()
    assert turn is not None
    system, user = as_sent(turn)
    assert system == {"role": "system", "content": "be brief"}
    first, second, text = user["content"]
    assert first == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA0"}}
    assert second == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA1"}}
    assert (user["role"], text["type"], set(text)) == ("user", "text", {"type", "text"})
    assert (turn.images, turn.image_pixels, turn.image_bytes) == (2, 64 * 48 + 10 * 20, 2001)


def test_later_turns_carry_pictures_and_real_answers() -> None:
    """Every request begins with all that was said before, unchanged, and adds a question of text alone."""
    one = session(turns=3)
    sent: list[list[dict[str, Any]]] = []
    for answer in ("a cat", "two cats", "none"):
        turn = one.next()
        assert turn is not None
        sent.append(as_sent(turn))
        assert (turn.images, turn.image_pixels, turn.image_bytes) == (1, 64 * 48, 1000)
        heard = one.hear(Answer(answer))
        assert heard.end == (SessionEnd.DONE if answer == "none" else None)
    assert one.next() is None
    first, second, third = sent
    assert second[:1] == first
    assert second[1] == {"role": "assistant", "content": "a cat"}
    assert third[:3] == second
    assert third[3] == {"role": "assistant", "content": "two cats"}
    assert [message["role"] for message in third] == ["user", "assistant", "user", "assistant", "user"]
    assert all(isinstance(message["content"], str) for message in third[1:])


def test_a_turn_is_not_changed_by_what_comes_after_it() -> None:
    """The messages of a request under way stay as they were sent."""
    one = session(turns=2)
    first = one.next()
    assert first is not None
    before = as_sent(first)
    one.hear(Answer("yes"))
    one.next()
    assert as_sent(first) == before


def test_a_nonce_stands_before_the_pictures() -> None:
    """In a prefix-cache test the words that keep requests apart are a part of their own at the very head."""
    turn = session(about((64, 48))).next()
    assert turn is not None
    (message,) = messages_behind("Seven words. ", turn.messages or [])
    assert message["content"] == [{"type": "text", "text": "Seven words. "}, *(turn.messages or [])[0]["content"]]
    first, *_ = json.loads(msgspec.json.encode(message))["content"]
    assert first == {"type": "text", "text": "Seven words. "}


# lengths and words ------------------------------------------------------------------------------------------------


def test_questions_have_their_lengths_by_the_servers_count() -> None:
    """32 tokens of text first, 24 in each further question, whatever the words."""
    for ticket in range(20):
        turns = played(session(ticket=ticket, turns=4))
        texts = [question_of(as_sent(turn)[-1]) for turn in turns]
        assert [len(SERVER.ids(text)) for text in texts] == [32, 24, 24, 24]
        assert [(turn.max_tokens, turn.pause_s, turn.ignore_eos) for turn in turns] == [(128, 0.0, True)] * 4


def shape(turns: list[Turn]) -> list[tuple[int, int, float]]:
    """Tokens of question and answer, and the pause, of each turn."""
    return [(len(SERVER.ids(question_of(as_sent(one)[-1]))), one.max_tokens, one.pause_s) for one in turns]


def test_work_depends_on_the_ticket_and_words_on_the_run() -> None:
    """Neither answers, nor other words, nor the pictures change lengths, pauses and the number of turns."""
    for ticket in range(10):
        turns = played(session(ticket=ticket, **VARIED))
        assert 2 <= len(turns) <= 5
        assert turns[0].pause_s == 0
        assert all(turn.pause_s > 0 for turn in turns[1:])
        for other in (
            played(session(ticket=ticket, **VARIED), answer="something else, and longer"),
            played(session(ticket=ticket, words="another run", **VARIED)),
            played(session(about((9, 9), (8, 8)), ticket=ticket, **VARIED)),
            played(session(about((9, 9), questions=("Why?",)), ticket=ticket, **VARIED)),
        ):
            assert [one[1:] for one in shape(other)] == [one[1:] for one in shape(turns)]
            assert [one[0] for one in shape(other)][2:] == [one[0] for one in shape(turns)][2:]
        here = [question_of(as_sent(turn)[-1]) for turn in turns]
        there = [question_of(as_sent(turn)[-1]) for turn in played(session(ticket=ticket, words="2", **VARIED))]
        assert not set(here) & set(there)
    assert len({str(shape(played(session(ticket=ticket, **VARIED)))) for ticket in range(10)}) == 10


def test_a_data_sets_own_questions_come_first() -> None:
    """Asked in their order, as they stand; made-up ones follow where there are more turns, and none is asked twice."""
    own = ("What is this?", "And to the left?")
    texts = [question_of(as_sent(turn)[-1]) for turn in played(session(about((5, 5), questions=own), turns=4))]
    assert texts[:2] == list(own)
    assert [len(SERVER.ids(text)) for text in texts[2:]] == [24, 24]
    assert len(set(texts)) == 4
    texts = [question_of(as_sent(turn)[-1]) for turn in played(session(about((5, 5), questions=own), turns=1))]
    assert texts == ["What is this?"]


def test_the_scenario_decides_ends_and_pauses() -> None:
    """Natural ends where they are asked for; a pause before every question but the first."""
    turns = played(session(turns=3, think_time_s=2.5, ignore_eos=False, output_tokens=7))
    asked = [(turn.max_tokens, turn.pause_s, turn.ignore_eos) for turn in turns]
    assert asked == [(7, 0.0, False), (7, 2.5, False), (7, 2.5, False)]


# tickets ----------------------------------------------------------------------------------------------------------

PLAIN = TokenCounter(source="server", exact=True, heads=["The"], words=[f" w{i}" for i in range(200)])
MIXED = """\
traffic:
  - {name: chat, weight: 2}
  - {name: small, kind: captioning, images_per_session: {uniform: [1, 3]}, images: {synthetic: {pixels: 4000}}}
  - {name: large, kind: captioning, images: {synthetic: {pixels: {uniform: [10000, 90000]}}}}
load: {closed: {users: [4, 4], sessions: 40, warmup_sessions: 4}}
"""


def make_plan(text: str, run: str = "one", kind: str | None = None) -> Plan:
    return Plan(parse_scenario(text), "http://127.0.0.1:1", "m", PLAIN, simulated=False, kind=kind, run=run)


def wanted(plan: Plan, numbers: range, level: int = 0, phase: Phase = Phase.MEASURED) -> list[WantedPictures | None]:
    chosen = plan.levels[level]
    return [plan.casting.wanted_pictures(Ticket(chosen, phase, number, 0.0)) for number in numbers]


def contents(found: list[WantedPictures | None]) -> list[int]:
    """Numbers of the drawings."""
    return [order.number for one in found if one is not None for order in one.orders]


def sizes(found: list[WantedPictures | None]) -> list[list[tuple[int, int]] | None]:
    return [None if one is None else [(order.width, order.height) for order in one.orders] for one in found]


def test_only_tickets_of_captioning_have_pictures_each_of_its_class() -> None:
    """Of 40 tickets at weights 2:1:1 twenty have none, and ten belong to each class of captions."""
    plan = make_plan(MIXED)
    found = wanted(plan, range(40))
    assert [one is None for one in found].count(True) == 20
    by_source = [[one for one in found if one is not None and one.source == source] for source in (0, 1)]
    assert [len(ones) for ones in by_source] == [10, 10]
    assert {len(one.orders) for one in by_source[0]} == {1, 2, 3}
    for one in by_source[0]:
        assert all(3900 <= order.width * order.height <= 4100 for order in one.orders)
    for number, one in enumerate(found):
        ticket = Ticket(plan.levels[0], Phase.MEASURED, number, 0.0)
        name = plan.casting.traffic_of(ticket).name
        assert name == ("chat" if one is None else ("small", "large")[one.source])
    assert plan.casting.image_sources[1].images.made_up is not None


def test_the_same_ticket_has_the_same_pictures_in_every_process() -> None:
    """A plan that came over the wire asks for the same; another run has other pictures of the same sizes."""
    plan = make_plan(MIXED)
    found = wanted(plan, range(40))
    assert wanted(Plan.from_message(plan.to_message()), range(40)) == found
    later = wanted(make_plan(MIXED, run="two"), range(40))
    assert sizes(later) == sizes(found)
    assert not set(contents(later)) & set(contents(found))


def test_no_two_sessions_have_a_picture_in_common() -> None:
    """Levels, phases, classes and the workers' own sessions all differ in content."""
    plan = make_plan(MIXED)
    found = [
        *wanted(plan, range(40)),
        *wanted(plan, range(4), phase=Phase.WARMUP),
        *wanted(plan, range(40), level=1),
        *wanted(plan, range(FILL_BLOCK, FILL_BLOCK + 40), phase=Phase.FILL),
        *wanted(plan, range(2 * FILL_BLOCK, 2 * FILL_BLOCK + 40), phase=Phase.FILL),
    ]
    numbers = contents(found)
    assert len(numbers) > 100
    assert len(set(numbers)) == len(numbers)
    keys = [one.key for one in found if one is not None]
    assert len(set(keys)) == len(keys)


def test_a_level_that_repeats_prompts_repeats_pictures() -> None:
    """With fresh_prompts: false the second level asks for what the first one had."""
    plan = make_plan(MIXED.replace("warmup_sessions: 4", "warmup_sessions: 4, fresh_prompts: false"))
    assert wanted(plan, range(40), level=1) == wanted(plan, range(40))


def test_both_of_a_pair_have_the_same_pictures() -> None:
    """Warm and cold sessions of a prefix-cache test ask the same about the same."""
    plan = make_plan("traffic: [{kind: captioning}]\nload: {closed: {users: 1, sessions: 8}}\nprefix_cache: {}\n")
    found = wanted(plan, range(8))
    assert [found[number] == found[number + 1] for number in range(7)] == [True, False, True, False, True, False, True]


def test_a_class_of_files_goes_through_them_in_order(tmp_path: Path) -> None:
    """Warm-up, then the measured sessions of level after level: each has the next files of the folder."""
    text = (
        f"traffic: [{{kind: captioning, images_per_session: 2, images: {{folder: {tmp_path}}}}}]\n"
        "load: {closed: {users: [2, 2], sessions: 3, warmup_sessions: 1}}\n"
    )
    plan = make_plan(text)
    found = [
        *contents(wanted(plan, range(1), phase=Phase.WARMUP)),
        *contents(wanted(plan, range(3))),
        *contents(wanted(plan, range(1), level=1, phase=Phase.WARMUP)),
        *contents(wanted(plan, range(3), level=1)),
    ]
    assert found == list(range(16))
    assert plan.casting.image_demand == [(8, 2)]


def test_other_locustfiles_know_nothing_of_pictures() -> None:
    """chat.py plays the chat class of a mixed scenario, and no process for pictures is wanted."""
    plan = make_plan(MIXED, kind="chat")
    assert plan.casting.image_sources == []
    assert wanted(plan, range(10)) == [None] * 10
    with pytest.raises(AssertionError, match="pictures are taken before the session begins"):
        make_plan(MIXED, kind="captioning").casting.session(Ticket(plan.levels[0], Phase.MEASURED, 0, 0.0))
